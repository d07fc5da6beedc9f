"""`apply`, `rollback` and `audit` on a simulated fleet that listens: what they refuse, print, return."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collectors.control_http import HttpKnobTransport
from collectors.fetch import NO_CREDENTIALS
from enginetop import __version__
from enginetop.cli.admin_look import AdminLook
from enginetop.cli.apply import way_back
from enginetop.cli.control import approval, unbegun_document
from enginetop.cli.main import main
from enginetop.cli.parser import parse
from enginetop.fleet.admin_surface import AdminFacts
from enginetop.fleet.change import ChangeState
from enginetop.fleet.plan import Plan, PlannedChange, Scope, plan_text
from enginetop.simulator.builtin import scenario_named
from enginetop.simulator.simulated_fleet import SimulatedFleet
from tuners.control.audit import Audit
from tuners.control.knob_api import HttpKnobClient
from tuners.control.progress import Progress
from tuners.control.settings import ControlSettings
from tuners.control.store import ChangeStore

KNOB = "max_num_batched_tokens"
CREATED = 1_600_000_000.0
FAR = 4_000_000_000.0
QUICK = "[control]\nwarmup_seconds = 0\nblocks = 2\nblock_seconds = 1\nttl_seconds = 30\n"


@pytest.fixture(scope="module")
def urls() -> Iterator[list[str]]:
    """Three replicas with knobs and exact counters."""
    with SimulatedFleet(scenario_named("budget-too-large"), 3) as fleet:
        yield fleet.urls


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


def knob(url: str) -> Any:
    sheet = HttpKnobClient(HttpKnobTransport(url, NO_CREDENTIALS)).read().sheet
    assert sheet is not None
    return sheet, sheet.knob(KNOB)


def plan_on(urls: list[str], to: int = 4096) -> Plan:
    changes = []
    for url in urls:
        sheet, row = knob(url)
        changes.append(PlannedChange(url, sheet.instance, KNOB, row.value, to))
    scope = Scope("Qwen3-32B", "aggregated", urls[0])
    return Plan("c0ffee", CREATED, FAR, __version__, "e" * 64, scope, tuple(changes))


@pytest.fixture
def run(
    home: Path, urls: list[str], capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Runs one command line: exit code, stdout, stderr."""
    (home / "control.toml").write_text(QUICK)

    def call(*argv: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([*argv, "--interval", "0.6"] if argv[0] != "audit" else list(argv))
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


def _file(home: Path, plan: Plan) -> str:
    (home / "plan.json").write_text(plan_text(plan))
    return str(home / "plan.json")


def _config(home: Path) -> list[str]:
    return ["--config", str(home / "control.toml")]


def test_a_dry_run_changes_nothing_and_leaves_no_trace(
    run: Callable[..., tuple[int, str, str]], home: Path, urls: list[str]
) -> None:
    code, out, err = run("apply", _file(home, plan_on(urls)), *urls, "--dry-run")
    assert code == 0
    assert "c0ffee fits" in out
    assert f"{KNOB} 8192 -> 4096 on {urls[0]}" in err
    assert knob(urls[0])[1].version == 0
    assert not (home / "state").exists()


@pytest.mark.parametrize(
    ("flags", "code", "state", "detail"),
    [
        (["--dry-run"], 0, "PREFLIGHT", "fits: nothing was changed (--dry-run)"),
        ([], 2, "REFUSED", "read-only: there is no [control] table"),
        (["--config", "control.toml"], 2, "REFUSED", "not confirmed"),
    ],
)
def test_a_plan_that_is_not_begun_is_one_document_too(
    flags: list[str],
    code: int,
    state: str,
    detail: str,
    run: Callable[..., tuple[int, str, str]],
    home: Path,
    urls: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(home)
    found, out, _ = run("apply", _file(home, plan_on(urls)), *urls, "--format", "json", *flags)
    document = json.loads(out)
    assert (found, document["state"], document["detail"]) == (code, state, detail)
    assert (document["id"], document["canary"], document["promoted"]) == ("c0ffee", urls[0], [])


@pytest.mark.parametrize(
    ("damaged", "why"), [(False, "the plan c0ffee was carried out before"), (True, "a damaged stored change")]
)
def test_a_plan_that_the_controller_refuses_is_one_document_too(
    damaged: bool, why: str, run: Callable[..., tuple[int, str, str]], home: Path, urls: list[str]
) -> None:
    plan = plan_on(urls)
    progress = Progress(plan, ControlSettings(), __version__, "a", ChangeState.HELD, CREATED)
    store = ChangeStore(home / "state" / "enginetop")
    store.save(replace(progress, state=ChangeState.OBSERVE) if damaged else progress)
    if damaged:
        kept = home / "state" / "enginetop" / "changes" / "c0ffee.json"
        kept.write_text(json.dumps({**store.load("c0ffee"), "written": None}))
    code, out, err = run("apply", _file(home, plan), *urls, *_config(home), "--yes", "--format", "json")
    document = json.loads(out)
    assert (code, document["id"], document["state"]) == (2, "c0ffee", "REFUSED")
    assert why in document["detail"]
    assert why in err


def test_without_a_control_table_it_is_read_only(
    run: Callable[..., tuple[int, str, str]], home: Path, urls: list[str]
) -> None:
    code, out, err = run("apply", _file(home, plan_on(urls)), *urls)
    assert (code, out) == (2, "")
    assert "read-only" in err
    assert "[control]" in err


def test_without_a_terminal_nobody_can_confirm(
    run: Callable[..., tuple[int, str, str]], home: Path, urls: list[str]
) -> None:
    code, out, err = run("apply", _file(home, plan_on(urls)), *_config(home), *urls)
    assert (code, out) == (2, "")
    assert "typed confirmation" in err


def test_nobody_is_asked_about_a_change_that_cannot_be_undone(
    run: Callable[..., tuple[int, str, str]], home: Path, urls: list[str]
) -> None:
    code, out, err = run("rollback", "c0ffee", *urls)
    assert (code, out) == (2, "")
    assert "no change 'c0ffee' is known here (latest: none)" in err
    assert "confirmation" not in err
    progress = Progress(plan_on(urls), ControlSettings(), __version__, "a", ChangeState.PLANNED, CREATED)
    for state, words in {
        ChangeState.HELD: "the change c0ffee is HELD: nothing of it is in force",
        ChangeState.DONE: "typed confirmation",
    }.items():
        ChangeStore(home / "state" / "enginetop").save(replace(progress, state=state))
        code, out, err = run("rollback", "c0ffee", *urls)
        assert (code, out) == (2, "")
        assert words in err
    assert f"change c0ffee (DONE): {KNOB} 4096 -> 8192 on {' '.join(urls)}\n" in err


@pytest.mark.parametrize(
    ("argv", "fleet"),
    [
        (["a:1", "b:1"], "a:1 b:1"),
        (["--config", "my fleet.toml"], "--config 'my fleet.toml'"),
        (["--discover", "dns:a:1"], "{urls}"),
        ([], ""),
    ],
)
def test_the_way_back_of_a_change_that_was_kept_names_the_fleet(
    urls: list[str], argv: list[str], fleet: str
) -> None:
    _, args = parse(["apply", "plan.json", *argv])
    words = f"enginetop rollback c0ffee {fleet}".format(urls=" ".join(urls)).strip()
    assert way_back(args, plan_on(urls)) == words
    parse(shlex.split(words)[1:])  # and is a command line


def test_who_is_asked_to_roll_back_has_named_a_fleet(
    run: Callable[..., tuple[int, str, str]], home: Path, urls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collectors.discovery.local.local_targets", lambda _: ())
    progress = Progress(plan_on(urls), ControlSettings(), __version__, "a", ChangeState.DONE, CREATED)
    ChangeStore(home / "state" / "enginetop").save(progress)
    config = home / "control.toml"
    config.write_text("[control]\n", encoding="utf-8")
    code, out, err = run("rollback", "c0ffee", "--config", str(config))
    assert (code, out) == (2, "")
    assert f"list targets in {config}" in err
    assert f"name the fleet of the change: enginetop rollback c0ffee {' '.join(urls)}" in err
    assert "confirmation" not in err


@pytest.mark.parametrize("watched", [(), ("http://127.0.0.1:1",)])
def test_a_plan_of_another_fleet_says_what_to_name(
    run: Callable[..., tuple[int, str, str]],
    home: Path,
    urls: list[str],
    watched: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("collectors.discovery.local.local_targets", lambda _: ())
    file = _file(home, plan_on(urls[:1]))
    code, out, err = run("apply", file, *watched, "--yes", *_config(home))
    assert (code, out) == (2, "")
    assert f"name the fleet of the plan: enginetop apply {file} {urls[0]}" in err


MISFITS: dict[str, tuple[Callable[[Plan], Plan], str]] = {
    "unknown target": (
        lambda plan: replace(
            plan,
            changes=(*plan.changes, PlannedChange("http://elsewhere:1", "i", KNOB, 8192, 4096)),
        ),
        "http://elsewhere:1 is not among the watched targets",
    ),
    "other version": (lambda plan: replace(plan, tool_version="0.0.1"), "made by enginetop 0.0.1"),
    "expired": (lambda plan: replace(plan, expires=CREATED + 1), "expired"),
    "restarted": (
        lambda plan: replace(plan, changes=tuple(replace(c, instance="old") for c in plan.changes)),
        "was restarted",
    ),
    "moved": (
        lambda plan: replace(plan, changes=tuple(replace(c, before=9000) for c in plan.changes)),
        "is 8192 now, the plan changes it from 9000",
    ),
    "out of bounds": (
        lambda plan: replace(plan, changes=tuple(replace(c, after=1) for c in plan.changes)),
        "out of bounds",
    ),
}


@pytest.mark.parametrize("name", MISFITS)
def test_a_misfit_is_refused_with_the_difference_and_a_line_in_the_audit(
    run: Callable[..., tuple[int, str, str]], home: Path, urls: list[str], name: str
) -> None:
    spoil, words = MISFITS[name]
    code, out, err = run("apply", _file(home, spoil(plan_on(urls))), *_config(home), "--yes", *urls)
    assert (code, out) == (2, "")
    assert words in err
    (row,) = Audit(home / "state" / "enginetop").rows()
    assert (row.change, row.state.value) == ("c0ffee", "REFUSED")
    assert words in row.detail
    assert knob(urls[0])[1].version == 0


def test_a_file_that_is_no_plan(
    run: Callable[..., tuple[int, str, str]], home: Path, urls: list[str]
) -> None:
    (home / "plan.json").write_text('{"schema": "enginetop.plan/1", "exec": "reboot"}')
    code, out, err = run("apply", str(home / "plan.json"), "--yes", *urls)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "unknown key 'exec'" in err


def test_without_a_control_table_nothing_is_changed(
    run: Callable[..., tuple[int, str, str]], home: Path, urls: list[str]
) -> None:
    code, out, err = run("apply", _file(home, plan_on(urls)), "--yes", *urls)
    assert (code, out) == (2, "")
    assert "read-only" in err
    assert "[control]" in err
    assert knob(urls[0])[1].version == 0


def test_apply_then_the_audit_then_a_change_that_is_over(
    run: Callable[..., tuple[int, str, str]], home: Path, urls: list[str]
) -> None:
    """Two blocks of a second are too few for any verdict: the value goes back, and a person decides."""
    code, out, err = run(
        "apply", _file(home, plan_on(urls)), "--yes", *_config(home), "--format", "json", *urls
    )
    assert code == 3
    result = json.loads(out)
    assert (result["id"], result["state"], result["verdict"]) == ("c0ffee", "HELD", "inconclusive")
    assert "OBSERVE" in err
    _, row = knob(urls[0])
    assert (row.value, row.expires_in_seconds) == (8192, None)
    assert [knob(url)[1].version for url in urls[1:]] == [0, 0]

    code, out, _ = run("audit", "--format", "json")
    assert code == 0
    rows = [json.loads(line) for line in out.splitlines()]
    assert {"id", "at", "state", "target", "knob", "before", "after", "verdict"} <= set(rows[0])
    assert [rows[0]["state"], rows[-1]["state"]] == ["PLANNED", "HELD"]
    assert rows[-1]["verdict"] == "inconclusive"

    code, out, err = run("audit", "nothing")
    assert (code, out) == (2, "")
    assert "knows no change 'nothing'" in err
    code, out, err = run("rollback", "c0ffee", "--yes", *urls)
    assert (code, out) == (2, "")
    assert "nothing of it is in force" in err

    lines = home / "state" / "enginetop" / "audit.jsonl"
    lines.write_bytes(lines.read_bytes().replace(b"8192", b"8193", 1))
    code, out, err = run("audit")
    assert code == 2
    assert "not intact" in err


@pytest.fixture
def second_is_open(monkeypatch: pytest.MonkeyPatch, urls: list[str]) -> str:
    """The second replica says that its development routes are mounted."""

    def look(self: AdminLook, engine: str) -> AdminFacts:
        assert engine == "vllm"
        return AdminFacts(routes=frozenset({"/pause"} if self._target.url == urls[1] else ()))

    monkeypatch.setattr(AdminLook, "__call__", look)
    return f"{urls[1]}: development routes are open to whoever reaches the port: /pause"


def test_an_open_target_of_several_is_refused_by_name_with_the_way_out(
    run: Callable[..., tuple[int, str, str]], home: Path, urls: list[str], second_is_open: str
) -> None:
    before = [knob(url) for url in urls]
    code, out, err = run("apply", _file(home, plan_on(urls)), *_config(home), "--yes", *urls)
    assert (code, out) == (2, "")
    (line,) = (line for line in err.splitlines() if "refused: " in line)
    assert second_is_open in line
    assert f'--accept-open-admin, or accept_open_admin = ["{urls[1]}"] under [control]' in line
    (row,) = Audit(home / "state" / "enginetop").rows()
    assert (row.state.value, row.detail) == ("REFUSED", line.partition("refused: ")[2])
    assert [knob(url) for url in urls] == before
    words = ("apply", _file(home, plan_on(urls)), *_config(home), "--yes", "--format", "json")
    code, out, _ = run(*words, *urls)
    found = json.loads(out)
    assert (code, found["state"], found["id"]) == (2, "REFUSED", "c0ffee")
    assert found["detail"] == row.detail


@pytest.mark.parametrize("by", ["flag", "address"])
def test_an_open_target_that_is_accepted_is_named_and_changed(
    run: Callable[..., tuple[int, str, str]], home: Path, urls: list[str], second_is_open: str, by: str
) -> None:
    accepted = {"flag": "false", "address": f'["{urls[1].removeprefix("http://")}"]'}[by]
    (home / "control.toml").write_text(f"{QUICK}accept_open_admin = {accepted}\n")
    flag = ["--accept-open-admin"] if by == "flag" else []
    code, out, err = run("apply", _file(home, plan_on(urls)), *_config(home), *flag, "--dry-run", *urls)
    assert (code, "c0ffee fits" in out) == (0, True)
    assert f"accepted: {second_is_open}" in err
    if not flag:
        return  # one trial over the wire is enough
    code, out, _ = run(
        "apply", _file(home, plan_on(urls)), *_config(home), *flag, "--yes", "--format", "json", *urls
    )
    held = json.loads(out)
    assert (code, held["state"]) == (3, "HELD")
    assert unbegun_document(plan_on(urls), ChangeState.REFUSED, "").keys() == held.keys()
    rows = [json.loads(line) for line in run("audit", "--format", "json")[1].splitlines()]
    (approved,) = (row["detail"] for row in rows if row["state"] == "APPROVED")
    assert f"accepted: {second_is_open}" in approved
    assert "with --accept-open-admin" in approved


def test_a_gateway_before_all_is_tried_without_a_verdict(
    run: Callable[..., tuple[int, str, str]], home: Path, urls: list[str]
) -> None:
    value, hook = home / "value", home / "hook"
    value.write_text("8192\n")
    hook.write_text(
        f'#!/bin/sh\n[ "$ENGINETOP_ACTION" = read ] || echo "$ENGINETOP_VALUE" > {value}\ncat {value}\n'
    )
    hook.chmod(0o755)
    (home / "control.toml").write_text(
        f'{QUICK}[hooks.budget]\ncommand = ["{hook}"]\n'
        '[[gateways]]\nname = "edge"\nhook = "budget"\ntargets = ["*"]\n'
    )
    plan = plan_on(urls)
    changes = tuple(
        PlannedChange(url, "gateway edge", "thinking_token_budget", 8192, 512, "gateway") for url in urls
    )
    words = (
        "apply",
        _file(home, replace(plan, changes=changes)),
        *_config(home),
        "--yes",
        "--format",
        "json",
    )
    code, out, err = run(*words, *urls)
    found = json.loads(out)
    assert (code, found["state"], found["verdict"]) == (3, "HELD", None)
    assert found["detail"].startswith("no verdict: ")
    assert found["detail"].endswith(
        f"to keep 512: ENGINETOP_VALUE=512 ENGINETOP_ACTION=write "
        f"ENGINETOP_KNOB=thinking_token_budget ENGINETOP_GATEWAY=edge {hook}"
    )
    assert f"reaches 3 targets at once: {', '.join(urls)}" in err
    assert "no canary, nothing to compare with, no verdict" in err
    assert value.read_text() == "8192\n"


def test_a_change_that_nobody_knows(
    run: Callable[..., tuple[int, str, str]], home: Path, urls: list[str]
) -> None:
    for change in ("nope", "../../etc/passwd", "a/b"):
        code, out, err = run("rollback", change, "--yes", *urls)
        assert (code, out) == (2, "")
        assert err.strip().count("\n") == 0


class _Terminal:
    """A terminal on which one line is typed, and what it showed."""

    def __init__(self, typed: str) -> None:
        self.typed = typed
        self.shown = ""

    def isatty(self) -> bool:
        return True

    def readline(self) -> str:
        return self.typed

    def write(self, text: str) -> int:
        self.shown += text
        return len(text)

    def flush(self) -> None:
        pass


@pytest.mark.parametrize(
    ("typed", "approved"),
    [("r1:8000\n", True), (" r1:8000 \n", True), ("y\n", False), ("\n", False), ("", False)],
)
def test_the_canary_has_to_be_typed(monkeypatch: pytest.MonkeyPatch, typed: str, approved: bool) -> None:
    terminal = _Terminal(typed)
    for name in ("stdin", "stderr"):
        monkeypatch.setattr(f"sys.{name}", terminal)
    by = approval(False, "r1:8000", "begin")
    assert (by is not None) == approved
    assert "type r1:8000 to begin" in terminal.shown
    assert by is None or by.endswith('(typed "r1:8000")')
