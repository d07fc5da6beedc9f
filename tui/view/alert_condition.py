"""What firing alerts say of their targets: which of them lead, how loud, in which words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import field

from enginetop.alerts.rule import FIRING, PENDING
from enginetop.fleet.durations import duration_text
from enginetop.fleet.frozen import frozen
from enginetop.fleet.snapshot import Alert
from tui.view.severity import Condition, Severity, in_a_sentence

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
"""What an alert says of its target in a word of the state column; any other rule is its own word."""

_OF_THE_PAST = frozenset({"CanaryFailed"})
"""Alerts on what is over: what troubles a replica now leads over them."""

_SEVERITIES = {"critical": Severity.CRIT, "warning": Severity.WARN, "info": Severity.INFO}

Handled = Mapping[str, str]
"""Who or what keeps an alert from leading, by its rule."""


@frozen
class Firing:
    """The firing alerts of one target: those that may lead, and what is done about the others."""

    loud: tuple[Alert, ...] = ()
    handled: Handled = field(default_factory=dict)


NOTHING_FIRES = Firing()


def firing_by_target(alerts: Sequence[Alert]) -> dict[str, Firing]:
    """The firing alerts by their target. One that follows from another is neither loud nor handled.

    A silence holds from the first breach on: what it covers is handled while it is pending, too.
    """
    loud: defaultdict[str, list[Alert]] = defaultdict(list)
    handled: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for alert in alerts:
        if alert.state not in (FIRING, PENDING) or alert.inhibited_by:
            continue
        if alert.acknowledged_by or alert.silenced_by:
            by = f"acknowledged by {alert.acknowledged_by}" if alert.acknowledged_by else "silenced"
            handled[alert.target][alert.rule] = by
        elif alert.state == FIRING:
            loud[alert.target].append(alert)
    return {
        target: Firing(tuple(loud.get(target, ())), handled.get(target, {})) for target in {**loud, **handled}
    }


def alert_severity(alert: Alert) -> Severity:
    """How loud an alert is, by its own word for it; a word that is not known is a warning."""
    return _SEVERITIES.get(alert.severity, Severity.WARN)


def is_of_the_past(alert: Alert) -> bool:
    """Whether it tells of what is over, so that what troubles its target now leads over it."""
    return alert.rule in _OF_THE_PAST


def gravest(alerts: Sequence[Alert]) -> Alert:
    """The gravest of several, at least one; what is over gives way."""
    return max(alerts, key=lambda alert: (alert_severity(alert), not is_of_the_past(alert)))


def leads(alert: Alert) -> bool:
    """Whether an alert needs somebody: grave enough, and nobody and nothing keeps it quiet."""
    quiet = alert.inhibited_by or alert.acknowledged_by or alert.silenced_by
    return alert.state == FIRING and not quiet and alert_severity(alert) >= Severity.WARN


def alert_condition(alert: Alert, at: float) -> Condition:
    """What an alert says of its target."""
    word = ALERT_WORDS.get(alert.rule, alert.rule)
    said = f"{in_a_sentence(word)} {duration_text(at - alert.since)}"
    return Condition(alert_severity(alert), word, said, alert.summary or alert.rule)
