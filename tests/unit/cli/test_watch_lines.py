"""The sentences of `watch --format table`: for people who have lines read to them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginetop.cli.watch_lines import NdjsonLines, PlainLines
from enginetop.fleet.model import Quality, ReplicaState
from enginetop.fleet.snapshot import Outlier, ReplicaSnapshot
from tests.property.test_view_properties import fleets
from tests.tui.snapshots import censored, distribution, down_replica, fleet, replica, scalar


def said(lines: object) -> list[str]:
    """Without the time of day."""
    assert isinstance(lines, list)
    return [line.partition(" ")[2] for line in lines]


def test_a_replica_in_words() -> None:
    one = replica(
        "a1",
        changes={
            "kv_usage_ratio": scalar(0.975, Quality.ESTIMATED),
            "requests_waiting": None,
            "ttft_seconds": distribution(0.1, censored(2.5)),
        },
    )
    (line,) = said(PlainLines().replicas(fleet([one])))
    assert line.split(", ") == [
        "a1: ok",
        "44 running",
        "about KV cache 98%",
        "2310 tokens per second",
        "TTFT p95 over 2.5 seconds",
        "TPOT p95 38 milliseconds",
    ]


def test_a_slow_replica_is_told_with_those_of_its_kind() -> None:
    one = replica("a1", outliers=(Outlier("tpot_seconds.p95", 0.062, 0.024, 5),))
    (line,) = said(PlainLines().replicas(fleet([one])))
    assert line.endswith(", unlike its like (TPOT p95 62 ms, median of 5: 24 ms)")


def test_who_does_not_serve_comes_first_and_a_large_fleet_is_counted() -> None:
    members = [replica(f"n{number:02}") for number in range(30)] + [down_replica("c0")]
    lines = said(PlainLines().replicas(fleet(members)))
    assert lines[0] == "c0: down, connection refused for 72 s"
    assert lines[1].startswith("n00: ok, 44 running")
    assert len(lines) == 21
    assert lines[-1] == "and 11 more: 11 ok"


@pytest.mark.parametrize("at", [1e20, -1e15, 253402300800.0, 1e308])
def test_a_recording_of_a_time_that_no_calendar_has(at: float) -> None:
    line = PlainLines().heartbeat(replace(fleet([replica("a1")]), at=at), ())
    assert line == f"second {at:g} 1 of 1 up, 0 firing"


def test_changes_of_state_newcomers_and_leavers() -> None:
    before = fleet([replica("a1"), replica("a2"), replica("a3")])
    now = fleet([down_replica("a1", 5), replica("a2"), replica("a4", ReplicaState.LOADING)])
    assert said(PlainLines().changes(now, before)) == [
        "a1: down, was ok. connection refused for 5 s",
        "a4: loading, new",
        "a3: gone",
    ]
    assert PlainLines().changes(before, before) == []


def test_lulls_are_no_news() -> None:
    busy, lull = (fleet([replica("a1", state)]) for state in (ReplicaState.OK, ReplicaState.IDLE))
    assert PlainLines().changes(lull, busy) == PlainLines().changes(busy, lull) == []
    loading = fleet([replica("a1", ReplicaState.LOADING)])
    assert said(PlainLines().changes(lull, loading)) == ["a1: idle, was loading"]


def test_a_failed_look_is_said_once() -> None:
    well = fleet([replica("a1")])
    once = fleet([replica("a1", failed_looks=1, reasons=("connection refused once, just now",))])
    assert said(PlainLines().changes(once, well)) == ["a1: still ok. connection refused once, just now"]
    assert PlainLines().changes(once, once) == []
    assert said(PlainLines().changes(well, once)) == ["a1: answers again"]
    down = fleet([down_replica("a1", 3, failed_looks=2)])
    assert said(PlainLines().changes(down, once)) == ["a1: down, was ok. connection refused for 3 s"]
    beats = [json.loads(NdjsonLines().heartbeat(now, [])) for now in (well, once, down)]
    assert [beat["in_doubt"] for beat in beats] == [0, 1, 0]


@settings(max_examples=30, deadline=None)
@given(fleets, st.integers(0, 4), st.integers(0, 4), st.sampled_from(list(ReplicaState)))
def test_whatever_there_is_each_line_is_one_plain_line(
    drawn: tuple[ReplicaSnapshot, ...], come: int, gone: int, state: ReplicaState
) -> None:
    """Some of the drawn replicas come, some go, and the others were in another state before."""
    before, now = [replace(one, state=state) for one in drawn[come:]], drawn[: len(drawn) - gone]
    lines = PlainLines()
    told = [*lines.changes(fleet(now), fleet(before)), *lines.replicas(fleet(now))]
    assert all(line.isprintable() for line in told)
