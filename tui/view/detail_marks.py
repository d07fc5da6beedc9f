"""Marks of a replica: where its identity was read, what of it can be read, and what can be changed."""

from __future__ import annotations

from enginetop.fleet.changeable import CHANGEABLE
from enginetop.fleet.model import Quality
from enginetop.fleet.plan import VIA_KNOB_API, VIAS
from enginetop.fleet.signals import KNOBS
from enginetop.fleet.snapshot import ReplicaSnapshot
from tui.view.cells import Span
from tui.view.engines import engine_name
from tui.view.figures import Lines, paragraphs, row

_OF_MACHINES = ("power_watts", "energy_joules_per_token", "cost_per_million")
_SOURCED = ("engine_version", "model", "role", "stack")
_APPLY = {"per_request": "per request"}


def mark_words(replica: ReplicaSnapshot) -> str:
    """Both marks in few words: `18/25 signals, knobs by restart`; empty while no page was read."""
    if replica.scraped_at is None:
        return ""
    total, missing = _signals(replica)
    applies = {change.apply for change in CHANGEABLE.get(replica.engine, {}).values()}
    if any(advice.apply == "live" for advice in replica.advice):
        knobs = "live knobs"
    else:
        knobs = "knobs by restart" if "restart" in applies else "no knobs"
    return f"{total - len(missing)}/{total} signals, {knobs}"


def mark_lines(replica: ReplicaSnapshot, width: int) -> Lines:
    """Identity with its sources, and the two marks; nothing while no page was read."""
    if replica.scraped_at is None:
        return
    told = [
        f"{getattr(replica, field)} ({replica.sources[field]})"
        for field in _SOURCED
        if field in replica.sources and getattr(replica, field) is not None
    ]
    yield row("engine", Span(engine_name(replica)), *(Span(f" · {one}", "dim") for one in told))
    yield from _readable(replica, width)
    yield from _changeable(replica, width)


def _signals(replica: ReplicaSnapshot) -> tuple[int, list[str]]:
    """The number of signals that an engine could tell, and those that this one does not export."""
    ours = {n: v for n, v in replica.signals.items() if not n.startswith(_OF_MACHINES)}
    return len(ours), [name for name, value in ours.items() if value.quality is Quality.UNSUPPORTED]


def _readable(replica: ReplicaSnapshot, width: int) -> Lines:
    total, missing = _signals(replica)
    said = f"{total - len(missing)} of {total} signals"
    if missing:
        said += f"; not {', '.join(missing)}"
    yield from paragraphs("can be read", (said,), width, "dim")


def _changeable(replica: ReplicaSnapshot, width: int) -> Lines:
    knobs = CHANGEABLE.get(replica.engine)
    if knobs is None:
        yield row("can change", Span("nothing by enginetop: its own configuration", "dim"))
        return
    ours = {row.knob: row for row in replica.advice if row.apply == "live" or row.via in VIAS}
    words = []
    for knob in KNOBS:
        how, via = (ours[knob].apply, ours[knob].via) if knob in ours else (knobs[knob].apply, "")
        path = f" ({via})" if via in VIAS and via != VIA_KNOB_API else ""
        words.append(f"{knob} {_APPLY.get(how, how)}{path}")
    yield from paragraphs("can change", (" · ".join(words),), width, "dim")
