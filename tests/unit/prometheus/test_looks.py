"""A fleet read from a Prometheus tells what its pages tell: values, states, who comes, goes, moves, fails."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from collectors.answer import Answer
from collectors.feed import TargetFeed
from collectors.layout import LayoutCache
from collectors.prometheus.client import PrometheusClient, PrometheusError
from collectors.prometheus.source import PrometheusLooks, PrometheusSource
from enginetop.fleet.fleet_tracker import FleetTracker
from enginetop.fleet.model import Quality, ReplicaState, Role, Target
from enginetop.fleet.snapshot import FleetSnapshot, GpuReport, ReplicaSnapshot, Scalar, Slo
from tests.support.engine_pages import fixture
from tests.support.fake_prometheus import FakePrometheus
from tests.support.small_fleet import vllm_page, wait_until

LABELS = {"job": "vllm", "instance": "10.0.0.1:8000", "pod": "p1"}
PLAIN = {"content-type": "text/plain; version=0.0.4"}

PAIRS = {
    "vllm": ("vllm/0.32.0/vllm-0.32.0-loaded.prom", "vllm/0.32.0/vllm-0.32.0-after.prom"),
    "vllm, two API servers": (
        "vllm/0.32.0/vllm-0.32.0-spec-2api-idle.prom",
        "vllm/0.32.0/vllm-0.32.0-spec-2api-loaded.prom",
    ),
    "vllm, after a restart": (
        "vllm/0.32.0/vllm-0.32.0-after.prom",
        "vllm/0.32.0/vllm-0.32.0-idle.prom",
    ),
    "dynamo worker": (
        "dynamo/1.6.1/dynamo-1.6.1-worker1-idle.prom",
        "dynamo/1.6.1/dynamo-1.6.1-worker1-kvpressure.prom",
    ),
    "dynamo frontend": (
        "dynamo/1.6.1/dynamo-1.6.1-frontend-idle.prom",
        "dynamo/1.6.1/dynamo-1.6.1-frontend-kvpressure.prom",
    ),
}


def tracker_of() -> FleetTracker:
    return FleetTracker(
        (), interval_seconds=5.0, window_seconds=60.0, slo_for=lambda _: Slo(), fixed_spacing_seconds=None
    )


@contextmanager
def looking(fake: FakePrometheus, **options: Any) -> Iterator[PrometheusLooks]:
    layouts = LayoutCache()
    with fake.serving() as url:
        looks = PrometheusLooks(
            PrometheusClient(url, timeout_seconds=5.0),
            tracker=tracker_of(),
            new_feed=lambda target: TargetFeed(target, layouts),
            backfill_seconds=options.pop("backfill_seconds", 120.0),
            **options,
        )
        try:
            yield looks
        finally:
            looks.close()


def only(snapshot: FleetSnapshot) -> ReplicaSnapshot:
    (replica,) = snapshot.replicas
    return replica


def number(replica: ReplicaSnapshot, name: str) -> float | None:
    value = replica.signals[name]
    assert isinstance(value, Scalar)
    return value.number


def told(replica: ReplicaSnapshot) -> Mapping[str, object]:
    """Everything that rests on pages."""
    return {
        "signals": dict(replica.signals),
        "beyond": dict(replica.beyond),
        "config": dict(replica.config),
        "ranks": replica.ranks,
        "identity": (replica.engine, replica.model, replica.role, replica.stack, replica.bad_lines),
        "state": (replica.state, replica.reasons, replica.since, replica.scraped_at, replica.totals),
    }


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS.keys())
def test_what_a_prometheus_scraped_says_what_the_pages_say(pair: tuple[str, str]) -> None:
    fake = FakePrometheus(time=1000.5)
    direct = tracker_of()
    target = Target("http://10.0.0.1:8000", "p1", pod="p1")
    feed = TargetFeed(target, LayoutCache())
    direct.follow(target, 0.0)
    for at, name in zip((970.0, 1000.0), pair, strict=True):
        page = fixture(name)
        fake.scraped(LABELS, at, page.decode())
        answer = Answer("/metrics", at, 0.25, 200, PLAIN, page)
        direct.observe(target.url, feed.take((answer,), at, 0.25))
    with looking(fake) as looks:
        seen = looks.look()
    assert told(only(seen)) == told(only(direct.snapshot(1000.5)))
    assert only(seen).target == target
    assert seen.at == 1000.5


class Sink:
    """Notes when the scrapes were that were taken."""

    problem = ""

    def __init__(self) -> None:
        self.times: list[float] = []

    def record_scrape(self, url: str, at: float, answers: Sequence[Answer]) -> None:
        self.times.append(at)

    def record_gpus(self, report: GpuReport) -> None:
        raise AssertionError(report)


def test_each_scrape_is_taken_once_and_in_order() -> None:
    fake, sink = FakePrometheus(), Sink()
    with looking(fake, recorder=sink) as looks:
        for step in range(8):
            fake.time = 1000.0 + 5 * step
            fake.scraped(LABELS, fake.time - 1, vllm_page(running=step, tokens=500 * step).decode())
            seen = looks.look()
            assert number(only(seen), "requests_running") == step
        # 7 steps of 500 tokens in 35 s
        assert number(only(seen), "generation_tokens_per_second") == pytest.approx(100.0)
        before = only(seen)
        assert number(only(looks.look()), "generation_tokens_per_second") == pytest.approx(100.0)
    assert sink.times == [999.0 + 5 * step for step in range(8)]
    assert only(seen).spacing_seconds == 5.0
    assert before.scrape_seconds == 0.25


def test_charts_begin_with_the_past() -> None:
    fake = FakePrometheus(time=1000.0)
    for step in range(21):
        fake.scraped(LABELS, 700.0 + 15 * step, vllm_page(running=step, tokens=150 * step).decode())
    with looking(fake, backfill_seconds=300.0) as looks:
        seen = only(looks.look())
    running = [value for value in seen.trends["requests_running"] if value is not None]
    assert len(running) > 15
    assert running == sorted(running)
    assert running[-1] == 20


def test_a_dead_one_is_dead_at_once_and_why() -> None:
    fake = FakePrometheus()
    fake.scraped(LABELS, 985.0, vllm_page().decode())
    fake.active = [
        {"labels": dict(LABELS), "lastError": 'Get "http://x": dial tcp: connect: connection refused'}
    ]
    with looking(fake) as looks:
        assert only(looks.look()).state is ReplicaState.OK
        for at in (990.0, 995.0):
            fake.scraped(LABELS, at, None)
        dead = only(looks.look())
    assert dead.state is ReplicaState.DOWN
    assert dead.reasons == ("its scraper says: connection refused for 10 s",)
    assert number(dead, "requests_running") is None


@pytest.mark.parametrize(
    ("why", "state"),
    [
        ("server returned HTTP status 401 Unauthorized", ReplicaState.UNAUTHORIZED),
        ("server returned HTTP status 404 Not Found", ReplicaState.NO_ENGINE_METRICS),
        ("server returned HTTP status 500 Internal Server Error", ReplicaState.STALE),
        ('Get "https://x": x509: certificate signed by unknown authority', ReplicaState.DOWN),
        ('Get "http://x": context deadline exceeded', ReplicaState.DOWN),
        ("dial tcp: lookup h: no such host", ReplicaState.DOWN),
        ("expected equal, got \x1b[31m", ReplicaState.STALE),
        ("", ReplicaState.DOWN),
    ],
)
def test_failures_of_the_scraper_mean_what_ours_mean(why: str, state: ReplicaState) -> None:
    fake = FakePrometheus()
    fake.active = [{"labels": dict(LABELS), "lastError": why}]
    fake.scraped(LABELS, 985.0, vllm_page().decode())
    for at in (990.0, 995.0):
        fake.scraped(LABELS, at, None)
    with looking(fake) as looks:
        seen = only(looks.look())
    assert seen.state is state
    assert "\x1b" not in " ".join(seen.reasons)


def test_one_that_is_scraped_no_more_is_gone_and_one_that_moves_is_followed() -> None:
    fake = FakePrometheus()
    for pod, instance in (("p1", "10.0.0.1:8000"), ("p2", "10.0.0.2:8000")):
        fake.scraped({**LABELS, "pod": pod, "instance": instance}, 995.0, vllm_page(tokens=100).decode())
    with looking(fake) as looks:
        assert [replica.target.name for replica in looks.look().replicas] == ["p1", "p2"]
        fake.given_up({"instance": "10.0.0.1:8000"}, 999.0)
        fake.given_up({"instance": "10.0.0.2:8000"}, 999.0)
        fake.time = 1005.0
        fake.scraped(
            {**LABELS, "pod": "p2", "instance": "10.0.0.9:8000"}, 1004.0, vllm_page(tokens=600).decode()
        )
        gone, moved = looks.look().replicas
        assert gone.gone_at == 1005.0
        assert moved.target == Target("http://10.0.0.9:8000", "p2", pod="p2")
        # its history goes on: 500 tokens in 9 s
        assert number(moved, "generation_tokens_per_second") == pytest.approx(500 / 9)
        fake.time = 1400.0
        fake.scraped({**LABELS, "pod": "p2", "instance": "10.0.0.9:8000"}, 1399.0, vllm_page().decode())
        assert [replica.target.name for replica in looks.look().replicas] == ["p2"]


def test_what_has_no_engine_is_no_row() -> None:
    fake = FakePrometheus()
    fake.scraped(LABELS, 990.0, vllm_page().decode())
    fake.scraped({"job": "vllm", "instance": "side:1"}, 990.0, "process_cpu_seconds_total 1\n")
    fake.scraped({"job": "node", "instance": "node:9100"}, 990.0, None)
    with looking(fake) as looks:
        assert only(looks.look()).target.name == "p1"


def test_what_fails_among_other_things_is_a_row_only_if_it_was_an_engine() -> None:
    fake = FakePrometheus()
    pods = {"job": "pods"}
    fake.scraped({**pods, "instance": "engine:1"}, 400.0, vllm_page().decode())
    fake.scraped({**pods, "instance": "engine:1"}, 990.0, None)
    fake.scraped({**pods, "instance": "engine:2"}, 990.0, vllm_page().decode())
    fake.scraped({**pods, "instance": "sidecar:3"}, 990.0, None)
    fake.scraped({**pods, "instance": "proxy:4"}, 990.0, "envoy_x 1\n")
    with looking(fake) as looks:
        assert [replica.target.name for replica in looks.look().replicas] == ["engine:1", "engine:2"]


def test_without_up_it_says_what_is_missing() -> None:
    fake = FakePrometheus()
    fake.arrived(LABELS, 990.0, vllm_page().decode())
    with looking(fake) as looks:
        seen = looks.look()
    assert seen.replicas == ()
    assert "no `up`" in seen.collector.told


def test_copies_of_a_router_are_not_asked_for() -> None:
    fake = FakePrometheus()
    fake.scraped(LABELS, 990.0, vllm_page(running=3).decode())
    copy = 'vllm:num_requests_running{server="10.0.0.1:8000"} 3\n'
    fake.scraped({"job": "router", "instance": "router:9000"}, 990.0, copy)
    with looking(fake) as looks:
        seen = looks.look()
    assert only(seen).target.name == "p1"
    assert seen.fleet.signals["requests_running"] == Scalar(3.0, "requests", Quality.OK)


def test_an_engine_that_two_jobs_scrape_is_one_replica_and_two_clusters_are_two() -> None:
    fake = FakePrometheus()
    for job in ("a", "b"):
        fake.scraped({**LABELS, "job": job, "cluster": "x"}, 990.0, vllm_page(running=1).decode())
    fake.scraped({**LABELS, "job": "b", "cluster": "x"}, 995.0, None)  # one of the two may fail by itself
    fake.scraped({**LABELS, "job": "a", "cluster": "y"}, 990.0, vllm_page(running=5).decode())
    with looking(fake) as looks:
        seen = looks.look()
    assert sorted(replica.target.url for replica in seen.replicas) == [
        "http://10.0.0.1:8000",
        "http://10.0.0.1:8000/cluster=y",
    ]
    assert seen.fleet.signals["requests_running"] == Scalar(6.0, "requests", Quality.OK)


def test_the_spelling_of_prometheus_2_is_read_too() -> None:
    fake = FakePrometheus()
    page = vllm_page(running=2).decode().replace("vllm:", "vllm_")
    fake.scraped(LABELS, 990.0, page)
    with looking(fake) as looks:
        assert number(only(looks.look()), "requests_running") == 2


def test_labels_of_the_page_that_the_scraper_has_too_are_the_page_s_again() -> None:
    fake = FakePrometheus()
    page = 'vllm:num_requests_running{engine="0",model_name="m",pod="of the page"} 4\n'
    fake.scraped(LABELS, 990.0, page)
    with looking(fake) as looks:
        assert number(only(looks.look()), "requests_running") == 4


def test_a_number_that_is_none_is_null() -> None:
    fake = FakePrometheus()
    fake.scraped(LABELS, 990.0, 'vllm:num_requests_running{engine="0"} NaN\nvllm:num_requests_waiting 2\n')
    with looking(fake) as looks:
        seen = only(looks.look())
    assert number(seen, "requests_running") is None
    assert number(seen, "requests_waiting") == 2


def test_a_scrape_whose_series_come_late_waits_for_them() -> None:
    fake = FakePrometheus()
    fake.scraped(LABELS, 990.0, vllm_page(running=1).decode())
    fake.scraped(LABELS, 998.0, vllm_page(running=2).decode(), late=True)
    with looking(fake) as looks:
        assert number(only(looks.look()), "requests_running") == 1
        fake.arrived(LABELS, 998.0, vllm_page(running=2).decode())
        fake.time = 1003.0
        assert number(only(looks.look()), "requests_running") == 2


def test_labels_of_the_scraper_tell_role_and_model() -> None:
    fake = FakePrometheus()
    labels = {**LABELS, "role": "decode", "model": "told"}
    fake.scraped(labels, 990.0, 'vllm:num_requests_running{engine="0"} 1\n')
    with looking(fake) as looks:
        seen = only(looks.look())
    assert (seen.role, seen.model) == (Role.DECODE, "told")


def test_missing_parts_are_told_and_nothing_is_hidden() -> None:
    fake = FakePrometheus(warnings=["store 10.0.0.7 is \x1b[31mdown"])
    fake.scraped(LABELS, 990.0, vllm_page().decode())
    with looking(fake) as looks:
        seen = looks.look()
    assert seen.collector.discovery_problem.startswith("store 10.0.0.7 is")
    assert "\x1b" not in seen.collector.told
    assert only(seen).state is ReplicaState.OK


def test_a_server_without_engines_has_no_rows() -> None:
    fake = FakePrometheus()
    fake.scraped({"job": "node", "instance": "n:1"}, 990.0, "node_load1 1\n")
    with looking(fake) as looks:
        assert looks.look().replicas == ()


@pytest.mark.parametrize("took", ["NaN", "+Inf"])
def test_how_long_a_scrape_took_is_a_number_or_not_known(took: str) -> None:
    """JSON has neither: one scrape that took so long would hide the whole fleet."""
    fake = FakePrometheus()
    fake.scraped(LABELS, 990.0, "vllm:num_requests_running 1\n")
    fake._add("scrape_duration_seconds", LABELS, 990.0, took)
    with looking(fake) as looks:
        seen = only(looks.look())
    assert seen.scrape_seconds == 0.25  # that of the other sample; without it: 0


def test_a_live_view_outlives_a_server_that_fails() -> None:
    fake = FakePrometheus()
    fake.scraped(LABELS, 990.0, vllm_page().decode())
    with looking(fake) as looks:
        source = PrometheusSource(looks, 0.02)
        source.start()
        try:
            wait_until(source, lambda seen: len(seen.replicas) == 1)
            fake.fault = lambda path: (503, b'{"status":"error","error":"too busy"}')
            seen = wait_until(source, lambda seen: "too busy" in seen.collector.problem)
            assert only(seen).state is ReplicaState.OK  # what is known grows old, it is not lost
            fake.fault = lambda path: None
            wait_until(source, lambda seen: not seen.collector.problem)
        finally:
            source.stop()
    assert not source.finished()


def test_a_server_that_hangs_does_not_hold_up_the_end() -> None:
    fake = FakePrometheus()
    fake.scraped(LABELS, 990.0, vllm_page().decode())
    asked, go_on = threading.Event(), threading.Event()

    def hang(path: str) -> None:
        asked.set()
        go_on.wait(20.0)

    with looking(fake) as looks:
        source = PrometheusSource(looks, 0.02)
        source.start()
        wait_until(source, lambda seen: len(seen.replicas) == 1)
        fake.fault = hang
        assert asked.wait(10.0)
        told: list[FleetSnapshot | None] = []
        source.subscribe(lambda: told.append(source.latest()))
        begun = time.monotonic()
        source.stop()
        took = time.monotonic() - begun
        go_on.set()
        for thread in threading.enumerate():
            if thread.name == "enginetop-prometheus":
                thread.join(10.0)
    assert took < 4.5  # an answer is waited for for 5 s
    assert told == []


def test_one_that_is_not_scraped_for_long_is_stale() -> None:
    fake = FakePrometheus()
    for at in (970.0, 980.0, 990.0):
        fake.scraped(LABELS, at, vllm_page().decode())
    with looking(fake) as looks:
        looks.look()
        fake.time = 1021.0  # more than three times its spacing of 10 s
        seen = only(looks.look())
    assert seen.state is ReplicaState.STALE
    running = seen.signals["requests_running"]
    assert isinstance(running, Scalar)
    assert running.quality is Quality.STALE


def test_a_server_too_busy_for_the_past_is_asked_for_less_of_it() -> None:
    fake = FakePrometheus()
    for at in range(400, 1000, 10):
        fake.scraped(LABELS, float(at), vllm_page(tokens=at).decode())
    with looking(fake, backfill_seconds=400.0) as looks:

        def busy(path: str) -> tuple[int, bytes] | None:
            span = re.search(r"\[(\d+)s\]", fake.queries[-1].get("query", [""])[0])
            return (504, b"") if span is not None and int(span[1]) > 150 else None

        fake.fault = busy
        for _ in range(2):
            with pytest.raises(PrometheusError, match="504"):
                looks.look()
        seen = only(looks.look())  # 100 s
    assert seen.state is ReplicaState.OK
    assert number(seen, "generation_tokens_per_second") == pytest.approx(1.0)
