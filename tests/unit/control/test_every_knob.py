"""Each knob through the whole loop on the stepped simulator: good values, harmful ones, dying canaries."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from enginetop.fleet.change import ChangeState, Verdict
from enginetop.fleet.plan import Plan
from enginetop.simulator.builtin import scenario_named
from enginetop.simulator.faults import Fault, FaultKind
from enginetop.simulator.scenario import StepTime
from enginetop.simulator.stepped import SteppedWorld
from tests.support.memory_journal import MemoryJournal
from tests.support.stepped_control import VERSION, SteppedTrial, plan_on
from tuners.control.driver import drive, run_change
from tuners.control.progress import Progress
from tuners.control.recovery import progress_document, resume_to_undo
from tuners.control.settings import ControlSettings

BUDGET, SEATS, DRAFTS, THINKING = (
    "max_num_batched_tokens",
    "max_num_seqs",
    "num_speculative_tokens",
    "thinking_token_budget",
)
SHORT = ControlSettings(warmup_seconds=90.0, blocks=10, block_seconds=60.0, soak_seconds=30.0)
Value = tuple[int | None, float | None]


@dataclass(frozen=True)
class Case:
    """A knob of three replicas of a scenario: set to `first` for good, then tried at `to`."""

    knob: str
    scenario: str
    to: int
    first: int | None = None
    engine: tuple[tuple[str, Any], ...] = ()
    traffic: tuple[tuple[str, Any], ...] = ()

    def trial(self) -> SteppedTrial:
        scenario = scenario_named(self.scenario)
        pool = scenario.pools[0]
        plan = pool.members[0].with_engine(**dict(self.engine)).with_traffic(**dict(self.traffic))
        scenario = replace(scenario, pools=(replace(pool, members=(plan,)),))
        trial = SteppedTrial(SteppedWorld(scenario, 3, seed=7))
        trial.stepped.advance(60.0)
        if self.first is not None:
            for target in trial.stepped.targets:
                client = trial.client(target.url)
                assert client is not None
                client.write(
                    self.knob, self.first, if_version=None, ttl_seconds=None, change="before", reason=""
                )
            trial.stepped.advance(60.0)
        return trial


ROOMY_KV = (("kv_blocks", 40_000),)
FAST = (("step", StepTime(6.0, 20.0, 15.0, 1.0)), ("kv_blocks", 7_000))
MANY_THOUGHTS = (("requests_per_second", 2.5),)

GOOD = {
    "fewer tokens a step": Case(BUDGET, "budget-too-large", 768),
    "more tokens a step": Case(BUDGET, "prefill-bound", 2048, 512, (("max_num_batched_tokens", 2048),)),
    "more seats": Case(SEATS, "steady", 128, 24, ROOMY_KV),
    "more drafts": Case(DRAFTS, "speculation-pays", 4, 1),
    "no drafts": Case(DRAFTS, "speculation-hurts", 0, None, (), (("requests_per_second", 4.0),)),
    "shorter thoughts": Case(THINKING, "reasoning-overrun", 1024, None, FAST, MANY_THOUGHTS),
}
HARMFUL = {
    "fewer tokens a step": Case(BUDGET, "already-optimal", 448),
    "fewer seats": Case(SEATS, "steady", 36, None, ROOMY_KV),
    "no drafts": Case(DRAFTS, "speculation-pays", 0),
    "longer thoughts": Case(THINKING, "reasoning-overrun", 16_384, 1024, FAST, MANY_THOUGHTS),
}


def run(trial: SteppedTrial, plan: Plan, journal: MemoryJournal | None = None) -> Progress:
    return run_change(
        plan,
        trial,
        settings=SHORT,
        tool_version=VERSION,
        approved_by="a test",
        journal=journal or MemoryJournal(),
    )


def values(trial: SteppedTrial, knob: str) -> list[Value]:
    """Value and remaining ttl on every replica."""
    found: list[Value] = []
    for target in trial.stepped.targets:
        client = trial.client(target.url)
        sheet = client.read().sheet if client else None
        row = sheet.knob(knob) if sheet else None
        found.append((row.value, row.expires_in_seconds) if row else (None, None))
    return found


def roll_back(trial: SteppedTrial, done: Progress) -> Progress:
    """Undo a finished change as `enginetop rollback` does, from its stored form."""
    again = resume_to_undo(
        progress_document(done),
        now=trial.now(),
        why="asked for",
        settings=SHORT,
        tool_version=VERSION,
    )
    return drive(again, trial, journal=MemoryJournal())


@pytest.mark.parametrize("name", GOOD)
def test_a_good_change_is_proven_seen_kept_and_can_be_rolled_back(name: str) -> None:
    case = GOOD[name]
    trial = case.trial()
    before = values(trial, case.knob)
    end = run(trial, plan_on(trial, case.knob, case.to))
    # two points in ten minutes are seen against both baselines, and not against either alone
    proven = Verdict.NOT_WORSE if name == "no drafts" else Verdict.IMPROVED
    assert (end.state, end.verdict) == (ChangeState.DONE, proven), end.detail
    # thoughts are witnesses only where enough of them end in a window
    assert ("effect seen on 1 of 3" if case.knob == THINKING else "effect seen on 3 of 3") in end.detail
    assert values(trial, case.knob) == [(case.to, None)] * 3
    assert roll_back(trial, end).state is ChangeState.ROLLED_BACK
    assert values(trial, case.knob) == before


@pytest.mark.parametrize("name", HARMFUL)
def test_a_harmful_change_is_rolled_back_by_its_verdict_or_a_guard(name: str) -> None:
    case = HARMFUL[name]
    trial = case.trial()
    before = values(trial, case.knob)
    end = run(trial, plan_on(trial, case.knob, case.to))
    assert end.state is ChangeState.ROLLED_BACK, end.detail
    assert "worse" in end.detail or "guard" in end.detail
    assert values(trial, case.knob) == before


@pytest.mark.parametrize("name", GOOD)
def test_a_canary_that_dies_trips_a_guard(name: str) -> None:
    case = GOOD[name]
    trial = case.trial()
    canary = trial.stepped.targets[0]
    trial.stepped.inject(canary.name, Fault(FaultKind.DOWN, trial.now() % 1000 + 300.0, 30.0))
    end = run(trial, plan_on(trial, case.knob, case.to))
    assert (end.state, end.verdict) == (ChangeState.ROLLED_BACK, None)
    assert canary.name in end.detail
    trial.stepped.advance(120.0)
    # a new process has its start value; the others were never touched
    start = plan_on(case.trial(), case.knob, case.to).canary.before
    assert values(trial, case.knob)[1:] == [(start, None)] * 2
