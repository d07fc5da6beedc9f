"""The lines above and below the grid: title, verdict, footer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from enginetop.fleet.model import UP_STATES
from enginetop.fleet.ports import PlaybackState
from enginetop.fleet.snapshot import FleetSnapshot
from tui.view import numbers
from tui.view.cells import (
    SEPARATOR,
    Line,
    Span,
    clip,
    cut_middle,
    join_while_fitting,
    line_width,
    plain,
    spread,
    wrap_items,
)
from tui.view.condition import GLYPH_OF, INK_OF, NO_ANSWER, SLOW, Severity, alert_condition, leads
from tui.view.picture import Picture

SILENCE_INTERVALS = 3.0
"""Intervals without a new snapshot after which the screen says so."""

_NAME_WIDTH = 24

LATE_SHARE = 0.95
"""Share of the asked scrapes below which the collector is late."""


def is_silent(silent_seconds: float, interval_seconds: float) -> bool:
    """Whether no new snapshot has come for so long that the screen says so."""
    return silent_seconds > SILENCE_INTERVALS * interval_seconds


def title_line(picture: Picture, width: int) -> Line:
    """Program, fleet, how many are up, the snapshot's time, the interval (and the one achieved), badges."""
    snapshot = picture.snapshot
    items: list[Line] = [plain(picture.title)] if picture.title else []
    if snapshot is None:
        if picture.targets:
            items.append(plain(f"{len(picture.targets)} targets"))
    else:
        up = sum(number for state, number in snapshot.fleet.states.items() if state in UP_STATES)
        total = snapshot.fleet.replicas
        items.append(plain(f"{up}/{total} up", "text" if up == total else "title"))
        if picture.playback is None:
            items += (plain(numbers.time_of_day(snapshot.at)), _interval(snapshot))
        else:
            items = [*_playback(picture, picture.playback, snapshot), *items]
    name, marks = Span(" enginetop  ", "title"), badges(picture)
    room = width - line_width((name, *marks)) - 1
    until_time = 2 + bool(picture.title)
    if picture.behind_seconds is not None and not _fit(items[:until_time], room):  # when it was comes first
        marks = badges(picture, brief=True)
        room = width - line_width((name, *marks)) - 1
    shown = join_while_fitting(items, room) or (clip(items[0], max(room, 0)) if items else ())
    return spread((name, *shown), marks, width)


def _fit(items: Sequence[Line], room: int) -> bool:
    return sum(line_width(item) for item in items) + line_width((SEPARATOR,)) * (len(items) - 1) <= room


def _interval(snapshot: FleetSnapshot) -> Line:
    health, interval = snapshot.collector, snapshot.interval_seconds
    asked, achieved = health.asked_per_second, health.achieved_per_second
    every = Span(f"every {interval:.1f} s")
    if not asked or achieved is None:
        return (every,)
    if achieved <= 0:
        return (every, Span(" (none achieved)", "warn"))
    late = achieved < LATE_SHARE * asked
    return (every, Span(f" ({interval * asked / achieved:.1f})", "warn" if late else "dim"))


def badges(picture: Picture, *, brief: bool = False) -> Line:
    """What must not be missed: a change under way, a frozen picture, simulated engines, read-only.

    `brief`: how old the picture is, and no more of it.
    """
    snapshot = picture.snapshot
    simulated = picture.simulated or (
        snapshot is not None and any(replica.simulated for replica in snapshot.replicas)
    )
    spans: list[Span] = []
    if picture.not_undone:
        spans += (Span(" ROLLBACK FAILED ", "crit"), Span(" "))
    for change in picture.in_flight:
        name = picture.name_in(change.canary_target, 12)
        spans += (Span(f" {change.state} {name} ", "badge"), Span(" "))
    if picture.playback is not None:
        pace = "STANDS" if picture.playback.paused else f"{picture.playback.speed:g}×"
        spans += (Span(f" {pace} ", "badge"), Span(" "))
    if picture.behind_seconds is not None:
        spans += (Span(f" {_behind(picture, brief)} ", "badge"), Span(" "))
    elif picture.paused_seconds is not None:
        spans += (Span(f" PAUSED {numbers.age(picture.paused_seconds)} ", "badge"), Span(" "))
    if simulated:
        spans += (Span("SIMULATED", "dim"), Span(" "))
    if picture.finished:
        spans += (Span("END", "dim"), Span(" "))
    if picture.read_only:
        spans += (Span("READ-ONLY", "dim"), Span(" "))
    return tuple(spans)


def _behind(picture: Picture, brief: bool) -> str:
    seconds = round(picture.behind_seconds or 0.0)
    minutes, rest = divmod(seconds, 60)
    age = f"{minutes} m {rest} s" if minutes else f"{rest} s"
    return f"{age} ago" if brief or picture.playback is not None else f"{age} ago, live goes on"


def _playback(picture: Picture, playback: PlaybackState, snapshot: FleetSnapshot) -> list[Line]:
    """The recording's clock, how far it is played, and the time here."""
    done, whole = playback.at - playback.first_at, playback.last_at - playback.first_at
    day = numbers.date_and_time(snapshot.at).partition(" ")[0]
    items = [
        plain(f"{day} {numbers.time_of_day(snapshot.at)}", "title"),
        plain(f"{numbers.seconds_text(done)} of {numbers.seconds_text(whole)}"),
    ]
    if picture.local_at is not None:
        items.append(plain(f"here {numbers.time_of_day(picture.local_at)}", "dim"))
    return items


def verdict_line(picture: Picture, width: int) -> Line:
    """Who needs you and why; gravest first, then the longest in that state. Quiet when nobody does."""
    snapshot = picture.snapshot
    if picture.notice:
        return clip(plain(f" ✖ {picture.notice}", "crit"), width)
    for change in picture.not_undone:
        what = f"{change.knob} on {picture.name_of(change.canary_target)}"
        return clip(plain(f" ✖ rollback failed: {what}: {change.detail}", "crit"), width)
    if snapshot is None:
        return clip(plain(" waiting for the first scrape", "dim"), width)
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
    items = [
        (Span(f"{trouble.name} ", "title"), Span(trouble.short, INK_OF[trouble.severity]))
        for trouble in troubles
    ]
    room = width - len(lead.text)
    line = (lead, *(wrap_items(items, room, SEPARATOR) if room > 0 else ()))
    return clip((*line, *_asides(picture, width - line_width(line))), width)


class _Trouble(NamedTuple):
    """One thing that needs somebody."""

    severity: Severity
    since: float
    name: str
    short: str


def _troubles(picture: Picture, snapshot: FleetSnapshot) -> list[_Trouble]:
    """What needs somebody, gravest first, then oldest: replicas, and alerts of the fleet as a whole."""
    found = []
    for replica in snapshot.replicas:
        condition = picture.conditions[replica.target.url]
        if condition.needs_you:
            name = picture.name_in(replica.target.url, _NAME_WIDTH)
            found.append(_Trouble(condition.severity, replica.since, name, condition.short))
    for alert in snapshot.alerts:
        if alert.target not in picture.conditions and leads(alert):
            said = alert_condition(alert, snapshot.at)
            name = cut_middle(alert.labels.get("model", alert.target), _NAME_WIDTH)
            found.append(_Trouble(said.severity, alert.since, name, said.short))
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


@dataclass(frozen=True, slots=True)
class KeyHint:
    """One hint of the footer."""

    key: str
    label: str


def footer_line(hints: Sequence[KeyHint], right: str, width: int) -> Line:
    """Keys with what they do, as many as fit; `right` (where one is in the list) at the right edge."""
    items = [(Span(hint.key, "key"), Span(f" {hint.label}", "dim")) for hint in hints]
    room = width - len(right) - 2
    left = _footer_items(items, room)
    return spread((Span(" "), *left), plain(f"{right} ", "dim") if right else (), width)


def _footer_items(items: Sequence[Line], room: int) -> Line:
    line: list[Span] = []
    used = 1
    for item in items:
        cells = line_width(item) + 2
        if used + cells > room:
            break
        line += (*item, Span("  "))
        used += cells
    return tuple(line)


def waiting_lines(picture: Picture, width: int) -> list[Line]:
    """The body of the screen before the first snapshot: what will be asked."""
    if picture.snapshot is not None:
        return []
    return [
        clip(
            (Span(f"  {target.name}"), Span("" if target.name in target.url else f"  {target.url}", "dim")),
            width,
        )
        for target in picture.targets
    ]
