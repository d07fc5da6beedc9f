"""The paths that plans may name, and what preflight says of each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from enginetop.fleet.knobs import KnobRow, KnobSheet
from enginetop.fleet.plan import VIAS
from tests.support.control_runs import SHORT
from tests.support.virtual_fleet import KNOB, VERSION, plan_for, three
from tuners.control.knob_api import KnobReply, ReplyKind
from tuners.control.paths import PATHS, offer, path_of
from tuners.control.preflight import Preflight, check_plan


def test_every_path_of_a_plan_is_declared() -> None:
    assert tuple(PATHS) == VIAS
    for path in PATHS.values():
        assert path.touches
        assert path.read_back
        assert path.way_back


def check(writer: str, via: str, phase: str = "") -> Preflight:
    fleet = three()
    plan = plan_for(fleet)
    plan = replace(plan, changes=tuple(replace(change, via=via) for change in plan.changes))
    replies = {}
    for engine in fleet.engines.values():
        sheet = engine.sheet(fleet.time)
        rows = tuple(replace(row, apply="restart", phase=phase, takes_seconds=600.0) for row in sheet.knobs)
        replies[engine.url] = KnobReply(ReplyKind.OK, sheet=replace(sheet, writer=writer, knobs=rows))
    return check_plan(plan, fleet.snapshot(), replies, now=fleet.time, tool_version=VERSION, settings=SHORT)


@pytest.mark.parametrize("via", [via for via in VIAS if via not in ("knob_api", "kubernetes")])
def test_a_restart_path_says_what_it_touches_and_who_takes_the_value_back(via: str) -> None:
    found = check(via, via)
    assert found.problems == ()
    said = " ".join(found.notes)
    assert f"by {via}: touches {PATHS[via].touches}" in said
    assert "may be out of service for 10 min" in said


def test_a_path_that_is_another_one_now_or_not_known_or_at_work_refuses_the_plan() -> None:
    assert "by systemd now, the plan says by process" in check("systemd", "process").problems[0]
    assert "'magic', which this version does not know" in check("magic", "process").problems[0]
    assert f"{KNOB} is going back" in check("process", "process", "going_back").problems[0]


def test_what_goes_back_by_itself() -> None:
    assert [name for name, path in PATHS.items() if path.counts_down] == ["knob_api", "process"]


def test_what_a_sheet_offers() -> None:
    row = KnobRow("max_num_seqs", 8, 8, 1, 64, "requests", 0, apply="restart")
    assert offer(row) == "max_num_seqs 1 to 64 requests, restart"
    switch = KnobRow("asleep", 0, 0, 0, 1, "", 0, apply="restart")
    assert offer(switch) == "asleep 0 to 1, restart"
    assert path_of(KnobSheet("vllm", "", "i", 1, 1, ())) is PATHS["knob_api"]


def test_the_page_about_paths_has_all_of_them_and_who_takes_a_value_back() -> None:
    text = (Path(__file__).resolve().parents[3] / "docs" / "control.md").read_text()
    table = text.partition("| --- | --- | --- | --- |\n")[2].partition("\n\n")[0]
    rows = {cells[1].strip(): cells[4] for line in table.splitlines() if (cells := line.split("|"))}
    assert list(rows) == [f"`{name}`" for name in PATHS]
    for name, path in PATHS.items():
        who = path.way_back.rstrip(",").removeprefix("`enginetop launch`, ")
        assert who.partition(",")[0] in rows[f"`{name}`"]
