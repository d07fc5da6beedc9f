"""The socket that a companion on this machine opens: used, unless others could have put it there."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from enginetop.cli.companion_socket import companion_socket
from enginetop.fleet.model import Target


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The runtime folder, with a companion's socket in it."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    (tmp_path / "run" / "enginetop").mkdir(parents=True, mode=0o700)
    with socket.socket(socket.AF_UNIX) as companion:
        companion.bind(str(tmp_path / "run" / "enginetop" / "vllm-8000.sock"))
        yield tmp_path / "run"


def test_the_socket_of_a_local_engine_by_its_port(folder: Path) -> None:
    expected = f"unix:{folder}/enginetop/vllm-8000.sock"
    assert companion_socket(Target("http://127.0.0.1:8000", "a1")) == expected
    assert companion_socket(Target("http://127.0.0.1:8001", "a2")) is None
    assert companion_socket(Target("http://10.0.0.1:8000", "a3")) is None


@pytest.mark.parametrize("who", ["vllm", "sglang", "launch"])
def test_whoever_opened_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, who: str) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "enginetop").mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as companion:
        companion.bind(str(tmp_path / "enginetop" / f"{who}-30000.sock"))
        expected = f"unix:{tmp_path}/enginetop/{who}-30000.sock"
        assert companion_socket(Target("http://localhost:30000", "s")) == expected


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize(
    ("place", "mode", "user", "group", "used"),
    [
        ("enginetop", 0o770, 0, 4242, False),
        (".", 0o770, 0, 4242, False),
        ("enginetop", 0o770, 0, 0, True),
        ("enginetop", 0o1777, 0, 0, True),
        ("enginetop/vllm-8000.sock", 0o600, 4242, 4242, False),
    ],
)
def test_a_socket_of_somebody_else_is_left_alone(
    folder: Path, place: str, mode: int, user: int, group: int, used: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    os.chown(folder / place, user, group)
    (folder / place).chmod(mode)
    assert (companion_socket(Target("http://127.0.0.1:8000", "a1")) is not None) is used
    assert ("is left alone: " in capsys.readouterr().err) is not used


@pytest.mark.parametrize("open_folder", [".", "enginetop"])
def test_a_socket_where_others_could_put_theirs_is_left_alone(
    folder: Path, open_folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / open_folder).chmod(0o777)
    assert companion_socket(Target("http://127.0.0.1:8000", "a1")) is None
    assert "other users can change" in capsys.readouterr().err
