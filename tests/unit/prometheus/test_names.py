"""What is left out of a Prometheus' series is what nothing reads: every capture says the same without it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from collectors.answer import Answer
from collectors.feed import TargetFeed
from collectors.layout import LayoutCache
from collectors.prometheus.names import START_TIME, wanted_names
from enginetop.fleet.fleet_tracker import FleetTracker
from enginetop.fleet.model import Target
from enginetop.fleet.snapshot import CollectorHealth, Slo
from tests.support.engine_pages import FIXTURES

PLAIN = {"content-type": "text/plain; version=0.0.4"}


def lines_of(name: str) -> list[bytes]:
    return [line for line in (FIXTURES / name).read_bytes().splitlines() if line and line[:1] != b"#"]


def named(line: bytes) -> str:
    return line.partition(b"{")[0].partition(b" ")[0].decode()


def captures() -> list[str]:
    """All that have a series of an engine; the others are never asked for."""
    found = sorted(str(path.relative_to(FIXTURES)) for path in FIXTURES.rglob("*.prom"))
    return [name for name in found if wanted_names(set(map(named, lines_of(name))))]


def told(page: bytes) -> Mapping[str, object]:
    """What two looks at a page say that rests on its lines, and whether the second one is progress."""
    target = Target("http://h:1", "h")
    tracker = FleetTracker(
        [target],
        interval_seconds=5.0,
        window_seconds=60.0,
        slo_for=lambda _: Slo(),
        fixed_spacing_seconds=None,
    )
    feed = TargetFeed(target, LayoutCache())
    for at in (970.0, 1000.0):
        answer = Answer("/metrics", at, 0.1, 200, PLAIN, page)
        tracker.observe(target.url, feed.take((answer,), at, 0.1))
    (replica,) = tracker.snapshot(1000.5, CollectorHealth()).replicas
    return {
        "signals": dict(replica.signals),
        "beyond": dict(replica.beyond),
        "config": dict(replica.config),
        "ranks": replica.ranks,
        "who": (replica.engine, replica.engine_version, replica.model, replica.role, replica.stack),
        "state": (replica.state, replica.reasons, replica.totals),
    }


@pytest.mark.parametrize("name", captures())
def test_a_capture_says_the_same_without_what_is_not_asked_for(name: str) -> None:
    lines = lines_of(name)
    known = {named(line) for line in lines}
    everything = told(b"\n".join(lines) + b"\n")
    for births in (True, False) if START_TIME in known else (True,):
        asked = {*wanted_names(known, births=births), START_TIME}
        kept = [line for line in lines if named(line) in asked]
        assert told(b"\n".join(kept) + b"\n") == everything


def test_birth_times_are_asked_for_where_nothing_else_tells_of_a_restart() -> None:
    known = ["vllm:generation_tokens_total", "vllm:generation_tokens_created", "vllm:unheard_of_created"]
    assert wanted_names(known) == ("vllm:generation_tokens_created", "vllm:generation_tokens_total")
    assert wanted_names(known, births=False) == ("vllm:generation_tokens_total",)
