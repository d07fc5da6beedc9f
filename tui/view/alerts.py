"""The list of alerts: what fires, what is pending, what is just over, and who looks after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from enginetop.alerts.rule import FIRING, PENDING, identity
from enginetop.fleet.snapshot import Alert
from enginetop.fleet.state import duration_text
from themes.loader import Ink
from tui.view.cells import Line, Span, clip, fit, merge, plain, printable, spread, width_of
from tui.view.condition import GLYPH_OF, INK_OF, Severity
from tui.view.heading import badges
from tui.view.picture import Picture

SEVERITIES: Mapping[str, Severity] = {
    "critical": Severity.CRIT,
    "warning": Severity.WARN,
    "info": Severity.INFO,
}
"""How an alert's word for its severity is shown."""
_WIDE = 120
_MOST_RULE, _NARROW_RULE = 26, 20
_MOST_NAME, _LEAST_NAME = 40, 10
_REST = 19
"""Cells of a row beside its rule and its name: the marks, `firing 59 min` and spaces."""


def alert_key(alert: Alert) -> str:
    """The key of an alert's row, the same in every picture."""
    *texts, subject = identity(alert)
    return "\n".join((*texts, *(f"{name}={value}" for name, value in subject)))


class AlertsTable:
    """The alerts of a picture for one width, two lines each: what, and why."""

    def __init__(self, picture: Picture, width: int) -> None:
        self._picture = picture
        self._width = width
        self._alerts = picture.snapshot.alerts if picture.snapshot is not None else ()
        self._positions = {alert_key(alert): 2 * place for place, alert in enumerate(self._alerts)}
        rules = [printable(alert.rule) for alert in self._alerts]
        self._rule_width = min(_longest(rules), _MOST_RULE if width >= _WIDE else _NARROW_RULE)
        room = max(min(width - self._rule_width - _REST, _MOST_NAME), _LEAST_NAME)
        self._name_width = min(_longest([picture.name_of(alert.target) for alert in self._alerts]), room)

    def __len__(self) -> int:
        return 2 * len(self._alerts)

    def alert(self, key: str) -> Alert | None:
        """The alert of a row."""
        position = self._positions.get(key)
        return None if position is None else self._alerts[position // 2]

    def line(self, index: int, *, selected: bool = False) -> Line:
        """One line of an alert."""
        alert = self._alerts[index // 2]
        if index % 2:
            return clip((Span("     "), Span(printable(alert.summary or alert.rule), "dim")), self._width)
        severity = SEVERITIES.get(alert.severity, Severity.WARN)
        quiet = alert.state != FIRING or bool(marks(alert))
        ink: Ink = "dim" if quiet else INK_OF[severity]
        line = [
            Span("▸" if selected else " ", "title" if selected else "text"),
            Span(f"{GLYPH_OF[severity]} ", ink),
            Span(f"{fit(printable(alert.rule), self._rule_width)} ", "dim" if quiet else "title"),
            Span(f"{self._picture.name_cell(alert.target, self._name_width)} "),
            Span(f"{alert.state} {self._age(alert)}", ink),
        ]
        line += [Span(f" · {printable(mark)}", "info") for mark in marks(alert)]
        return clip(merge(line), self._width)

    def key(self, index: int) -> str | None:
        """The alert's key."""
        return alert_key(self._alerts[index // 2])

    def position(self, key: str) -> int | None:
        """The first line of an alert."""
        return self._positions.get(key)

    def is_row(self, index: int) -> bool:
        """The cursor stands on the first line of an alert."""
        return index % 2 == 0

    def _age(self, alert: Alert) -> str:
        at = self._picture.snapshot.at if self._picture.snapshot is not None else alert.since
        return duration_text(at - alert.since)


def _longest(texts: Sequence[str]) -> int:
    return max(map(width_of, texts), default=0)


def marks(alert: Alert) -> tuple[str, ...]:
    """What keeps an alert quiet, and who looks after it."""
    found = (("acknowledged by", alert.acknowledged_by), ("silenced:", alert.silenced_by))
    said = [f"{word} {text}" for word, text in found if text]
    if alert.inhibited_by:
        said.append(f"because of {alert.inhibited_by}")
    return tuple(said)


def alerts_title(picture: Picture, width: int) -> Line:
    """What this list is."""
    return spread((Span(" alerts", "title"),), badges(picture), width)


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
