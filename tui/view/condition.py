"""What is to be said about a replica: one word, one severity, one reason.

The contract's state is the base; a firing alert or a breach that the snapshot itself shows may lead instead.
These are readings of one picture without hold times; alert rules with holds live elsewhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from enginetop.fleet.model import ReplicaState
from enginetop.fleet.signals import SIGNALS
from enginetop.fleet.snapshot import Alert, Distribution, FleetSnapshot, Outlier, ReplicaSnapshot
from enginetop.fleet.state import duration_text
from enginetop.fleet.throttle import ALARMING_THROTTLE_WORDS
from themes.loader import Ink
from tui.view.numbers import (
    CENSORED,
    percent,
    quantile_number,
    quantile_of,
    rate,
    scalar_number,
    seconds_text,
)

RESTART_SECONDS = 120.0
"""How long a restart leads the words of a replica."""

KV_PRESSURE_RATIO = 0.95
"""KV use above which preemptions or a queue mean pressure (contract, rule `KvPressure`)."""

SLO_MIN_REQUESTS = 20
"""Fewer requests in the window say nothing about a 95th percentile."""

MEDIAN_MIN_REQUESTS = 5
"""From so many on the median speaks: three of five beyond an objective that holds for 95 % is chance once in
860 windows (binomial), and a replica that is slow finishes few requests."""


class Severity(IntEnum):
    """How loud a condition is; `WARN` and above "need you"."""

    OK = 0
    QUIET = 1
    INFO = 2
    WARN = 3
    CRIT = 4


INK_OF: Mapping[Severity, Ink] = {
    Severity.OK: "ok",
    Severity.QUIET: "dim",
    Severity.INFO: "info",
    Severity.WARN: "warn",
    Severity.CRIT: "crit",
}

GLYPH_OF: Mapping[Severity, str] = {
    Severity.OK: "●",
    Severity.QUIET: "○",
    Severity.INFO: "◌",
    Severity.WARN: "▲",
    Severity.CRIT: "✖",
}


@dataclass(frozen=True, slots=True)
class Condition:
    """What leads: `word` for the state column, `short` for the verdict, `because` for a line of its own."""

    severity: Severity
    word: str
    short: str
    because: str = ""

    @property
    def needs_you(self) -> bool:
        """Whether somebody should look."""
        return self.severity >= Severity.WARN


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
    "CanaryFailed": "undone",
    "RollbackFailed": "undo fail",
}

_SAID: Mapping[str, str] = {
    "stalled": "no progress",
    "no metric": "no engine metrics",
    "undone": "change undone",
    "undo fail": "change not undone",
}
"""Words as a sentence has them, where the column is too narrow."""

_OF_THE_PAST = frozenset({"CanaryFailed"})
"""Alerts on what is over: what troubles a replica now leads over them."""

_ALERT_SEVERITY = {"critical": Severity.CRIT, "warning": Severity.WARN, "info": Severity.INFO}

Conditions = Mapping[str, Condition]


def conditions_of(snapshot: FleetSnapshot) -> dict[str, Condition]:
    """The leading condition of every replica, by target URL."""
    alerts: defaultdict[str, list[Alert]] = defaultdict(list)
    for alert in snapshot.alerts:
        if alert.state == "firing" and not alert.inhibited_by and not alert.silenced_by:
            alerts[alert.target].append(alert)
    return {
        replica.target.url: condition_of(replica, snapshot.at, alerts.get(replica.target.url, ()))
        for replica in snapshot.replicas
    }


def condition_of(
    replica: ReplicaSnapshot, at: float, alerts: tuple[Alert, ...] | list[Alert] = ()
) -> Condition:
    """The leading condition of one replica at time `at`.

    A state that is itself trouble leads; else the gravest of its alerts, then what its own numbers say.
    """
    severity, word = STATES[replica.state]
    if severity >= Severity.WARN:
        return _state_condition(replica, severity, word, at)
    leading = max(
        alerts, key=lambda alert: (_alert_severity(alert), alert.rule not in _OF_THE_PAST), default=None
    )
    pressing = leading is not None and _alert_severity(leading) >= Severity.WARN
    if leading is not None and pressing and leading.rule not in _OF_THE_PAST:
        return _alert_condition(leading, at)
    for breach in _BREACHES:
        found = breach(replica)
        if found is not None:
            return found
    if leading is not None and pressing:
        return _alert_condition(leading, at)
    if severity <= Severity.QUIET and _restarted_within(replica, at, RESTART_SECONDS):
        return Condition(Severity.INFO, "restarted", "restarted")
    if severity is Severity.OK and leading is not None:
        return _alert_condition(leading, at)
    if replica.outliers and severity is Severity.OK:
        return _outlier_condition(replica.outliers)
    if not replica.reasons and severity is Severity.OK:
        return _OK
    reason = "; ".join(replica.reasons)
    if replica.state is ReplicaState.UNKNOWN and replica.scraped_at is None and not replica.last_failure:
        return Condition(severity, "waiting", "waiting", reason)
    return Condition(severity, word, word, reason)


def _state_condition(replica: ReplicaSnapshot, severity: Severity, word: str, at: float) -> Condition:
    if replica.state is ReplicaState.NO_PROGRESS and not replica.live_progress:
        severity = Severity.WARN  # without a series that moves during a request it may just be a long one
    span = duration_text(at - replica.since)
    said = _SAID.get(word, word)
    because = "; ".join(replica.reasons) or f"{said} for {span}"
    if replica.next_try_at is not None and replica.next_try_at > at:
        because += f", next try in {duration_text(replica.next_try_at - at)}"
    return Condition(severity, word, f"{said} {span}", because)


def _alert_severity(alert: Alert) -> Severity:
    return _ALERT_SEVERITY.get(alert.severity, Severity.WARN)


def _alert_condition(alert: Alert, at: float) -> Condition:
    word = ALERT_WORDS.get(alert.rule, alert.rule)
    said = f"{_SAID.get(word, word)} {duration_text(at - alert.since)}"
    return Condition(_alert_severity(alert), word, said, alert.summary or alert.rule)


def _outlier_condition(outliers: tuple[Outlier, ...]) -> Condition:
    """Nothing is broken, but one of several that should be alike is not."""
    said = "; ".join(outlier_text(outlier) for outlier in outliers)
    return Condition(Severity.INFO, "outlier", "unlike its like", said)


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
    if not replica.events:
        return False
    return any(event.kind == "restarted" and at - event.at <= seconds for event in replica.events)


def _kv_breach(replica: ReplicaSnapshot) -> Condition | None:
    signals = replica.signals
    kv = scalar_number(signals.get("kv_usage_ratio"))
    preemptions = scalar_number(signals.get("preemptions_per_second")) or 0.0
    full = kv is not None and kv >= KV_PRESSURE_RATIO
    if preemptions <= 0 and not full:
        return None
    waiting = scalar_number(signals.get("requests_waiting")) or 0.0
    at_kv = f" at KV {percent(kv)} %" if kv is not None else ""
    if preemptions > 0:
        word = "pressure" if full else "preempt"
        return Condition(
            Severity.WARN, word, f"preempting{at_kv}", f"{rate(preemptions)} preemptions/s{at_kv}"
        )
    if full and waiting > 0:
        return Condition(
            Severity.WARN, "pressure", f"KV {percent(kv)} %", f"{waiting:.0f} requests wait{at_kv}"
        )
    return None


def _latency_breach(signal: str, word: str, limit: Callable[[ReplicaSnapshot], float]) -> _Breach:
    title = word.split()[0].upper()

    def breach(replica: ReplicaSnapshot) -> Condition | None:
        value = replica.signals.get(signal)
        count = value.count or 0 if isinstance(value, Distribution) else 0
        if count < MEDIAN_MIN_REQUESTS:
            return None
        name = "p95" if count >= SLO_MIN_REQUESTS else "p50"
        quantile = quantile_of(value, name)
        number, allowed = quantile_number(quantile), limit(replica)
        if number is None or number <= allowed:
            return None
        shown = f"{title} {name} {CENSORED if quantile.censored else ''}{seconds_text(number)}"
        return Condition(Severity.WARN, word, shown, f"{shown}, the SLO allows {seconds_text(allowed)}")

    return breach


def _gpu_breach(replica: ReplicaSnapshot) -> Condition | None:
    for gpu in replica.gpus:
        if gpu.state != "ok":
            return Condition(
                Severity.WARN,
                f"gpu {gpu.state}",
                f"GPU {gpu.index} {gpu.state}",
                f"GPU {gpu.index}: {gpu.state}",
            )
        for reason in gpu.throttle_reasons:
            if reason in ALARMING_THROTTLE_WORDS:
                shown = f"GPU {gpu.index} {reason}"
                return Condition(Severity.WARN, "throttled", shown, f"{shown}: it runs below its clock")
    return None


def _backend_breach(replica: ReplicaSnapshot) -> Condition | None:
    """A gateway that cannot route to some of its backends, or to any."""
    healthy = scalar_number(replica.beyond.get("backends_healthy"))
    total = scalar_number(replica.beyond.get("backends_total"))
    if healthy is None or (healthy > 0 and (total is None or healthy >= total)):
        return None
    named = replica.config.get("unhealthy_backends")
    because = f"not healthy: {named.value}" if named is not None and total else "no backend to route to"
    known = f" of {total:.0f}" if total else ""
    severity = Severity.WARN if healthy else Severity.CRIT
    return Condition(severity, "backends", f"{healthy:.0f}{known} backends healthy", because)


_Breach = Callable[[ReplicaSnapshot], Condition | None]

_BREACHES: tuple[_Breach, ...] = (
    _backend_breach,
    _kv_breach,
    _gpu_breach,
    _latency_breach("ttft_seconds", "ttft slo", lambda replica: replica.slo.ttft_seconds),
    _latency_breach("tpot_seconds", "tpot slo", lambda replica: replica.slo.tpot_seconds),
)
"""What a replica's own numbers may say, gravest first."""
