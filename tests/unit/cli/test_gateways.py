"""`[[gateways]]` of the config file: who is behind one, what is run, and what is refused in one line."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from enginetop.cli import gateways, knob_paths
from enginetop.cli.doctor_paths import path_findings
from enginetop.cli.gateways import BehindGateway, GatewaySetting
from enginetop.cli.one_each import OneEach
from enginetop.cli.settings import Settings
from enginetop.doctor.facts import TargetFacts
from enginetop.doctor.finding import Level
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.knobs import split_command
from enginetop.fleet.model import Target
from tests.unit.cli.test_settings import _settings
from tuners.control.gateway import KNOB
from tuners.control.knob_api import ReplyKind, by_path

HOOK = """#!/bin/sh
echo "$ENGINETOP_ACTION $ENGINETOP_KNOB $ENGINETOP_VALUE $ENGINETOP_GATEWAY" >> "$0.runs"
if [ "$ENGINETOP_ACTION" = write ]; then echo "$ENGINETOP_VALUE" > "$0.value"; else cat "$0.value"; fi
"""


class Desk:
    """A hook, and a config file with three targets that are not there, two of them behind a gateway."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.hook = folder, folder / "hook"
        self.hook.write_text(HOOK)
        self.hook.chmod(0o755)
        self.value.write_text("8192\n")

    @property
    def value(self) -> Path:
        return self.folder / "hook.value"

    @property
    def runs(self) -> list[str]:
        path = self.folder / "hook.runs"
        return path.read_text().splitlines() if path.exists() else []

    def settings(self, *, writes: bool = True, targets: str = '["a*", "127.0.0.1:2"]') -> Settings:
        tables = [f'[[targets]]\nurl = "http://127.0.0.1:{n}"\nname = "{name}"' for n, name in NAMES.items()]
        tables += [f'[hooks.h]\ncommand = ["{self.hook}"]\ntimeout_seconds = 300']
        tables += [f'[[gateways]]\nname = "edge"\nhook = "h"\ntargets = {targets}']
        return _settings(self.folder, "\n".join(tables + ["[control]"] * writes))[0]


NAMES = {1: "a1", 2: "b2", 3: "c3"}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_who_is_behind_it_reads_and_writes_by_the_hook_and_nobody_else(desk: Desk) -> None:
    found = desk.settings()
    clients = knob_paths.knob_clients(found, found.targets)
    behind = {target.name: clients(target.url) for target in found.targets}
    assert [isinstance(one, BehindGateway) for one in behind.values()] == [True, True, False]
    client = behind["b2"]
    assert client is not None
    sheet = client.read().sheet  # there is no engine: what is there is the gateway's
    assert sheet is not None
    (row,) = sheet.knobs
    assert (sheet.writer, sheet.instance, row.name, row.value) == ("gateway", "gateway edge", KNOB, 8192)
    assert row.reaches == ("http://127.0.0.1:1", "http://127.0.0.1:2")
    written = by_path(client, "gateway").write(
        KNOB, 512, if_version=row.version, ttl_seconds=None, change="c", reason="r"
    )
    assert (written.kind, desk.value.read_text()) == (ReplyKind.OK, "512\n")
    assert desk.runs[0] == f"read {KNOB}  edge"
    assert f"write {KNOB} 512 edge" in desk.runs
    assert by_path(client, "knob_api").read().kind is ReplyKind.UNREACHABLE
    again = knob_paths.knob_clients(found, found.targets)("http://127.0.0.1:1")
    assert again is not None
    told = again.read().sheet  # the same path, whoever asks in this process: it knows what was written
    assert told is not None
    assert told.knobs[0].version == row.version + 1


def test_a_value_on_loan_goes_back_in_time_whatever_becomes_of_the_clock(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(wall=1e9, passed=0.0)
    now = SimpleNamespace(time=lambda: clock.wall, monotonic=lambda: clock.passed)
    monkeypatch.setattr(gateways, "time", now)
    monkeypatch.setattr(gateways, "_paths", OneEach())
    found = desk.settings()
    client = knob_paths.knob_clients(found, found.targets)("http://127.0.0.1:2")
    assert client is not None
    by_path(client, "gateway").write(KNOB, 512, if_version=None, ttl_seconds=60.0, change="c", reason="r")
    assert desk.value.read_text() == "512\n"
    clock.wall, clock.passed = clock.wall - 3600.0, 61.0
    client.read()
    assert desk.value.read_text() == "8192\n"


def test_read_only_no_hook_is_ever_run(desk: Desk) -> None:
    found = desk.settings(writes=False)
    client = knob_paths.knob_clients(found, found.targets)("http://127.0.0.1:1")
    assert client is not None
    client.read()
    assert desk.runs == []


def test_a_hook_that_cannot_be_run_says_so_with_the_command(desk: Desk) -> None:
    desk.hook.chmod(0o644)
    found = desk.settings()
    client = knob_paths.knob_clients(found, found.targets)("http://127.0.0.1:1")
    assert client is not None
    reply = by_path(client, "gateway").examine()
    why, command = split_command(reply.detail)
    assert (reply.kind, why) == (
        ReplyKind.UNREACHABLE,
        f"hook h: {desk.hook} cannot be run: Permission denied",
    )
    assert command == (
        f"ENGINETOP_VALUE={{value}} ENGINETOP_ACTION=write ENGINETOP_KNOB={KNOB} ENGINETOP_GATEWAY=edge "
        f"{desk.hook}"
    )
    write = by_path(client, "gateway").write(
        KNOB, 5, if_version=None, ttl_seconds=None, change="c", reason="r"
    )
    assert (write.kind, write.detail) == (ReplyKind.MISSING, f"HTTP 501: {why}")


def test_doctor_tells_what_the_hook_says(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def told(found: Settings) -> list[tuple[Level, str]]:
        facts = TargetFacts("a1", found.targets[0].url, 2.0)
        return [(one.level, one.what) for one in path_findings(found, found.targets[0], facts)]

    all_at_once = "touches every request through the gateway, so that all engines behind it change at once"
    assert told(desk.settings()) == [(Level.OK, f"gateway edge: {KNOB} is 8192 ({all_at_once})")]
    assert told(desk.settings(writes=False)) == []
    desk.hook.write_text("#!/bin/sh\necho locked >&2; exit 7\n")
    monkeypatch.setattr(gateways, "_paths", OneEach())  # another process: nothing is remembered
    assert told(desk.settings()) == [
        (Level.WARNING, f"gateway edge: hook h: {desk.hook} ended with 7: locked")
    ]


@pytest.mark.parametrize(
    ("pattern", "name", "url", "led"),
    [
        ("*", "a", "http://h:1", True),
        ("http://h:*", "a", "http://h:1", True),
        ("h:1", "a", "http://h:1", True),
        ("h", "a", "http://h:1", False),
        ("[ab]", "b", "http://h:1", True),
        ("A", "a", "http://h:1", False),
    ],
)
def test_who_is_behind_a_gateway(pattern: str, name: str, url: str, led: bool) -> None:
    setting = GatewaySetting("edge", "h", ("x",), 5.0, (pattern,))
    assert setting.leads_to(Target(url, name)) is led


def test_a_hook_may_hold_a_change_up_for_a_minute_at_most(desk: Desk) -> None:
    assert [one.timeout_seconds for one in desk.settings().gateways] == [60.0]


EDGE = '[[gateways]]\nname = "e"\nhook = "h"\ntargets = ["*"]\n'
HOOKS = '[hooks.h]\ncommand = ["/bin/true"]\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (EDGE, "the hook 'h' is not there"),
        (HOOKS + EDGE + EDGE, "two gateways are named 'e'"),
        (HOOKS + EDGE.replace('["*"]', "[]"), "gateways.0.targets"),
        (HOOKS + EDGE.replace('name = "e"\n', ""), "gateways.0.name"),
        (HOOKS + EDGE.replace('"e"', '"e\\u001b"'), "gateways.0.name"),
        (HOOKS + EDGE.replace('"e"', '"{value}"'), "gateways.0.name"),
        (HOOKS + EDGE + 'command = "reboot"\n', "gateways.0.command"),
        (HOOKS + EDGE.replace("hook =", "hok ="), "did you mean 'hook'"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_in_one_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _settings(tmp_path, text)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
