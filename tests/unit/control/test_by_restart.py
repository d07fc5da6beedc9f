"""The loop by restarts on the stepped simulator: values beyond the start value, cold caches, ways back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from enginetop.fleet.change import ChangeState, Verdict
from enginetop.simulator.builtin import scenario_named
from enginetop.simulator.stepped import SteppedWorld
from tests.support.memory_journal import DiedError, DiesInObservation, MemoryJournal
from tests.support.stepped_control import VERSION, plan_on
from tests.support.stepped_restarts import RestartedTrial
from tuners.control.driver import drive, run_change
from tuners.control.progress import Progress
from tuners.control.recovery import progress_document, resume_to_undo
from tuners.control.settings import ControlSettings

SHORT = ControlSettings(
    warmup_seconds=60.0, restart_warmup_seconds=120.0, blocks=10, block_seconds=60.0, soak_seconds=30.0
)


def world(name: str, **engine: object) -> RestartedTrial:
    scenario = scenario_named(name)
    pool = scenario.pools[0]
    plan = pool.members[0].with_engine(restart_seconds=40.0, **engine)
    trial = RestartedTrial(
        SteppedWorld(replace(scenario, pools=(replace(pool, members=(plan,)),)), 3, seed=7)
    )
    trial.stepped.advance(60.0)
    return trial


def run(trial: RestartedTrial, knob: str, to: int, journal: MemoryJournal | None = None) -> Progress:
    return run_change(
        plan_on(trial, knob, to),
        trial,
        settings=SHORT,
        tool_version=VERSION,
        approved_by="a test",
        journal=journal or MemoryJournal(),
    )


def values(trial: RestartedTrial, knob: str) -> list[tuple[int | None, int | None, float | None, str]]:
    """What each engine runs with, and what its sheet says: value, remaining ttl, phase."""
    found: list[tuple[int | None, int | None, float | None, str]] = []
    for target in trial.stepped.targets:
        client = trial.client(target.url)
        sheet = client.read().sheet if client else None
        row = sheet.knob(knob) if sheet else None
        assert row is not None
        in_force: int = getattr(trial.stepped.replica(target.name).plan.engine, knob)
        found.append((in_force, row.value, row.expires_in_seconds, row.phase))
    return found


def test_a_good_change_is_promoted_one_restart_at_a_time() -> None:
    trial = world("speculation-hurts")
    journal = MemoryJournal()
    end = run(trial, "num_speculative_tokens", 0, journal)  # the flag is taken out
    assert (end.state, end.verdict) == (ChangeState.DONE, Verdict.IMPROVED), end.detail
    assert values(trial, "num_speculative_tokens") == [(0, 0, None, "")] * 3
    assert [len(engine.starts) for engine in trial.engines.values()] == [1, 1, 1]
    assert trial.most_out_of_service == 1
    assert {change.via for change in end.plan.changes} == {"process"}
    said = " ".join(row.detail for row in journal.rows)
    assert "one at a time: it is drained first" in said
    assert "cold caches" in said


def test_a_harmful_change_is_restarted_back() -> None:
    trial = world("speculation-pays")
    end = run(trial, "num_speculative_tokens", 0)
    assert (end.state, end.verdict) == (ChangeState.ROLLED_BACK, Verdict.WORSE), end.detail
    assert values(trial, "num_speculative_tokens") == [(4, 4, None, "")] * 3
    assert [len(engine.starts) for engine in trial.engines.values()] == [2, 0, 0]


def test_an_engine_that_does_not_come_back_with_the_new_value_runs_with_the_former() -> None:
    trial = world("prefill-bound")
    canary = next(iter(trial.engines.values()))
    canary.stays_down.add(2048)
    end = run(trial, "max_num_batched_tokens", 2048)
    assert end.state is ChangeState.ROLLED_BACK
    assert "max_num_batched_tokens 2048 did not work: it ended with exit code 1" in end.detail
    assert values(trial, "max_num_batched_tokens")[0] == (512, 512, None, "")


def test_an_engine_that_does_not_come_back_at_all_is_a_failed_rollback_with_the_command() -> None:
    trial = world("prefill-bound")
    canary = next(iter(trial.engines.values()))
    canary.stays_down |= {2048, 512}
    end = run(trial, "max_num_batched_tokens", 2048)
    assert end.state is ChangeState.ROLLBACK_FAILED
    assert f"by hand: restart {canary.replica.name}" in end.detail


def test_what_is_half_promoted_goes_back_one_restart_at_a_time_and_nothing_expires_meanwhile() -> None:
    trial = world("prefill-bound")
    # a way back of 60 s is longer than a loan and draining: what waits for its turn has to be renewed
    settings = replace(SHORT, ttl_seconds=30.0)
    journal = MemoryJournal()

    def stop() -> str:
        return "asked for" if any(row.detail.startswith("2 of 3 written") for row in journal.rows) else ""

    end = run_change(
        plan_on(trial, "max_num_batched_tokens", 1024),
        trial,
        settings=settings,
        tool_version=VERSION,
        approved_by="a test",
        journal=journal,
        stop=stop,
    )
    assert end.state is ChangeState.ROLLED_BACK
    assert values(trial, "max_num_batched_tokens") == [(512, 512, None, "")] * 3
    assert [len(engine.starts) for engine in trial.engines.values()] == [2, 2, 0]
    assert trial.most_out_of_service == 1


def test_a_pool_that_is_rolled_back_goes_on_beside_one_that_does_not_come_back() -> None:
    trial = world("prefill-bound")
    done = run(trial, "max_num_batched_tokens", 1024)
    assert done.state is ChangeState.DONE
    first, *others = trial.engines.values()
    first.stays_down |= {512, 1024}
    began = trial.now()
    end = drive(
        resume_to_undo(
            progress_document(done), now=began, why="asked for", settings=SHORT, tool_version=VERSION
        ),
        trial,
        journal=MemoryJournal(),
    )
    assert end.state is ChangeState.ROLLBACK_FAILED
    assert f"by hand: restart {first.replica.name}" in end.detail
    assert [len(engine.starts) for engine in others] == [2, 2]
    assert [row[:2] for row in values(trial, "max_num_batched_tokens")[1:]] == [(512, 512)] * 2
    assert trial.now() - began < 300.0  # a person is told at once, not when all patience is over


@pytest.mark.parametrize(
    ("knob", "scenario", "to", "words"),
    [
        ("num_speculative_tokens", "speculation-hurts", 0, "does not work on http://simulated:9000"),
        ("max_num_batched_tokens", "prefill-bound", 2048, "its pages show no restart"),
    ],
)
def test_a_restart_that_changed_nothing_is_found_out(knob: str, scenario: str, to: int, words: str) -> None:
    trial = world(scenario)
    next(iter(trial.engines.values())).lies = True
    journal = MemoryJournal()
    end = run(trial, knob, to, journal)
    assert end.state is not ChangeState.DONE
    assert any(words in row.detail for row in journal.rows)


def test_a_controller_that_vanishes_leaves_nothing_behind() -> None:
    trial = world("prefill-bound")
    with pytest.raises(DiedError):
        run(trial, "max_num_batched_tokens", 2048, DiesInObservation())
    assert values(trial, "max_num_batched_tokens")[0][:2] == (2048, 2048)
    trial.stepped.advance(SHORT.ttl_seconds)
    for _ in range(20):
        values(
            trial, "max_num_batched_tokens"
        )  # whoever asks lets the board go on; a launcher does by itself
        trial.stepped.advance(10.0)
    assert values(trial, "max_num_batched_tokens")[0] == (512, 512, None, "")
