"""Windows of steps from snapshots, and knobs from wherever they are told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from enginetop.fleet.knobs import KnobRow, KnobSheet
from enginetop.fleet.model import EngineKind, ReplicaState
from enginetop.fleet.reading import ConfigValue
from enginetop.fleet.snapshot import Event, Goodput, RankSnapshot, ReplicaSnapshot
from tests.tui.snapshots import AT, distribution, exact, replica, scalar
from tuners.evidence import EvidenceLog
from tuners.knob_values import Knobs, knobs_of
from tuners.moments import Minute
from tuners.step_time import StepWindow

KNOBS = Knobs(8192, 256)


def seen(
    at: float,
    steps: float,
    tokens: float,
    *,
    running: float | None = 20,
    state: ReplicaState = ReplicaState.OK,
    ranks: int = 1,
    restarted_at: float | None = None,
) -> ReplicaSnapshot:
    """The replica twice `at` seconds after the first page, with these running totals."""
    return replica(
        "b1",
        state,
        changes={"requests_running": running},
        scraped_at=AT + 2 * at,
        spacing_seconds=2.0,
        totals={"iteration_tokens.count": steps, "iteration_tokens.sum": tokens},
        ranks=tuple(RankSnapshot({"engine": str(i)}, {}) for i in range(ranks)),
        events=() if restarted_at is None else (Event(AT + 2 * restarted_at, "restarted"),),
    )


def windows(*looks: ReplicaSnapshot, knobs: Knobs = KNOBS) -> list[StepWindow]:
    log = EvidenceLog()
    for look in looks:
        log.take(look, knobs)
    return list(log.windows)


def test_a_window_lies_between_two_pages() -> None:
    # 40 steps in 4 s are 100 ms each; 240 000 tokens in 40 steps are 6000 each. Then 50 steps of 80 ms.
    assert windows(seen(0, 0, 0), seen(2, 40, 240_000), seen(4, 90, 440_000)) == [
        StepWindow(6000, 0.1),
        StepWindow(4000, 0.08),
    ]


def test_tokens_are_those_that_were_computed() -> None:
    # Of 240 000 counted tokens 80 000 were cached. Of 600 drafted ones only the 400 accepted were counted.
    first, second = seen(0, 0, 0), seen(2, 40, 240_000)
    counts = {"prefix_hits": 80_000.0, "spec_draft_tokens": 600.0, "spec_accepted_tokens": 400.0}
    second = replace(second, totals={**second.totals, **counts})
    assert windows(first, second) == [StepWindow(160_200 / 40, 0.1)]


def test_ranks_step_at_the_same_time() -> None:
    # two ranks count 40 steps each in 4 s: 100 ms a step, not 50
    assert windows(seen(0, 0, 0, ranks=2, running=50), seen(2, 80, 80_000, ranks=2, running=50)) == [
        StepWindow(1000, 0.1)
    ]


def test_close_pages_make_one_window_and_the_same_page_none() -> None:
    first, second, third = seen(0, 0, 0), seen(1, 25, 100_000), seen(2, 40, 240_000)
    assert windows(first, second, third) == [StepWindow(6000, 0.1)]
    assert windows(first, first, third, third) == [StepWindow(6000, 0.1)]


@pytest.mark.parametrize(
    "idle",
    [
        seen(2, 40, 1000, running=1),  # it may have rested in between
        seen(2, 40, 1000, running=0, state=ReplicaState.IDLE),
        seen(2, 40, 1000, running=None),
        seen(2, 40, 1000, state=ReplicaState.STALE),
        seen(2, 40, 1000, state=ReplicaState.DOWN),
        replace(seen(2, 40, 1000), totals={}),
    ],
)
def test_a_window_with_rest_in_it_is_none(idle: ReplicaSnapshot) -> None:
    assert windows(seen(0, 0, 0), idle, seen(4, 80, 9000)) == []
    busy = windows(seen(0, 0, 0), idle, seen(4, 80, 9000), seen(6, 120, 19_000))
    assert busy == [StepWindow(250, 0.1)]


def test_a_hole_in_the_pages_is_no_window() -> None:
    assert windows(seen(0, 0, 0), seen(5.5, 40, 240_000)) == []  # 11 s, more than three windows
    assert len(windows(seen(0, 0, 0), seen(5.0, 40, 240_000))) == 1


def test_no_step_is_no_window() -> None:
    assert windows(seen(0, 7, 70), seen(2, 7, 70)) == []


def test_a_changed_knob_or_a_restart_forgets_what_was_before() -> None:
    log = EvidenceLog()
    assert not log.take(seen(0, 0, 0), KNOBS)
    assert not log.take(seen(2, 40, 240_000), KNOBS)
    assert len(log.windows) == 1
    assert log.take(seen(4, 80, 480_000), replace(KNOBS, budget=6144))
    assert list(log.windows) == []
    assert not log.take(seen(6, 120, 600_000), replace(KNOBS, budget=6144))
    assert len(log.windows) == 1
    assert log.take(seen(8, 160, 700_000, restarted_at=7), replace(KNOBS, budget=6144))
    assert list(log.windows) == []
    # the event leaves the list of events: that is no further restart
    assert not log.take(seen(10, 200, 800_000), replace(KNOBS, budget=6144))
    assert len(log.windows) == 1


def test_a_window_knows_who_waited_at_both_of_its_ends() -> None:
    looks = [
        replace(look, signals={**look.signals, "requests_waiting": scalar(waiting)})
        for look, waiting in zip(
            (seen(0, 0, 0), seen(2, 40, 240_000), seen(4, 90, 440_000)), (5, 3, 0), strict=True
        )
    ]
    assert [window.waiting for window in windows(*looks)] == [3.0, 0.0]


def judged(
    at: float, ttft: float, *, preemptions: float = 0.0, running: float = 44.0, **fields: Any
) -> ReplicaSnapshot:
    """A page `at` seconds after the first, with 80 requests in its window."""
    return replica(
        "b1",
        changes={"ttft_seconds": distribution(0.1, 0.3, count=80), "requests_running": running},
        scraped_at=AT + at,
        totals={"preemptions": preemptions},
        goodput=Goodput(ttft=exact(ttft), tpot=exact(0.9)),
        **fields,
    )


def minutes(*looks: ReplicaSnapshot) -> list[Minute]:
    log = EvidenceLog()
    for look in looks:
        log.take(look, KNOBS)
    return list(log.minutes)


def test_a_minute_is_taken_when_it_has_passed() -> None:
    looks = [
        judged(0, 0.5, running=90),
        judged(30, 0.6, running=51),
        judged(60, 0.7, preemptions=2),
        judged(130, 0.8, preemptions=9),
    ]
    assert minutes(*looks) == [
        Minute(AT + 60, 80, 0.7, 2, most_running=51),
        Minute(AT + 130, 80, 0.8, 7, most_running=44),
    ]


def test_a_minute_with_a_hole_in_it_is_none() -> None:
    down = judged(30, 0.5, state=ReplicaState.DOWN)
    assert minutes(judged(0, 0.5), down, judged(60, 0.7), judged(110, 0.7)) == []
    unknown = replace(judged(60, 0.5), goodput=Goodput())
    assert minutes(judged(0, 0.5), unknown) == []


def test_a_clock_that_is_set_back_stops_nothing() -> None:
    late, first, second = seen(1800, 1000, 0), seen(0, 1040, 100), seen(2, 1080, 240_100)
    assert windows(late, first, second) == [StepWindow(6000, 0.1)]
    assert minutes(judged(3600, 0.5), judged(0, 0.5), judged(60, 0.7)) == [
        Minute(AT + 60, 80, 0.7, 0, most_running=44)
    ]
    log = EvidenceLog()
    for look in (late, first, first, second):
        log.take(look, KNOBS)
    assert [one.at for one in log.recent] == [AT, AT + 4]


def test_only_the_newest_windows_are_kept() -> None:
    looks = [seen(2.0 * i, 40.0 * i, 4000.0 * i * i) for i in range(300)]
    kept = windows(*looks)
    assert len(kept) == 240
    assert kept[-1].tokens == pytest.approx(4000 * (299**2 - 298**2) / 40)


def test_of_pages_a_second_apart_every_other_one_is_kept_and_the_newest() -> None:
    log = EvidenceLog()
    for second in range(6):
        log.take(seen(second / 2, second, 100 * second, running=second), KNOBS)
    assert [one.running for one in log.recent] == [0, 2, 4, 5]


def row(name: str, value: int | None, low: int = 0, high: int = 10_000) -> KnobRow:
    return KnobRow(name, value, 8192, low, high, "tokens", 1)


def sheet(*rows: KnobRow, applied: int = 1, total: int = 1) -> KnobSheet:
    return KnobSheet("vllm", "0.32.0", "i1", applied, total, rows)


class TestKnobs:
    def test_from_the_pages(self) -> None:
        one = replica(
            "b1",
            config={
                "max_num_batched_tokens": ConfigValue(2048, "/server_info"),
                "max_num_seqs": ConfigValue(128, "/server_info"),
                "num_speculative_tokens": ConfigValue(3, "positions"),
            },
        )
        found = knobs_of(one)
        assert found == Knobs(2048, 128, 3, source="/server_info", engine=EngineKind.VLLM)
        assert found.floor == 512  # 128 x (1 + 3)

    def test_a_sheet_goes_before_the_pages(self) -> None:
        one = replica("b1", config={"max_num_batched_tokens": ConfigValue(2048, "/server_info")})
        found = knobs_of(
            one,
            sheet(
                row("max_num_batched_tokens", 1024, 300, 2048),
                row("max_num_seqs", 64),
                row("num_speculative_tokens", 2),
            ),
        )
        assert (found.budget, found.sequences, found.drafts) == (1024, 64, 2)
        assert (found.bounds["max_num_batched_tokens"], found.source) == ((300, 2048), "knob API")
        assert found.way("max_num_batched_tokens", 2048) == ("live", "knob_api")
        assert found.way("max_num_batched_tokens", 2049) == ("restart", "--max-num-batched-tokens")
        assert found.way("thinking_token_budget", 512)[0] == "per_request"
        tgi = knobs_of(replica("t1", engine=EngineKind.TGI))
        assert tgi.way("max_num_batched_tokens", 512) == ("restart", "--max-batch-prefill-tokens")
        assert tgi.way("thinking_token_budget", 512)[0] == "none"
        assert found.floor == 300  # more than 64 x 3: something cannot be chunked

    def test_a_sheet_tells_nothing_of_a_knob_that_it_lacks(self) -> None:
        found = knobs_of(replica("b1"), sheet(row("max_num_seqs", 64)))
        assert (found.budget, found.sequences) == (None, 64)
        assert "max_num_batched_tokens" not in found.bounds

    def test_ranks_that_do_not_confirm_are_a_mixed_configuration(self) -> None:
        found = knobs_of(replica("b1"), sheet(row("max_num_batched_tokens", 512), applied=1, total=2))
        assert found.problem == "mixed configuration: 1 of 2 ranks confirm their knobs"

    @pytest.mark.parametrize("value", ["2048", 2048.0, True, None, -1])
    def test_what_is_no_count_is_not_known(self, value: int | float | str | bool | None) -> None:
        one = replica("b1", config={"max_num_batched_tokens": ConfigValue(value, "page")})
        assert knobs_of(one).budget is None

    def test_without_any_limit_there_is_no_floor(self) -> None:
        assert Knobs(2048).floor is None
