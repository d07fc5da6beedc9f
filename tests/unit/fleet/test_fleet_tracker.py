"""The fleet: order, names, sums over what is up, and snapshots that never change."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest

from enginetop.fleet.fleet_tracker import FleetTracker, default_name
from enginetop.fleet.model import Quality, ReplicaState, Role, Target
from enginetop.fleet.observation import FailureKind
from enginetop.fleet.reading import EngineFlags
from enginetop.fleet.request_records import RequestFigures
from enginetop.fleet.signals import SIGNALS
from enginetop.fleet.snapshot import CollectorHealth, FleetSnapshot, GpuDevice, GpuReport, Scalar, Slo
from tests.support.looks import ROUTER, VLLM, failure, page

A, B, C = (Target(f"http://{name}:8000", name) for name in "abc")


def fleet(*targets: Target, spacing: float | None = 2.0) -> FleetTracker:
    return FleetTracker(
        targets,
        interval_seconds=2.0,
        window_seconds=60.0,
        slo_for=lambda model: Slo(ttft_seconds=0.6, source="config") if model == "llama" else Slo(),
        fixed_spacing_seconds=spacing,
    )


def scalar(snapshot: FleetSnapshot, name: str) -> Scalar:
    value = snapshot.fleet.signals[name]
    assert isinstance(value, Scalar)
    return value


def test_kv_of_reasoning_is_counted_where_there_is_reasoning() -> None:
    """The mean over the fleet, for all running requests, would be 200 / 2 x 112: fifty times as much."""
    made = fleet(A, B)
    made.observe(A.url, page(0, running=2))
    made.observe(B.url, page(0, running=110))
    for at in (1.0, 2.0):
        made.observe_request(A.url, RequestFigures(at, 500, 100 * at + 50))
    snapshot = made.snapshot(2.0)
    held = scalar(snapshot, "reasoning_kv_tokens")
    assert (held.value, held.quality) == (200 / 2 * 2, Quality.ESTIMATED)
    assert held.note == "at least: of 1 of 2 replicas"
    made.observe_request(B.url, RequestFigures(2.0, 500, 10))
    held = scalar(made.snapshot(3.0), "reasoning_kv_tokens")
    assert (held.value, held.note) == (200 + 10 / 2 * 110, "at least: of 2 of 2 replicas")


def test_an_average_over_an_outage_is_one_in_the_sum_too() -> None:
    made = fleet(A, B)
    for at in (0, 2, 900, 902):
        made.observe(A.url, page(at, tokens=100.0 * at))
    for at in range(0, 904, 2):
        made.observe(B.url, page(at, tokens=10.0 * at))
    rate = scalar(made.snapshot(902.0), "generation_tokens_per_second")
    assert (rate.value, rate.quality) == (110.0, Quality.ESTIMATED)
    assert rate.note == "in part: an average of 15 min: no pages for most of it"


def test_an_average_over_an_outage_of_all_is_one_of_the_whole() -> None:
    made = fleet(A, B)
    for at in (0, 2, 4, 900, 902):
        made.observe(A.url, page(at, tokens=100.0 * at))
        made.observe(B.url, page(at, tokens=10.0 * at))
    rate = scalar(made.snapshot(902.0), "generation_tokens_per_second")
    assert (rate.value, rate.quality) == (110.0, Quality.ESTIMATED)
    assert rate.note == "an average of 14 min: no pages for most of it"


def test_that_a_part_is_an_average_is_said_once_of_many() -> None:
    """Replicas are merged in groups, and those again."""
    urls = [Target(f"http://r{number}:8000", f"r{number}") for number in range(20)]
    made = fleet(*urls)
    for number, target in enumerate(urls):
        for at in (0, 2, 900, 902) if number < 9 else range(0, 904, 2):
            made.observe(target.url, page(at, tokens=1.0 * at))
    rate = scalar(made.snapshot(902.0), "generation_tokens_per_second")
    assert (rate.value, rate.note) == (20.0, "in part: an average of 15 min: no pages for most of it")


def test_targets_stand_in_their_order_and_others_behind_them() -> None:
    made = fleet(B, A)
    made.observe("http://z:9", page(0))
    made.observe(A.url, page(0))
    snapshot = made.snapshot(0.0)
    assert [replica.target.name for replica in snapshot.replicas] == ["b", "a", "z:9"]
    assert snapshot.fleet.replicas == 3
    assert snapshot.fleet.states == {ReplicaState.UNKNOWN: 1, ReplicaState.OK: 2}


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("http://h:8000", "h:8000"),
        ("https://h", "h"),
        ("http://[::1]:8000", "[::1]:8000"),
        ("http://h:8000/base/", "h:8000/base"),
        ("http://user:secret@h:8000", "h:8000"),
        ("gibberish", "gibberish"),
        ("http://[broken", "http://[broken"),
        ("http://h:8000/\x1ba\n", "h:8000/a"),
        ("http://user:secret@[broken", "[broken"),
        ("", ""),
    ],
)
def test_names_of_unnamed_targets(url: str, name: str) -> None:
    assert default_name(url) == name
    made = fleet()
    made.observe(url, page(0))  # whatever the URL is, it is tracked
    made.observe_gpus(GpuReport("h", 0.0, (GpuDevice(0, "g", "H100"),)))
    assert made.snapshot(0.0).replicas[0].target.url == url


def test_two_targets_never_share_a_name() -> None:
    made = fleet(Target("http://x:1", "h:8000"))
    for url in ("http://h:8000", "https://h:8000", "ftp://h:8000"):
        made.observe(url, page(0))
    names = [replica.target.name for replica in made.snapshot(0.0).replicas]
    assert names == ["h:8000", "h:8000 (2)", "h:8000 (3)", "h:8000 (4)"]


def test_each_snapshot_has_the_next_number_and_stays_as_it_is() -> None:
    made = fleet(A)
    first = made.snapshot(0.0)
    made.observe(A.url, page(1, kv=0.9))
    second = made.snapshot(2.0, CollectorHealth(asked_per_second=0.5))
    assert (first.sequence, second.sequence) == (1, 2)
    assert (first.at, first.interval_seconds, first.window_seconds) == (0.0, 2.0, 60.0)
    assert first.replicas[0].state is ReplicaState.UNKNOWN
    assert (first.collector, second.collector.asked_per_second) == (CollectorHealth(), 0.5)
    with pytest.raises(FrozenInstanceError):
        second.at = 3.0  # type: ignore[misc]


def test_sums_and_merges_over_what_is_up() -> None:
    """In 10 s a made 100 tokens and b 300; c is down."""
    made = fleet(A, B, C)
    for target, tokens, kv, running in ((A, 100, 0.5, 1), (B, 300, 0.9, 2), (C, 999, 0.99, 9)):
        made.observe(target.url, page(0, kv=kv, running=running))
        made.observe(target.url, page(10, tokens=tokens, kv=kv, running=running, e2e=(1, 2, 4)))
    made.observe(C.url, failure(11, FailureKind.REFUSED))
    made.observe(C.url, failure(12, FailureKind.REFUSED))
    snapshot = made.snapshot(12.0)
    assert scalar(snapshot, "generation_tokens_per_second").value == 40.0  # 10 + 30
    assert scalar(snapshot, "requests_running").value == 3.0
    usage = scalar(snapshot, "kv_usage_ratio")
    assert (usage.value, usage.worst) == (0.9, {"replica": "b"})
    assert usage.mean == pytest.approx(0.7)
    e2e = snapshot.fleet.signals["e2e_seconds"]
    assert not isinstance(e2e, Scalar)
    assert (e2e.count, e2e.quantiles["p50"].value) == (8.0, 20.0)
    assert (e2e.quantiles["p99"].low, e2e.quantiles["p99"].censored) == (20.0, True)
    assert snapshot.fleet.slo == snapshot.replicas[0].slo
    assert [replica.slo.source for replica in snapshot.replicas] == ["config"] * 3


@pytest.mark.parametrize(
    "flags", [EngineFlags(sleeping=True), EngineFlags(paused=True), EngineFlags(draining=True)]
)
def test_resting_replicas_count(flags: EngineFlags) -> None:
    made = fleet(A)
    made.observe(A.url, page(0, running=4, flags=flags))
    assert scalar(made.snapshot(0.0), "requests_running").value == 4.0


@pytest.mark.parametrize(
    "kind",
    [FailureKind.UNAUTHORIZED, FailureKind.LOADING, FailureKind.NO_ENGINE_METRICS, FailureKind.SERVER_ERROR],
)
def test_replicas_that_are_not_up_do_not_count(kind: FailureKind) -> None:
    made = fleet(A, B)
    made.observe(A.url, page(0, running=4))
    made.observe(B.url, page(0, running=7))
    made.observe(A.url, failure(1, kind))
    assert scalar(made.snapshot(1.0), "requests_running").value == 7.0


def test_when_nothing_is_up_nothing_is_known() -> None:
    made = fleet(A)
    for snapshot in (made.snapshot(0.0), fleet().snapshot(0.0)):
        assert set(snapshot.fleet.signals) == set(SIGNALS)
        assert all(signal.quality is Quality.UNKNOWN for signal in snapshot.fleet.signals.values())


@pytest.mark.parametrize(
    "router", [ROUTER, replace(VLLM, role=Role.ROUTER), replace(VLLM, role=Role.GATEWAY)]
)
def test_a_router_never_adds_to_engines_but_speaks_where_there_are_none(router: object) -> None:
    assert isinstance(router, type(VLLM))
    made = fleet(A, B)
    made.observe(B.url, page(0, running=5, identity=router))
    assert scalar(made.snapshot(0.0), "requests_running").value == 5.0
    made.observe(A.url, page(0, running=1))
    assert scalar(made.snapshot(0.0), "requests_running").value == 1.0
    # An engine that is away is not replaced by the router's view of it.
    for at in (1.0, 2.0):
        made.observe(A.url, failure(at, FailureKind.REFUSED))
    assert scalar(made.snapshot(2.0), "requests_running").value is None


def test_power_of_the_fleet_counts_each_gpu_once() -> None:
    one, two = Target("http://m:8000", "m1"), Target("http://m:8001", "m2")
    made = fleet(one, two, A)
    for target in (one, two, A):
        made.observe(target.url, page(0))
    made.observe_gpus(GpuReport("m", 0.0, (GpuDevice(0, "g0", "H100", power_watts=300.0),)))
    made.observe_gpus(GpuReport("a", 0.0, (GpuDevice(0, "g0", "H100", power_watts=100.0),)))
    snapshot = made.snapshot(0.0)
    assert [replica.scalar("power_watts").value for replica in snapshot.replicas] == [None, None, 100.0]
    assert [len(replica.gpus) for replica in snapshot.replicas] == [1, 1, 1]
    assert scalar(snapshot, "power_watts").value == 400.0


def test_gpu_trouble_is_told() -> None:
    made = fleet(A)
    made.observe_gpus(GpuReport("a", 0.0, (), problem="no NVIDIA driver"))
    assert made.snapshot(0.0).gpu_problem == "no NVIDIA driver"


def test_only_what_changed_is_drawn_anew() -> None:
    made = fleet(A, B)
    for target in (A, B):
        made.observe(target.url, page(0))
    first = made.snapshot(0.0)
    made.observe(B.url, page(2, tokens=5))
    second = made.snapshot(2.0)
    assert second.replicas[0] is first.replicas[0]
    assert second.replicas[1] is not first.replicas[1]
    assert scalar(second, "generation_tokens_per_second").value == 2.5


def test_totals_tell_with_which_page_they_began() -> None:
    """By it one that is listed again after all, or comes to an address, is told from the one before."""
    made = fleet(A, B)
    assert [one.first_page_at for one in made.snapshot(0.0).replicas] == [None, None]
    for at in (2.0, 4.0):
        made.observe(A.url, page(at, tokens=at))
        made.observe(B.url, page(at + 1, tokens=at))
    assert [one.first_page_at for one in made.snapshot(5.0).replicas] == [2.0, 3.0]
    made.drop(A.url)
    made.move({B.url: A}, 6.0)
    (moved,) = made.snapshot(6.0).replicas
    assert (moved.target, moved.first_page_at) == (A, 3.0)
    made.drop(A.url)
    made.follow(A, 7.0)
    made.observe(A.url, page(8.0, tokens=1.0))
    assert made.snapshot(8.0).replicas[0].first_page_at == 8.0
