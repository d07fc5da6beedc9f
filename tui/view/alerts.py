"""The list of alerts: what fires, what is pending, what is just over, and who looks after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from enginetop.alerts.rule import FIRING, PENDING, identity
from enginetop.fleet.durations import duration_text
from enginetop.fleet.snapshot import Alert
from themes.loader import Ink
from tui.view import numbers
from tui.view.alert_condition import alert_severity
from tui.view.cells import Line, Span, clip, fit, plain, printable, width_of
from tui.view.figures import WIDE
from tui.view.picture import Picture
from tui.view.rows import Row, Rows
from tui.view.severity import GLYPH_OF, INK_OF
from tui.view.title import screen_title

_MOST_RULE, _NARROW_RULE = 26, 20
_MOST_NAME, _LEAST_NAME = 40, 10
_REST = 19
"""Cells of a row beside its rule and its name: the marks, `firing 59 min` and spaces."""


def alert_key(alert: Alert) -> str:
    """The key of an alert's row, the same in every picture."""
    *texts, subject = identity(alert)
    return "\n".join((*texts, *(f"{name}={value}" for name, value in subject)))


def alert_rows(picture: Picture, width: int) -> Rows[Alert]:
    """The alerts of a picture, two lines each: what, and why."""
    snapshot = picture.snapshot
    if snapshot is None:
        return Rows((), width)
    alerts = snapshot.alerts
    longest_rule = max((width_of(printable(alert.rule)) for alert in alerts), default=0)
    longest_name = max((width_of(picture.name_of(alert.target)) for alert in alerts), default=0)
    rule_width = min(longest_rule, _MOST_RULE if width >= WIDE else _NARROW_RULE)
    room = max(min(width - rule_width - _REST, _MOST_NAME), _LEAST_NAME)
    drawn = partial(_line, picture, snapshot.at, rule_width, min(longest_name, room))
    return Rows((row for alert in alerts for row in _rows(alert, drawn)), width)


def _rows(alert: Alert, drawn: Callable[[Alert], Line]) -> Iterator[Row[Alert]]:
    key = alert_key(alert)
    yield Row(partial(drawn, alert), key, alert)
    yield Row((Span("     "), Span(printable(alert.summary or alert.rule), "dim")), key, more=True)


def _line(picture: Picture, at: float, rule_width: int, name_width: int, alert: Alert) -> Line:
    severity = alert_severity(alert)
    said = marks(alert)
    quiet = alert.state != FIRING or bool(said)
    ink: Ink = "dim" if quiet else INK_OF[severity]
    return (
        Span(" "),
        Span(f"{GLYPH_OF[severity]} ", ink),
        Span(f"{fit(printable(alert.rule), rule_width)} ", "dim" if quiet else "title"),
        Span(f"{picture.name_cell(alert.target, name_width)} "),
        Span(f"{alert.state} {duration_text(at - alert.since)}", ink),
        *(Span(f" · {printable(mark)}", "info") for mark in said),
    )


def marks(alert: Alert) -> tuple[str, ...]:
    """What keeps an alert quiet, and who looks after it."""
    said = [f"acknowledged by {alert.acknowledged_by}"] if alert.acknowledged_by else []
    if alert.silenced_by:
        said.append(f"silenced{until_words(alert)}: {alert.silenced_by}")
    if alert.inhibited_by:
        said.append(f"because of {alert.inhibited_by}")
    return tuple(said)


def until_words(alert: Alert) -> str:
    """Until when it is silenced: the hour, with its day where that is not the day of the alert."""
    until = alert.silenced_until
    if until is None:
        return ""
    day, _, hour = numbers.date_and_time(until).partition(" ")
    return f" until {hour if numbers.date_and_time(alert.since).startswith(day) else f'{day} {hour}'}"


def alerts_title(picture: Picture, width: int) -> Line:
    """What this list is."""
    return screen_title(picture, "alerts", "", width)


def alerts_verdict(picture: Picture, width: int, said: str) -> Line:
    """What came of the last act, else how many alerts there are."""
    if said:
        return clip(plain(f" {printable(said)}", "info"), width)
    if picture.snapshot is None:
        return plain(" nothing is known yet", "dim")
    alerts = picture.snapshot.alerts
    firing = [alert for alert in alerts if alert.state == FIRING]
    quiet = sum(bool(marks(alert)) for alert in firing)
    pending = sum(alert.state == PENDING for alert in alerts)
    if not firing and not pending:
        return plain(" nothing fires and nothing is pending", "ok")
    loud = len(firing) - quiet
    aside = f", {quiet} of them quiet or looked after" if quiet else ""
    return clip(plain(f" {len(firing)} firing{aside}, {pending} pending", "warn" if loud else "text"), width)
