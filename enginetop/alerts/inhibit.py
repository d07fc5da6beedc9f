"""Which alert keeps which quiet: a symptom is not told while its cause fires. One table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from enginetop.alerts.rule import FIRING, Severity
from enginetop.fleet.snapshot import Alert

_NEVER_SYMPTOMS = frozenset({"GpuLost", "GpuXid", "CanaryFailed", "RollbackFailed"})
"""These are causes, or need a person whatever else is wrong."""

_SPEED = frozenset({"QueueGrowing", "TtftSlo", "TpotSlo"})
_LOAD = _SPEED | {
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
    firing: defaultdict[str, list[Alert]] = defaultdict(list)
    for alert in alerts:
        if alert.state == FIRING:
            firing[alert.target].append(alert)
    found: dict[int, str] = {}
    for place, alert in enumerate(alerts):
        cause = _cause(alert, firing.get(alert.target, ()))
        if cause:
            found[place] = cause
    return found


def _cause(alert: Alert, firing: Iterable[Alert]) -> str:
    others = [other for other in firing if other is not alert]
    for rule, symptoms in CAUSES.items():
        explains = alert.rule not in _NEVER_SYMPTOMS if symptoms is None else alert.rule in symptoms
        earlier = alert.rule not in CAUSES or _order(rule) < _order(alert.rule)
        if explains and earlier and any(other.rule == rule for other in others):
            return rule
    graver = any(other.rule == alert.rule and _about_the_same(other, alert) for other in others)
    return alert.rule if graver else ""


def _order(rule: str) -> int:
    return list(CAUSES).index(rule)


def _about_the_same(graver: Alert, milder: Alert) -> bool:
    same = graver.labels.get("gpu_uuid") == milder.labels.get("gpu_uuid")
    return same and Severity(graver.severity).rank > Severity(milder.severity).rank
