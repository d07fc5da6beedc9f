"""One replica over time: states, what is shown in them, and events."""

from __future__ import annotations

from dataclasses import replace

import pytest

from enginetop.fleet.gpus import GpuShare
from enginetop.fleet.model import EngineKind, Quality, ReplicaState, Role, Target
from enginetop.fleet.observation import FailureKind, Observation
from enginetop.fleet.reading import ConfigValue, EngineFlags, Identity
from enginetop.fleet.replica import ReplicaTracker
from enginetop.fleet.signals import SIGNALS
from enginetop.fleet.snapshot import Distribution, ReplicaSnapshot, Scalar, Slo
from tests.support.looks import ROUTER, VLLM, failure, nothing_new, page

TARGET = Target("http://a:8000", "a1")


def tracker(*looks: Observation, spacing: float | None = 2.0, window: float = 60.0) -> ReplicaTracker:
    made = ReplicaTracker(
        TARGET,
        window_seconds=window,
        slo_for=lambda model: Slo(ttft_seconds=0.6 if model == "llama" else 1.0),
        fixed_spacing_seconds=spacing,
    )
    for look in looks:
        made.observe(look)
    return made


def seen(*looks: Observation, now: float | None = None, spacing: float | None = 2.0) -> ReplicaSnapshot:
    return tracker(*looks, spacing=spacing).snapshot(looks[-1].at if now is None else now)


def events(replica: ReplicaSnapshot) -> list[tuple[float, str, str]]:
    return [(event.at, event.kind, event.detail) for event in replica.events]


HIDDEN = [
    (FailureKind.REFUSED, "connection refused once"),
    (FailureKind.DNS, "host name not found once"),
    (FailureKind.TLS, "TLS failed once"),
    (FailureKind.TIMEOUT, "no answer in time once"),
]
"""Failures of which the first in a row is no state yet."""

TOLD_AT_ONCE = [
    (FailureKind.TIMEOUT, ReplicaState.STALE),
    (FailureKind.TRUNCATED, ReplicaState.STALE),
    (FailureKind.PROTOCOL, ReplicaState.STALE),
    (FailureKind.TOO_LARGE, ReplicaState.STALE),
    (FailureKind.SERVER_ERROR, ReplicaState.STALE),
    (FailureKind.DISABLED, ReplicaState.STALE),
    (FailureKind.COLLECTOR, ReplicaState.STALE),
    (FailureKind.UNAUTHORIZED, ReplicaState.UNAUTHORIZED),
    (FailureKind.LOADING, ReplicaState.LOADING),
    (FailureKind.NO_ENGINE_METRICS, ReplicaState.NO_ENGINE_METRICS),
]


class TestDoubts:
    """What is visible of a fault before it is a state."""

    def test_every_kind_of_failure_is_one_or_the_other(self) -> None:
        assert {kind for kind, _ in (*HIDDEN, *TOLD_AT_ONCE)} == set(FailureKind)

    @pytest.mark.parametrize(("kind", "said"), HIDDEN)
    @pytest.mark.parametrize("quiet", [1, 5])
    def test_the_first_failed_look_is_told_at_the_next_picture(
        self, kind: FailureKind, said: str, quiet: int
    ) -> None:
        made = tracker(*(page(2.0 * n, tokens=n) for n in range(quiet)))
        made.snapshot(2.0 * quiet - 1)
        made.observe(failure(2.0 * quiet, kind))
        shown = made.snapshot(2.0 * quiet + 1.5)
        assert (shown.state, shown.reasons) == (ReplicaState.OK, (f"{said}, 1 s ago",))
        assert (shown.failed_looks, shown.in_doubt) == (1, True)
        assert made.snapshot(2.0 * quiet + 3.0).reasons == (f"{said}, 3 s ago",)

    @pytest.mark.parametrize(("kind", "state"), TOLD_AT_ONCE)
    def test_others_are_a_state_at_the_first(self, kind: FailureKind, state: ReplicaState) -> None:
        shown = seen(page(2), failure(4, kind, answered=kind is FailureKind.TIMEOUT))
        assert (shown.state, shown.failed_looks) == (state, 1)

    def test_a_good_page_ends_it(self) -> None:
        made = tracker(page(2, tokens=1), page(4, tokens=2), failure(6, FailureKind.REFUSED))
        assert made.snapshot(7.0).in_doubt
        made.observe(page(8, tokens=3))
        well = made.snapshot(9.0)
        assert (well.reasons, well.failed_looks, well.in_doubt) == ((), 0, False)
        made.observe(page(10, tokens=4))
        assert made.snapshot(11.0).reasons == ()

    def test_a_fleet_in_turns_tells_it_out_of_turn(self) -> None:
        made = tracker(page(2, tokens=1))
        made.snapshot(3.0)
        made.observe(failure(4, FailureKind.REFUSED))
        assert made.snapshot(4.5, may_wait=True).failed_looks == 1
        made.observe(page(6, tokens=2))
        assert made.snapshot(6.5, may_wait=True).reasons == ()
        made.wait(1.5)
        assert made.snapshot(9.5, may_wait=True).unanswered_seconds == 1.5
        made.wait(None)
        assert not made.snapshot(9.6, may_wait=True).in_doubt

    def test_for_how_long_it_waits_is_told_in_turn(self) -> None:
        made = tracker(page(2, tokens=1))
        made.wait(1.5)
        first = made.snapshot(3.5, may_wait=True)
        made.wait(2.5)
        assert made.snapshot(4.5, may_wait=True) is first
        assert made.snapshot(4.5).unanswered_seconds == 2.5

    def test_what_was_asked_at_a_former_address_is_waited_for_no_more(self) -> None:
        made = tracker(page(2, tokens=1))
        made.wait(1.5)
        made.come_back(Target("http://b:8000", "a1"), 4.0)
        assert made.snapshot(4.5).unanswered_seconds is None

    def test_failed_looks_are_counted_over_all_kinds(self) -> None:
        looks = [page(2), failure(4, FailureKind.REFUSED), failure(6, FailureKind.SERVER_ERROR)]
        assert seen(*looks, failure(8, FailureKind.TIMEOUT)).failed_looks == 3
        assert seen(*looks, page(8), failure(10, FailureKind.DNS)).failed_looks == 1
        assert seen(failure(2, FailureKind.DNS), failure(4, FailureKind.DNS)).failed_looks == 2

    def test_a_look_that_waits_too_long_is_told_until_it_ends(self) -> None:
        made = tracker(page(2, tokens=1), page(4, tokens=2))
        made.wait(1.4)
        shown = made.snapshot(7.4)
        assert (shown.state, shown.reasons) == (ReplicaState.OK, ("no answer for 1.4 s",))
        assert (shown.unanswered_seconds, shown.failed_looks, shown.in_doubt) == (1.4, 0, True)
        made.observe(page(7.5, tokens=3))
        assert made.snapshot(7.6).reasons == ()
        made.wait(1.2)
        made.observe(failure(9.5, FailureKind.TIMEOUT))
        failed = made.snapshot(9.5)
        assert (failed.reasons, failed.unanswered_seconds) == (("no answer in time once, just now",), None)


class TestStates:
    def test_nothing_is_known_before_the_first_look(self) -> None:
        replica = tracker().snapshot(5.0)
        assert (replica.state, replica.since, replica.reasons) == (
            ReplicaState.UNKNOWN,
            5.0,
            ("no good page yet",),
        )
        assert (replica.engine, replica.role, replica.model) == (EngineKind.UNKNOWN, Role.UNKNOWN, None)
        assert set(replica.signals) == set(SIGNALS)
        assert replica.events == ()

    @pytest.mark.parametrize(
        ("looks", "state"),
        [
            ([failure(2, FailureKind.REFUSED)], ReplicaState.UNKNOWN),
            ([failure(2, FailureKind.REFUSED), failure(4, FailureKind.DNS)], ReplicaState.DOWN),
            ([page(2), failure(4, FailureKind.REFUSED)], ReplicaState.OK),
            ([page(2), failure(4, FailureKind.TIMEOUT), failure(6, FailureKind.REFUSED)], ReplicaState.DOWN),
            # An answer between two connection failures breaks the row, whatever it says.
            (
                [page(2), failure(4, FailureKind.REFUSED), nothing_new(5), failure(6, FailureKind.REFUSED)],
                ReplicaState.OK,
            ),
            (
                [
                    failure(2, FailureKind.REFUSED),
                    failure(4, FailureKind.UNAUTHORIZED),
                    failure(6, FailureKind.REFUSED),
                ],
                ReplicaState.UNAUTHORIZED,
            ),
            # One good page ends everything at once.
            (
                [failure(2, FailureKind.REFUSED), failure(4, FailureKind.REFUSED), page(6)],
                ReplicaState.OK,
            ),
            ([page(2), failure(4, FailureKind.LOADING, answered=True), page(6)], ReplicaState.OK),
            (
                [
                    failure(2, FailureKind.REFUSED),
                    failure(4, FailureKind.REFUSED),
                    failure(6, FailureKind.LOADING),
                ],
                ReplicaState.LOADING,
            ),
            ([failure(2, FailureKind.TOO_LARGE)], ReplicaState.NO_ENGINE_METRICS),
            ([page(2), failure(4, FailureKind.TOO_LARGE)], ReplicaState.STALE),
            ([page(2), failure(4, FailureKind.TIMEOUT, answered=True)], ReplicaState.STALE),
            ([page(2, running=0.0)], ReplicaState.IDLE),
            ([page(2, running=0.0, waiting=1.0)], ReplicaState.OK),
            ([page(2, flags=EngineFlags(sleeping=True))], ReplicaState.SLEEPING),
            ([page(2, flags=EngineFlags(paused=True))], ReplicaState.PAUSED),
            ([page(2, flags=EngineFlags(draining=True))], ReplicaState.DRAINING),
            # A fault of our own is told, and is never the server's.
            ([failure(2, FailureKind.COLLECTOR)], ReplicaState.UNKNOWN),
            ([page(2), failure(4, FailureKind.COLLECTOR)], ReplicaState.STALE),
        ],
    )
    def test_state_after(self, looks: list[Observation], state: ReplicaState) -> None:
        assert seen(*looks).state is state

    def test_down_begins_with_the_first_failure(self) -> None:
        replica = seen(page(2), failure(4, FailureKind.REFUSED), failure(6, FailureKind.REFUSED), now=76.0)
        assert (replica.state, replica.since) == (ReplicaState.DOWN, 4.0)
        assert replica.reasons == ("connection refused for 72 s",)
        assert replica.scraped_at == 2.0

    def test_a_state_keeps_its_beginning_while_its_cause_changes(self) -> None:
        replica = seen(
            page(2),
            failure(4, FailureKind.SERVER_ERROR, "HTTP 500"),
            failure(6, FailureKind.TRUNCATED, "cut short"),
            now=9.0,
        )
        assert (replica.state, replica.since) == (ReplicaState.STALE, 4.0)
        assert replica.reasons == ("cut short, for 3 s", "last good page 7 s ago")

    def test_the_clock_alone_makes_a_page_stale_and_the_next_page_ends_it(self) -> None:
        made = tracker(page(100.0, tokens=5))
        assert made.snapshot(106.0).state is ReplicaState.OK
        late = made.snapshot(106.1)
        assert (late.state, late.since, late.reasons) == (
            ReplicaState.STALE,
            100.0,
            ("no good page for 6 s",),
        )
        made.observe(page(107.0, tokens=9))
        assert made.snapshot(107.0).state is ReplicaState.OK
        assert events(made.snapshot(107.0)) == [
            (100.0, "appeared", ""),
            (106.1, "state_changed", "ok -> stale: no good page for 6 s"),
            (107.0, "state_changed", "stale -> ok"),
        ]

    def test_a_recording_is_judged_by_its_own_spacing(self) -> None:
        """Pages 60 s apart: old after 180 s. A single page never is."""
        looks = [page(at, tokens=at) for at in (0.0, 60.0, 120.0)]
        assert seen(*looks, now=300.0, spacing=None).state is ReplicaState.OK
        assert seen(*looks, now=301.0, spacing=None).state is ReplicaState.STALE
        assert seen(looks[0], now=1e6, spacing=None).state is ReplicaState.OK

    def test_a_sleeping_engine_is_not_stale_because_its_page_is_not_asked(self) -> None:
        asleep = [
            page(at, running=0.0, flags=EngineFlags(sleeping=True), metrics_page=False)
            for at in (4.0, 6.0, 8.0, 10.0, 12.0)
        ]
        replica = seen(page(2, running=0.0), *asleep)
        assert (replica.state, replica.since) == (ReplicaState.SLEEPING, 4.0)
        assert replica.scraped_at == 12.0

    def test_side_pages_alone_do_not_keep_a_page_fresh_nor_end_a_failure(self) -> None:
        sides = [page(at, metrics_page=False) for at in (4.0, 6.0, 8.0, 10.0)]
        assert seen(page(2), *sides).state is ReplicaState.STALE
        failing = [page(2), failure(4, FailureKind.SERVER_ERROR, answered=True), sides[1]]
        assert seen(*failing).state is ReplicaState.STALE


class TestNoProgress:
    def test_three_pages_with_work_and_the_same_counters(self) -> None:
        """Counters move at 4 for the last time; the third page with the same ones is at 8."""
        looks = [page(2, tokens=10), page(4, tokens=20), page(6, tokens=20), page(8, tokens=20)]
        assert seen(*looks[:3]).state is ReplicaState.OK
        replica = seen(*looks)
        assert (replica.state, replica.since) == (ReplicaState.NO_PROGRESS, 4.0)
        assert replica.reasons == ("no progress for 4 s on 3 pages, 1 running, 0 waiting",)

    def test_frozen_from_the_first_sight(self) -> None:
        looks = [page(at, running=106.0, waiting=15.0, kv=0.904, tokens=7) for at in (0.0, 2.0, 4.0)]
        assert seen(*looks).state is ReplicaState.NO_PROGRESS

    def test_failures_between_the_pages_change_nothing(self) -> None:
        looks = [page(2), failure(4, FailureKind.TIMEOUT), page(6), page(8)]
        assert seen(*looks).state is ReplicaState.NO_PROGRESS

    def test_any_movement_ends_it(self) -> None:
        still = [page(at) for at in (2.0, 4.0, 6.0)]
        assert seen(*still, page(8, tokens=1)).state is ReplicaState.OK
        assert seen(*still, page(8, preemptions=1)).state is ReplicaState.OK
        assert seen(*still, page(8, running=0.0)).state is ReplicaState.IDLE

    def test_a_request_after_an_idle_hour_is_given_its_time(self) -> None:
        idle = [page(at, running=0.0) for at in range(0, 3600, 600)]
        late = [page(3600, running=1.0), page(3602, running=1.0)]
        assert seen(*idle, *late, spacing=None).state is ReplicaState.OK
        replica = seen(*idle, *late, page(3604, running=1.0), spacing=None)
        assert (replica.state, replica.since) == (ReplicaState.NO_PROGRESS, 3600.0)

    @pytest.mark.parametrize(
        ("e2e", "hold"),
        [
            ((0.0, 0.0, 0.0), 30.0),  # nothing finished yet
            ((100.0, 100.0, 100.0), 30.0),  # p99 = 9.9 s: twice that is less than 30 s
            ((0.0, 100.0, 100.0), 39.8),  # p99 = 10 + 10 x 0.99 = 19.9 s
            ((0.0, 0.0, 100.0), 40.0),  # past the last bound: it counts as 20 s
        ],
    )
    def test_without_live_series_it_takes_as_long_as_slow_requests_do(
        self, e2e: tuple[float, float, float], hold: float
    ) -> None:
        made = tracker(page(0, live=False))
        made.observe(page(2, e2e=e2e, finished=1, live=False))  # the last movement
        assert made.snapshot(2.0).live_progress is False
        for at in (4.0, 6.0, 8.0, 2.0 + hold - 0.1):
            made.observe(page(at, e2e=e2e, finished=1, live=False))
            assert made.snapshot(at).state is ReplicaState.OK
        made.observe(page(2.0 + hold, e2e=e2e, finished=1, live=False))
        replica = made.snapshot(2.0 + hold)
        assert (replica.state, replica.since) == (ReplicaState.NO_PROGRESS, 2.0)

    def test_slow_requests_are_forgotten_after_a_quarter_of_an_hour(self) -> None:
        """p99 20 s was last seen at 2 s in a window of 60 s, so up to 62 s; idle until 1000 s."""
        made = tracker(page(0, running=0, live=False), spacing=None)
        for at in (2.0, 30.0, 70.0, 140.0, 1000.0):
            made.observe(page(at, running=0, e2e=(0, 0, 100), live=False))
            made.snapshot(at)
        for at in (1002.0, 1004.0, 1006.0, 1032.0):
            made.observe(page(at, running=1, e2e=(0, 0, 100), live=False))
        assert made.snapshot(1032.0).state is ReplicaState.NO_PROGRESS


class TestShownValues:
    def test_fresh_values_are_ok(self) -> None:
        replica = seen(page(0, tokens=0), page(10, tokens=500, kv=0.25, finished=20))
        assert replica.scalar("generation_tokens_per_second").value == 50.0
        assert replica.scalar("requests_finished_per_second").value == 2.0
        assert replica.scalar("kv_usage_ratio").value == 0.25
        assert (replica.scraped_at, replica.scrape_seconds) == (10.0, 0.25)

    @pytest.mark.parametrize(
        ("kind", "kept"),
        [
            (FailureKind.REFUSED, False),
            (FailureKind.UNAUTHORIZED, False),
            (FailureKind.LOADING, False),
            (FailureKind.NO_ENGINE_METRICS, False),
            (FailureKind.SERVER_ERROR, True),
            (FailureKind.TRUNCATED, True),
            (FailureKind.TOO_LARGE, True),
            (FailureKind.COLLECTOR, True),
        ],
    )
    def test_an_old_value_is_never_shown_as_ok(self, kind: FailureKind, kept: bool) -> None:
        share = GpuShare(power=Scalar(300.0, "W", Quality.OK))
        looks = [page(0), page(2, tokens=10, e2e=(9, 9, 9)), failure(4, kind), failure(6, kind)]
        replica = tracker(*looks).snapshot(7.0, share)
        assert set(replica.signals) == set(SIGNALS)
        for name, signal in replica.signals.items():
            assert signal.quality not in (Quality.OK, Quality.ESTIMATED), name
        assert replica.scalar("kv_usage_ratio").value == (0.5 if kept else None)
        e2e = replica.distribution("e2e_seconds")
        assert e2e.count == (9.0 if kept else None)
        if kept:
            assert e2e.quality is Quality.STALE
            assert e2e.note == "5 s old"
            assert e2e.quantiles["p50"].value == 5.0
            assert replica.scalar("power_watts").note == "5 s old"

    def test_what_was_not_exported_stays_unsupported_in_stale(self) -> None:
        replica = seen(page(0), failure(2, FailureKind.SERVER_ERROR))
        assert replica.distribution("ttft_seconds").quality is Quality.UNSUPPORTED

    def test_the_window_moves_on_with_a_clock_that_was_set_back(self) -> None:
        made = tracker(page(9000.0), page(9020.0), spacing=20.0)
        made.snapshot(9020.0)
        for at, tokens in ((20.0, 100.0), (40.0, 300.0), (60.0, 600.0), (80.0, 1000.0)):
            made.observe(page(at, tokens=tokens))
        rates = [made.snapshot(now).scalar("generation_tokens_per_second").value for now in (81.0, 101.0)]
        assert rates == [15.0, 17.5]  # 900 in 60 s since 20, 700 in 40 s since 40

    def test_the_window_moves_on_with_the_clock(self) -> None:
        """Pages every 10 s, 100 tokens in the first ten seconds, 10 later. Window 60 s.

        At 60 the baseline is the page of 0: 150 tokens in 60 s. At 70, without a new page, it is that of 10.
        """
        made = tracker(spacing=10.0)
        for i in range(7):
            made.observe(page(10.0 * i, tokens=100.0 + 10 * (i - 1) if i else 0.0))
        rate = made.snapshot(60.0).scalar("generation_tokens_per_second").value
        assert rate == pytest.approx(150 / 60)
        assert made.snapshot(69.9).scalar("generation_tokens_per_second").value == rate
        assert made.snapshot(70.0).scalar("generation_tokens_per_second").value == pytest.approx(1.0)
        assert made.snapshot(80.0).scalar("generation_tokens_per_second").value == pytest.approx(1.0)

    def test_the_same_picture_while_nothing_changes(self) -> None:
        made = tracker(page(0), page(2))
        first = made.snapshot(2.0)
        assert made.snapshot(4.0) is first
        made.observe(page(6, tokens=1))
        assert made.snapshot(6.0) is not first

    def test_identity_and_config_outlive_the_connection(self) -> None:
        config = {"max_num_seqs": ConfigValue(64, "server_info")}
        identity = replace(VLLM, role=Role.DECODE, stack="dynamo", simulated=True)
        up = page(0, config=config, identity=identity)
        replica = seen(up, failure(2, FailureKind.REFUSED), failure(4, FailureKind.REFUSED))
        assert replica.state is ReplicaState.DOWN
        assert (replica.engine, replica.engine_version, replica.model, replica.role, replica.stack) == (
            EngineKind.VLLM,
            "0.32.0",
            "llama",
            Role.DECODE,
            "dynamo",
        )
        assert replica.simulated
        assert replica.config == config
        assert replica.last_failure is not None
        assert replica.last_failure.at == 4.0

    @pytest.mark.parametrize(
        ("name", "shown", "ttft"),
        [
            ("llama", "llama", 0.6),
            ("undefined", None, 1.0),
            ("", None, 1.0),
            (None, None, 1.0),
            ("None", None, 1.0),
        ],
    )
    def test_a_placeholder_is_no_model(self, name: str | None, shown: str | None, ttft: float) -> None:
        replica = seen(page(0, identity=Identity(EngineKind.TRTLLM, model=name)))
        assert (replica.model, replica.slo.ttft_seconds) == (shown, ttft)

    def test_the_next_try_is_told_while_failing(self) -> None:
        made = tracker(page(0))
        made.observe(failure(2, FailureKind.REFUSED), next_try_at=9.0)
        assert made.snapshot(2.0).next_try_at == 9.0
        made.observe(page(9))
        assert made.snapshot(9.0).next_try_at is None
        assert made.snapshot(9.0).last_failure is None

    def test_a_router_is_told_apart(self) -> None:
        assert tracker(page(0, identity=ROUTER)).who.is_router
        assert tracker(page(0, identity=replace(VLLM, role=Role.GATEWAY))).who.is_router
        assert not tracker(page(0)).who.is_router
        assert not tracker().who.is_router


def after_outage(seconds: int, *, then: int) -> ReplicaTracker:
    """Pages every 2 s for 100 s, none for so long, and every 2 s again; 100 tokens a second."""
    back = 100 + seconds
    made = tracker(*(page(at, tokens=100.0 * at, finished=at) for at in range(0, 102, 2)))
    for at in (102, 104):
        made.observe(failure(at, FailureKind.REFUSED))
    for at in range(back, back + then + 2, 2):
        made.observe(page(at, tokens=100.0 * at, finished=at))
    return made


class TestAfterAnOutage:
    """The baseline is the newest page before the window, which may be of before the outage."""

    @pytest.mark.parametrize(
        ("outage", "then", "average"),
        [
            (900, 0, "15 min"),
            (900, 4, "15 min"),
            (900, 58, "15 min"),  # 958 s
            (900, 60, ""),  # the first page after it is 60 s old
            (59, 0, ""),
            (119, 0, ""),  # 119 s are less than twice the window
            (119, 2, "2 min"),  # 121 s
            (119, 58, "2 min"),
            (119, 60, ""),
        ],
    )
    def test_what_is_counted_over_it_is_an_average_and_says_so(
        self, outage: int, then: int, average: str
    ) -> None:
        shown = after_outage(outage, then=then).snapshot(100.0 + outage + then)
        rate, run = shown.scalar("generation_tokens_per_second"), shown.scalar("requests_running")
        note = f"an average of {average}: no pages for most of it" if average else ""
        quality = Quality.ESTIMATED if average else Quality.OK
        assert (rate.value, rate.quality, rate.note) == (100.0, quality, note)
        assert (run.value, run.quality, run.note) == (1.0, Quality.OK, "")
        e2e = shown.signals["e2e_seconds"]
        assert isinstance(e2e, Distribution)
        assert (e2e.quality, e2e.note) == (quality, note)

    def test_a_slow_target_has_no_outage(self) -> None:
        made = tracker(*(page(150.0 * n, tokens=n) for n in range(4)))
        rate = made.snapshot(450.0).scalar("generation_tokens_per_second")
        assert (rate.value, rate.quality, rate.note) == (1 / 150, Quality.OK, "")


class TestEvents:
    def test_a_life(self) -> None:
        replica = seen(
            failure(0, FailureKind.REFUSED),
            failure(2, FailureKind.REFUSED),
            page(4, start=100.0, tokens=50),
            page(6, start=106.0, tokens=3, identity=replace(VLLM, engine_version="0.33.0")),
            page(8, start=106.0, tokens=4, running=0.0),
        )
        kinds = [(at, kind) for at, kind, _ in events(replica)]
        assert kinds == [
            (2.0, "state_changed"),
            (4.0, "appeared"),
            (4.0, "state_changed"),
            (6.0, "restarted"),
            (8.0, "state_changed"),
        ]
        details = [detail for _, _, detail in events(replica)]
        assert details[0] == "unknown -> down: connection refused for 2 s"
        assert details[2] == "down -> ok"
        assert details[3].endswith("0.32.0 -> 0.33.0")
        assert details[4] == "ok -> idle"

    @pytest.mark.parametrize("first", [page(2), failure(2, FailureKind.UNAUTHORIZED), nothing_new(2)])
    def test_a_target_appears_with_its_first_answer(self, first: Observation) -> None:
        assert events(seen(failure(0, FailureKind.REFUSED), first)) == [(2.0, "appeared", "")]

    @pytest.mark.parametrize("kind", [FailureKind.REFUSED, FailureKind.TIMEOUT, FailureKind.COLLECTOR])
    def test_no_answer_is_no_appearance(self, kind: FailureKind) -> None:
        assert events(seen(failure(0, kind))) == []

    def test_preemptions_are_followed_over_the_window(self) -> None:
        made = tracker(spacing=10.0)
        for i in range(12):
            made.observe(page(10.0 * i, tokens=i, preemptions=3.0 if i >= 3 else 0.0))
            made.snapshot(10.0 * i)
        # Three at 30. The windows that end at 90 and later begin at 30 or later and no longer hold them.
        assert [(at, kind) for at, kind, _ in events(made.snapshot(110.0)) if "preempt" in kind] == [
            (30.0, "preemptions_began"),
            (90.0, "preemptions_ended"),
        ]

    def test_a_changed_setting(self) -> None:
        looks = [page(at, tokens=at, config={"k": ConfigValue(at // 4, "props")}) for at in (0, 2, 4)]
        assert events(seen(*looks))[-1] == (4.0, "config_changed", "k 0 -> 1")


def test_trends_have_holes_where_nothing_was_known() -> None:
    made = tracker()
    made.observe(page(0, kv=0.25))
    made.snapshot(0.0)
    for at in (2.0, 4.0):
        made.observe(failure(at, FailureKind.REFUSED))
        made.snapshot(at)
    made.observe(page(6, kv=0.75))
    replica = made.snapshot(6.0)
    assert list(replica.trend_times) == [0.0, 2.0, 4.0, 6.0]
    assert list(replica.trends["kv_usage_ratio"]) == [0.25, 0.25, None, 0.75]


def test_a_distribution_that_grew_old_keeps_its_figures() -> None:
    fresh = seen(page(0), page(2, e2e=(1, 3, 4)))
    old = seen(page(0), page(2, e2e=(1, 3, 4)), failure(4, FailureKind.TRUNCATED))
    one, other = fresh.distribution("e2e_seconds"), old.distribution("e2e_seconds")
    assert isinstance(other, Distribution)
    assert replace(other, quality=one.quality, note=one.note) == one
