"""Numbers that are not looked at change nothing in what is told of an engine."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import pytest

from collectors import judge
from collectors.answer import Answer
from collectors.engines.detect import TABLES, UNREAD_PREFIXES
from collectors.feed import TargetFeed
from collectors.layout import LayoutCache
from enginetop.fleet.model import Target
from enginetop.fleet.observation import Observation

CAPTURES = sorted((Path(__file__).parents[2] / "fixtures").glob("*/*/*.prom"))


def observed(body: bytes) -> Observation:
    feed = TargetFeed(Target("http://r1:8000", "r1", metrics_path="/metrics"), LayoutCache())
    headers = {"content-type": "text/plain"}
    return feed.take([Answer("/metrics", 100.0, 0.01, 200, headers, body)], 100.0, 0.01)


def told(observation: Observation) -> tuple[object, ...]:
    reading = observation.reading
    if reading is None:
        return (observation.failure,)
    columns = reading.columns
    return (
        *([one.key for one in columns.series], numbers(reading.values), numbers(reading.births)),
        *(dict(columns.absent), dict(columns.estimated), reading.start_token, reading.progress_token),
        *(reading.identity, reading.flags, dict(reading.config), dict(reading.workers), reading.gpus),
    )


def numbers(values: Iterable[float]) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values]


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_a_capture_is_read_as_if_all_its_numbers_were(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = path.read_bytes()
    told_now = told(observed(body))
    monkeypatch.setattr(judge, "UNREAD_PREFIXES", ())
    assert told_now == told(observed(body))


def test_no_table_names_a_series_that_is_not_looked_at() -> None:
    named = {
        prefix + name
        for engine in TABLES
        for table in engine.tables
        for row in table.rows
        for prefix in (row.prefixes or table.prefixes)
        for name in row.names
    }
    assert len(named) > 300
    assert not [name for name in named if name.startswith(UNREAD_PREFIXES)]
    assert not [
        prefix
        for engine in TABLES
        for table in engine.tables
        for prefix in table.prefixes
        if not prefix
        or prefix.startswith(UNREAD_PREFIXES)
        or any(u.startswith(prefix) for u in UNREAD_PREFIXES)
    ]
