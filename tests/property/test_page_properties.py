"""Pages about the whole fleet: whatever the snapshot and the width, no line is too wide, nothing raises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginetop.fleet.load_log import LOAD_NAMES
from enginetop.fleet.snapshot import Advice, BurnRow, Goodput, ModelSummary, Outlier, ReplicaSnapshot, Slo
from enginetop.fleet.snapshot import Span as Bounds
from tests.property.test_view_properties import (
    distributions,
    floats,
    gpus,
    qualities,
    quantiles,
    replicas,
    scalars,
    texts,
)
from tests.tui.snapshots import fleet, signals
from tui.view.cells import Line, line_text, line_width, to_ascii
from tui.view.event_list import event_rows, events_verdict
from tui.view.gpus import gpu_rows
from tui.view.latency import latency_page
from tui.view.page import page_title
from tui.view.picture import Picture
from tui.view.reasoning import reasoning_rows
from tui.view.rows import Rows
from tui.view.speculation import speculation_rows

ratios = st.none() | st.floats(0, 1)
bounds = st.builds(Bounds, ratios, ratios, ratios)
burns = st.builds(
    BurnRow, st.floats(1, 1e6), st.floats(1, 1e6), floats, floats, st.floats(0, 20), st.booleans()
)
goodputs = st.builds(
    Goodput, floats, floats, ratios, st.none(), qualities, texts, quantiles, quantiles, bounds, bounds,
    st.lists(burns, max_size=4).map(tuple), floats,
)  # fmt: skip
advices = st.builds(
    Advice, st.sampled_from(["num_speculative_tokens", "thinking_token_budget"]),
    st.sampled_from(["raise", "lower", "disable", "hold", "withheld"]),
    st.lists(texts, max_size=3).map(tuple), floats, floats,
)  # fmt: skip
positions = st.lists(st.floats(0, 1), max_size=12).map(tuple)


@st.composite
def busy_replicas(draw: st.DrawFn, number: int) -> ReplicaSnapshot:
    """A replica of which there is something to say on every page."""
    base = draw(replicas(number))
    windows = draw(st.integers(0, 6))
    column = st.lists(st.floats(0, 100), min_size=windows, max_size=windows)
    known: dict[str, Any] = {
        "spec_accepted_length": draw(scalars),
        "spec_acceptance_per_position": replace(draw(scalars), value=draw(positions)),
        "reasoning_tokens": draw(distributions),
        "reasoning_budget_hit_ratio": draw(scalars),
    }
    return replace(
        base,
        signals={**base.signals, **known},
        gpus=tuple(draw(st.lists(gpus, max_size=3))),
        advice=tuple(draw(st.lists(advices, max_size=2))),
        goodput=draw(goodputs),
        outliers=tuple(
            draw(
                st.lists(
                    st.builds(
                        Outlier,
                        st.just("ttft_seconds.p95"),
                        st.floats(0, 9),
                        st.floats(0, 9),
                        st.integers(4, 9),
                    ),
                    max_size=2,
                )
            )
        ),
        load={name: tuple(draw(column)) for name in LOAD_NAMES} if windows else {},
    )


fleets = st.integers(0, 4).flatmap(lambda size: st.tuples(*(busy_replicas(number) for number in range(size))))


def lines_of(rows: Rows[str]) -> list[Line]:
    return [rows.line(index, selected=index % 2 == 0) for index in range(len(rows))]


PAGES: dict[str, Callable[[Picture, int], list[Line]]] = {
    "latency": latency_page,
    "speculation": lambda picture, width: lines_of(speculation_rows(picture, width)),
    "reasoning": lambda picture, width: lines_of(reasoning_rows(picture, width)),
    "gpu": lambda picture, width: lines_of(gpu_rows(picture, width)),
    "events": lambda picture, width: [
        *lines_of(event_rows(picture, width)),
        events_verdict(picture, width),
        page_title(picture, "events", width),
    ],
}


@settings(max_examples=40, deadline=None)
@given(fleets, goodputs, st.integers(20, 300))
def test_no_line_of_a_page_is_wider_than_the_terminal(
    members: tuple[ReplicaSnapshot, ...], merged: Goodput, width: int
) -> None:
    """All pages of each fleet: drawing fleets is what takes the time."""
    base = fleet(members)
    models = tuple(
        ModelSummary(model, 1, signals(), Slo(), merged)
        for model in dict.fromkeys(member.model for member in members)
    )
    snapshot = replace(base, fleet=replace(base.fleet, models=models, goodput=merged))
    for page, lines in PAGES.items():
        for line in lines(Picture(snapshot), width):
            assert line_width(line) <= width, (page, line_text(line))
            assert line_width(to_ascii(line)) == line_width(line), page


@pytest.mark.parametrize("page", list(PAGES))
def test_every_page_says_something_before_there_is_a_fleet(page: str) -> None:
    for picture in (Picture(), Picture(fleet([]))):
        text = "\n".join(map(line_text, PAGES[page](picture, 80)))
        assert len(text.split()) >= 4, page
