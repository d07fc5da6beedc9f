"""The state of a replica from hand-made evidence, in the contract's order."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from enginetop.fleet.durations import duration_text
from enginetop.fleet.model import ReplicaState
from enginetop.fleet.observation import Failure, FailureKind
from enginetop.fleet.reading import EngineFlags
from enginetop.fleet.state import (
    Evidence,
    FailureRun,
    Judgement,
    Standstill,
    is_connection_failure,
    judge,
    rests_on_page,
)
from enginetop.fleet.work import Work

NOW = 1000.0
FRESH = Evidence(now=NOW, page_at=999.0, fresh_until=1005.0, work=Work(3.0, 5.0, True))
NEVER_ANSWERED = Evidence(now=NOW)


def failed(kind: FailureKind, *, count: int = 1, answered: bool = False, detail: str = "") -> FailureRun:
    """A run of `count` failures of one kind that began 28 seconds ago."""
    return FailureRun(Failure(kind, NOW, detail, answered), since=972.0, count=count)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (FailureKind.REFUSED, "connection refused for 28 s"),
        (FailureKind.DNS, "host name not found for 28 s"),
        (FailureKind.TLS, "TLS failed for 28 s"),
        (FailureKind.TIMEOUT, "no answer in time for 28 s"),
    ],
)
@pytest.mark.parametrize("before", [NEVER_ANSWERED, FRESH])
def test_the_second_connection_failure_in_a_row_is_down(
    kind: FailureKind, words: str, before: Evidence
) -> None:
    assert is_connection_failure(Failure(kind, NOW, ""))
    judgement = judge(replace(before, unreachable=failed(kind, count=2)))
    assert judgement.state is ReplicaState.DOWN
    assert judgement.reasons == (words,)
    assert judgement.began == 972.0


def test_a_connection_that_fails_otherwise_than_refused_says_how() -> None:
    run = failed(FailureKind.REFUSED, count=2, detail="connected, and closed without an answer")
    assert judge(replace(FRESH, unreachable=run)).reasons == (
        "connected, and closed without an answer for 28 s",
    )
    once = failed(FailureKind.REFUSED, detail="no route to host")
    assert judge(replace(NEVER_ANSWERED, unreachable=once)).reasons == (
        "no good page yet",
        "no route to host once, just now",
    )


@pytest.mark.parametrize("kind", [FailureKind.REFUSED, FailureKind.DNS, FailureKind.TLS, FailureKind.TIMEOUT])
def test_one_connection_failure_keeps_the_old_state(kind: FailureKind) -> None:
    once = failed(kind)
    assert judge(replace(NEVER_ANSWERED, unreachable=once)).state is ReplicaState.UNKNOWN
    assert judge(replace(FRESH, unreachable=once)).state is ReplicaState.OK
    assert judge(replace(FRESH, unreachable=once, work=Work(0.0, 0.0, False))).state is ReplicaState.IDLE
    locked = replace(FRESH, unreachable=once, answer_failure=failed(FailureKind.UNAUTHORIZED))
    assert judge(locked).state is ReplicaState.UNAUTHORIZED


def test_one_connection_failure_does_not_make_an_old_page_young() -> None:
    assert judge(
        replace(FRESH, page_at=993.0, fresh_until=999.0, unreachable=failed(FailureKind.REFUSED))
    ).state is (ReplicaState.STALE)


@pytest.mark.parametrize(
    ("kind", "detail", "reason"),
    [
        (FailureKind.REFUSED, "", "connection refused once, 3 s ago"),
        (FailureKind.REFUSED, "no route to host", "no route to host once, 3 s ago"),
        (FailureKind.DNS, "", "host name not found once, 3 s ago"),
        (FailureKind.TLS, "certificate has expired", "TLS failed once, 3 s ago (certificate has expired)"),
        (FailureKind.TLS, "the key is not known; verify it", "the key is not known once, 3 s ago; verify it"),
        (FailureKind.TIMEOUT, "", "no answer in time once, 3 s ago"),
    ],
)
def test_one_connection_failure_is_said_beside_the_state_that_it_keeps(
    kind: FailureKind, detail: str, reason: str
) -> None:
    once = FailureRun(Failure(kind, NOW - 3.0, detail), since=NOW - 3.0)
    assert judge(replace(FRESH, unreachable=once)) == Judgement(ReplicaState.OK, (reason,))
    asleep = judge(replace(FRESH, unreachable=once, flags=EngineFlags(sleeping=True)))
    assert asleep.reasons == ("the engine sleeps", reason)
    old = judge(replace(FRESH, page_at=993.0, fresh_until=999.0, unreachable=once))
    assert old == Judgement(ReplicaState.STALE, ("no good page for 7 s", reason), 993.0)
    cut = judge(replace(FRESH, unreachable=once, answer_failure=failed(FailureKind.SERVER_ERROR)))
    assert cut.reasons[-1] == reason


def test_what_failed_this_instant_failed_just_now() -> None:
    once = FailureRun(Failure(FailureKind.REFUSED, NOW - 0.9, ""), since=NOW - 0.9)
    assert judge(replace(FRESH, unreachable=once)).reasons == ("connection refused once, just now",)


@pytest.mark.parametrize(
    ("seconds", "reason"),
    [(0.75, "no answer for 0.8 s"), (3.0, "no answer for 3.0 s"), (42.4, "no answer for 42 s")],
)
def test_a_look_that_waits_too_long_is_said_beside_the_state(seconds: float, reason: str) -> None:
    assert judge(replace(FRESH, unanswered_seconds=seconds)) == Judgement(ReplicaState.OK, (reason,))
    assert judge(replace(NEVER_ANSWERED, unanswered_seconds=seconds)).reasons == ("no good page yet", reason)
    # what is down is down; of a failure that is told already the next look says nothing more
    run = failed(FailureKind.TIMEOUT, count=2)
    assert judge(replace(FRESH, unreachable=run, unanswered_seconds=seconds)).reasons == (
        "no answer in time for 28 s",
    )
    once = judge(replace(FRESH, unreachable=failed(FailureKind.REFUSED), unanswered_seconds=seconds))
    assert once.reasons == ("connection refused once, just now",)


def test_what_is_beside_the_state_does_not_rest_on_the_page() -> None:
    assert rests_on_page(FRESH)
    assert not rests_on_page(replace(FRESH, unanswered_seconds=2.0))
    assert not rests_on_page(replace(FRESH, unreachable=failed(FailureKind.REFUSED)))


@pytest.mark.parametrize(
    ("kind", "answered", "without_page", "with_page"),
    [
        (FailureKind.UNAUTHORIZED, True, ReplicaState.UNAUTHORIZED, ReplicaState.UNAUTHORIZED),
        (FailureKind.LOADING, True, ReplicaState.LOADING, ReplicaState.LOADING),
        (FailureKind.NO_ENGINE_METRICS, True, ReplicaState.NO_ENGINE_METRICS, ReplicaState.NO_ENGINE_METRICS),
        (FailureKind.SERVER_ERROR, True, ReplicaState.STALE, ReplicaState.STALE),
        (FailureKind.TRUNCATED, True, ReplicaState.STALE, ReplicaState.STALE),
        (FailureKind.TIMEOUT, True, ReplicaState.STALE, ReplicaState.STALE),
        (FailureKind.TOO_LARGE, True, ReplicaState.NO_ENGINE_METRICS, ReplicaState.STALE),
        (FailureKind.PROTOCOL, False, ReplicaState.NO_ENGINE_METRICS, ReplicaState.STALE),
        (FailureKind.DISABLED, True, ReplicaState.NO_ENGINE_METRICS, ReplicaState.STALE),
        (FailureKind.COLLECTOR, False, ReplicaState.UNKNOWN, ReplicaState.STALE),
    ],
)
def test_an_answer_counts_at_once(
    kind: FailureKind, answered: bool, without_page: ReplicaState, with_page: ReplicaState
) -> None:
    once = failed(kind, answered=answered)
    assert not is_connection_failure(once.newest)
    first = judge(replace(NEVER_ANSWERED, answer_failure=once))
    later = judge(replace(FRESH, answer_failure=once))
    assert (first.state, later.state) == (without_page, with_page)
    assert first.reasons
    assert all(reason and "\n" not in reason for reason in (*first.reasons, *later.reasons))


def test_every_kind_of_failure_has_a_meaning() -> None:
    for kind in FailureKind:
        run = failed(kind, count=2)
        evidence = replace(FRESH, unreachable=run) if is_connection_failure(run.newest) else FRESH
        assert judge(replace(evidence, answer_failure=run)).state is not ReplicaState.OK


def test_reasons_lead_with_the_detail_and_name_the_age_of_kept_values() -> None:
    run = failed(FailureKind.SERVER_ERROR, detail="HTTP 500 on /metrics")
    judgement = judge(replace(FRESH, page_at=955.0, answer_failure=run))
    assert judgement.reasons == ("HTTP 500 on /metrics, for 28 s", "last good page 45 s ago")
    certificate = failed(FailureKind.TLS, count=2, detail="certificate has expired")
    assert judge(replace(FRESH, unreachable=certificate)).reasons == (
        "TLS failed for 28 s (certificate has expired)",
    )


def test_what_helps_stands_after_how_long() -> None:
    for kind in (FailureKind.TLS, FailureKind.DNS, FailureKind.TIMEOUT, FailureKind.REFUSED):
        run = failed(kind, count=2, detail="the key is not known; verify it; then go on")
        assert judge(replace(FRESH, unreachable=run)).reasons == (
            "the key is not known for 28 s; verify it; then go on",
        )
        assert judge(replace(NEVER_ANSWERED, unreachable=replace(run, count=1))).reasons == (
            "no good page yet",
            "the key is not known once, just now; verify it; then go on",
        )


def test_a_page_is_good_until_its_time_is_over() -> None:
    assert judge(replace(FRESH, fresh_until=NOW)).state is ReplicaState.OK
    assert judge(replace(FRESH, fresh_until=NOW - 0.001)).state is ReplicaState.STALE
    assert judge(replace(FRESH, page_at=1.0, fresh_until=math.inf)).state is ReplicaState.OK


def test_an_old_page_says_how_old() -> None:
    judgement = judge(replace(FRESH, page_at=700.0, fresh_until=706.0))
    assert judgement.reasons == ("no good page for 5 min",)
    assert judgement.began == 700.0


def test_the_order_of_states_is_the_contracts() -> None:
    """Everything applies at once; taking causes away one by one uncovers the states in order."""
    evidence = replace(
        FRESH,
        page_at=900.0,
        fresh_until=906.0,
        unreachable=failed(FailureKind.REFUSED, count=2),
        answer_failure=failed(FailureKind.UNAUTHORIZED),
        flags=EngineFlags(sleeping=True, paused=True, draining=True),
        standstill_pages=3,
        standstill_since=890.0,
    )
    seen = [judge(evidence).state]
    for change in (
        {"unreachable": None},
        {"answer_failure": failed(FailureKind.LOADING)},
        {"answer_failure": failed(FailureKind.NO_ENGINE_METRICS)},
        {"answer_failure": None},
        {"page_at": 999.0, "fresh_until": 1005.0},
        {"flags": EngineFlags(sleeping=True, paused=True)},
        {"flags": EngineFlags(sleeping=True)},
        {"flags": EngineFlags()},
        {"work": Work(0.0, 0.0, False)},
        {"work": Work(1.0, 0.0, True), "standstill_pages": 2},
        {"page_at": None},
    ):
        evidence = replace(evidence, **change)
        seen.append(judge(evidence).state)
    assert seen == list(ReplicaState)


def test_unknown_flags_mean_nothing() -> None:
    flags = EngineFlags(sleeping=None, paused=False, draining=None)
    assert judge(replace(FRESH, flags=flags)).state is ReplicaState.OK


def test_work_that_cannot_be_told_is_not_idle() -> None:
    assert judge(replace(FRESH, work=Work(None, None, None))).state is ReplicaState.OK


@pytest.mark.parametrize(
    ("pages", "stood_seconds", "hold", "state"),
    [
        (3, 4.0, 0.0, ReplicaState.NO_PROGRESS),
        (2, 60.0, 0.0, ReplicaState.OK),
        (3, 29.0, 30.0, ReplicaState.OK),
        (15, 30.0, 30.0, ReplicaState.NO_PROGRESS),
        (15, 30.0, 41.0, ReplicaState.OK),
    ],
)
def test_no_progress_needs_three_pages_and_the_hold(
    pages: int, stood_seconds: float, hold: float, state: ReplicaState
) -> None:
    evidence = replace(
        FRESH, standstill_pages=pages, standstill_since=999.0 - stood_seconds, hold_seconds=hold
    )
    assert judge(evidence).state is state


def test_no_progress_says_since_when_and_with_what() -> None:
    judgement = judge(replace(FRESH, standstill_pages=23, standstill_since=954.0))
    assert judgement.reasons == ("no progress for 45 s on 23 pages, 3 running, 5 waiting",)
    assert judgement.began == 954.0
    half = judge(replace(FRESH, work=Work(3.0, None, True), standstill_pages=23, standstill_since=954.0))
    assert half.reasons == ("no progress for 45 s on 23 pages, 3 running",)


Page = tuple[float, bool | None, bool, bool]
"""at, busy, moved, metrics_page."""


@pytest.mark.parametrize(
    ("pages", "count", "since"),
    [
        # Three pages with the same counters, the first sight counting as movement.
        ([(0, True, True, True), (2, True, False, True), (4, True, False, True)], 3, 0.0),
        # Movement starts the count again.
        ([(0, True, True, True), (2, True, False, True), (4, True, True, True)], 1, 4.0),
        # Idle pages are no standstill, and work that arrives later does not inherit them.
        ([(0, False, True, True), (2, False, False, True), (4, True, False, True)], 1, 4.0),
        ([(0, True, True, True), (2, True, False, True), (4, False, False, True)], 0, None),
        # Side pages are no pages, but they can show movement.
        ([(0, True, True, True), (1, True, False, False), (2, True, False, True)], 2, 0.0),
        ([(0, True, True, True), (1, True, True, False), (2, True, False, True)], 1, 1.0),
        # A page that does not tell whether there is work proves nothing.
        ([(0, True, True, True), (2, None, False, True), (4, True, False, True)], 2, 0.0),
    ],
)
def test_standstill_counts_pages_with_work_and_without_movement(
    pages: list[Page], count: int, since: float | None
) -> None:
    standstill = Standstill()
    for at, busy, moved, metrics_page in pages:
        standstill.observe(at, busy, moved, metrics_page)
    assert (standstill.pages, standstill.since) == (count, since)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1.0, "0 s"),
        (0.9, "0 s"),
        (72.6, "72 s"),
        (119.9, "119 s"),
        (120.0, "2 min"),
        (7199.0, "119 min"),
        (7200.0, "2 h"),
        (172799.0, "47 h"),
        (172800.0, "2 d"),
    ],
)
def test_durations_round_down(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
