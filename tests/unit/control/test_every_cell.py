"""Each knob, live and by restart: what the rules suggest is tried, proven, kept and rolled back again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pytest

from enginetop.fleet.change import ChangeState, Verdict
from enginetop.fleet.knobs import KnobSheet
from enginetop.fleet.model import EngineKind
from enginetop.fleet.plan import Plan
from enginetop.fleet.signals import KNOBS
from enginetop.fleet.snapshot import Advice
from enginetop.simulator.builtin import scenario_named
from enginetop.simulator.scenario import StepTime
from enginetop.simulator.stepped import SteppedWorld
from tests.support.memory_journal import MemoryJournal
from tests.support.stepped_control import VERSION, SteppedTrial
from tests.support.stepped_restarts import RestartedTrial
from tests.support.virtual_fleet import three
from tuners.advice import Advisor
from tuners.control.driver import drive, run_change
from tuners.control.flags import FLAGS
from tuners.control.planning import NoPlanError, plan_from_advice
from tuners.control.recovery import progress_document, resume_to_undo
from tuners.control.settings import ControlSettings
from tuners.control.start_values import start_knobs

LIVE, RESTART = "live", "restart"
BUDGET, SEATS, DRAFTS, THINKING = (
    "max_num_batched_tokens",
    "max_num_seqs",
    "num_speculative_tokens",
    "thinking_token_budget",
)
SHORT = ControlSettings(
    warmup_seconds=60.0, restart_warmup_seconds=120.0, blocks=10, block_seconds=60.0, soak_seconds=30.0
)


@dataclass(frozen=True)
class Cell:
    """Three replicas of a scenario, whose knob stands at `before`; the rules suggest `after`.

    `lowered`: that is no start value, but set live before. `flags`: the engine whose command line a restart
    changes.
    """

    scenario: str
    before: int
    after: int
    engine: Mapping[str, Any]
    traffic: Mapping[str, Any]
    lowered: bool = False
    blocks: int = SHORT.blocks
    flags: EngineKind = EngineKind.VLLM


def cell(scenario: str, before: int, after: int, **more: Any) -> Cell:
    return Cell(scenario, before, after, more.pop("engine", {}), more.pop("traffic", {}), **more)


ROOMY: dict[str, Any] = {"kv_blocks": 40_000}
QUICK_THOUGHTS: dict[str, Any] = {
    "engine": {"step": StepTime(6.0, 20.0, 15.0, 1.0), "kv_blocks": 7_000},
    "traffic": {"requests_per_second": 2.5},
}
FEWER: dict[str, Any] = {"traffic": {"requests_per_second": 4.0}}

CELLS: dict[tuple[str, str], Cell] = {
    (BUDGET, LIVE): cell("budget-too-large", 8192, 768),
    (BUDGET, RESTART): cell("prefill-bound", 512, 1024),  # beyond the start value: no live path has that
    # a backlog is worked off in the first ten blocks: by these alone it may have been a lucky time
    (SEATS, LIVE): cell(
        "steady", 24, 48, engine=ROOMY, traffic={"requests_per_second": 2.1}, lowered=True, blocks=20
    ),
    (SEATS, RESTART): cell("steady", 24, 48, engine={**ROOMY, "max_num_seqs": 24}),
    (DRAFTS, LIVE): cell("speculation-hurts", 4, 1, **FEWER),
    (DRAFTS, RESTART): cell("speculation-hurts", 4, 1, **FEWER),
    (THINKING, LIVE): cell("reasoning-overrun", -1, 6144, **QUICK_THOUGHTS),
    # of the engines whose flags are known, llama.cpp alone has one for it
    (THINKING, RESTART): cell("reasoning-overrun", -1, 6144, **QUICK_THOUGHTS, flags=EngineKind.LLAMACPP),
}


def test_no_cell_is_left_out() -> None:
    assert set(CELLS) == set(product(KNOBS, (LIVE, RESTART)))


def world(knob: str, path: str, case: Cell) -> SteppedTrial:
    scenario = scenario_named(case.scenario)
    pool = scenario.pools[0]
    plan = pool.members[0].with_engine(restart_seconds=40.0, **case.engine).with_traffic(**case.traffic)
    stepped = SteppedWorld(replace(scenario, pools=(replace(pool, members=(plan,)),)), 3, seed=7)
    trial = SteppedTrial(stepped) if path == LIVE else RestartedTrial(stepped, case.flags)
    if case.lowered:
        for target in stepped.targets:
            client = trial.client(target.url)
            assert client is not None
            client.write(knob, case.before, if_version=None, ttl_seconds=None, change="before", reason="")
    stepped.advance(60.0)
    return trial


def sheets(trial: SteppedTrial) -> dict[str, KnobSheet]:
    clients = {target.url: trial.client(target.url) for target in trial.stepped.targets}
    replies = {url: client.read() for url, client in clients.items() if client is not None}
    return {url: reply.sheet for url, reply in replies.items() if reply.sheet is not None}


def suggested(trial: SteppedTrial, knob: str) -> tuple[Advice, Plan]:
    """The first suggestion on `knob` that proposes a value, and its plan."""
    advisor = Advisor(lambda: sheets(trial))
    for _ in range(90):
        trial.advance()
        snapshot = advisor(trial.snapshot())
        for replica in snapshot.replicas:
            for row in replica.advice:
                if row.knob == knob and row.proposed is not None:
                    found = sheets(trial)
                    now = trial.now()
                    return row, plan_from_advice(snapshot, replica, row, found, now=now, tool_version=VERSION)
    raise AssertionError(f"nothing was suggested for {knob} in 15 minutes")


def standing(trial: SteppedTrial, knob: str) -> list[tuple[int, int | None, float | None, str]]:
    """What each engine runs with, and what its sheet says: value, remaining ttl, phase."""
    found: list[tuple[int, int | None, float | None, str]] = []
    for target, sheet in zip(trial.stepped.targets, sheets(trial).values(), strict=True):
        in_force = {state.name: state.value for state in trial.stepped.replica(target.name).knobs()}
        row = sheet.knob(knob)
        assert row is not None
        found.append((in_force[knob], row.value, row.expires_in_seconds, row.phase))
    return found


SLOWEST = ((DRAFTS, LIVE), (THINKING, LIVE), (DRAFTS, RESTART), (THINKING, RESTART))
"""Live ones of `test_every_knob.py`, and two by restart, go through the loop in every run."""


@pytest.mark.parametrize(
    ("knob", "path"),
    [pytest.param(*one, marks=pytest.mark.verify) if one in SLOWEST else one for one in CELLS],
)
def test_suggested_tried_kept_and_rolled_back(knob: str, path: str) -> None:
    case = CELLS[knob, path]
    trial = world(knob, path, case)
    advice, plan = suggested(trial, knob)
    assert (advice.apply, advice.via) == (path, "knob_api" if path == LIVE else "process")
    assert (plan.canary.before, plan.canary.after) == (case.before, case.after)
    former = [(case.before, case.before, None, "")] * 3
    assert standing(trial, knob) == former

    journal = MemoryJournal()
    settings = replace(SHORT, blocks=case.blocks)
    end = run_change(
        plan, trial, settings=settings, tool_version=VERSION, approved_by="a test", journal=journal
    )
    assert end.state is ChangeState.DONE, end.detail
    assert end.verdict in (Verdict.IMPROVED, Verdict.NOT_WORSE)
    states = dict.fromkeys(row.state for row in journal.rows)
    assert list(states) == [
        ChangeState.PLANNED,
        ChangeState.PREFLIGHT,
        ChangeState.APPROVED,
        ChangeState.CANARY,
        ChangeState.WARMUP,
        ChangeState.OBSERVE,
        ChangeState.PROMOTE,
        ChangeState.VERIFY,
        ChangeState.DONE,
    ]
    assert standing(trial, knob) == [(case.after, case.after, None, "")] * 3
    # thoughts are witnesses only where enough of them end in a window
    assert ("effect seen on 3 of 3" in end.detail) or knob == THINKING

    back = resume_to_undo(
        progress_document(end), now=trial.now(), why="asked for", settings=SHORT, tool_version=VERSION
    )
    assert drive(back, trial, journal=MemoryJournal()).state is ChangeState.ROLLED_BACK
    assert standing(trial, knob) == former
    if isinstance(trial, RestartedTrial):
        assert [len(engine.starts) for engine in trial.engines.values()] == [2, 2, 2]
        assert trial.most_out_of_service == 1


# What cannot be

WITHOUT_A_FLAG = {
    (EngineKind.VLLM, THINKING): "vllm takes it per request: thinking_token_budget (0.19)",
    (EngineKind.SGLANG, DRAFTS): "--speculative-num-draft-tokens",
    (EngineKind.SGLANG, THINKING): "sglang takes it per request: custom_params.thinking_budget",
    (EngineKind.TRTLLM, DRAFTS): "speculative_config.max_draft_len",
    (EngineKind.TRTLLM, THINKING): "trtllm takes it per request: thinking_token_budget",
    (EngineKind.TGI, THINKING): "tgi: no thinking budget",
    (EngineKind.LMDEPLOY, THINKING): "lmdeploy: no thinking budget",
}
"""Knobs that no flag sets by which enginetop could restart the engine, and how it says so."""


@pytest.mark.parametrize(("kind", "knob"), product(FLAGS, KNOBS))
def test_a_knob_that_no_restart_sets_is_refused_by_name_and_with_its_reason(
    kind: EngineKind, knob: str
) -> None:
    config = json.dumps({"num_speculative_tokens": 4})
    argv = ("vllm", "serve", "m", "--speculative-config", config) if kind is EngineKind.VLLM else ("x",)
    offered = {known.name for known in start_knobs(argv, kind)}
    assert (knob in offered) is ((kind, knob) not in WITHOUT_A_FLAG)
    if knob in offered:
        return
    snapshot = three().snapshot()
    replica = replace(snapshot.replicas[0], engine=kind)
    sheet = KnobSheet(kind.value, "", "launch-1", 1, 1, (), writer="process")
    advice = Advice(knob, "lower", (), current=8, proposed=4)
    with pytest.raises(NoPlanError) as caught:
        plan_from_advice(
            snapshot, replica, advice, {replica.target.url: sheet}, now=0.0, tool_version=VERSION
        )
    assert f"has no knob {knob} by process" in str(caught.value)
    assert WITHOUT_A_FLAG[kind, knob] in str(caught.value)
