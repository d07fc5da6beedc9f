"""A gateway's hook: how its value comes and goes, and every way in which a command can go wrong."""

from __future__ import annotations

import subprocess
import time
from contextlib import suppress
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.secrets import without_secrets
from enginetop.fleet.knobs import VALUE
from tuners.control import commands
from tuners.control.commands import Command, NotStartedError
from tuners.control.gateway import KNOB, Gateway
from tuners.control.knob_api import ReplyKind
from tuners.control.stock.exchange import StockError
from tuners.control.stock.live_board import LiveBoard

GOOD = """
case "$ENGINETOP_ACTION" in
read) cat "$STATE" ;;
write) echo "$ENGINETOP_VALUE" > "$STATE"; echo "set $ENGINETOP_KNOB of $ENGINETOP_GATEWAY" ;;
esac
echo run >> "$STATE.runs"
"""


class Rig:
    """A hook in a folder of its own, and a clock."""

    def __init__(self, folder: Path, script: str = GOOD, value: str = "8192") -> None:
        self.hook, self.state, self.now = folder / "hook", folder / "state", 0.0
        self.state.write_text(value + "\n")
        self.becomes(script)
        self.gateway = Gateway(
            "edge",
            "thinking",
            [str(self.hook)],
            timeout_seconds=5.0,
            environment={"STATE": str(self.state), "ENGINETOP_GATEWAY": "edge"},
            clock=lambda: self.now,
        )
        self.board = LiveBoard(self.gateway, writer="gateway", engine_name="gateway")

    def becomes(self, script: str) -> None:
        self.hook.write_text(f"#!/bin/sh\n{script}")
        self.hook.chmod(0o755)

    @property
    def runs(self) -> int:
        return len(self.state.with_suffix(".runs").read_text().splitlines())

    def value(self) -> int | None:
        self.now += 10.0
        (knob,) = self.gateway.read().knobs
        return knob.value


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_a_value_comes_and_is_read_back_and_goes(rig: Rig) -> None:
    first = rig.board.sheet(0.0)
    (row,) = first.knobs
    assert (first.writer, first.instance, row.name, row.value) == ("gateway", "gateway edge", KNOB, 8192)
    assert (row.min, row.start) == (-1, None)
    assert "one change reaches every request through gateway edge" in row.note
    outcome = rig.board.patch(KNOB, 512, if_version=row.version, ttl_seconds=60.0, change="c", now=1.0)
    assert (outcome.status, rig.state.read_text()) == (200, "512\n")
    rig.now = 70.0
    assert rig.board.sheet(70.0).knobs[0].value == 8192  # its time is over
    assert rig.state.read_text() == "8192\n"


def test_a_loan_whose_way_back_got_no_answer_goes_back_at_the_next_request(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.board.patch(KNOB, 4096, if_version=None, ttl_seconds=60.0, change="c", now=0.0)
    rig.becomes(
        '[ "$ENGINETOP_ACTION" = write ] && touch "$STATE.away"; [ ! -e "$STATE.away" ] && cat "$STATE"'
    )
    rig.now = 100.0
    with pytest.raises(StockError):
        rig.board.sheet(100.0)
    rig.becomes(GOOD)
    assert rig.board.sheet(110.0).knobs[0].value == 8192
    assert rig.state.read_text() == "8192\n"


def test_the_last_line_counts_however_much_stands_before_it(tmp_path: Path) -> None:
    rig = Rig(tmp_path, f"head -c {3 << 20} /dev/zero | tr '\\0' 7; {GOOD}")
    rig.state.write_text("\n8192\n")
    assert rig.value() == 8192


def test_no_budget_is_a_value(rig: Rig) -> None:
    assert rig.board.patch(KNOB, -1, if_version=None, ttl_seconds=None, change="c", now=0.0).status == 200
    assert rig.value() == -1


def test_one_run_answers_for_all_who_ask_at_the_same_time(rig: Rig) -> None:
    for _ in range(5):
        rig.gateway.read()
    assert rig.runs == 1
    rig.gateway.write(KNOB, 512)
    rig.gateway.read()
    assert rig.runs == 3  # what was written is read anew at once


def test_what_a_change_wrote_stands_for_all_its_targets_and_for_no_other_change(rig: Rig) -> None:
    version = rig.board.sheet(0.0).knobs[0].version
    given = {"if_version": version, "ttl_seconds": 60.0, "now": 1.0}
    assert rig.board.patch(KNOB, 512, change="c", **given).status == 200  # type: ignore[arg-type]
    assert rig.board.patch(KNOB, 512, change="c", **given).status == 200  # type: ignore[arg-type]
    assert rig.board.patch(KNOB, 512, change="other", **given).status == 409  # type: ignore[arg-type]
    assert rig.board.patch(KNOB, 256, change="c", **given).status == 409  # type: ignore[arg-type]
    assert rig.runs == 3  # two reads and one write: the second one had nothing to do


def test_no_shell_ever_sees_the_value_and_the_command_for_a_person_is_exact(rig: Rig, tmp_path: Path) -> None:
    spaced = tmp_path / "my hook"
    rig.hook.rename(spaced)
    made = Gateway(
        "e'd $(id)",
        "h",
        [str(spaced), "a b"],
        timeout_seconds=5.0,
        environment={"STATE": str(rig.state), "ENGINETOP_GATEWAY": "e'd $(id)"},
        clock=lambda: 0.0,
    )
    assert made.write(KNOB, 64).startswith("0 (set thinking_token_budget of e'd")
    assert rig.state.read_text() == "64\n"
    assert VALUE in made.by_hand
    subprocess.run(["/bin/sh", "-c", made.by_hand.replace(VALUE, "4096")], check=True)
    assert rig.state.read_text() == "4096\n"


UNREADABLE = {
    "missing": (None, "cannot be run: No such file or directory"),
    "not executable": (0o644, "cannot be run: Permission denied"),
    "fails": ("echo 'no such route' >&2; exit 1", "ended with 1: no such route"),
    "killed": ("kill -9 $$", "ended with -9"),
    "garbage": ("echo '{\"budget\": 5}'", "printed '{\"budget\": 5}', not the budget"),
    "nothing": ("exit 0", "printed nothing, not the budget"),
    "escapes": ("printf '\\033[2J\\033]0;x\\007'", "printed '[2J ]0;x', not the budget"),
    "two numbers": ("echo '5 6'", "printed '5 6', not the budget"),
    "a fraction": ("echo 5.5", "printed '5.5', not the budget"),
    "another script": ("printf '\\331\\245'", "not the budget"),
    "huge": ("echo 99999999999999999999999999", "not the budget"),
    "too large": ("echo 2000000", "2000000 is no budget (-1 to 1048576)"),
    "negative": ("echo -7", "-7 is no budget"),
    "long": ("head -c 100000 /dev/zero | tr '\\0' x", "printed 'xxxxxxxxxx"),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_what_cannot_be_read_is_one_clear_line(rig: Rig, case: str) -> None:
    spoilt, words = UNREADABLE[case]
    if spoilt is None:
        rig.hook.unlink()
    elif isinstance(spoilt, int):
        rig.hook.chmod(spoilt)
    else:
        rig.becomes(str(spoilt))
    with pytest.raises(StockError) as caught:
        rig.gateway.read()
    said = str(caught.value)
    assert words in said
    assert said.startswith("hook thinking: ")
    assert said.isprintable()
    assert len(said) < 300


def test_keys_that_a_command_shows_or_is_given_are_not_told(rig: Rig) -> None:
    key = "sk-ant-0123456789abcdef0123"
    made = Gateway(
        "edge",
        "h",
        [str(rig.hook), "--api-key", key, f"--token={key}"],
        timeout_seconds=5.0,
        clock=lambda: 0.0,
        clean=without_secrets,
    )
    assert key not in made.by_hand
    assert made.by_hand.startswith(f"ENGINETOP_VALUE={VALUE} ")
    for script in (f"echo 'Authorization: Bearer {key}'; exit 1", f"echo 'api_key={key}'"):
        rig.becomes(script)
        with pytest.raises(StockError) as caught:
            made.read()
        assert key not in str(caught.value)
    rig.becomes(f"echo 'token: {key}'")
    assert key not in made.write(KNOB, 5)


def test_a_hook_that_hangs_is_killed_with_all_that_it_started(rig: Rig, tmp_path: Path) -> None:
    rig.becomes(f"echo $$ > {tmp_path}/pid; sleep 60 & sleep 60")
    rig.gateway._timeout_seconds = 0.3
    with pytest.raises(StockError, match=r"did not end within 0\.3 s and was killed"):
        rig.gateway.read()
    group = (tmp_path / "pid").read_text().strip()
    until = time.monotonic() + 10.0
    while lives(group):
        assert time.monotonic() < until


def lives(group: str) -> bool:
    """Whether a process of the group is more than a corpse that nobody took away."""
    for found in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, of_group = found.read_text().rpartition(") ")[2].split()[:3]
            if of_group == group and state != "Z":
                return True
    return False


def test_a_hook_that_prints_without_end_is_killed(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "_MOST_OUTPUT_BYTES", 1 << 20)
    rig.becomes("exec yes")
    with pytest.raises(StockError, match="printed more than 1 MiB and was killed"):
        rig.gateway.read()


def test_what_a_command_printed_so_far_does_not_disturb_it(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    command = Command(["/bin/sh", "-c", f"echo a; while [ ! -e {gate} ]; do :; done; echo b"])
    while command.output() != "a\n":
        pass
    gate.touch()
    command.wait()
    assert command.output() == "a\nb\n"
    assert command.done()


WRITES = {
    "exits 1": ("exit 1", 422, "ended with 1; not changed: still 8192"),
    "says yes and does nothing": ("exit 0", 501, "not changed: the engine answered 0, and"),
    "sets another value": ('echo 4096 > "$STATE"', 502, "is 4096, not 512; and it could not be taken back"),
    "sets one more": (
        '[ $ENGINETOP_VALUE = 512 ] && ENGINETOP_VALUE=513; echo $ENGINETOP_VALUE > "$STATE"',
        501,
        "the engine answered 0, and thinking_token_budget is 513, not 512; taken back",
    ),
    "sets it and fails": ('echo 512 > "$STATE"; exit 3', 200, ""),
    "sets another and fails": ('echo 7 > "$STATE"; exit 3', 502, "hook thinking: "),
}


@pytest.mark.parametrize("case", WRITES)
def test_what_counts_is_what_is_read_back(rig: Rig, case: str) -> None:
    script, status, words = WRITES[case]
    rig.becomes(f'[ "$ENGINETOP_ACTION" = read ] && exec cat "$STATE"\n{script}')
    outcome = rig.board.patch(KNOB, 512, if_version=None, ttl_seconds=60.0, change="c", now=0.0)
    assert outcome.status == status
    assert words in outcome.detail


def test_a_hook_that_is_gone_when_it_should_write_changed_nothing_for_certain(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.board.sheet(0.0)
    rig.hook.unlink()
    gone = StockError("printed nothing")
    monkeypatch.setattr(rig.gateway, "read", Mock(side_effect=[rig.gateway.read(), gone]))
    with pytest.raises(StockError, match="cannot be run") as caught:
        rig.board.patch(KNOB, 512, if_version=None, ttl_seconds=60.0, change="c", now=0.0)
    assert caught.value.kind is ReplyKind.MISSING


def test_a_hook_that_is_gone_once_it_wrote_leaves_a_doubt(rig: Rig) -> None:
    rig.becomes('[ "$ENGINETOP_ACTION" = read ] && exec cat "$STATE"\necho 512 > "$STATE"; rm "$0"')
    with pytest.raises(StockError, match="cannot be run") as caught:
        rig.board.patch(KNOB, 512, if_version=None, ttl_seconds=60.0, change="c", now=0.0)
    assert caught.value.kind is ReplyKind.UNREACHABLE  # never: nothing was changed


@pytest.mark.parametrize(
    ("argv", "environment"),
    [(["/bin/true", "a\0b"], {}), (["/bin/a\0b"], {}), (["/bin/true"], {"A=B": "c"}), (["/nonexistent"], {})],
)
def test_a_command_that_cannot_be_started_was_not_started(
    argv: list[str], environment: dict[str, str]
) -> None:
    with pytest.raises(NotStartedError, match="cannot be run: "):
        Command(argv, environment=environment)


@settings(max_examples=80, deadline=None)
@given(st.text(max_size=60) | st.integers().map(str))
def test_any_output_is_a_budget_or_one_plain_line(output: str) -> None:
    made = Gateway("edge", "h", ["true"], timeout_seconds=1.0, clock=lambda: 0.0)
    problem, value = "", 0
    try:
        value = made._told(output)
    except StockError as error:
        problem = str(error)
    assert problem or (str(value) in output and -1 <= value <= 1 << 20)
    assert not problem or problem.isprintable()
    assert len(problem) < 300
