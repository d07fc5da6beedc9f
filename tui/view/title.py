"""The first line of every screen: what is shown, of when, and what must not be missed."""

from __future__ import annotations

from collections.abc import Sequence

from enginetop.fleet.durations import countdown
from enginetop.fleet.model import UP_STATES
from enginetop.fleet.ports import PlaybackState
from enginetop.fleet.snapshot import FleetSnapshot
from tui.view import numbers
from tui.view.cells import SEPARATOR, Line, Span, clip, join_while_fitting, line_width, plain, spread
from tui.view.picture import Picture

LATE_SHARE = 0.95
"""Share of the asked scrapes below which the collector is late."""


def screen_title(picture: Picture, title: str, aside: str, width: int) -> Line:
    """Which screen this is, what of it is shown, and the badges; in brief where all of them take too much."""
    left, marks = (Span(f" {title}", "title"), Span(aside)), badges(picture)
    if line_width((*left, *marks)) >= width:
        marks = badges(picture, brief=True)
    return spread(left, marks, width)


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
    age = countdown(round(picture.behind_seconds or 0.0))
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
