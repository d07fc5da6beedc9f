"""Silences and acknowledgements on disk: shared, locked, whole, and never lost to a damaged file."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginetop.alerts.rule import Key
from enginetop.alerts.silence import Acknowledgement, Quiet, Silence
from enginetop.cli.quiet_file import SCHEMA, QuietError, QuietFile

KEY: Key = ("GpuHot", "warning", "http://a:1", (("gpu_uuid", "G-1"),))
ACK = Acknowledgement(KEY, 100.0, "kim", "fan ordered")
UPGRADE = Silence(500.0, "Ttft*", "a*", "upgrade", by="ana")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "quiet.json"


def ids(file: QuietFile) -> list[str]:
    return [silence.reason for silence in file.read().silences]


def test_what_one_process_writes_another_reads(path: Path) -> None:
    one, other = QuietFile(path), QuietFile(path)
    assert other.read().silences == ()
    added, said = one.add(UPGRADE, now=0.0)
    assert said == ""
    one.acknowledge(ACK)
    assert other.read().silences == (added,)
    assert other.read().acknowledgements == (ACK,)
    assert other.expire(added.id) == added
    other.withdraw(KEY)
    assert one.read() == QuietFile(path).read() == Quiet()
    assert path.stat().st_mode & 0o077 == 0


def test_silences_that_are_over_are_dropped_with_the_next_one(path: Path) -> None:
    file = QuietFile(path)
    file.add(UPGRADE, now=0.0)
    file.add(Silence(900.0, reason="later"), now=499.0)
    assert ids(file) == ["upgrade", "later"]
    file.add(Silence(900.0, reason="last"), now=500.0)
    assert ids(file) == ["later", "last"]


def test_a_second_acknowledgement_takes_the_place_of_the_first(path: Path) -> None:
    file = QuietFile(path)
    file.acknowledge(ACK)
    newer = Acknowledgement(KEY, 200.0, "ana")
    file.acknowledge(newer)
    assert file.read().acknowledgements == (newer,)
    file.forget([ACK])  # over, but it is not there any more
    assert file.read().acknowledgements == (newer,)
    file.forget([newer])
    assert file.read().acknowledgements == ()


def test_an_id_that_is_not_there_is_told_with_those_that_are(path: Path) -> None:
    file = QuietFile(path)
    with pytest.raises(QuietError, match="no silence 'x' is in force \\(there are: none\\)"):
        file.expire("x")
    added, _ = file.add(UPGRADE, now=0.0)
    with pytest.raises(QuietError, match=added.id):
        file.expire("x")


DAMAGED = {
    "not JSON": b"{",
    "empty": b"",
    "no text": b"\xff\xfe\x00",
    "deep": b"[" * 100_000,
    "a list": b"[]",
    "another schema": b'{"schema": "enginetop.quiet/9", "silences": [], "acknowledgements": []}',
    "a key is missing": json.dumps({"schema": SCHEMA, "silences": []}).encode(),
    "an entry that is none": json.dumps({"schema": SCHEMA, "silences": [7], "acknowledgements": []}).encode(),
    "a time that is none": json.dumps(
        {
            "schema": SCHEMA,
            "silences": [{"id": "", "rule": "", "target": "", "until": "x", "by": "", "reason": ""}],
            "acknowledgements": [],
        }
    ).encode(),
    "too large": b" " * (4 * 1024 * 1024 + 1),
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_file_is_one_line_and_is_not_lost(path: Path, content: bytes) -> None:
    file = QuietFile(path)
    added, _ = file.add(UPGRADE, now=0.0)
    file.read()
    path.write_bytes(content)
    assert file.read().silences == (added,)  # what was read before counts on
    assert str(path) in file.problem
    assert "\n" not in file.problem
    assert QuietFile(path).read().silences == ()
    file.forget([ACK])
    assert path.read_bytes() == content
    _, said = file.add(Silence(900.0, reason="new"), now=0.0)
    assert "set aside as quiet.broken-1.json" in said
    assert path.with_name("quiet.broken-1.json").read_bytes() == content
    assert ids(file) == ["new"]
    assert file.problem == ""
    path.write_bytes(content)
    assert "quiet.broken-2.json" in file.add(UPGRADE, now=0.0)[1]


def full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("broken", ["os.fsync", "pathlib.Path.replace"])
def test_a_disk_that_is_full_changes_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    file = QuietFile(path)
    file.add(UPGRADE, now=0.0)
    with monkeypatch.context() as patch:
        patch.setattr(broken, full_disk)
        with pytest.raises(QuietError, match=r"no space left on device; nothing was changed$"):
            file.add(Silence(900.0, reason="new"), now=0.0)
        with pytest.raises(QuietError):
            file.acknowledge(ACK)
    assert ids(file) == ["upgrade"]


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    file = QuietFile(tmp_path / "state" / "quiet.json")
    assert file.read().silences == ()
    assert "cannot be read" in file.problem
    with pytest.raises(QuietError, match="nothing was changed; make it writable, or set XDG_STATE_HOME"):
        file.add(UPGRADE, now=0.0)


def test_writers_do_not_overwrite_each_other(path: Path) -> None:
    def add(number: int) -> None:
        for round_ in range(10):
            QuietFile(path).add(Silence(900.0, reason=f"{number}.{round_}"), now=0.0)

    threads = [threading.Thread(target=add, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ids(QuietFile(path))) == sorted(f"{n}.{r}" for n in range(4) for r in range(10))


def test_forgetting_does_not_wait_for_whoever_has_the_file(path: Path) -> None:
    file = QuietFile(path)
    file.acknowledge(ACK)
    with path.with_suffix(".lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        file.forget([ACK])
        assert file.read().acknowledgements == (ACK,)
    file.forget([ACK])
    assert file.read().acknowledgements == ()


@settings(max_examples=60, deadline=None)
@given(content=st.binary(max_size=200), cut=st.integers(0, 400))
def test_no_content_does_harm(tmp_path_factory: pytest.TempPathFactory, content: bytes, cut: int) -> None:
    path = tmp_path_factory.mktemp("q") / "quiet.json"
    file = QuietFile(path)
    file.add(UPGRADE, now=0.0)
    file.acknowledge(ACK)
    path.write_bytes(path.read_bytes()[:cut] + content)
    QuietFile(path).read()
    file.add(Silence(900.0, reason="new"), now=0.0)
    assert "new" in ids(QuietFile(path))
