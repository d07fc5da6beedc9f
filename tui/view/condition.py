"""What is to be said about a replica: one word, one severity, one reason.

The contract's state is the base; a firing alert or a breach that the snapshot itself shows may lead instead.
These are readings of one picture without hold times; alert rules with holds live elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from enginetop.fleet.durations import duration_text
from enginetop.fleet.model import ReplicaState
from enginetop.fleet.signals import SIGNALS
from enginetop.fleet.snapshot import Alert, FleetSnapshot, Outlier, ReplicaSnapshot
from tui.view.alert_condition import (
    NOTHING_FIRES,
    Handled,
    alert_condition,
    alert_severity,
    firing_by_target,
    gravest,
    is_of_the_past,
)
from tui.view.breaches import BREACHES
from tui.view.numbers import percent, rate, seconds_text
from tui.view.severity import Condition, Severity, in_a_sentence

RESTART_SECONDS = 120.0
"""How long a restart leads the words of a replica."""

SLOW = "slow"
"""The word of a replica whose requests take longer than those of its like, objective or not."""

NO_ANSWER = "no answer"
"""The word of a replica whose newest look failed, or waits, and whose state is that of before."""

_OK = Condition(Severity.OK, "ok", "ok")

STATES: Mapping[ReplicaState, tuple[Severity, str]] = {
    ReplicaState.DOWN: (Severity.CRIT, "down"),
    ReplicaState.UNAUTHORIZED: (Severity.WARN, "no access"),
    ReplicaState.LOADING: (Severity.INFO, "loading"),
    ReplicaState.NO_ENGINE_METRICS: (Severity.WARN, "no metric"),
    ReplicaState.STALE: (Severity.WARN, "stale"),
    ReplicaState.DRAINING: (Severity.INFO, "draining"),
    ReplicaState.PAUSED: (Severity.INFO, "paused"),
    ReplicaState.SLEEPING: (Severity.QUIET, "sleeping"),
    ReplicaState.NO_PROGRESS: (Severity.CRIT, "stalled"),
    ReplicaState.IDLE: (Severity.QUIET, "idle"),
    ReplicaState.OK: (Severity.OK, "ok"),
    ReplicaState.UNKNOWN: (Severity.QUIET, "unknown"),
}

FAILING_STATES = frozenset(
    {
        ReplicaState.DOWN,
        ReplicaState.UNAUTHORIZED,
        ReplicaState.NO_ENGINE_METRICS,
        ReplicaState.STALE,
        ReplicaState.NO_PROGRESS,
    }
)
"""States that are trouble by themselves, and say why on a line of their own."""


def says_why(replica: ReplicaSnapshot) -> bool:
    """Whether the reason of its state has a line of its own: trouble, or it was looked at and never read."""
    if replica.state in FAILING_STATES:
        return True
    return replica.state is ReplicaState.UNKNOWN and replica.last_failure is not None


_RULES_OF: Mapping[str, frozenset[str]] = {
    "down": frozenset({"TargetDown"}),
    "no access": frozenset({"Unauthorized"}),
    "no metric": frozenset({"NoEngineMetrics"}),
    "stale": frozenset({"ScrapeLate"}),
    "stalled": frozenset({"NoProgress"}),
    "errors": frozenset({"RequestErrors"}),
    "preempt": frozenset({"Preempting", "KvPressure"}),
    "pressure": frozenset({"Preempting", "KvPressure"}),
    "throttled": frozenset({"GpuThrottled", "GpuHot"}),
    "gpu lost": frozenset({"GpuLost"}),
    "gpu error": frozenset({"GpuLost"}),
    "ttft slo": frozenset({"TtftSlo"}),
    "tpot slo": frozenset({"TpotSlo"}),
}
"""The rules that tell of a condition: who has acknowledged one of them knows of it."""

Conditions = Mapping[str, Condition]


_NOTHING_HANDLED: Handled = {}


def conditions_of(snapshot: FleetSnapshot) -> dict[str, Condition]:
    """The leading condition of every replica, by target URL."""
    firing = firing_by_target(snapshot.alerts)
    found = {}
    for replica in snapshot.replicas:
        own = firing.get(replica.target.url, NOTHING_FIRES)
        found[replica.target.url] = condition_of(replica, snapshot.at, own.loud, own.handled)
    return found


def condition_of(
    replica: ReplicaSnapshot, at: float, alerts: Sequence[Alert] = (), handled: Handled = _NOTHING_HANDLED
) -> Condition:
    """The leading condition of one replica at time `at`.

    A state that is itself trouble leads; else the gravest of its `alerts`, then what its own numbers say.
    What somebody knows of already (`handled`, by rule) gives way to what nobody does.
    """
    severity, word = STATES[replica.state]
    if replica.state in FAILING_STATES:
        return _known(_state_condition(replica, severity, word, at), handled)
    leading = gravest(alerts) if alerts else None
    pressing = leading is not None and alert_severity(leading) >= Severity.WARN
    if leading is not None and pressing and not is_of_the_past(leading):
        return alert_condition(leading, at)
    known = None
    for breach in BREACHES:
        found = breach(replica)
        if found is not None:
            found = _known(found, handled)
            if found.needs_you:
                return found
            known = known or found
    if leading is not None and pressing:
        return alert_condition(leading, at)
    if known is not None:
        return known
    if replica.in_doubt:
        # No trouble yet: one look that is lost in an hour must not move the grid.
        return Condition(Severity.INFO, NO_ANSWER, NO_ANSWER, "; ".join(replica.reasons))
    if replica.events and severity <= Severity.QUIET and restarted_within(replica, at, RESTART_SECONDS):
        return Condition(Severity.INFO, "restarted", "restarted")
    if severity is Severity.OK:
        if leading is not None:
            return alert_condition(leading, at)
        if replica.outliers:
            return _outlier_condition(replica.outliers)
        if not replica.reasons:
            return _OK
    reason = "; ".join(replica.reasons)
    if replica.state is ReplicaState.UNKNOWN and replica.scraped_at is None and not replica.last_failure:
        return Condition(severity, "waiting", "waiting", reason)
    return Condition(severity, word, word, reason)


def stands_still(replica: ReplicaSnapshot) -> bool:
    """Whether its condition without alerts is the same at any time: no age and no delay is part of it."""
    if replica.state in FAILING_STATES:
        return False
    return not replica.events or not any(event.kind == "restarted" for event in replica.events)


def _known(condition: Condition, handled: Handled) -> Condition:
    for rule in _RULES_OF.get(condition.word, ()) if handled else ():
        if rule in handled:
            return replace(condition, handled=handled[rule])
    return condition


def _state_condition(replica: ReplicaSnapshot, severity: Severity, word: str, at: float) -> Condition:
    if replica.state is ReplicaState.NO_PROGRESS and not replica.live_progress:
        severity = Severity.WARN  # without a series that moves during a request it may just be a long one
    span = duration_text(at - replica.since)
    said = in_a_sentence(word)
    because = "; ".join(replica.reasons) or f"{said} for {span}"
    answers = replica.state is ReplicaState.NO_PROGRESS  # it is read as ever: there is nothing to try again
    if not answers and replica.next_try_at is not None and replica.next_try_at > at:
        because += f", next try in {duration_text(replica.next_try_at - at)}"
    return Condition(severity, word, f"{said} {span}", because)


def _outlier_condition(outliers: tuple[Outlier, ...]) -> Condition:
    """Nothing is broken, but one of several that should be alike is not."""
    ranked = sorted(outliers, key=_is_time, reverse=True)
    said = "; ".join(outlier_text(outlier) for outlier in ranked)
    if _is_time(ranked[0]):
        return Condition(Severity.INFO, SLOW, "slower than its like", said)
    return Condition(Severity.INFO, "outlier", "unlike its like", said)


def _is_time(outlier: Outlier) -> bool:
    """Whether it tells that something takes longer than elsewhere."""
    unit = SIGNALS[outlier.signal.partition(".")[0]].unit
    return unit == "seconds" and outlier.value > outlier.median


def outlier_text(outlier: Outlier) -> str:
    """One figure beside that of its like: `TTFT p95 900 ms, median of 5: 200 ms`."""
    base, _, part = outlier.signal.partition(".")
    signal = SIGNALS[base]
    value, middle = (_in_unit(number, signal.unit) for number in (outlier.value, outlier.median))
    title = f"{signal.title} {part}" if part else signal.title
    return f"{title} {value}, median of {outlier.replicas}: {middle}"


def _in_unit(number: float, unit: str) -> str:
    if unit == "seconds":
        return seconds_text(number)
    return f"{percent(number)} %" if unit == "ratio" else rate(number)


def restarted_within(replica: ReplicaSnapshot, at: float, seconds: float) -> bool:
    """Whether the engine began anew in the last `seconds` before `at`."""
    return any(event.kind == "restarted" and 0 <= at - event.at <= seconds for event in replica.events)
