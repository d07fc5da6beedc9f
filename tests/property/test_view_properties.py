"""Whatever the snapshot and the terminal: no line is wider than the terminal, and nothing raises."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from enginetop.fleet.model import EngineKind, Quality, ReplicaState, Role, Target
from enginetop.fleet.observation import Failure, FailureKind
from enginetop.fleet.reading import ConfigValue
from enginetop.fleet.signals import DISTRIBUTIONS, SCALARS
from enginetop.fleet.snapshot import (
    Distribution,
    Event,
    GpuDevice,
    Quantile,
    RankSnapshot,
    ReplicaSnapshot,
    Scalar,
)
from tests.tui.snapshots import AT, fleet, replica
from tui.view.arrange import Sort
from tui.view.cells import clip, cut_end, cut_middle, line_text, line_width, plain, to_ascii, width_of
from tui.view.columns import COLUMNS
from tui.view.detail import detail_lines, detail_title
from tui.view.events import events_line
from tui.view.help import help_lines
from tui.view.names import shown_names
from tui.view.picture import Picture
from tui.view.query import Query, QueryError, parse_query
from tui.view.table import FleetTable
from tui.view.title import title_line
from tui.view.totals import totals_line
from tui.view.verdict import verdict_line

texts = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=30)
widths = st.integers(0, 300)
floats = st.none() | st.floats() | st.sampled_from([0.0, -1.0, 0.5, 1.0, 1e-9, 1e15, math.nan, math.inf])
qualities = st.sampled_from(list(Quality))
quantiles = st.builds(Quantile, floats, floats, floats, st.booleans())
scalars = st.builds(Scalar, floats, st.just(""), qualities, texts, floats)
distributions = st.builds(
    Distribution, floats, floats, quantiles,
    st.dictionaries(st.sampled_from(["p50", "p90", "p95", "p99"]), quantiles), st.just("s"), qualities, texts,
)  # fmt: skip
signal_maps: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        **{signal.name: scalars for signal in SCALARS},
        **{signal.name: distributions for signal in DISTRIBUTIONS},
    },
)
gpus = st.builds(
    GpuDevice, st.integers(0, 15), texts, texts, st.none() | texts, floats, floats, floats, st.booleans(),
    floats, floats, floats, floats, st.lists(texts, max_size=2).map(tuple), st.none() | st.integers(0, 200),
    st.sampled_from(["ok", "lost", "error"]),
)  # fmt: skip
events = st.builds(Event, st.floats(-1e18, 1e18), st.sampled_from(["restarted", "state_changed"]), texts)
failures = st.builds(Failure, st.sampled_from(list(FailureKind)), st.floats(0, 2e9), texts)
configs = st.dictionaries(
    texts, st.builds(ConfigValue, st.none() | texts | st.integers() | st.booleans(), texts), max_size=3
)


@st.composite
def replicas(draw: st.DrawFn, number: int = 0) -> ReplicaSnapshot:
    points = draw(st.integers(0, 40))
    fields: dict[str, Any] = {
        "target": Target(f"http://{number}", draw(texts)),
        "engine": draw(st.sampled_from(list(EngineKind))),
        "engine_version": draw(st.none() | texts),
        "model": draw(st.none() | texts),
        "role": draw(st.sampled_from(list(Role))),
        "state": draw(st.sampled_from(list(ReplicaState))),
        "since": draw(st.floats(0, 2e9)),
        "reasons": tuple(draw(st.lists(texts, max_size=2))),
        "scraped_at": draw(st.none() | st.floats(0, 2e9)),
        "scrape_seconds": draw(st.none() | st.floats(0, 100)),
        "signals": draw(signal_maps),
        "ranks": tuple(
            RankSnapshot({"engine": draw(texts)}, draw(signal_maps)) for _ in range(draw(st.integers(0, 2)))
        ),
        "config": draw(configs),
        "events": tuple(draw(st.lists(events, max_size=3))),
        "gpus": tuple(draw(st.lists(gpus, max_size=2))),
        "last_failure": draw(st.none() | failures),
        "failed_looks": draw(st.integers(0, 3)),
        "unanswered_seconds": draw(st.none() | st.floats(0, 100)),
        "next_try_at": draw(st.none() | st.floats(0, 2e9)),
        "trend_times": tuple(AT - 2 * (points - point) for point in range(points)),
        "trends": {
            name: tuple(draw(st.lists(st.none() | st.floats(0, 1e9), min_size=points, max_size=points)))
            for name in draw(st.sets(st.sampled_from(["kv_usage_ratio", "generation_tokens_per_second"])))
        },
    }
    return replica("x", **fields)


fleets = st.integers(0, 4).flatmap(lambda size: st.tuples(*(replicas(number) for number in range(size))))


@settings(max_examples=60, deadline=None)
@given(
    fleets,
    st.integers(1, 300),
    st.sampled_from([None, *(c.key for c in COLUMNS if c.sortable)]),
    st.booleans(),
)
def test_no_line_is_wider_than_the_terminal_and_every_replica_has_one_row(
    members: tuple[ReplicaSnapshot, ...], width: int, sort: str | None, reverse: bool
) -> None:
    picture = Picture(fleet(members), title="fleet", paused_seconds=3.0)
    assert picture.snapshot is not None
    table = FleetTable(
        picture.snapshot, picture.conditions, width=width, sort=Sort(sort, reverse), query=Query()
    )
    rows = [table.key(index) for index in range(len(table)) if table.is_row(index)]
    assert sorted(row or "" for row in rows) == [member.target.url for member in members]
    lines = [table.header(), *(table.line(index, selected=index % 2 == 0) for index in range(len(table)))]
    lines += (title_line(picture, width), verdict_line(picture, width))
    lines += (totals_line(picture, width), events_line(picture, width))
    for member in members:
        lines += (detail_title(picture, member.target.url, width),)
        lines += detail_lines(picture, member.target.url, width)
    for line in lines:
        assert line_width(line) <= width, line_text(line)
        ascii_line = to_ascii(line)
        assert line_text(ascii_line).isascii()
        assert line_width(ascii_line) == line_width(line), line_text(line)


@settings(max_examples=120, deadline=None)
@given(texts, widths)
def test_cut_text_fits_and_starts_alike(text: str, width: int) -> None:
    assert width_of(cut_end(text, width)) <= width
    assert width_of(cut_middle(text, width)) <= width
    assert line_width(clip((*plain(text), *plain(text, "ok")), width)) <= width


@settings(max_examples=50, deadline=None)
@given(st.lists(texts, max_size=6), st.integers(1, 30))
def test_names_fit_their_column(names: list[str], width: int) -> None:
    shown = shown_names(names, width)
    assert len(shown) == len(names)
    assert all(width_of(name) <= width for name in shown)


@settings(max_examples=80, deadline=None)
@given(texts | st.from_regex(r"!?(kv|run|tok|zz)(>|<|=|>=|:)[0-9a-z.%]{0,6}", fullmatch=True))
def test_a_filter_is_read_or_refused(text: str) -> None:
    try:
        query = parse_query(text)
    except QueryError:
        return
    one = replica("a1")
    assert query.matches(one, Picture(fleet([one])).conditions[one.target.url]) in (True, False)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 300))
def test_help_fits(width: int) -> None:
    assert all(line_width(line) <= width for line in help_lines(width))
