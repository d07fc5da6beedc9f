"""Whole changes on a virtual fleet: every way to end, and what is written on the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from enginetop.fleet.change import AuditRow, ChangeState, ChangeView, Verdict
from enginetop.fleet.model import ReplicaState
from tests.support.control_runs import SHORT, gain, loss, run, values
from tests.support.memory_journal import MemoryJournal
from tests.support.virtual_fleet import KNOB, START, Engine, VirtualFleet, plan_for, three
from tuners.control.progress import Progress
from tuners.control.view import view_of

OLD, NEW = 2048, 512
BACK = [(OLD, None)] * 3


def states(rows: list[AuditRow]) -> list[str]:
    """The states in the order in which the audit has them, repeats left out."""
    found: list[str] = []
    for row in rows:
        state = row.state.value
        if not found or found[-1] != state:
            found.append(state)
    return found


def test_a_gain_is_promoted_in_waves_and_made_permanent() -> None:
    fleet = three(attainment=gain)
    end, rows = run(fleet)
    assert (end.state, end.verdict) == (ChangeState.DONE, Verdict.IMPROVED)
    assert values(fleet) == [(NEW, None)] * 3
    path = "PLANNED PREFLIGHT APPROVED CANARY WARMUP OBSERVE PROMOTE VERIFY DONE"
    assert " ".join(states(rows)) == path
    canary, *others = fleet.engines.values()
    first = canary.writes[0]
    assert first == (START, NEW, 180.0)
    # nobody else is touched before the observation is over: 120 s of warm-up and 10 blocks of 60 s
    assert all(engine.writes[0][0] >= START + 720 for engine in others)
    # two waves, a minute apart
    assert others[1].writes[0][0] - others[0].writes[0][0] >= 60
    # the last write of each has no ttl, all others have
    for engine in fleet.engines.values():
        assert engine.writes[-1][2] is None
        assert all(ttl == 180.0 for _, _, ttl in engine.writes[:-1])


def _waves(most_at_once: int | None) -> list[list[str]]:
    """Twelve replicas, four of them baselines: who was written first in each wave."""
    engines = [Engine(f"http://r{n:02}:8000", 1000 + n, attainment=gain) for n in range(12)]
    fleet = VirtualFleet(engines)
    end, _ = run(fleet, settings=replace(SHORT, most_at_once=most_at_once))
    assert end.state is ChangeState.DONE
    assert end.baselines == tuple(f"http://r{n:02}:8000" for n in (1, 2, 3, 4))
    first = sorted((engine.writes[0][0], engine.url[7:10]) for engine in engines[1:])
    return [[name for at, name in first if at == moment] for moment in sorted({at for at, _ in first})]


def test_baselines_are_changed_last_and_a_wave_is_no_larger_than_asked_for() -> None:
    assert _waves(None) == [
        ["r05", "r06", "r07"],
        ["r08", "r09", "r10"],
        ["r01", "r02", "r11"],
        ["r03", "r04"],
    ]
    assert _waves(2)[0] == ["r05", "r06"]
    assert max(map(len, _waves(2))) == 2


def test_every_value_is_renewed_long_before_it_expires() -> None:
    fleet = three(attainment=gain)
    run(fleet)
    times = [at for at, _, _ in next(iter(fleet.engines.values())).writes]
    assert max(later - earlier for earlier, later in pairwise(times)) <= 90


def test_a_loss_is_rolled_back_on_the_canary_and_goes_no_further() -> None:
    fleet = three(attainment=loss)
    end, rows = run(fleet)
    assert (end.state, end.verdict) == (ChangeState.ROLLED_BACK, Verdict.WORSE)
    assert values(fleet) == BACK
    assert [len(engine.writes) > 0 for engine in fleet.engines.values()] == [True, False, False]
    assert rows[-1].verdict is Verdict.WORSE


def test_low_traffic_ends_inconclusive_with_the_value_back() -> None:
    fleet = three(attainment=gain, rate=0.05)
    end, _ = run(fleet)
    assert (end.state, end.verdict) == (ChangeState.HELD, Verdict.INCONCLUSIVE)
    assert "too little traffic" in end.detail
    assert values(fleet) == BACK


def test_a_plan_for_the_canary_alone_needs_no_wave() -> None:
    fleet = three(attainment=gain)
    end, _ = run(fleet, plan_for(fleet, promote=False))
    assert end.state is ChangeState.DONE
    assert values(fleet) == [(NEW, None), (OLD, None), (OLD, None)]


def _set(engine: Engine, **changes: object) -> Callable[[], None]:
    def apply() -> None:
        for name, value in changes.items():
            setattr(engine, name, value)

    return apply


FAULTS: dict[str, tuple[Callable[[VirtualFleet, Engine, Engine], Callable[[], None]], str]] = {
    "canary down": (lambda f, c, b: _set(c, state=ReplicaState.DOWN), "r1:8000 is down"),
    "canary stale": (lambda f, c, b: _set(c, state=ReplicaState.STALE), "r1:8000 is stale"),
    "canary makes no progress": (lambda f, c, b: _set(c, state=ReplicaState.NO_PROGRESS), "no_progress"),
    "baseline down": (lambda f, c, b: _set(b, state=ReplicaState.DOWN), "r2:8000 is down"),
    "baseline restarted": (lambda f, c, b: lambda: b.restart(f.time), "r2:8000 restarted"),
    "canary errs": (lambda f, c, b: _set(c, error_ratio=0.1), "guard errors"),
    "canary preempts": (lambda f, c, b: _set(c, preemptions_per_second=1.0), "guard preemptions"),
    "canary loses throughput": (lambda f, c, b: _set(c, tokens_per_request=100.0), "guard throughput"),
    "canary gone": (lambda f, c, b: lambda: _vanish(f, c), "is gone"),
    "somebody writes": (lambda f, c, b: lambda: c._set(f.time, 300, None), "300, not 512"),
    "somebody resets": (lambda f, c, b: lambda: c._set(f.time, OLD, None), "2048, not 512"),
}


def _vanish(fleet: VirtualFleet, engine: Engine) -> None:
    fleet.hidden.add(engine.url)


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("at", [60.0, 400.0], ids=["warm-up", "observation"])
def test_a_fault_in_the_middle_trips_a_guard_and_the_value_is_back_at_once(name: str, at: float) -> None:
    fleet = three(attainment=gain)
    canary, baseline, _ = fleet.engines.values()
    make, words = FAULTS[name]
    fleet.at(at, make(fleet, canary, baseline))
    end, _ = run(fleet)
    assert end.state is ChangeState.ROLLED_BACK
    assert words in end.detail
    assert end.verdict is None
    expected = 300 if name == "somebody writes" else OLD
    assert values(fleet) == [(expected, None), (OLD, None), (OLD, None)]
    # the gravest are seen at the next tick; counts need a window or two to be told from chance
    assert fleet.time - START <= at + 150


@pytest.mark.parametrize("what", [{"prompt_tokens": 1100.0}, {"tokens_per_request": 300.0}])
def test_a_canary_with_other_traffic_is_no_comparison(what: dict[str, float]) -> None:
    fleet = three(attainment=gain)
    _set(next(iter(fleet.engines.values())), **what)()
    end, _ = run(fleet)
    assert end.state is ChangeState.ROLLED_BACK
    assert "guard traffic mix" in end.detail
    assert fleet.time - START == 120 + 5 * 60  # told from chance after the fifth block


def test_a_little_difference_of_traffic_is_chance() -> None:
    fleet = three(attainment=gain)
    _set(next(iter(fleet.engines.values())), prompt_tokens=960.0, tokens_per_request=262.0)()
    assert run(fleet)[0].state is ChangeState.DONE


def test_a_page_that_comes_late_is_no_reason_to_go_back() -> None:
    fleet = three(attainment=gain)
    canary = next(iter(fleet.engines.values()))
    fleet.at(300.0, _set(canary, state=ReplicaState.STALE))
    fleet.at(310.0, _set(canary, state=ReplicaState.OK))
    assert run(fleet)[0].state is ChangeState.DONE


def test_what_happens_to_the_whole_fleet_is_not_blamed_on_the_change() -> None:
    fleet = three(attainment=gain)
    for engine in fleet.engines.values():
        fleet.at(
            300.0,
            _set(engine, error_ratio=0.1, preemptions_per_second=1.0, tokens_per_request=100.0),
        )
    end, _ = run(fleet)
    assert end.state is ChangeState.DONE


@pytest.mark.parametrize(
    ("rate", "attainment", "words"),
    [
        (9.9, gain, "improved, but the canary served 1"),
        (9.9, lambda value: 0.93 if value == NEW else 0.95, "not_worse, but the canary served 1"),
        (16.0, loss, "worse, but the canary served 3"),
    ],
)
def test_what_a_router_moves_is_neither_credited_to_the_change_nor_blamed_on_it(
    rate: float, attainment: Callable[[int], float], words: str
) -> None:
    fleet = three(attainment=attainment, rate=12.0)
    _set(next(iter(fleet.engines.values())), rate=rate)()
    end, _ = run(fleet, settings=replace(SHORT, margin=0.05))
    assert (end.state, end.verdict) == (ChangeState.HELD, Verdict.INCONCLUSIVE)
    assert words in end.detail
    assert values(fleet) == BACK


@pytest.mark.parametrize(("rate", "attainment"), [(16.0, gain), (9.9, loss)])
def test_a_change_that_stands_out_in_spite_of_the_load_is_judged(
    rate: float, attainment: Callable[[int], float]
) -> None:
    fleet = three(attainment=attainment, rate=12.0)
    _set(next(iter(fleet.engines.values())), rate=rate)()
    assert run(fleet)[0].verdict is (Verdict.IMPROVED if attainment is gain else Verdict.WORSE)


def test_a_baseline_that_falls_ill_makes_no_change_a_good_one() -> None:
    """Nothing is changed by the new value; one baseline is slow from the third block on."""
    fleet = three()
    _, ill, _ = fleet.engines.values()
    fleet.at(300.0, _set(ill, attainment=lambda _: 0.8))
    end, _ = run(fleet, settings=replace(SHORT, margin=0.05))
    assert (end.state, end.verdict) == (ChangeState.DONE, Verdict.NOT_WORSE)
    assert end.judgement is not None
    assert end.judgement.why.endswith("no gain without http://r2:8000")


@pytest.mark.parametrize(
    ("who", "name", "value", "words"),
    [
        (0, "max_num_seqs", 64, "r1:8000: max_num_seqs was set from 256 to 64 by somebody else"),
        (1, "max_num_seqs", 64, "r2:8000: max_num_seqs was set from 256 to 64 by somebody else"),
        (2, KNOB, 1024, "r3:8000: max_num_batched_tokens was set from 2048 to 1024 by somebody else"),
    ],
)
def test_a_setting_that_somebody_changes_beside_the_trial_ends_it(
    who: int, name: str, value: int, words: str
) -> None:
    fleet = three(attainment=gain)
    engine = list(fleet.engines.values())[who]
    for other in fleet.engines.values():
        other.seats = 256
    fleet.at(400.0, _set(engine, **{"seats" if name == "max_num_seqs" else "value": value}))
    end, _ = run(fleet)
    assert (end.state, end.verdict) == (ChangeState.ROLLED_BACK, None)
    assert words in end.detail
    assert fleet.time - START <= 400 + 60 + 20
    assert values(fleet) == [(1024 if (n, name) == (2, KNOB) else OLD, None) for n in range(3)]


def test_a_canary_that_restarts_needs_no_write_to_be_back() -> None:
    fleet = three(attainment=gain)
    canary = next(iter(fleet.engines.values()))
    fleet.at(300.0, lambda: canary.restart(fleet.time))
    end, _ = run(fleet)
    assert end.state is ChangeState.ROLLED_BACK
    assert "restarted" in end.detail
    assert canary.value == OLD


def test_a_restart_is_noticed_by_the_instance_even_where_value_and_pages_look_the_same() -> None:
    fleet = three(attainment=gain)
    canary = next(iter(fleet.engines.values()))

    def restart() -> None:
        canary.start = NEW
        canary.restart(fleet.time)
        canary.events.clear()

    fleet.at(300.0, restart)
    end, _ = run(fleet)
    assert end.state is ChangeState.ROLLED_BACK
    assert "was restarted and runs with 512" in end.detail


@pytest.mark.parametrize("forever", [False, True])
def test_an_engine_that_restarted_before_its_wave_gets_its_former_value_again(forever: bool) -> None:
    """The write reaches the new process: it is taken back, also where no ttl would do that (`forever`)."""
    fleet = three(attainment=gain)
    follower = list(fleet.engines.values())[2]
    set_value = follower._set

    def restart() -> None:
        follower.restart(fleet.time)
        follower.events.clear()
        if forever:
            follower._set = lambda now, value, ttl: set_value(now, value, None)  # type: ignore[method-assign]

    fleet.at(60.0, restart)
    end, _ = run(fleet)
    assert end.state is ChangeState.ROLLED_BACK
    assert "was restarted and runs with 2048" in end.detail
    assert [value for _, value, _ in follower.writes] == [NEW, OLD]
    assert values(fleet) == BACK


def test_an_engine_that_cannot_be_reached_goes_back_by_itself_and_that_is_found_out() -> None:
    fleet = three(attainment=gain)
    canary = next(iter(fleet.engines.values()))
    fleet.at(300.0, _set(canary, reachable=False))
    fleet.at(560.0, _set(canary, reachable=True))
    end, _ = run(fleet)
    assert end.state is ChangeState.ROLLED_BACK
    assert "could not be renewed" in end.detail
    assert values(fleet) == BACK
    assert [ttl for _, _, ttl in canary.writes] == [180.0] * len(canary.writes)


def test_a_rollback_that_cannot_be_confirmed_fails_and_says_what_to_do() -> None:
    fleet = three(attainment=gain)
    canary = next(iter(fleet.engines.values()))
    fleet.at(300.0, _set(canary, reachable=False))
    end, rows = run(fleet)
    assert end.state is ChangeState.ROLLBACK_FAILED
    assert f"set {KNOB} back to 2048" in end.detail
    assert "enginetop rollback 7f3a" in end.detail
    assert rows[-1].state is ChangeState.ROLLBACK_FAILED


def test_an_engine_that_says_yes_and_does_nothing_is_found_out() -> None:
    fleet = three(attainment=gain, deaf=True)
    end, _ = run(fleet)
    assert end.state is ChangeState.ROLLED_BACK
    assert "2048, not 512" in end.detail


def test_a_value_that_the_engine_does_not_obey_is_found_out_by_its_steps() -> None:
    fleet = three(attainment=gain, frozen_steps=1500.0)
    end, _ = run(fleet)
    assert (end.state, end.verdict) == (ChangeState.ROLLED_BACK, None)
    assert "more than 512" in end.detail
    assert fleet.time - START == 120  # after the warm-up: nothing is judged that is not in force


def test_a_rollback_that_does_not_stick_is_not_called_one() -> None:
    fleet = three(attainment=loss)
    canary = next(iter(fleet.engines.values()))

    def deaf_from_now() -> None:
        canary.deaf, canary.expires_at = True, None

    fleet.at(700.0, deaf_from_now)
    end, _ = run(fleet)
    assert end.state is ChangeState.ROLLBACK_FAILED
    assert canary.value == NEW


def test_a_fault_in_a_wave_brings_everything_back() -> None:
    fleet = three(attainment=gain)
    last = list(fleet.engines.values())[2]
    fleet.at(800.0, _set(last, state=ReplicaState.DOWN))
    end, _ = run(fleet)
    assert (end.state, end.verdict) == (ChangeState.ROLLED_BACK, Verdict.IMPROVED)
    assert values(fleet) == BACK


def test_a_value_moved_before_its_wave_is_a_conflict_and_is_left_alone() -> None:
    fleet = three(attainment=gain)
    last = list(fleet.engines.values())[2]
    fleet.at(770.0, lambda: last._set(fleet.time, 1024, None))
    end, _ = run(fleet)
    assert end.state is ChangeState.ROLLED_BACK
    assert "conflict" in end.detail
    assert "set to 1024 by somebody else, which was left as it is" in end.detail
    assert values(fleet) == [(OLD, None), (OLD, None), (1024, None)]


@pytest.mark.parametrize(
    ("status", "state", "words"),
    [
        (409, ChangeState.REFUSED, "conflict"),
        (422, ChangeState.REFUSED, "out_of_bounds"),
        (401, ChangeState.REFUSED, "unauthorized"),
        (404, ChangeState.REFUSED, "missing"),
        (503, ChangeState.ROLLED_BACK, "not every rank"),
        (500, ChangeState.ROLLED_BACK, "2048, not 512"),
        (None, ChangeState.ROLLED_BACK, "2048, not 512"),
    ],
)
def test_a_first_write_that_is_not_taken(status: int | None, state: ChangeState, words: str) -> None:
    fleet = three(attainment=gain)
    canary = next(iter(fleet.engines.values()))
    canary.statuses = [0, status]
    end, rows = run(fleet)
    assert end.state is state
    assert words in end.detail
    assert values(fleet) == BACK
    assert rows[-1].detail == end.detail


def test_a_first_write_that_is_too_soon_is_tried_again() -> None:
    fleet = three(attainment=gain)
    next(iter(fleet.engines.values())).statuses = [0, 429, 429]
    assert run(fleet)[0].state is ChangeState.DONE


def test_a_write_whose_answer_is_lost_counts_as_done_once_it_is_read_back() -> None:
    fleet = three(attainment=gain)
    next(iter(fleet.engines.values())).statuses = [0, -1, None]
    assert run(fleet)[0].state is ChangeState.DONE


@pytest.mark.parametrize("at", [0.0, 60.0, 500.0, 760.0, 850.0])
def test_a_stop_at_any_time_brings_everything_back(at: float) -> None:
    fleet = three(attainment=gain)
    end, _ = run(fleet, stop=lambda: "the kill switch is on" if fleet.time >= START + at else "")
    assert end.state is (ChangeState.REFUSED if at == 0 else ChangeState.ROLLED_BACK)
    assert "the kill switch is on" in end.detail
    assert values(fleet) == BACK
    assert fleet.time <= START + at + fleet.tick


def test_nothing_is_done_that_could_not_be_audited() -> None:
    fleet = three(attainment=gain)
    end, _ = run(fleet, journal=FullDisk(fleet, 400.0))
    assert end.state is ChangeState.ROLLED_BACK
    assert "cannot be written (disk full)" in end.detail
    assert values(fleet) == BACK


class FullDisk:
    """A journal that fails from some time on."""

    def __init__(self, fleet: VirtualFleet, seconds: float) -> None:
        self.fleet = fleet
        self.since = START + seconds

    def save(self, progress: Progress) -> None:
        if self.fleet.time >= self.since:
            raise OSError(28, "disk full")

    def append(self, rows: object) -> None:
        self.save(None)  # type: ignore[arg-type]

    def stop_wanted(self, change: str) -> str:
        return ""


class RefusesWritesOn(MemoryJournal):
    """A journal whose disk is full from the first row about a write on `target`."""

    def __init__(self, target: str) -> None:
        super().__init__()
        self.target = target
        self.full = False

    def append(self, rows: Sequence[AuditRow]) -> None:
        self.full = self.full or any(
            row.target == self.target and row.detail.startswith("write") for row in rows
        )
        if self.full:
            raise OSError(28, "disk full")
        super().append(rows)


def test_a_write_that_could_not_be_audited_is_not_made() -> None:
    fleet = three(attainment=gain)
    end, _ = run(fleet, journal=RefusesWritesOn("http://r2:8000"))
    assert end.state is ChangeState.ROLLED_BACK
    assert values(fleet) == BACK
    assert fleet.engines["http://r2:8000"].writes == []
    first = three(attainment=gain)
    end, _ = run(first, journal=RefusesWritesOn("http://r1:8000"))
    assert end.state is ChangeState.REFUSED
    assert all(not engine.writes for engine in first.engines.values())


def test_each_write_stands_in_the_audit() -> None:
    fleet = three(attainment=gain)
    end, rows = run(fleet)
    written = {row.target for row in rows if row.detail.startswith("write")}
    assert written == set(fleet.engines)
    firsts = {row.target: row.at for row in reversed(rows) if row.detail == "write, ttl 180 s"}
    assert firsts == {url: engine.writes[0][0] for url, engine in fleet.engines.items()}
    assert end.state is ChangeState.DONE


def test_the_view_follows_the_change() -> None:
    fleet = three(attainment=gain)
    seen: dict[str, list[ChangeView]] = {}

    def look(progress: Progress) -> None:
        view = view_of(progress, fleet.time, ())
        seen.setdefault(view.state.value, []).append(view)

    run(fleet, publish=look)
    observing = seen["OBSERVE"]
    first, last = observing[0], observing[-1]
    assert (first.block, first.blocks, first.eta_seconds) == (0, 10, 600.0)
    assert last.eta_seconds is not None
    assert last.eta_seconds <= 10.0
    assert last.canary is not None
    assert last.baseline is not None
    assert last.canary.requests > 2000
    assert (last.canary.attainment_ratio or 0) > (last.baseline.attainment_ratio or 1)
    assert all(0 < (view.expires_in_seconds or 0) <= 180 for view in observing)
    assert all(guard.ok for view in observing for guard in view.guards)
    done = seen["DONE"][-1]
    assert done.verdict is Verdict.IMPROVED
    assert done.expires_in_seconds is None


def test_null_changes_on_a_small_scale() -> None:
    """16 null changes and 8 that cost ten points."""
    nulls = [run(three(seed))[0].verdict for seed in range(16)]
    assert nulls.count(Verdict.WORSE) <= 3  # binomial(16, .05): 4 or more in 0.7 % of cases
    assert nulls.count(Verdict.IMPROVED) <= 3
    losses = [run(three(seed, attainment=loss))[0] for seed in range(100, 108)]
    assert [end.verdict for end in losses] == [Verdict.WORSE] * 8


def test_a_slow_clock_renews_in_time_as_well() -> None:
    fleet = three(attainment=gain)
    fleet.tick = 45.0
    assert run(fleet, settings=replace(SHORT, block_seconds=90.0))[0].state is ChangeState.DONE
