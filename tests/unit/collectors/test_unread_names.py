"""Numbers that are not looked at change nothing in what is told of an engine."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import pytest

from collectors import judge
from collectors.answer import Answer
from collectors.engines.base import EngineTable
from collectors.engines.detect import TABLES, UNREAD
from collectors.exposition import PageParser
from collectors.feed import TargetFeed
from collectors.layout import READ_ALL, LayoutCache
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
    monkeypatch.setattr(judge, "UNREAD", READ_ALL)
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
    passed_over = (*UNREAD.wholly, *UNREAD.but_for_counts)
    assert not [name for name in named if name.startswith(passed_over)]
    assert not [
        prefix
        for engine in TABLES
        for table in engine.tables
        for prefix in table.prefixes
        if not prefix or prefix.startswith(passed_over)
    ]


@pytest.mark.parametrize("engine", TABLES, ids=lambda engine: engine.title)
def test_histograms_of_which_only_counts_are_read_are_there(engine: EngineTable) -> None:
    for table in engine.tables:
        for name in table.counted_names()[: len(table.counted)]:
            assert any(own.startswith(name) for layout in LAYOUTS for own in layout.names), name


COUNTED = [
    (path, line)
    for path in CAPTURES
    for line in path.read_text(encoding="utf-8").splitlines()
    if line.startswith(UNREAD.but_for_counts) and "_count{" in line and "get_loads" not in line
]


@pytest.mark.parametrize(("path", "line"), COUNTED[:: max(1, len(COUNTED) // 12)])
def test_a_count_of_what_no_table_reads_is_progress(path: Path, line: str) -> None:
    """Contract: no_progress needs that none of the engine's own counters and histogram counts moved."""
    body = path.read_text(encoding="utf-8")
    prefix, _, number = line.rpartition(" ")
    moved = body.replace(line, f"{prefix} {float(number) + 1}")
    feed = TargetFeed(Target("http://r1:8000", "r1", metrics_path="/metrics"), LayoutCache())
    headers = {"content-type": "text/plain"}
    tokens = []
    for page in (body, moved, moved):
        answer = Answer("/metrics", 100.0, 0.01, 200, headers, page.encode())
        reading = feed.take([answer], 100.0, 0.01).reading
        assert reading is not None
        tokens.append(reading.progress_token)
    assert tokens[0] != tokens[1] == tokens[2]
