"""The second line of the fleet: who needs you and why, in one line; quiet when nobody does."""

from __future__ import annotations

from typing import NamedTuple

from enginetop.fleet.snapshot import FleetSnapshot
from tui.view import numbers
from tui.view.alert_condition import alert_condition, leads
from tui.view.cells import (
    SEPARATOR,
    Line,
    Span,
    clip,
    cut_middle,
    join_while_fitting,
    line_width,
    plain,
    wrap_items,
)
from tui.view.condition import NO_ANSWER, SLOW
from tui.view.picture import NOTHING_YET, Picture
from tui.view.severity import GLYPH_OF, INK_OF, Severity

SILENCE_INTERVALS = 3.0
"""Intervals without a new snapshot after which the screen says so."""

_NAME_WIDTH = 24
_LEAST_WIDTH = 4
"""One trouble takes more cells: names of those for which there is no room are not worked out."""


def is_silent(silent_seconds: float, interval_seconds: float) -> bool:
    """Whether no new snapshot has come for so long that the screen says so."""
    return silent_seconds > SILENCE_INTERVALS * interval_seconds


def verdict_line(picture: Picture, width: int) -> Line:
    """Who needs you and why; gravest first, then the longest in that state. Quiet when nobody does."""
    snapshot = picture.snapshot
    if picture.notice:
        return clip(plain(f" ✖ {picture.notice}", "crit"), width)
    for change in picture.not_undone:
        what = f"{change.knob} on {picture.name_of(change.canary_target)}"
        return clip(plain(f" ✖ rollback failed: {what}: {change.detail}", "crit"), width)
    if snapshot is None:
        return clip(plain(f" {NOTHING_YET}", "dim"), width)
    if snapshot.collector.problem:
        return clip(plain(f" ✖ collector: {snapshot.collector.problem}", "crit"), width)
    waiting = picture.paused_seconds is None and not picture.finished
    if waiting and is_silent(picture.silent_seconds, snapshot.interval_seconds):
        silence = numbers.seconds_text(picture.silent_seconds)
        return clip(plain(f" ▲ no new picture for {silence}; this one is old", "warn"), width)
    troubles = _troubles(picture, snapshot)
    if not troubles:
        return clip(_quiet_verdict(snapshot, picture, width), width)
    worst = troubles[0].severity
    need = "needs" if len(troubles) == 1 else "need"
    lead = Span(f" {GLYPH_OF[worst]} {len(troubles)} {need} you: ", INK_OF[worst])
    told = troubles[: width // _LEAST_WIDTH + 1]
    items = [
        (Span(f"{_name(picture, trouble)} ", "title"), Span(trouble.short, INK_OF[trouble.severity]))
        for trouble in told
    ]
    room = width - len(lead.text)
    line = (lead, *(wrap_items(items, room, SEPARATOR, len(troubles) - len(told)) if room > 0 else ()))
    return clip((*line, *_asides(picture, width - line_width(line))), width)


class _Trouble(NamedTuple):
    """One thing that needs somebody; `url` is its replica's, or `model` that of an alert of the fleet."""

    severity: Severity
    since: float
    short: str
    url: str = ""
    model: str = ""


def _name(picture: Picture, trouble: _Trouble) -> str:
    if trouble.url:
        return picture.name_in(trouble.url, _NAME_WIDTH)
    return cut_middle(trouble.model, _NAME_WIDTH)


def _troubles(picture: Picture, snapshot: FleetSnapshot) -> list[_Trouble]:
    """What needs somebody, gravest first, then oldest: replicas, and alerts of the fleet as a whole."""
    found = []
    for replica in snapshot.replicas:
        condition = picture.conditions[replica.target.url]
        if condition.needs_you:
            found.append(_Trouble(condition.severity, replica.since, condition.short, replica.target.url))
    for alert in snapshot.alerts:
        if alert.target not in picture.conditions and leads(alert):
            said = alert_condition(alert, snapshot.at)
            model = alert.labels.get("model", alert.target)
            found.append(_Trouble(said.severity, alert.since, said.short, model=model))
    return sorted(found, key=lambda trouble: (-trouble.severity, trouble.since))


def _quiet_verdict(snapshot: FleetSnapshot, picture: Picture, width: int) -> Line:
    words: dict[str, int] = {}
    for condition in picture.conditions.values():
        words[condition.word] = words.get(condition.word, 0) + 1
    total = len(snapshot.replicas)
    if not total:
        return plain(" no replicas", "dim")
    handled = _handled(picture)
    if handled:
        else_quiet = Span(f" {GLYPH_OF[Severity.OK]} nothing else needs you", "ok")
        return (else_quiet, *handled, *_of_records(snapshot))
    if words.get("ok", 0) == total:
        return (Span(f" {GLYPH_OF[Severity.OK]} all {total} ok", "ok"), *_of_records(snapshot))
    listed = " · ".join(f"{number} {word}" for word, number in words.items())
    quiet = Span(f" {GLYPH_OF[Severity.OK]} nothing needs you", "ok")
    line = (quiet, Span(f" · {listed}", "dim"), *_of_records(snapshot))
    return (*line, *_asides(picture, width - line_width(line)))


def _asides(picture: Picture, room: int) -> Line:
    """Who does not answer, and who is slower than its like and by what: worth the rest of the line."""
    said = [
        (
            Span(f"{picture.name_in(url, _NAME_WIDTH)} "),
            Span(f"{condition.word}: {condition.because}", condition.ink),
        )
        for word in (NO_ANSWER, SLOW)
        for url, condition in picture.conditions.items()
        if condition.word == word
    ]
    shown = join_while_fitting(said, room - line_width((SEPARATOR,)))
    return (SEPARATOR, *shown) if shown else ()


def _handled(picture: Picture) -> list[Span]:
    """Who is in trouble and already looked after."""
    spans = []
    for url, condition in picture.conditions.items():
        if condition.handled:
            said = f" · {picture.name_in(url, _NAME_WIDTH)} {condition.short}, {condition.handled}"
            spans.append(Span(said, "dim"))
    return spans


def _of_records(snapshot: FleetSnapshot) -> Line:
    """What is wrong with a log of requests or a source of targets: worth a word, but no replica's trouble."""
    told = (("records", snapshot.collector.record_problem), ("targets", snapshot.collector.discovery_problem))
    return tuple(Span(f" · {what}: {problem}", "warn") for what, problem in told if problem)
