"""Labelled rows and figures: what the sections of the detail view are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from enginetop.fleet.model import Quality
from enginetop.fleet.snapshot import (
    Distribution,
    FleetSummary,
    ModelSummary,
    Quantile,
    RankSnapshot,
    ReplicaSnapshot,
    Scalar,
)
from themes.loader import Ink
from tui.view import numbers
from tui.view.cells import UNKNOWN, Line, Span, merge, wrap_text
from tui.view.engines import absence

LABEL_WIDTH = 12

WIDE = 120
"""From this width on, plots stand side by side and quantiles show their bounds."""


Lines = Iterator[Line]
Signalled = ReplicaSnapshot | RankSnapshot | ModelSummary | FleetSummary
"""What has signals: a replica, one of its ranks, or what is merged of many."""


def _label(text: str) -> Span:
    # A theme may underline heads: the space before a continued row is none.
    return Span(f" {text:<{LABEL_WIDTH}}", "head" if text else "text")


def row(label: str, *spans: Span) -> Line:
    """What is told, behind its label; an empty label continues the row above."""
    return merge((_label(label), *spans))


def paragraphs(label: str, texts: Iterable[str], width: int, ink: Ink = "text", hang: int = 0) -> Lines:
    """Running texts behind a label, wrapped; empty ones are left out.

    What goes over is indented by `hang` cells, so that one text can be told from the next.
    """
    room = max(width - LABEL_WIDTH - 2 - hang, 16)
    for text in filter(None, texts):
        for number, piece in enumerate(wrap_text(text, room)):
            yield row(label, Span(" " * hang + piece if number else piece, ink))
            label = ""


def lead_paragraph(label: str, lead: Span, text: str, width: int) -> Lines:
    """A word in its own ink behind a label, and running text after it, wrapped."""
    for number, piece in enumerate(wrap_text(lead.text + text, max(width - LABEL_WIDTH - 2, 16))):
        if number or not piece.startswith(lead.text):
            yield row("" if number else label, Span(piece))
        else:
            yield row(label, lead, Span(piece[len(lead.text) :]))


def signal_of(of: Signalled, name: str) -> Scalar | Distribution | None:
    """A signal of the core, None where it is not told at all."""
    return of.signals.get(name)


def number_of(of: Signalled, name: str) -> float | None:
    """The number of a scalar signal, None where there is none."""
    return numbers.scalar_number(of.signals.get(name))


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
    of: Signalled, name: str, text: Callable[[float | None], str] = numbers.count, width: int = 0
) -> Span:
    """A number with its mark, at the right edge of `width` cells."""
    value = signal_of(of, name)
    number = numbers.scalar_number(value)
    if number is None or not isinstance(value, Scalar):
        return Span(f"{UNKNOWN:>{width}}", "dim")
    ink: Ink = "dim" if value.quality is Quality.STALE else "text"
    return Span(f"{numbers.marked(text(number), value.quality):>{width}}", ink)


def setting(replica: ReplicaSnapshot, key: str) -> float | None:
    """A configured number, None where there is none."""
    found = replica.config.get(key)
    value = found.value if found is not None else None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def quantile_text(quantile: Quantile, quality: Quality) -> str:
    """A quantile of a time in milliseconds, with the marks of its bound and of its quality."""
    return numbers.marked(numbers.bounded(quantile, numbers.milliseconds), quality)


def labels_text(labels: Mapping[str, str]) -> str:
    """Labels as `name=value`, in their order."""
    return " ".join(f"{key}={value}" for key, value in labels.items())
