"""Numbers that are not looked at change nothing in what is told of an engine."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import pytest

from collectors import judge
from collectors.answer import Answer
from collectors.engines.base import EngineTable
from collectors.engines.detect import TABLES, UNREAD_PREFIXES, recognise
from collectors.engines.samples import Samples
from collectors.exposition import PageParser
from collectors.feed import TargetFeed
from collectors.layout import LayoutCache
from enginetop.fleet.model import Target
from enginetop.fleet.observation import Observation

CAPTURES = sorted((Path(__file__).parents[2] / "fixtures").glob("*/*/*.prom"))
LAYOUTS = [PageParser(LayoutCache()).parse(path.read_bytes()).layout for path in CAPTURES]


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
        if not prefix or prefix.startswith(UNREAD_PREFIXES)
    ]


@pytest.mark.parametrize("engine", TABLES, ids=lambda engine: engine.title)
def test_what_is_not_looked_at_is_there_and_counts_when_something_read_does(engine: EngineTable) -> None:
    """Of each family of a table there is a capture, and on it other counters tell the progress."""
    for table in engine.tables:
        for name in table.unread_names()[: len(table.unread)]:
            having = [layout for layout in LAYOUTS if any(own.startswith(name) for own in layout.names)]
            assert having, name
            for layout in (one for one in having if recognise(one) is engine):
                progress = [layout.names[index] for index in Samples(table, layout).progress()]
                assert len(progress) > 5
                assert not [own for own in progress if own.startswith(name)]
