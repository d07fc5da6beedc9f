"""Advice on a pool: all replicas of a model and role as one, where they agree.

A knob is set for a pool, since its replicas take the same traffic in turn. What most of its fresh replicas
call for is called for; what one of many calls for is a matter of routing, and not of the knob.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from enginetop.fleet.model import EngineKind
from enginetop.fleet.pools import pools
from enginetop.fleet.signals import KNOBS
from enginetop.fleet.snapshot import Advice, PoolAdvice, ReplicaSnapshot
from tuners.limits import FRESH

FEWEST_REPLICAS = 2
_CHANGES = ("lower", "disable", "raise")
_CONFIDENCE = ("low", "medium", "high")
_MOST_CAREFUL: dict[str, Callable[[Sequence[float]], float]] = {"lower": max, "disable": max, "raise": min}
"""Of several proposals the one that changes least."""


def pool_advice(replicas: Sequence[ReplicaSnapshot]) -> tuple[PoolAdvice, ...]:
    """A row a knob for each pool of at least two engine replicas, in the order of the fleet."""
    return tuple(
        PoolAdvice(
            model,
            role,
            tuple(member.target.url for member in members),
            tuple(_rows(members)),
        )
        for (model, role), members in pools(_engines(replicas)).items()
        if len(members) >= FEWEST_REPLICAS
    )


def _engines(replicas: Sequence[ReplicaSnapshot]) -> Iterator[ReplicaSnapshot]:
    return (one for one in replicas if one.advice and one.engine is not EngineKind.ROUTER)


def _rows(members: Sequence[ReplicaSnapshot]) -> Iterator[Advice]:
    fresh = [(one, {row.knob: row for row in one.advice}) for one in members if one.state in FRESH]
    for knob in KNOBS:
        if fresh:
            yield _row(knob, [(one, rows[knob]) for one, rows in fresh])
        else:
            yield Advice(knob, "withheld", (f"none of {len(members)} replicas has fresh numbers",))


def _row(knob: str, rows: Sequence[tuple[ReplicaSnapshot, Advice]]) -> Advice:
    values = Counter(row.current for _, row in rows)
    if len(values) > 1:
        told = ", ".join(f"{_value(value)} on {count}" for value, count in values.most_common())
        return Advice(knob, "withheld", (f"mixed configuration: {told}; level it first",))
    current = rows[0][1].current
    for action in _CHANGES:
        wanting = [(one, row) for one, row in rows if row.action == action and row.proposed is not None]
        if 2 * len(wanting) > len(rows):
            return _agreed(action, wanting, len(rows))
        if wanting:
            return _outvoted(knob, action, wanting, rows, current)
    return _quiet(knob, [row for _, row in rows], current)


def _agreed(action: str, wanting: Sequence[tuple[ReplicaSnapshot, Advice]], fresh: int) -> Advice:
    """What most call for, as far as the most careful of them goes, in its words."""
    proposals = [row.proposed for _, row in wanting if row.proposed is not None]
    careful = _MOST_CAREFUL[action](proposals)
    _, told = next(pair for pair in wanting if pair[1].proposed == careful)
    lowest = min((row.confidence for _, row in wanting), key=_CONFIDENCE.index)
    ways = {(row.apply, row.via) for _, row in wanting}
    apply, via = ways.pop() if len(ways) == 1 else ("restart", "")
    agree = f"{len(wanting)} of {fresh} fresh replicas call for it"
    spread = f", {_value(min(proposals))} to {_value(max(proposals))}" if len(set(proposals)) > 1 else ""
    return replace(told, because=(f"{agree}{spread}", *told.because), confidence=lowest, apply=apply, via=via)


def _outvoted(
    knob: str,
    action: str,
    wanting: Sequence[tuple[ReplicaSnapshot, Advice]],
    rows: Sequence[tuple[ReplicaSnapshot, Advice]],
    current: float | None,
) -> Advice:
    """What fewer than most call for; open, where those that say nothing yet could make it most."""
    names = " ".join(one.target.name for one, _ in wanting)
    told = f"{names} {'calls' if len(wanting) == 1 else 'call'} for {action}"
    silent = [row for _, row in rows if row.action == "withheld"]
    if 2 * (len(wanting) + len(silent)) > len(rows):
        why = f"{told}, {len(silent)} of {len(rows)} cannot be judged yet"
        return Advice(knob, "withheld", (why, *silent[0].because[-1:]), current)
    why = f"{told}, {len(rows) - len(wanting)} of {len(rows)} do not: look at the routing, not at the knob"
    return Advice(knob, "hold", (why,), current)


def _quiet(knob: str, rows: Sequence[Advice], current: float | None) -> Advice:
    """What most say that call for nothing."""
    action, _ = Counter(row.action for row in rows).most_common(1)[0]
    said = [row for row in rows if row.action == action]
    bound_by, _ = Counter(row.bound_by for row in said).most_common(1)[0]
    return Advice(knob, action, said[0].because, current, bound_by=bound_by)


def _value(value: float | None) -> str:
    return "not known" if value is None else f"{value:g}"
