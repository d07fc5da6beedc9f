"""The lines above and below the grid: title, verdict, totals, events, footer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nlargest

from enginetop.fleet.model import UP_STATES
from enginetop.fleet.ports import PlaybackState
from enginetop.fleet.snapshot import Distribution, Event, FleetSnapshot, Goodput, Scalar, Slo
from tui.view import numbers
from tui.view.cells import (
    UNKNOWN,
    Line,
    Span,
    clip,
    cut_end,
    line_width,
    merge,
    plain,
    spread,
    wrap_items,
)
from tui.view.condition import GLYPH_OF, INK_OF, Severity
from tui.view.picture import Picture

SILENCE_INTERVALS = 3.0
"""Intervals without a new snapshot after which the screen says so."""

LATE_SHARE = 0.95
"""Share of the asked scrapes below which the collector is late."""

_SEPARATOR = Span(" · ", "dim")


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
        items.append(plain(_time_text(picture, snapshot)))
        if picture.playback is not None:
            items += _playback(picture.playback, picture.local_at)
        items.append(_interval(snapshot))
    name, marks = Span(" enginetop  ", "title"), badges(picture)
    room = width - line_width((name, *marks)) - 1
    shown = _join_while_fitting(items, room) or (clip(items[0], max(room, 0)) if items else ())
    return spread((name, *shown), marks, width)


def _time_text(picture: Picture, snapshot: FleetSnapshot) -> str:
    """The time of day; of a recording with its date."""
    clock = numbers.time_of_day(snapshot.at)
    if picture.playback is None:
        return clock
    return f"{numbers.date_and_time(snapshot.at).partition(' ')[0]} {clock}"


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


def badges(picture: Picture) -> Line:
    """What must not be missed: a change under way, a frozen picture, simulated engines, read-only."""
    snapshot = picture.snapshot
    simulated = picture.simulated or (
        snapshot is not None and any(replica.simulated for replica in snapshot.replicas)
    )
    spans: list[Span] = []
    if picture.not_undone:
        spans += (Span(" ROLLBACK FAILED ", "crit"), Span(" "))
    for change in picture.in_flight:
        name = cut_end(picture.name_of(change.canary_target), 12)
        spans += (Span(f" {change.state} {name} ", "badge"), Span(" "))
    if picture.behind_seconds is not None:
        spans += (Span(f" {_behind(picture)} ", "badge"), Span(" "))
    elif picture.paused_seconds is not None:
        spans += (Span(f" PAUSED {numbers.age(picture.paused_seconds)} ", "badge"), Span(" "))
    if simulated:
        spans += (Span("SIMULATED", "dim"), Span(" "))
    if picture.finished:
        spans += (Span("END", "dim"), Span(" "))
    if picture.read_only:
        spans += (Span("READ-ONLY", "dim"), Span(" "))
    return tuple(spans)


def _behind(picture: Picture) -> str:
    seconds = round(picture.behind_seconds or 0.0)
    minutes, rest = divmod(seconds, 60)
    age = f"{minutes} m {rest} s" if minutes else f"{rest} s"
    return f"{age} ago" if picture.playback is not None else f"{age} ago, live goes on"


def _playback(playback: PlaybackState, local_at: float | None) -> list[Line]:
    """How far a recording is played and how fast; its own clock stands in the title, this is the one here."""
    pace = "paused" if playback.paused else f"{playback.speed:g}×"
    done, whole = playback.at - playback.first_at, playback.last_at - playback.first_at
    items = [plain(f"{pace} {numbers.seconds_text(done)} of {numbers.seconds_text(whole)}", "title")]
    if local_at is not None:
        items.append(plain(f"here {numbers.time_of_day(local_at)}", "dim"))
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
    if waiting and (picture.silent_seconds > SILENCE_INTERVALS * snapshot.interval_seconds):
        silence = numbers.seconds_text(picture.silent_seconds)
        return clip(plain(f" ▲ no new picture for {silence}; this one is old", "warn"), width)
    troubled = sorted(
        (replica for replica in snapshot.replicas if picture.conditions[replica.target.url].needs_you),
        key=lambda replica: (-picture.conditions[replica.target.url].severity, replica.since),
    )
    if not troubled:
        return clip(_quiet_verdict(snapshot, picture), width)
    worst = picture.conditions[troubled[0].target.url].severity
    need = "needs" if len(troubled) == 1 else "need"
    lead = Span(f" {GLYPH_OF[worst]} {len(troubled)} {need} you: ", INK_OF[worst])
    items = []
    for replica in troubled:
        condition = picture.conditions[replica.target.url]
        name = cut_end(replica.target.name, 24)
        items.append((Span(f"{name} ", "title"), Span(condition.short, INK_OF[condition.severity])))
    room = width - len(lead.text)
    return clip((lead, *(wrap_items(items, room, _SEPARATOR) if room > 0 else ())), width)


def _quiet_verdict(snapshot: FleetSnapshot, picture: Picture) -> Line:
    words: dict[str, int] = {}
    for condition in picture.conditions.values():
        words[condition.word] = words.get(condition.word, 0) + 1
    total = len(snapshot.replicas)
    if not total:
        return plain(" no replicas", "dim")
    if words.get("ok", 0) == total:
        return (Span(f" {GLYPH_OF[Severity.OK]} all {total} ok", "ok"), *_of_records(snapshot))
    listed = " · ".join(f"{number} {word}" for word, number in words.items())
    quiet = Span(f" {GLYPH_OF[Severity.OK]} nothing needs you", "ok")
    return (quiet, Span(f" · {listed}", "dim"), *_of_records(snapshot))


def _of_records(snapshot: FleetSnapshot) -> Line:
    """What is wrong with a log of requests: worth a word, but no replica's trouble."""
    problem = snapshot.collector.record_problem
    return (Span(f" · records: {problem}", "warn"),) if problem else ()


def totals_line(picture: Picture, width: int) -> Line:
    """Sums and merges over the replicas that are up, with the objective they are held against."""
    snapshot = picture.snapshot
    if snapshot is None:
        return ()
    fleet = snapshot.fleet
    signals = fleet.signals

    def scalar(name: str) -> Scalar | None:
        value = signals.get(name)
        return value if isinstance(value, Scalar) else None

    items: list[Line] = [
        _goodput_total(fleet.goodput)
        or _total("req/s", numbers.rate(numbers.scalar_number(scalar("requests_finished_per_second")))),
        _total("tok/s", numbers.count(numbers.scalar_number(scalar("generation_tokens_per_second")))),
        _total("run", numbers.count(numbers.scalar_number(scalar("requests_running")))),
        _total("wait", numbers.count(numbers.scalar_number(scalar("requests_waiting")))),
        _kv_total(scalar("kv_usage_ratio")),
        _latency_total("TTFT p95", signals.get("ttft_seconds"), fleet.slo.ttft_seconds),
        _latency_total("TPOT p95", signals.get("tpot_seconds"), fleet.slo.tpot_seconds),
        _slo_total(fleet.slo),
    ]
    if snapshot.gpu_problem:
        items.append(plain(f"GPU: {snapshot.gpu_problem}", "dim"))
    return clip(merge((Span(" "), *_join_while_fitting(items, width - 1))), width)


def _join_while_fitting(items: Sequence[Line], width: int) -> Line:
    line: list[Span] = []
    used = 0
    for item in items:
        lead = (_SEPARATOR,) if line else ()
        cells = line_width((*lead, *item))
        if used + cells > width:
            break
        line += (*lead, *item)
        used += cells
    return tuple(line)


def _total(label: str, shown: str) -> Line:
    return (Span(f"{label} ", "dim"), Span(shown, "dim" if shown == UNKNOWN else "text"))


def _goodput_total(goodput: Goodput) -> Line:
    """Requests within the objective of those that ended, and their share: an aborted request is no good one.

    Empty where single requests are not counted.
    """
    good, offered = goodput.good_per_second, goodput.offered_per_second
    if good is None or goodput.exact is None or not offered:
        return ()
    rates = f"{numbers.rate(good)} of {numbers.rate(offered)} req/s"
    return (Span("goodput ", "dim"), Span(f"{rates} ({numbers.fine_percent(good / offered)} %)"))


def _kv_total(kv: Scalar | None) -> Line:
    number = numbers.scalar_number(kv)
    if kv is None or number is None:
        return _total("KV", UNKNOWN)
    mean = f" mean {numbers.percent(kv.mean)}" if kv.mean is not None else ""
    return (Span("KV ", "dim"), Span(f"max {numbers.percent(number)}{mean} %"))


def _latency_total(label: str, value: object, limit: float) -> Line:
    quantile = numbers.quantile_of(value, "p95")
    number = numbers.quantile_number(quantile)
    if number is None or not isinstance(value, Distribution):
        return _total(label, UNKNOWN)
    text = (numbers.CENSORED if quantile.censored else "") + numbers.seconds_text(number)
    return (Span(f"{label} ", "dim"), Span(text, "warn" if number > limit else "text"))


def _slo_total(slo: Slo) -> Line:
    text = (
        f"TTFT≤{numbers.seconds_text(slo.ttft_seconds)} TPOT≤{numbers.seconds_text(slo.tpot_seconds)}"
        f" for {numbers.percent(slo.target)} %"
    )
    return (Span("SLO ", "dim"), Span(text, "dim" if slo.source == "default" else "text"))


EVENT_WORDS = {
    "preemptions_began": "preemptions began",
    "preemptions_ended": "preemptions ended",
    "config_changed": "config",
    "state_changed": "",
}


def event_text(event: Event) -> str:
    """An event in words, without its time."""
    words = EVENT_WORDS.get(event.kind, event.kind.replace("_", " "))
    return " ".join(part for part in (words, event.detail) if part)


def events_line(picture: Picture, width: int, limit: int = 8) -> Line:
    """The newest events of the fleet, newest first."""
    if picture.snapshot is None:
        return ()
    recent = nlargest(
        limit,
        (
            (event.at, replica.target.name, event)
            for replica in picture.snapshot.replicas
            for event in replica.events[-limit:]
            if event.kind != "appeared"
        ),
        key=lambda entry: entry[0],
    )
    items = [
        (Span(f"{numbers.time_of_day(at)} ", "dim"), Span(f"{name} {event_text(event)}"))
        for at, name, event in recent
    ]
    return clip((Span(" "), *_join_while_fitting(items, width - 1)), width) if items else ()


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
