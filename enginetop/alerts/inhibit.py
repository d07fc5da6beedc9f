"""Which alert keeps which quiet: a symptom is not told while its cause fires. One table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from enginetop.alerts.rule import FIRING, Severity
from enginetop.fleet.snapshot import Alert

_NEVER_SYMPTOMS = frozenset({"GpuLost", "GpuXid", "CanaryFailed", "RollbackFailed"})
"""These are causes, or need a person whatever else is wrong."""

_SPEED = frozenset({"QueueGrowing", "TtftSlo", "TpotSlo"})
_LOAD = _SPEED | {
    "RequestErrors",
    "Preempting",
    "KvPressure",
    "SpeculationUseless",
    "PrefixCacheDrop",
    "ReplicaImbalance",
    "RankImbalance",
    "ThinkingBudgetNotEnforced",
    "ScrapeLate",
}

CAUSES: Mapping[str, frozenset[str] | None] = {
    "GpuLost": None,
    "TargetDown": None,
    "Unauthorized": _LOAD | {"NoProgress", "NoEngineMetrics"},
    "NoEngineMetrics": _LOAD | {"NoProgress"},
    "NoProgress": _LOAD,
    "Preempting": frozenset({"KvPressure"}),
    "KvPressure": _SPEED,
    "GpuThrottled": frozenset({"TpotSlo"}),
}
"""Causes and their symptoms at the same target, in the order in which a cause is named; None: everything,
user rules included. A dead GPU explains a dead engine, not the other way round."""


def inhibitors(alerts: Iterable[Alert]) -> dict[int, str]:
    """For each alert (by its place) that a firing one explains: the rule that does.

    Besides the table a rule's graver stage keeps its milder one about the same thing quiet.
    """
    alerts = tuple(alerts)
    firing: defaultdict[str, defaultdict[str, list[Alert]]] = defaultdict(lambda: defaultdict(list))
    for alert in alerts:
        if alert.state == FIRING:
            firing[alert.target][alert.rule].append(alert)
    found: dict[int, str] = {}
    for place, alert in enumerate(alerts):
        there = firing.get(alert.target)
        if there and (cause := _cause(alert, there)):
            found[place] = cause
    return found


def _cause(alert: Alert, firing: Mapping[str, Sequence[Alert]]) -> str:
    """The rule that explains the alert, of those that fire at its target."""
    for rule, symptoms in CAUSES.items():
        if rule == alert.rule:
            break  # no cause of it, and what comes later in the order is none either
        explains = alert.rule not in _NEVER_SYMPTOMS if symptoms is None else alert.rule in symptoms
        if explains and rule in firing:
            return rule
    graver = any(_is_graver(other, alert) for other in firing.get(alert.rule, ()))
    return alert.rule if graver else ""


def _is_graver(other: Alert, alert: Alert) -> bool:
    same = other.labels.get("gpu_uuid") == alert.labels.get("gpu_uuid")
    return same and Severity(other.severity).rank > Severity(alert.severity).rank
