"""A systemd drop-in and a file of settings as paths to knobs: real files, a systemctl of our own, hooks that
work, fail, hang and lie.
"""

from __future__ import annotations

import errno
import os
import shlex
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from enginetop.fleet.knobs import FAILED, KnobRow
from enginetop.fleet.model import EngineKind
from tuners.control import systemd_unit
from tuners.control.restart_board import RestartBoard
from tuners.control.restart_move import Patience
from tuners.control.restartable import Load, RestartError
from tuners.control.settings_file import SettingsFile
from tuners.control.systemd_unit import DROP_IN, SystemdUnit

SEATS, DRAFTS = "max_num_seqs", "num_speculative_tokens"
UNIT = "vllm@8000.service"
SERVE = (
    "[Unit]\nDescription=x\n[Service]\nEnvironment=A=b\n"
    "ExecStart=/usr/bin/vllm serve m --port %i \\\n  --max-num-seqs 64 "
    '--speculative-config \'{"method": "ngram", "num_speculative_tokens": 4}\'\n'
)
SYSTEMCTL = """#!/bin/sh
home={home}
echo "$@" >> $home/calls
case "$1" in
  cat) for file in $home/unit/$2 $home/unit/$2.d/*.conf; do
         [ -f "$file" ] && echo "# $file" && cat "$file" && echo; done; exit 0;;
  restart) [ -f $home/hang ] && sleep 60; [ -f $home/broken ] && echo "Job failed" && exit 1; exit 0;;
  show) [ -f $home/dead ] && echo failed || echo active; exit 0;;
  daemon-reload) [ -f $home/no-reload ] && echo "Access denied" && exit 4; exit 0;;
esac
"""


def ready() -> Load:
    return Load(ready=True, requests=0)


def board(engine: SystemdUnit | SettingsFile) -> RestartBoard:
    return RestartBoard(
        engine,
        engine.knobs(),
        writer="systemd",
        instance="i",
        engine_name="vllm",
        patience=Patience(drain_seconds=5.0, ready_seconds=3.0),
        present=engine.present(),
        stands=engine.present,
    )


def row(made: RestartBoard) -> KnobRow:
    found = made.sheet(time.monotonic()).knob(SEATS)
    assert found is not None
    return found


def settle(made: RestartBoard) -> KnobRow:
    """The row once nothing is under way any more."""
    deadline = time.monotonic() + 30
    while row(made).moves:
        assert time.monotonic() < deadline, "never settled"
        time.sleep(0.01)
    return row(made)


def put(made: RestartBoard, value: int, ttl: float | None = 600.0) -> KnobRow:
    now = time.monotonic()
    outcome = made.patch(SEATS, value, if_version=None, ttl_seconds=ttl, change="c", now=now)
    assert outcome.status == 200, outcome.detail
    return settle(made)


class Machine:
    """A unit and a systemctl in a folder."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.folder = home / "unit" / f"{UNIT}.d"
        (home / "unit").mkdir()
        (home / "unit" / UNIT).write_text(SERVE)
        self.tool = home / "systemctl"
        self.tool.write_text(SYSTEMCTL.format(home=home))
        self.tool.chmod(0o755)

    def unit(self) -> SystemdUnit:
        return SystemdUnit(
            UNIT,
            self.folder,
            ready,
            wanted=self.home / "wanted.conf",
            kind=EngineKind.VLLM,
            systemctl=(str(self.tool),),
        )

    def board(self) -> RestartBoard:
        return board(self.unit())

    @property
    def drop_in(self) -> str | None:
        path = self.folder / DROP_IN
        return path.read_text() if path.exists() else None

    def calls(self, verb: str) -> int:
        return sum(line.startswith(verb) for line in (self.home / "calls").read_text().splitlines())


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_drop_in_is_written_and_the_unit_restarted_and_without_it_all_is_as_before(
    machine: Machine,
) -> None:
    made = machine.board()
    assert (row(made).value, row(made).start) == (64, 64)
    assert put(made, 32).value == 32
    lines = (machine.drop_in or "").splitlines()
    assert lines[1:3] == ["[Service]", "ExecStart="]
    # the owner's specifier and quotes stay what they are
    assert lines[3] == (
        "ExecStart=/usr/bin/vllm serve m --port %i --max-num-seqs 32 --speculative-config "
        '"{\\"method\\": \\"ngram\\", \\"num_speculative_tokens\\": 4}"'
    )
    assert (machine.calls("daemon-reload"), machine.calls("restart")) == (1, 1)
    assert put(made, 64, None).value == 64
    assert machine.drop_in is None
    assert machine.calls("restart") == 2
    assert (machine.home / "unit" / UNIT).read_text() == SERVE


def test_no_drafts_is_a_drop_in_without_the_flag(machine: Machine) -> None:
    made = machine.board()

    def drafts() -> KnobRow:
        found = made.sheet(time.monotonic()).knob(DRAFTS)
        assert found is not None
        return found

    assert (drafts().value, drafts().min) == (4, 0)
    now = time.monotonic()
    assert made.patch(DRAFTS, 0, if_version=None, ttl_seconds=None, change="c", now=now).status == 200
    settle(made)
    assert (drafts().value, drafts().note) == (0, "")
    command = (machine.drop_in or "").splitlines()[3]
    assert command == "ExecStart=/usr/bin/vllm serve m --port %i --max-num-seqs 64"
    again = machine.board().sheet(time.monotonic()).knob(DRAFTS)
    assert again is not None
    assert (again.value, again.start) == (0, 4)


def test_a_value_from_before_is_in_force_and_its_start_value_is_the_unit_s_own(machine: Machine) -> None:
    put(machine.board(), 32, None)
    again = machine.board()
    assert (row(again).value, row(again).start) == (32, 64)
    assert again.delete(SEATS, time.monotonic()).status == 200
    assert settle(again).value == 64
    assert machine.drop_in is None


def test_a_drop_in_of_somebody_else_is_left_alone(machine: Machine) -> None:
    machine.folder.mkdir()
    (machine.folder / DROP_IN).write_text("[Service]\nNice=5\n")
    found = put(machine.board(), 32)
    assert found.value == 64
    assert "exists already, and enginetop did not write it" in found.note
    assert machine.drop_in == "[Service]\nNice=5\n"


def test_a_later_drop_in_rules_and_nothing_is_restarted(machine: Machine) -> None:
    machine.folder.mkdir()
    later = "[Service]\nExecStart=\nExecStart=/usr/bin/vllm serve m --max-num-seqs 48\n"
    (machine.folder / "90-owner.conf").write_text(later)
    found = put(machine.board(), 32)
    assert found.value == 48
    assert "would still start with max_num_seqs 48: another drop-in rules" in found.note
    assert machine.drop_in is None


@pytest.mark.parametrize(("flag", "words"), [("no-reload", "ended with 4: Access denied")])
def test_what_is_refused_before_the_restart_changes_nothing(machine: Machine, flag: str, words: str) -> None:
    (machine.home / flag).touch()
    found = put(machine.board(), 32)
    assert (found.value, found.phase) == (64, "")
    assert words in found.note
    assert machine.drop_in is None
    assert "restart" not in (machine.home / "calls").read_text()


def test_a_folder_that_cannot_be_made_changes_nothing(machine: Machine) -> None:
    machine.folder.write_text("a file in its place")
    found = put(machine.board(), 32)
    assert (found.value, found.phase) == (64, "")
    assert str(machine.folder) in found.note


@pytest.mark.parametrize(
    ("flag", "words"), [("broken", "Job failed"), ("dead", "is failed after its restart")]
)
def test_a_unit_that_does_not_come_back_needs_a_person_who_is_told_the_command(
    machine: Machine, flag: str, words: str
) -> None:
    made = machine.board()
    (machine.home / flag).touch()
    found = put(made, 32)
    assert (found.value, found.phase) == (64, FAILED)
    assert words in found.note
    command = found.note.partition("by hand: ")[2]
    (machine.home / flag).unlink()
    before = machine.calls("restart")
    subprocess.run(command, shell=True, check=True)
    assert machine.drop_in is None
    assert machine.calls("restart") == before + 1


def test_the_command_for_a_person_brings_a_kept_value_back(machine: Machine) -> None:
    made = machine.board()
    put(made, 32, None)
    kept = machine.drop_in
    (machine.home / "broken").touch()
    found = put(made, 16)
    assert (found.value, found.phase) == (32, FAILED)
    (machine.home / "broken").unlink()
    (machine.folder / DROP_IN).unlink()
    subprocess.run(found.note.partition("by hand: ")[2], shell=True, check=True)
    assert machine.drop_in == kept


def test_what_somebody_else_sets_meanwhile_is_his(machine: Machine) -> None:
    made = machine.board()
    put(made, 32)
    (machine.folder / DROP_IN).unlink()
    found = row(made)
    assert (found.value, found.expires_in_seconds) == (64, None)
    assert found.note == "max_num_seqs was set to 64 by somebody else"
    before = machine.calls("restart")
    made.tick(time.monotonic() + 1e6)
    assert (row(made).value, machine.calls("restart")) == (64, before)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS])
def test_a_drop_in_that_cannot_be_written_changes_nothing(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def full(path: Path, data: bytes) -> None:
        raise OSError(number, os.strerror(number), str(path))

    made = machine.board()
    monkeypatch.setattr(systemd_unit, "write_synced", full)
    found = put(made, 32)
    assert (found.value, found.phase) == (64, "")
    assert os.strerror(number) in found.note
    assert machine.drop_in is None
    assert "restart" not in (machine.home / "calls").read_text()


def test_without_room_for_the_prepared_file_the_command_is_still_one_that_works(
    machine: Machine,
) -> None:
    made = machine.board()
    put(made, 32, None)
    (machine.home / "broken").touch()
    (machine.home / "wanted.conf").mkdir()
    found = put(made, 16)
    assert (found.value, found.phase) == (32, FAILED)
    (machine.home / "broken").unlink()
    subprocess.run(found.note.partition("by hand: ")[2], shell=True, check=True)
    assert machine.drop_in is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[Service]\nExecStart=/bin/a\nExecStart=/bin/b\n", "2 commands"),
        ("[Service]\nNice=1\n", "0 commands"),
        ("[Service]\nExecStart=/bin/a 'b\n", "cannot be read"),
    ],
)
def test_a_unit_that_cannot_be_overridden_is_refused(machine: Machine, text: str, words: str) -> None:
    (machine.home / "unit" / UNIT).write_text(text)
    with pytest.raises(RestartError, match=words):
        machine.unit()


@pytest.mark.parametrize("name", ["../x.service", "x", "-x", "a b.service"])
def test_what_is_no_unit_is_refused(machine: Machine, name: str) -> None:
    with pytest.raises(RestartError, match="no name"):
        SystemdUnit(name, machine.folder, ready, wanted=machine.home / "w", kind=EngineKind.VLLM)


# A file of settings and a hook

FILE = '# --max-num-seqs 1 is too few\nVLLM_ARGS="--max-num-seqs=64 --port 8000"\n'
Make = Callable[[str], tuple[RestartBoard, Path, Path]]


@pytest.fixture
def settings(tmp_path: Path) -> Make:
    def make(hook: str) -> tuple[RestartBoard, Path, Path]:
        path, calls = tmp_path / "engine.env", tmp_path / "calls"
        path.write_text(FILE)
        path.chmod(0o640)
        script = tmp_path / "hook"
        script.write_text(f"#!/bin/sh\necho $URL >> {shlex.quote(str(calls))}\n{hook}\n")
        script.chmod(0o755)
        engine = SettingsFile(
            path,
            (str(script),),
            ready,
            wanted=tmp_path / "wanted",
            kind=EngineKind.VLLM,
            hook_seconds=0.5,
            environment={"URL": "http://r1"},
        )
        return board(engine), path, calls

    return make


def test_a_number_in_a_file_is_changed_and_the_hook_is_run(settings: Make) -> None:
    made, path, calls = settings("exit 0")
    assert [knob.name for knob in made.sheet(0.0).knobs] == [SEATS]
    assert put(made, 32).value == 32
    assert path.read_text() == FILE.replace("=64", "=32")
    assert path.stat().st_mode & 0o777 == 0o640
    assert calls.read_text() == "http://r1\n"
    assert put(made, 64, None).value == 64
    assert path.read_text() == FILE


@pytest.mark.parametrize(
    ("hook", "words"),
    [
        ("grep -q =64 $(dirname $0)/engine.env", "hook ended with 1"),
        ("grep -q =64 $(dirname $0)/engine.env || sleep 60", "did not end within 0.5 s and was killed"),
    ],
)
def test_a_hook_that_fails_or_hangs_leads_back(settings: Make, hook: str, words: str) -> None:
    made, path, calls = settings(hook)
    found = put(made, 32)
    assert (found.value, found.phase) == (64, "")
    assert words in found.note
    assert path.read_text() == FILE
    assert calls.read_text().count("\n") == 2


def test_a_hook_that_writes_another_number_is_found_out(settings: Make) -> None:
    made, path, _ = settings("sed -i s/=32/=48/ $(dirname $0)/engine.env")
    now = time.monotonic()
    assert made.patch(SEATS, 32, if_version=None, ttl_seconds=600.0, change="c", now=now).status == 200
    until = now + 30
    while row(made).value == 32:
        assert time.monotonic() < until, "never found out"
        time.sleep(0.01)
    found = row(made)
    assert (found.value, found.expires_in_seconds, found.phase) == (48, None, "")
    assert "was set to 48 by somebody else" in found.note
    assert "=48" in path.read_text()  # his, and left alone


@pytest.mark.parametrize("hook", ["echo no way; exit 1", "sleep 60"])
def test_a_hook_that_never_works_needs_a_person_who_is_told_the_command(settings: Make, hook: str) -> None:
    made, path, calls = settings(hook)
    found = put(made, 32)
    assert (found.value, found.phase) == (64, FAILED)
    command = found.note.partition("by hand: ")[2]
    (calls.parent / "hook").write_text("#!/bin/sh\nexit 0\n")
    path.write_text("damaged")
    subprocess.run(command, shell=True, check=True)
    assert path.read_text() == FILE


def test_a_hook_that_is_not_there_or_a_file_that_is_gone(settings: Make) -> None:
    made, path, calls = settings("exit 0")
    (calls.parent / "hook").unlink()
    found = put(made, 32)
    assert found.phase == FAILED
    assert "cannot be run" in found.note
    made, path, _ = settings("exit 0")
    path.unlink()
    found = put(made, 32)
    assert (found.value, found.phase) == (64, "")
    assert "No such file" in found.note


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("max-num-seqs: 64\n", 64),
        ("max_num_seqs: 64\n", 64),
        ('"max-num-seqs": 64,', 64),
        ("--max-num-seqs 64", 64),
        ("--max-num-seqs 64 --max-num-seqs 32", None),
        ("--max-num-seqs-x 64", None),
        ("--max-num-seqs $SEATS", None),
        ("--max-num-seqs 6.4", None),
        ("# max-num-seqs: 64", None),
        ("", None),
    ],
)
def test_where_a_number_stands(tmp_path: Path, text: str, value: int | None) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    engine = SettingsFile(path, ("true",), ready, wanted=tmp_path / "w", kind=EngineKind.VLLM)
    assert {knob.name: knob.start for knob in engine.knobs()}.get(SEATS) == value
