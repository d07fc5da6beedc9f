"""What a command says and returns when its output cannot go where it should."""

from __future__ import annotations

import contextlib
import importlib.abc
import io
import os
import signal
import subprocess
import sys
import threading
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from enginetop.cli.main import main
from enginetop.cli.parser import COMMANDS, UI, Command
from enginetop.cli.until_stopped import passing_folder
from enginetop.fleet.errors import ConfigError


@pytest.mark.parametrize("argv", [["demo", "--list"], ["--version"]])
def test_a_full_disk_is_told_in_one_line(
    argv: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(argv) == 1
        monkeypatch.undo()
    assert capsys.readouterr().err == "enginetop: the output cannot be written: no space left on device\n"


def test_a_reader_that_went_away_is_no_fault(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        assert main(["demo", "--list"]) == 0
        monkeypatch.undo()
    assert capsys.readouterr().err == ""


def test_ctrl_c_while_the_program_is_still_being_imported_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted(importlib.abc.MetaPathFinder):
        def find_spec(self, name: str, *_: object) -> None:
            raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "enginetop.cli.dispatch", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    assert main(["--version"]) == 130
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_a_thread_that_dies_says_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def in_a_thread(_: object) -> int:
        thread = threading.Thread(target=lambda: dict[str, int]()["no\nkey"], name="enginetop-x")
        thread.start()
        thread.join()
        return 0

    before = threading.excepthook
    monkeypatch.setattr("enginetop.cli.check.run", in_a_thread)
    assert main(["check"]) == 0
    assert threading.excepthook is before
    assert capsys.readouterr().err == (
        "enginetop: a fault of enginetop itself in the thread enginetop-x: KeyError: 'no\\nkey' "
        "(ENGINETOP_TRACEBACK=1 shows where)\n"
    )


@pytest.mark.parametrize("command", [UI, *COMMANDS], ids=lambda one: one.name or "ui")
def test_what_cannot_be_used_and_what_breaks_has_one_code_everywhere(
    command: Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a check 2 and 1 would say that the fleet is bad: a typing error in a crontab pages nobody."""
    named = [command.name] if command.name else []
    for wrong in ("--no-such-option", "--config"):
        with pytest.raises(SystemExit) as caught:
            main([*named, wrong])
        assert caught.value.code == (3 if command.name == "check" else 2)
        assert capsys.readouterr().err.count("\n") == 1

    def fail(error: Exception) -> Callable[..., NoReturn]:
        def run(*_: object) -> NoReturn:
            raise error

        return run

    monkeypatch.setattr("enginetop.cli.dispatch.parse", lambda argv: (command, Namespace()))
    for error, code in ((ConfigError("no such file"), 2), (ValueError("a\nb"), 1)):
        monkeypatch.setattr(f"enginetop.cli.{command.module}.run", fail(error))
        assert main([]) == (3 if command.name == "check" else code)
        assert capsys.readouterr().err.count("\n") == 1


def test_what_the_entry_point_imports_before_that_is_small() -> None:
    shown = (
        "import sys; import enginetop.cli.main; print(*(m for m in sys.modules if m.startswith('enginetop')))"
    )
    ran = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True)
    assert set(ran.stdout.split()) == {
        *("enginetop", "enginetop.cli", "enginetop.cli.main", "enginetop.cli.exit_codes")
    }


def test_diagnostics_that_cannot_be_written_change_no_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w", buffering=1) as full:
        monkeypatch.setattr(sys, "stderr", full)
        assert main(["snapshot", "--replay", "/no/such/recording"]) == 2
        monkeypatch.undo()
        os.dup2(os.open(os.devnull, os.O_WRONLY), full.fileno())


@pytest.mark.parametrize(
    "argv",
    [
        ["snapshot"],
        ["snapshot", "--format", "table"],
        ["snapshot", "--format", "prometheus"],
        ["tune"],
        ["curve"],
        ["watch"],
    ],
)
def test_a_closed_stdout_is_named(
    argv: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert main([*argv, "--replay", str(_recording(tmp_path))]) == 2
    monkeypatch.undo()
    assert "enginetop: standard output is closed; there is nowhere to print " in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv",
    [
        ["doctor"],
        ["doctor", "--format", "json"],
        ["config", "print"],
        ["config", "print", "--format", "json"],
    ],
)
def test_a_closed_stdout_is_named_by_commands_about_this_machine(
    argv: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("enginetop.cli.doctor.local_targets", tuple)
    monkeypatch.setattr(sys, "stdout", None)
    assert main(argv) == 2
    monkeypatch.undo()
    assert capsys.readouterr().err.count("standard output is closed; there is nowhere to print ") == 1


def test_a_closed_stdout_leaves_the_exit_code_of_a_check(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["check", "--replay", str(_recording(tmp_path))]) == 3


@pytest.mark.parametrize(
    ("encoding", "told"), [("ascii", b"\\xe9t\\xe9 \\u5317"), ("latin-1", b"\xe9t\xe9 \\u5317")]
)
def test_letters_that_the_locale_does_not_have_end_no_command(
    encoding: str, told: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    written = _Written(monkeypatch, encoding)
    assert main(["silence", "add", "--all", "--for", "1h", "--reason", "été 北"]) == 0
    assert told in written.bytes()


def test_a_page_for_prometheus_is_utf8_whatever_the_locale_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    written = _Written(monkeypatch, "latin-1")
    recording = str(_recording(tmp_path, "http://été:8000"))
    assert main(["snapshot", "--format", "prometheus", "--replay", recording]) == 0
    assert "http://été:8000".encode() in written.bytes()


def test_what_a_terminal_could_obey_reaches_no_diagnostic(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = "\x1b]0;mine\x07\nenginetop: all is well\u202e"
    for argv in (
        ["replay", hostile],
        ["check", "--config", hostile],
        ["--bogus" + hostile],
        ["audit", hostile],
    ):
        with contextlib.suppress(SystemExit):
            main(argv)
        (line,) = capsys.readouterr().err.splitlines()
        assert line.isprintable()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_folder_of_a_command_goes_with_it(number: signal.Signals) -> None:
    before, folders = signal.getsignal(number), []

    def work() -> None:
        with passing_folder("enginetop-test-") as folder:
            folders.append(folder)
            (folder / "page").write_text("1")
            signal.raise_signal(number)

    with pytest.raises(SystemExit) as left:
        work()
    assert left.value.code == 128 + number
    assert [folder.exists() for folder in folders] == [False]
    assert signal.getsignal(number) is before


class _Written:
    """Stdout of another encoding, and the bytes that came out of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
        self._raw = io.BytesIO()
        self._text = io.TextIOWrapper(self._raw, encoding=encoding)
        monkeypatch.setattr(sys, "stdout", self._text)

    def bytes(self) -> bytes:
        self._text.flush()
        return self._raw.getvalue()


def _recording(folder: Path, target: str = "http://r1:8000") -> Path:
    path = folder / "one.jsonl"
    path.write_text(f'{{"t": 1, "target": "{target}", "path": "/metrics", "error": "refused"}}\n')
    return path
