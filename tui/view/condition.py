"""What is to be said about a replica: one word, one severity, one reason.

The contract's state is the base; a firing alert or a breach that the snapshot itself shows may lead instead.
These are readings of one picture without hold times; alert rules with holds live elsewhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from enginetop.fleet.model import ReplicaState
from enginetop.fleet.signals import SIGNALS
from enginetop.fleet.snapshot import Alert, FleetSnapshot, Outlier, ReplicaSnapshot
from enginetop.fleet.state import duration_text
from tui.view.breaches import BREACHES
from tui.view.numbers import percent, rate, seconds_text
from tui.view.severity import GLYPH_OF as GLYPH_OF
from tui.view.severity import INK_OF as INK_OF
from tui.view.severity import Condition as Condition
from tui.view.severity import Severity as Severity

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

ALERT_WORDS: Mapping[str, str] = {
    "BackendDown": "backends",
    "RequestErrors": "errors",
    "Preempting": "preempt",
    "KvPressure": "pressure",
    "QueueGrowing": "queue",
    "TtftSlo": "ttft slo",
    "TpotSlo": "tpot slo",
    "BudgetBurn": "burn",
    "SpeculationUseless": "spec",
    "PrefixCacheDrop": "prefix",
    "ReplicaImbalance": "uneven",
    "RankImbalance": "hot rank",
    "ThinkingBudgetNotEnforced": "thinking",
    "GpuXid": "gpu xid",
    "GpuThrottled": "throttled",
    "GpuHot": "gpu hot",
    "GpuLost": "gpu lost",
    "ScrapeLate": "late",
    "CanaryFailed": "undone",
    "RollbackFailed": "undo fail",
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

_SAID: Mapping[str, str] = {
    "stalled": "no progress",
    "no metric": "no engine metrics",
    "backends": "backends not healthy",
    "late": "page late",
    "undone": "change undone",
    "undo fail": "change not undone",
}
"""Words as a sentence has them, where the column is too narrow."""

_OF_THE_PAST = frozenset({"CanaryFailed"})
"""Alerts on what is over: what troubles a replica now leads over them."""

_ALERT_SEVERITY = {"critical": Severity.CRIT, "warning": Severity.WARN, "info": Severity.INFO}

Conditions = Mapping[str, Condition]


Handled = Mapping[str, str]
"""Who or what keeps an alert from leading, by its rule."""

_NOTHING_HANDLED: Handled = {}


@dataclass(frozen=True, slots=True)
class Firing:
    """The firing alerts of one target: those that may lead, and what is done about the others."""

    loud: tuple[Alert, ...] = ()
    handled: Handled = field(default_factory=dict)


NOTHING_FIRES = Firing()


def firing_by_target(alerts: Sequence[Alert]) -> dict[str, Firing]:
    """The firing alerts by their target. One that follows from another is neither loud nor handled."""
    loud: defaultdict[str, list[Alert]] = defaultdict(list)
    handled: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for alert in alerts:
        if alert.state != "firing" or alert.inhibited_by:
            continue
        if alert.acknowledged_by or alert.silenced_by:
            by = f"acknowledged by {alert.acknowledged_by}" if alert.acknowledged_by else "silenced"
            handled[alert.target][alert.rule] = by
        else:
            loud[alert.target].append(alert)
    return {
        target: Firing(tuple(loud.get(target, ())), handled.get(target, {})) for target in {**loud, **handled}
    }


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
    leading, pressing = _leading(alerts) if alerts else None, False
    if leading is not None:
        pressing = _alert_severity(leading) >= Severity.WARN
        if pressing and leading.rule not in _OF_THE_PAST:
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
    if replica.events and severity <= Severity.QUIET and _restarted_within(replica, at, RESTART_SECONDS):
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


def _leading(alerts: Sequence[Alert]) -> Alert:
    """The gravest; what is over gives way."""
    return max(alerts, key=lambda alert: (_alert_severity(alert), alert.rule not in _OF_THE_PAST))


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
    said = _SAID.get(word, word)
    because = "; ".join(replica.reasons) or f"{said} for {span}"
    answers = replica.state is ReplicaState.NO_PROGRESS  # it is read as ever: there is nothing to try again
    if not answers and replica.next_try_at is not None and replica.next_try_at > at:
        because += f", next try in {duration_text(replica.next_try_at - at)}"
    return Condition(severity, word, f"{said} {span}", because)


def _alert_severity(alert: Alert) -> Severity:
    return _ALERT_SEVERITY.get(alert.severity, Severity.WARN)


def leads(alert: Alert) -> bool:
    """Whether an alert needs somebody: grave enough, and nobody and nothing keeps it quiet."""
    quiet = alert.inhibited_by or alert.acknowledged_by or alert.silenced_by
    return alert.state == "firing" and not quiet and _alert_severity(alert) >= Severity.WARN


def alert_condition(alert: Alert, at: float) -> Condition:
    """What an alert says of its target."""
    word = ALERT_WORDS.get(alert.rule, alert.rule)
    said = f"{_SAID.get(word, word)} {duration_text(at - alert.since)}"
    return Condition(_alert_severity(alert), word, said, alert.summary or alert.rule)


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


def _restarted_within(replica: ReplicaSnapshot, at: float, seconds: float) -> bool:
    return any(event.kind == "restarted" and at - event.at <= seconds for event in replica.events)
