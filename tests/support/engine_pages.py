"""Pages of engines for tests: fixtures, pages made of lines, answers around them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from collectors.answer import Answer
from collectors.exposition import PageParser
from collectors.layout import LayoutCache
from collectors.page import Page
from enginetop.fleet.observation import FailureKind
from enginetop.fleet.reading import Part, Reading

FIXTURES = Path(__file__).parent.parent / "fixtures"


def fixture(path: str) -> bytes:
    """The bytes of `tests/fixtures/<path>`."""
    return (FIXTURES / path).read_bytes()


def page_of(text: str | bytes) -> Page:
    """A page parsed from its text."""
    body = text.encode() if isinstance(text, str) else text
    return PageParser(LayoutCache()).parse(body, "text/plain")


def answer(
    path: str,
    body: object = b"",
    *,
    at: float = 100.0,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """A GET that was answered; a list or mapping becomes a JSON body."""
    raw = (
        body
        if isinstance(body, bytes)
        else body.encode()
        if isinstance(body, str)
        else json.dumps(body).encode()
    )
    return Answer(path, at, 0.01, status, headers or {}, raw)


def fault(path: str, kind: FailureKind, at: float = 100.0) -> Answer:
    """A GET that brought no answer."""
    return Answer(path, at, 0.01, error=kind)


def histogram_lines(name: str, count: float, sum_: float = 1.0, labels: str = "") -> str:
    """The lines of a histogram with one bucket, the last."""
    inside = f"{labels}," if labels else ""
    own = f"{{{labels}}}" if labels else ""
    bucket = f'{name}_bucket{{{inside}le="+Inf"}} {count}'
    return f"{bucket}\n{name}_sum{own} {sum_}\n{name}_count{own} {count}\n"


def total(reading: Reading, measure: str, part: Part = Part.VALUE, **wanted: object) -> float:
    """The sum over the series of a measure with the wanted attributes (rank, le, position).

    Raises AssertionError when no series matches: an absent measure has no sum.
    """
    found = [
        value
        for series, value in zip(reading.columns.series, reading.values, strict=True)
        if series.measure == measure
        and series.part is part
        and all(getattr(series, name) == want for name, want in wanted.items())
    ]
    assert found, f"no series for {measure} {part} {wanted}"
    return sum(found)


def measures(reading: Reading) -> set[str]:
    """The measures that the reading has series for."""
    return {series.measure for series in reading.columns.series}
