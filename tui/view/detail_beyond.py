"""Detail view: what this engine says beyond the core signals; nothing where it says nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby

from enginetop.fleet.beyond_catalogue import BEYOND, Beyond
from enginetop.fleet.model import Quality
from enginetop.fleet.snapshot import Distribution, ReplicaSnapshot, SignalValue
from tui.view import numbers
from tui.view.cells import EMPTY_LINE, UNKNOWN, Span
from tui.view.figures import Lines, quantile_text, row

_SHOWN_UNITS = {
    "ratio": " %",
    "seconds": " ms",
    "1/s": "/s",
    "requests/s": "/s",
    "tokens/s": " tok/s",
    "bytes/s": " MB/s",
}


def beyond_lines(replica: ReplicaSnapshot) -> Lines:
    """A line for each group of the catalogue of which the page exports anything."""
    shown = [one for one in BEYOND if one.name in replica.beyond]
    for group, members in groupby(shown, key=lambda one: one.group):
        yield row(group, *_figures(replica, tuple(members)))
    if shown:
        yield EMPTY_LINE


def _figures(replica: ReplicaSnapshot, members: Sequence[Beyond]) -> Iterator[Span]:
    for number, one in enumerate(members):
        value = replica.beyond[one.name]
        yield Span(f"{' · ' if number else ''}{one.title} ", "dim")
        text = _text(one.unit, value)
        if text is None:
            yield Span(UNKNOWN, "dim")
            yield Span(f" {value.note}" if value.note else "", "dim")
        else:
            yield Span(text, "dim" if value.quality is Quality.STALE else "text")
            yield Span(_SHOWN_UNITS.get(one.unit, ""), "dim")


def _text(unit: str, value: SignalValue) -> str | None:
    """The value in words, None where it is not known."""
    if isinstance(value, Distribution):
        p95 = numbers.quantile_of(value, "p95")
        known = numbers.quantile_number(p95) is not None
        return quantile_text(p95, value.quality) if known else None
    number = numbers.scalar_number(value)
    if number is None:
        return None
    return numbers.marked(_NUMBERS.get(unit, numbers.count)(number), value.quality)


_NUMBERS: Mapping[str, Callable[[float], str]] = {
    "ratio": numbers.percent,
    "1/s": numbers.rate,
    "requests/s": numbers.rate,
    "bytes/s": lambda bytes_per_second: numbers.one_decimal(bytes_per_second / 1e6),
}
