"""The alerts that began to fire, also those that are over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from enginetop.alerts.rule import FIRING
from tui.timeline import AlertBegin
from tui.view import numbers
from tui.view.alert_condition import alert_severity
from tui.view.alerts import alert_key
from tui.view.cells import Span, fit, printable
from tui.view.figures import WIDE
from tui.view.page import paragraph
from tui.view.picture import Picture
from tui.view.rows import Row, Rows
from tui.view.severity import GLYPH_OF, INK_OF


def history_rows(picture: Picture, begins: Sequence[AlertBegin], width: int) -> Rows[str]:
    """The alerts that began to fire in the time that is kept, newest first, and whether they still do."""
    return Rows(_history(picture, begins, width), width)


def _history(picture: Picture, begins: Sequence[AlertBegin], width: int) -> Iterator[Row[str]]:
    if picture.snapshot is None or not begins:
        yield from paragraph(
            "no alert began to fire since enginetop looks on, at most 15 minutes back; what fired "
            "before is in the list of alerts",
            width,
        )
        return
    at = picture.snapshot.at
    firing = {alert_key(alert) for alert in picture.snapshot.alerts if alert.state == FIRING}
    wide = width >= WIDE
    name_width, rule_width = (28, 26) if wide else (12, 18)
    for begin in sorted(begins, key=lambda one: -one.at):
        if begin.at > at:  # the picture is one of the past
            continue
        alert, key = begin.alert, alert_key(begin.alert)
        severity = alert_severity(alert)
        still = key in firing
        line = (
            Span(f" {numbers.time_of_day(begin.at)} {numbers.age(at - begin.at):>4} ", "dim"),
            Span(f"{GLYPH_OF[severity]} ", INK_OF[severity] if still else "dim"),
            Span(f"{fit(printable(alert.rule), rule_width)} ", "title" if still else "text"),
            Span(f"{picture.name_cell(alert.target, name_width)} "),
            Span("still fires  " if still else "over         ", "warn" if still else "dim"),
            Span(printable(alert.summary), "dim"),
        )
        yield Row(line, f"{begin.at} {key}", alert.target)
