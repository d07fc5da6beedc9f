"""The fleet screen at any size, on any fleet, whatever its labels say."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from enginetop.fleet.model import Target
from enginetop.fleet.reading import ConfigValue
from enginetop.fleet.snapshot import Alert, FleetSnapshot, Goodput, Outlier, ReplicaSnapshot, Span
from tests.property.test_view_properties import fleets
from tests.tui.running import running
from tests.tui.snapshots import AT, FakeSource, down_replica, event, fleet, gpu, replica
from tui.app import FleetApp
from tui.view.arrange import Sort
from tui.view.below import LoadMemory, WithBelow, below_lines
from tui.view.cells import line_text, line_width, printable, to_ascii
from tui.view.column_choice import choice_rows
from tui.view.columns import BY_KEY
from tui.view.picture import Picture
from tui.view.placing import FIXED
from tui.view.query import Query
from tui.view.table import FleetTable
from tui.view.title import title_line
from tui.view.totals import totals_line
from tui.view.verdict import verdict_line

HOSTILE = (
    "[bold red]x[/] [@click=app.exit]y[/]",
    "\x1b[31mred\x1b]52;c;aGk=\x07",
    "a\u202eevil\u2066b\u2069\u200b",
    "日本語のノード-12345-長い名前",
    "👩‍👩‍👧‍👦" * 7 + "🙂\ufe0f",
    "e\u0301" * 40,
    "x" * 4096,
    "語" * 4096,
    "a\r\nb\tc\x00",
    "",
)
hostile = st.sampled_from(HOSTILE)
parsed = st.sampled_from([printable(text) for text in HOSTILE])
"""As labels are once they were parsed: what a terminal would obey is taken out there, and at the end."""
widths, heights = st.integers(20, 300), st.integers(5, 100)
choices = st.lists(st.sampled_from([key for key in BY_KEY if key not in FIXED]), unique=True).map(
    lambda keys: (*FIXED, *keys) if keys else ()
)
numbers = st.floats(0, 1e6) | st.none()
goodputs = st.builds(
    Goodput,
    numbers,
    numbers,
    st.none() | st.floats(0, 1),
    within_per_second=st.builds(Span, numbers, numbers),
)


def labelled(number: int, text: str) -> ReplicaSnapshot:
    """A replica all of whose labels are this text."""
    base = (
        down_replica("x")
        if number % 3 == 0
        else replica("x", gpus=(replace(gpu(), name=text, throttle_reasons=(text,)),) if number % 2 else ())
    )
    return replace(
        base,
        target=Target(f"http://{number}", text),
        model=text,
        engine_version=text,
        reasons=(text,) if number % 3 == 0 else (),
        events=(event("restarted", 10 * number, text), event(text, 5)),
        config={"max_num_seqs": ConfigValue(text, text)},
        outliers=(Outlier("kv_usage_ratio", 0.9, 0.1, 5),) if number % 4 == 1 else (),
    )


def snapshot_of(members: tuple[ReplicaSnapshot, ...], text: str, goodput: Goodput) -> FleetSnapshot:
    alerts = [
        Alert(text or "rule", "critical", "firing", target, AT - 60, None, None, text, {"model": text})
        for target in ("fleet", *(member.target.url for member in members[:2]))
    ]
    whole = fleet(members, alerts=alerts)
    return replace(whole, fleet=replace(whole.fleet, goodput=goodput))


def fleets_of(texts: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[ReplicaSnapshot, ...]]:
    """Small fleets with such labels."""
    return st.lists(texts, max_size=6).map(
        lambda labels: tuple(labelled(number, text) for number, text in enumerate(labels))
    )


@settings(max_examples=40, deadline=None)
@given(fleets_of(parsed) | fleets, parsed, goodputs, widths, heights, choices)
def test_no_line_of_the_fleet_is_wider_than_the_terminal(
    members: tuple[ReplicaSnapshot, ...],
    text: str,
    goodput: Goodput,
    width: int,
    height: int,
    choice: tuple[str, ...],
) -> None:
    picture = Picture(snapshot_of(members, text, goodput), title=text)
    assert picture.snapshot is not None
    table = FleetTable(
        picture.snapshot, picture.conditions, width=width, sort=Sort(), query=Query(), choice=choice
    )
    below = below_lines(picture, LoadMemory(), width, height - len(table))
    whole = WithBelow(table, below, max(height, len(table) + len(below)))
    picker = choice_rows(choice, table.placed_keys(), width)
    lines = [table.header(), title_line(picture, width), verdict_line(picture, width)]
    lines += [totals_line(picture, width)]
    lines += [whole.line(index, selected=index % 2 == 0) for index in range(len(whole))]
    lines += [picker.line(index, selected=index == 1) for index in range(len(picker))]
    for line in lines:
        assert line_width(line) <= width, line_text(line)
        assert line_width(to_ascii(line)) == line_width(line), line_text(line)


@settings(max_examples=10, deadline=None)
@given(fleets_of(hostile), hostile, widths, heights, st.booleans())
def test_the_screen_stands_whatever_it_shows(
    members: tuple[ReplicaSnapshot, ...], text: str, width: int, height: int, ascii_only: bool
) -> None:
    """Every row of the terminal is exactly as wide as it, and holds nothing that a terminal would obey."""
    app = FleetApp(
        FakeSource(snapshot_of(members, text, Goodput())),
        title=text,
        ascii_only=ascii_only,
        clock=iter(range(100_000)).__next__,
    )
    rows: list[Any] = []

    async def run() -> None:
        async with running(app, (width, height)):
            rows.extend(app.screen._compositor.render_strips())

    asyncio.run(run())
    assert app.failures == []
    assert len(rows) == height
    for strip in rows:
        assert strip.cell_length == width
        assert strip.text.isprintable()
        assert strip.text.isascii() or not ascii_only
