"""Rules, what they find, and the life of one alert: pending, firing, resolved. Pure; time is passed in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType

from enginetop.alerts.seen import labels_of
from enginetop.fleet.frozen import frozen
from enginetop.fleet.quickly_made import quickly_made
from enginetop.fleet.snapshot import Alert, FleetSnapshot, ReplicaSnapshot

_CLOCK_GRAIN_SECONDS = 1e-3
"""Unix times are floats of 0.2 us; a hold of 30 s is over at 29.9999998 s."""

NO_LABELS: Mapping[str, str] = MappingProxyType({})


class Severity(StrEnum):
    """How much an alert matters, from the least on."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """0 for info, growing."""
        return _SEVERITIES.index(self)


_SEVERITIES = tuple(Severity)

PENDING, FIRING, RESOLVED = "pending", "firing", "resolved"


@quickly_made
class Finding:
    """What a rule says of one subject now.

    `breached` None: it cannot be told. A subject that a rule does not mention is not in breach. `subject`
    tells several subjects of one target apart (a GPU, a burn window); a finding without one that cannot be
    told stands for all subjects of its target. `since` is when the cause began, if that is known to be older.
    `labels` are further words about it, no part of the identity. `near`: no breach, but so little short of
    one that a pending alert waits for the next, as long as its hold: a figure that wavers is one alert.
    """

    target: str
    breached: bool | None
    value: float | None = None
    threshold: float | None = None
    summary: str = ""
    since: float | None = None
    subject: Mapping[str, str] = field(default_factory=lambda: NO_LABELS)
    labels: Mapping[str, str] = field(default_factory=lambda: NO_LABELS)
    near: bool = False


@lru_cache(maxsize=4096)
def untold(target: str) -> Finding:
    """That it cannot be told of any subject of the target; one object for all who say so."""
    return Finding(target, None)


Check = Callable[[FleetSnapshot], Iterable[Finding]]
"""Judges the whole fleet; called with every snapshot in time order."""


@frozen
class Rule:
    """One rule. It fires after `hold_seconds` of breach and stays for `keep_seconds` after the last one.

    Two rules may share a name with different severities: stages of one trouble.
    """

    name: str
    severity: Severity
    check: Check
    hold_seconds: float = 0.0
    keep_seconds: float = 0.0
    meaning: str = ""
    id: tuple[str, str] = field(init=False)
    """Name and severity."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", (self.name, self.severity.value))


Key = tuple[str, str, str, tuple[tuple[str, str], ...]]
"""The identity of an alert: rule, severity, target, subject."""


_SUBJECTS = ("gpu_uuid", "window", "change")
"""Labels that are part of an alert's identity."""


def identity(alert: Alert) -> Key:
    """The identity of an alert: what tells it from every other one that is there at the same time."""
    subject = {name: alert.labels[name] for name in _SUBJECTS if name in alert.labels}
    return alert.rule, alert.severity, alert.target, tuple(sorted(subject.items()))


@quickly_made
class Instance:
    """One alert that is pending or firing.

    `breached_at` is the time of the last breach. Before `lenient_until` what cannot be told changes nothing:
    an alert that outlived a restart waits for evidence.
    """

    key: Key
    alert: Alert
    breached_at: float
    lenient_until: float = float("-inf")


@quickly_made
class Step:
    """What one look made of an alert: the instance that goes on, and the alert if its state changed."""

    instance: Instance | None
    changed: Alert | None = None


def key_of(rule: Rule, finding: Finding) -> Key:
    """The identity of the alert that a finding is about."""
    name, severity = rule.id
    return name, severity, finding.target, tuple(sorted(finding.subject.items())) if finding.subject else ()


def begin(rule: Rule, finding: Finding, replica: ReplicaSnapshot | None, at: float) -> Step:
    """The first breach. The alert fires at once when its cause is older than the hold.

    `replica` is the one that the finding is about; None: the fleet, or one that is not there any more.
    """
    since = at if finding.since is None else min(finding.since, at)
    alert = Alert(
        rule=rule.name,
        severity=rule.severity.value,
        state=FIRING if _over(at, since, rule.hold_seconds) else PENDING,
        target=finding.target,
        since=since,
        value=finding.value,
        threshold=finding.threshold,
        summary=finding.summary,
        labels=MappingProxyType(
            {**(labels_of(replica) if replica else {}), **finding.labels, **finding.subject}
        ),
        name=replica.target.name if replica else "",
    )
    return Step(Instance(key_of(rule, finding), alert, at), alert)


def advance(
    rule: Rule,
    instance: Instance,
    breached: bool | None,
    finding: Finding | None,
    at: float,
    *,
    near: bool = False,
) -> Step:
    """One more look at an alert; `finding` belongs to a breach, `near` to what is none (`Finding`).

    A clock that was set back shortens nothing and stops nothing: times of the future count as now.
    """
    breached_at = min(instance.breached_at, at)
    alert = _since(instance.alert, min(instance.alert.since, at))
    if breached and finding is not None:
        alert = _as_found(alert, finding)
        fires = alert.state == PENDING and _over(at, alert.since, rule.hold_seconds)
        if fires:
            alert = replace(alert, state=FIRING)
        return Step(Instance(instance.key, alert, at, instance.lenient_until), alert if fires else None)
    waits = breached is None and at < instance.lenient_until
    waits = waits or (near and alert.state == PENDING and not _over(at, breached_at, rule.hold_seconds))
    kept = alert.state == FIRING and not _over(at, breached_at, rule.keep_seconds)
    if waits or kept:
        return Step(Instance(instance.key, alert, breached_at, instance.lenient_until))
    return Step(None, replace(alert, state=RESOLVED))


def _since(alert: Alert, since: float) -> Alert:
    return alert if since == alert.since else replace(alert, since=since)


def _as_found(alert: Alert, finding: Finding) -> Alert:
    """The alert with what its newest breach tells; the same object where that is what it says already."""
    if finding.since is not None and finding.since < alert.since:
        alert = replace(alert, since=finding.since)
    told = finding.value, finding.threshold, finding.summary
    if told == (alert.value, alert.threshold, alert.summary):
        return alert
    return replace(alert, value=finding.value, threshold=finding.threshold, summary=finding.summary)


def _over(at: float, since: float, seconds: float) -> bool:
    return at - since >= seconds - _CLOCK_GRAIN_SECONDS
