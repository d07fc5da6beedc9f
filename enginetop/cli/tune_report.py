"""Advice as lines of text: suggestions in full, then what is left alone and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from enginetop.fleet.snapshot import FleetSnapshot, PoolAdvice
from tui.view.advice import (
    ACTIONABLE,
    APPLY_WORDS,
    Suggestion,
    advice_of,
    caveats_of,
    change_text,
    expectation_items,
    pool_of,
    reason_text,
    reasons_of,
    suggestions_of,
)
from tui.view.cells import Line, plain, printable
from tui.view.left_alone import LeftAlone, left_alone_of

_LABEL_WIDTH = 9


def report_lines(snapshot: FleetSnapshot) -> Iterator[Line]:
    """The report; never empty. Of a pool one suggestion is told in full, since a plan carries it to all."""
    suggestions, left_alone = suggestions_of(snapshot), left_alone_of(snapshot.replicas)
    if not suggestions and not left_alone:
        yield plain("nothing to advise on: no engine answers")
        return
    pools: dict[tuple[object, ...], list[Suggestion]] = {}
    for suggestion in suggestions:
        replica = suggestion.replica
        key = (replica.engine, replica.model, replica.role, suggestion.advice.knob)
        pools.setdefault(key, []).append(suggestion)
    for first, *others in pools.values():
        yield from _suggestion(snapshot, first)
        yield from labelled("also", [" · ".join(map(_in_short, others))])
        yield from labelled("though", [_carried_along(snapshot, first)])
        yield plain("")
    for group in left_alone:
        yield from _left_alone(group)
    for pool in snapshot.pools:
        yield plain("")
        yield from _pool(pool)


def _suggestion(snapshot: FleetSnapshot, suggestion: Suggestion) -> Iterator[Line]:
    replica, advice = suggestion.replica, suggestion.advice
    others = len(pool_of(snapshot, replica))
    where = f"{replica.target.name}, then its pool ({others})" if others else replica.target.name
    change = change_text(advice)
    how = APPLY_WORDS.get(advice.apply, advice.apply)
    yield plain(printable(f"{advice.knob}  {change}   {where}   {how}   confidence {advice.confidence}"))
    yield from labelled("because", reasons_of(advice))
    yield from labelled("expect", [" · ".join(expectation_items(advice.expected))])
    yield from labelled("wrong if", caveats_of(advice))


def _carried_along(snapshot: FleetSnapshot, suggestion: Suggestion) -> str:
    """The rest of the pool that does not ask for the change and that a plan reaches all the same."""
    replica, advice = suggestion.replica, suggestion.advice
    rows = [(other, advice_of(other, advice.knob)) for other in pool_of(snapshot, replica)]
    told = [
        f"{other.target.name} {row.action}"
        for other, row in rows
        if row is not None and row.action not in ACTIONABLE and row.current in (advice.current, None)
    ]
    if not told:
        return ""
    return f"alone they say {', '.join(told)}: a plan reaches the pool once {replica.target.name} is no worse"


def _in_short(suggestion: Suggestion) -> str:
    advice = suggestion.advice
    return f"{suggestion.replica.target.name} {change_text(advice)} ({advice.confidence})"


def _pool(pool: PoolAdvice) -> Iterator[Line]:
    """A line a knob: what the replicas of a pool call for as one."""
    yield plain(
        printable(f"pool {pool.model or 'model not known'} · {pool.role.value} ×{len(pool.replicas)}")
    )
    for advice in pool.advice:
        change = f"{change_text(advice)}  " if advice.action in ACTIONABLE else ""
        reason = reasons_of(advice)[0] if change else reason_text(advice)
        yield plain(printable(f"  {advice.action:<8} {advice.knob}  {change}{reason}"))


def labelled(label: str, texts: Iterable[str]) -> Iterator[Line]:
    """A line for each text that is not empty; the label stands before the first."""
    for text in filter(None, texts):
        yield plain(printable(f"{label:<{_LABEL_WIDTH}} {text}"))
        label = ""


def _left_alone(group: LeftAlone) -> Iterator[Line]:
    """One line where all replicas have the same reason, else one each."""
    head = f"{group.action:<8} {group.knob}"
    if group.alike:
        names = " ".join(member.replica.target.name for member in group.members)
        yield plain(printable(f"{head}  {group.reason}  ({names})"))
        return
    for member in group.members:
        yield plain(printable(f"{head}  {member.replica.target.name}: {reason_text(member.advice)}"))
