"""One-shot sampling: every target gets its tries, and nobody waits longer than the deadlines add up to."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from collectors.http import HttpFetcher
from collectors.sample import sample_fleet
from enginetop.fleet.model import ReplicaState, Target
from enginetop.fleet.observation import FailureKind
from enginetop.fleet.snapshot import FleetSnapshot, GpuDevice, GpuReport
from tests.support.faulty_server import HANG, FaultyServer
from tests.support.small_fleet import FakeFetcher, Page, new_feeds, replica, target, tracker_of, vllm_page


def sample(fetcher: FakeFetcher | HttpFetcher, *urls: str, samples: int = 2) -> FleetSnapshot:
    targets = [target(url) for url in urls]
    return sample_fleet(
        targets,
        tracker=tracker_of(targets, 0.2),
        new_feed=new_feeds(),
        new_fetcher=lambda: fetcher,
        samples=samples,
        interval_seconds=0.2,
    )


def test_two_samples_give_a_rate() -> None:
    fetcher = FakeFetcher({"http://a": lambda number: vllm_page(3, 100 * number)})
    snapshot = sample(fetcher, "http://a")
    one = replica(snapshot, "http://a")
    assert (one.state, fetcher.counts, fetcher.closed) == (ReplicaState.OK, {"http://a": 2}, True)
    rate = one.scalar("generation_tokens_per_second").number
    assert rate is not None
    assert rate > 0


def test_one_sample_has_gauges_and_no_rate() -> None:
    snapshot = sample(FakeFetcher({"http://a": vllm_page(3, 5)}), "http://a", samples=1)
    one = replica(snapshot, "http://a")
    assert one.scalar("requests_running").number == 3
    assert one.scalar("generation_tokens_per_second").number is None


@pytest.mark.parametrize(
    ("page", "state"),
    [
        (None, ReplicaState.STALE),  # the page hangs, another path of the server answers
        (401, ReplicaState.UNAUTHORIZED),
        (404, ReplicaState.NO_ENGINE_METRICS),
    ],
)
def test_failing_twice_counts_at_once(page: Page, state: ReplicaState) -> None:
    fetcher = FakeFetcher({"http://bad": page, "http://good": vllm_page()})
    snapshot = sample(fetcher, "http://bad", "http://good")
    assert replica(snapshot, "http://bad").state is state
    assert replica(snapshot, "http://good").state is ReplicaState.OK


@pytest.mark.parametrize("error", [FailureKind.REFUSED, FailureKind.DNS, FailureKind.TLS])
def test_a_server_that_is_not_there_is_down_at_once(error: FailureKind) -> None:
    fetcher = FakeFetcher({"http://bad": error, "http://good": vllm_page()}, absent=frozenset({"http://bad"}))
    snapshot = sample(fetcher, "http://bad", "http://good")
    assert replica(snapshot, "http://bad").state is ReplicaState.DOWN
    assert replica(snapshot, "http://good").state is ReplicaState.OK


def test_a_hung_server_ends_at_its_deadline() -> None:
    with FaultyServer() as server:
        url = server.replica(HANG).url
        began = time.monotonic()
        snapshot = sample(HttpFetcher(), url)
        took = time.monotonic() - began
    assert replica(snapshot, url).state is ReplicaState.DOWN
    assert took < 10  # two deadlines of 0.18 s and one interval; the rest is for a busy machine


def test_no_targets_give_an_empty_fleet() -> None:
    assert sample(FakeFetcher({})).replicas == ()


class OneGpu:
    def open(self, targets: Sequence[Target]) -> None:
        return

    def read(self, now: float) -> Sequence[GpuReport]:
        return [GpuReport("a", now, (GpuDevice(0, "GPU-1", "H200"),))]

    def close(self) -> None:
        return


def test_gpus_are_read() -> None:
    targets = [target("http://a")]
    snapshot = sample_fleet(
        targets,
        tracker=tracker_of(targets),
        new_feed=new_feeds(),
        new_fetcher=lambda: FakeFetcher({"http://a": vllm_page()}),
        samples=1,
        gpu_source=OneGpu(),
    )
    assert [gpu.uuid for gpu in replica(snapshot, "http://a").gpus] == ["GPU-1"]
