"""Labelled rows and figures: what the sections of the detail view are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from enginetop.fleet.model import Quality
from enginetop.fleet.snapshot import Distribution, Quantile, ReplicaSnapshot, Scalar
from themes.loader import Ink
from tui.view import numbers
from tui.view.cells import UNKNOWN, Line, Span, merge
from tui.view.engines import absence

LABEL_WIDTH = 12

WIDE = 120
"""From this width on, plots stand side by side and quantiles show their bounds."""


Lines = Iterator[Line]


def _label(text: str) -> Span:
    # A theme may underline heads: the space before a continued row is none.
    return Span(f" {text:<{LABEL_WIDTH}}", "head" if text else "text")


def row(label: str, *spans: Span) -> Line:
    return merge((_label(label), *spans))


def signal_of(replica: ReplicaSnapshot, name: str) -> Scalar | Distribution | None:
    return replica.signals.get(name)


def figure(
    replica: ReplicaSnapshot, name: str, text: Callable[[float | None], str], unit: str = ""
) -> tuple[Span, ...]:
    """A number with its unit and mark, or the reason in words why there is none."""
    value = signal_of(replica, name)
    number = numbers.scalar_number(value)
    if number is None or not isinstance(value, Scalar):
        return (Span(UNKNOWN, "dim"), Span(f" {absence(value, replica.engine)}", "dim"))
    ink: Ink = "dim" if value.quality is Quality.STALE else "text"
    note = f" ({value.note})" if value.note else ""
    return (Span(numbers.marked(text(number), value.quality) + unit, ink), Span(note, "dim"))


def short_figure(
    replica: ReplicaSnapshot, name: str, text: Callable[[float | None], str] = numbers.count
) -> Span:
    value = signal_of(replica, name)
    number = numbers.scalar_number(value)
    if number is None or not isinstance(value, Scalar):
        return Span(UNKNOWN, "dim")
    ink: Ink = "dim" if value.quality is Quality.STALE else "text"
    return Span(numbers.marked(text(number), value.quality), ink)


def quantile_text(quantile: Quantile, quality: Quality) -> str:
    number = numbers.quantile_number(quantile)
    text = (numbers.CENSORED if quantile.censored and number is not None else "") + numbers.milliseconds(
        number
    )
    return numbers.marked(text, quality)


def labels_text(labels: Mapping[str, str]) -> str:
    return " ".join(f"{key}={value}" for key, value in labels.items())
