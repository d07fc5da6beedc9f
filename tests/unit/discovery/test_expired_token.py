"""A token expires while everything runs: each way says so, and takes the new one without a start."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from collectors.feed import TargetFeed
from collectors.fetch import Credentials
from collectors.gpu.exporters import ExporterGpus
from collectors.http import HttpFetcher
from collectors.layout import LayoutCache
from collectors.loop import LiveEngine
from collectors.prometheus.client import PrometheusClient
from collectors.prometheus.source import PrometheusLooks, PrometheusSource
from enginetop.fleet.model import ReplicaState
from enginetop.fleet.ports import FleetSource
from enginetop.fleet.snapshot import FleetSnapshot
from tests.support.engine_pages import fixture
from tests.support.fake_prometheus import FakePrometheus
from tests.support.faulty_server import FaultyServer, Reply, Request, Script, page
from tests.support.small_fleet import new_feeds, target, tracker_of, vllm_page, wait_until

OLD, NEW = "token-of-yesterday-1", "token-of-today-22222"


class Lock:
    """What a server accepts now; a script behind it."""

    def __init__(self, script: Script) -> None:
        self.accepted = OLD
        self._script = script

    def __call__(self, request: Request) -> Reply:
        if request.headers.get("authorization") != f"Bearer {self.accepted}":
            return page(b'{"error": "token expired"}', 401, "application/json")
        return self._script(request)


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(OLD)
    return path


def state(snapshot: FleetSnapshot) -> ReplicaState:
    (replica,) = snapshot.replicas
    return replica.state


def told(source: FleetSource) -> str:
    snapshot = source.latest()
    assert snapshot is not None
    (replica,) = snapshot.replicas
    return "; ".join(replica.reasons)


def test_an_engine(server: FaultyServer, token: Path) -> None:
    number = 0

    def growing(request: Request) -> Reply:
        nonlocal number
        number += 1
        return page(vllm_page(running=1, tokens=number))

    lock = Lock(growing)
    replica = target(server.replica(lock).url)
    credentials = {replica.url: Credentials(api_key_file=str(token))}
    engine = LiveEngine(
        [replica],
        tracker=tracker_of([replica], 0.05),
        new_feed=new_feeds(),
        new_fetcher=lambda: HttpFetcher(credentials),
        interval_seconds=0.1,
    )
    engine.start()
    try:
        wait_until(engine, lambda seen: state(seen) is ReplicaState.OK)
        lock.accepted = NEW
        wait_until(engine, lambda seen: state(seen) is ReplicaState.UNAUTHORIZED)
        assert "401" in told(engine)
        assert OLD not in told(engine)
        token.write_text(NEW)
        wait_until(engine, lambda seen: state(seen) is ReplicaState.OK, poke=engine.request_refresh)
    finally:
        engine.stop()


def test_a_prometheus(token: Path) -> None:
    fake = FakePrometheus()
    fake.scraped({"job": "vllm", "instance": "h:1"}, 990.0, vllm_page().decode())
    accepted = [OLD]

    def locked(path: str) -> tuple[int, bytes] | None:
        right = fake.headers[-1].get("authorization") == f"Bearer {accepted[0]}"
        return None if right else (401, b'{"error": "token expired"}')

    fake.fault = locked
    layouts = LayoutCache()
    with fake.serving() as url:
        looks = PrometheusLooks(
            PrometheusClient(url, Credentials(api_key_file=str(token)), timeout_seconds=5.0),
            tracker=tracker_of([]),
            new_feed=lambda one: TargetFeed(one, layouts),
            backfill_seconds=60.0,
        )
        source = PrometheusSource(looks, 0.02)
        source.start()
        try:
            wait_until(source, lambda seen: len(seen.replicas) == 1)
            accepted[0] = NEW
            seen = wait_until(source, lambda seen: "HTTP 401" in seen.collector.problem)
            assert "token expired; it needs a key, or another one" in seen.collector.problem
            assert len(seen.replicas) == 1  # what is known grows old, it is not lost
            token.write_text(NEW)
            wait_until(source, lambda seen: not seen.collector.problem)
        finally:
            source.stop()
            for thread in threading.enumerate():
                if thread.name.startswith("enginetop-prometheus"):
                    thread.join(10.0)


def test_an_exporter_of_gpus(server: FaultyServer, token: Path) -> None:
    lock = Lock(lambda _: page(fixture("dcgm/4.5/dcgm-exporter-4.5-reconstructed.prom")))
    exporter = target(server.replica(lock).url)
    credentials = {exporter.url: Credentials(api_key_file=str(token))}
    source = ExporterGpus([exporter], lambda: HttpFetcher(credentials), 5.0)
    try:
        assert [report.problem for report in source.read(1000.0)] == [""]
        lock.accepted = NEW
        (report,) = source.read(1001.0)
        assert "HTTP 401: it needs a key, or another one" in report.problem
        token.write_text(NEW)
        assert [report.problem for report in source.read(1002.0)] == [""]
    finally:
        source.close()
