"""The loop on the simulated engines themselves, in virtual time: physics, knob API and counters as served."""

from __future__ import annotations

from dataclasses import replace

import pytest

from enginetop.fleet.change import ChangeState, Verdict
from enginetop.simulator.builtin import scenario_named
from enginetop.simulator.faults import Fault, FaultKind
from enginetop.simulator.scenario import Scenario
from enginetop.simulator.stepped import SteppedWorld
from tests.support.memory_journal import DiedError, DiesInObservation, MemoryJournal
from tests.support.stepped_control import VERSION, SteppedTrial, plan_on
from tuners.control.driver import run_change
from tuners.control.observe import JUDGED, WITHIN
from tuners.control.progress import Progress
from tuners.control.settings import ControlSettings

BUDGET = "max_num_batched_tokens"
SHORT = ControlSettings(warmup_seconds=90.0, blocks=10, block_seconds=60.0, soak_seconds=30.0)


def world(name: str, **traffic: float) -> SteppedTrial:
    scenario: Scenario = scenario_named(name)
    if traffic:
        (pool,) = scenario.pools
        members = tuple(member.with_traffic(**traffic) for member in pool.members)
        scenario = replace(scenario, pools=(replace(pool, members=members),))
    trial = SteppedTrial(SteppedWorld(scenario, 3, seed=7))
    trial.stepped.advance(60.0)
    return trial


def run(trial: SteppedTrial, to: int, journal: MemoryJournal | None = None) -> Progress:
    return run_change(
        plan_on(trial, BUDGET, to),
        trial,
        settings=SHORT,
        tool_version=VERSION,
        approved_by="a test",
        journal=journal or MemoryJournal(),
    )


def budgets(trial: SteppedTrial) -> list[tuple[int | None, float | None]]:
    """Value and remaining ttl of every replica's budget."""
    found = []
    for target in trial.stepped.targets:
        client = trial.client(target.url)
        sheet = client.read().sheet if client else None
        row = sheet.knob(BUDGET) if sheet else None
        found.append((row.value, row.expires_in_seconds) if row else (None, None))
    return found


def attainment(trial: SteppedTrial, seconds: float) -> float:
    """Exact share within the SLO over the next seconds, all replicas together."""
    before = trial.snapshot().replicas
    trial.stepped.advance(seconds)
    after = trial.snapshot().replicas
    judged, within = (
        sum(b.totals[name] - a.totals[name] for a, b in zip(before, after, strict=True))
        for name in (JUDGED, WITHIN)
    )
    return within / judged


def test_too_large_a_budget_is_lowered_and_the_exact_goodput_is_better() -> None:
    trial = world("budget-too-large")
    before = attainment(trial, 300.0)
    end = run(trial, 768)
    assert (end.state, end.verdict) == (ChangeState.DONE, Verdict.IMPROVED)
    assert budgets(trial) == [(768, None)] * 3
    after = attainment(trial, 300.0)
    assert after > before + 0.1


def test_a_harmful_change_is_rolled_back_by_itself() -> None:
    trial = world("already-optimal")
    end = run(trial, 448)
    assert end.state is ChangeState.ROLLED_BACK
    assert end.verdict in (Verdict.WORSE, None)
    assert budgets(trial) == [(768, None)] * 3


def test_low_traffic_ends_inconclusive() -> None:
    trial = world("budget-too-large", requests_per_second=0.02)
    end = run(trial, 768)
    assert (end.state, end.verdict) == (ChangeState.HELD, Verdict.INCONCLUSIVE)
    assert budgets(trial) == [(8192, None)] * 3


@pytest.mark.parametrize("replica", [0, 1], ids=["canary", "baseline"])
def test_a_fault_in_the_middle_trips_a_guard(replica: int) -> None:
    trial = world("budget-too-large")
    target = trial.stepped.targets[replica]
    trial.stepped.inject(target.name, Fault(FaultKind.DOWN, 400.0, 30.0))
    end = run(trial, 768)
    assert end.state is ChangeState.ROLLED_BACK
    assert end.verdict is None
    assert target.name in end.detail
    trial.stepped.advance(300.0)
    assert budgets(trial)[1:] == [(8192, None)] * 2
    assert budgets(trial)[0] == (8192, None)


def test_a_controller_that_vanishes_leaves_nothing_behind() -> None:
    trial = world("budget-too-large")
    with pytest.raises(DiedError):
        run(trial, 768, DiesInObservation())
    value, left = budgets(trial)[0]
    assert value == 768
    assert left is not None
    assert left <= SHORT.ttl_seconds
    trial.stepped.advance(SHORT.ttl_seconds + 1.0)
    assert budgets(trial) == [(8192, None)] * 3
