"""The book of alerts: fed with every snapshot, in time order, it knows what is pending and what fires."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from enginetop.alerts.inhibit import inhibitors
from enginetop.alerts.rule import (
    FIRING,
    RESOLVED,
    Finding,
    Instance,
    Key,
    Rule,
    Severity,
    Step,
    advance,
    begin,
    identity,
    key_of,
)
from enginetop.alerts.silence import (
    NOT_SILENCED,
    Acknowledgement,
    NobodyQuiet,
    Quiet,
    QuietSource,
    Silence,
    silenced_by,
)
from enginetop.alerts.standing import EachReplica, Standing
from enginetop.fleet.frozen import frozen
from enginetop.fleet.snapshot import Alert, FleetSnapshot, ReplicaSnapshot

_MOST_UNTAKEN = 60
"""Snapshots with changes that wait to be taken; a screen takes none."""
_RESTART_GRACE_SECONDS = 300.0
"""After a restart or a reload, rates and windows need a while before they say anything."""
_BOOKS_DIFFER_SECONDS = 60.0
"""So much later may another process see the begin of the alert that was acknowledged in this one."""


@frozen
class AlertEvent:
    """A change of state of an alert, at the time of the snapshot that showed it."""

    at: float
    alert: Alert


class AlertBook:
    """Adds alerts to snapshots; call it with every one, in time order, from one thread.

    A snapshot gets the alerts that are pending or firing and those that it resolved, the gravest first.
    Nothing here reads a clock: the time is the snapshot's.
    """

    def __init__(
        self, rules: Iterable[Rule], silences: Iterable[Silence] = (), quiet: QuietSource | None = None
    ) -> None:
        self._rules = {rule.id: rule for rule in rules}
        self._standing = Standing()
        self._silences = tuple(silences)
        self._quiet = quiet or NobodyQuiet()
        self._began: float | None = None
        self._over: set[Acknowledgement] = set()
        self._instances: dict[Key, Instance] = {}
        self._events: deque[tuple[AlertEvent, ...]] = deque(maxlen=_MOST_UNTAKEN)
        self._restored: tuple[Alert, ...] = ()

    def __call__(self, snapshot: FleetSnapshot) -> FleetSnapshot:
        """The snapshot with its alerts."""
        replicas = {replica.target.url: replica for replica in snapshot.replicas}
        self._take_restored(snapshot.at)
        self._standing.look(snapshot)
        changed: list[Alert] = []
        kept: dict[Key, Instance] = {}
        of_rule: defaultdict[tuple[str, str], dict[Key, Instance]] = defaultdict(dict)
        for key, one in self._instances.items():
            of_rule[key[:2]][key] = one
        for rule in self._rules.values():
            mine = of_rule.pop(rule.id, {})
            for key, step in self._look(rule, mine, snapshot, replicas):
                if step.instance is not None:
                    kept[key] = step.instance
                if step.changed is not None:
                    changed.append(step.changed)
        orphans = [one for others in of_rule.values() for one in others.values()]
        changed += [replace(one.alert, state=RESOLVED) for one in orphans]
        quiet = self._quiet.read()
        acknowledged = self._acknowledged(quiet, kept, replicas, snapshot.at)
        self._instances = kept
        resolved = [alert for alert in changed if alert.state == RESOLVED]
        found = [*(one.alert for one in kept.values()), *resolved]
        alerts = self._marked(snapshot, found, quiet, acknowledged)
        self._note(snapshot.at, changed, alerts)
        return replace(snapshot, alerts=alerts)

    def take_events(self) -> tuple[AlertEvent, ...]:
        """The changes of state since the last call, oldest first."""
        events = tuple(chain.from_iterable(self._events))
        self._events.clear()
        return events

    def set_rules(self, rules: Iterable[Rule], silences: Iterable[Silence]) -> None:
        """Go by other rules from the next snapshot on; alerts of rules that are gone are resolved then."""
        self._rules = {rule.id: rule for rule in rules}
        self._standing = Standing()
        self._silences = tuple(silences)

    def restore(self, alerts: Iterable[Alert]) -> None:
        """Go on with alerts that were pending or firing when a former run ended; before the first snapshot.

        They stay until a rule sees that they are over; what cannot be told yet does not end them for five
        minutes.
        """
        self._restored = tuple(alert for alert in alerts if alert.state != RESOLVED)

    def current(self) -> tuple[Alert, ...]:
        """What is pending or firing, in no order: what another book can be restored from."""
        return (*self._restored, *(one.alert for one in self._instances.values()))

    def _take_restored(self, at: float) -> None:
        for alert in self._restored:
            key = identity(alert)
            self._instances[key] = Instance(key, alert, at, at + _RESTART_GRACE_SECONDS)
        self._restored = ()

    def _look(
        self,
        rule: Rule,
        mine: Mapping[Key, Instance],
        snapshot: FleetSnapshot,
        replicas: Mapping[str, ReplicaSnapshot],
    ) -> Iterable[tuple[Key, Step]]:
        """One step of every alert of a rule, and those that begin."""
        breaches: dict[Key, Finding] = {}
        unknown: set[Key] = set()
        near: set[Key] = set()
        unknown_targets: set[str] = set()
        for finding in self._findings(rule, snapshot, only_breaches=not mine):
            if not mine and not finding.breached:
                continue
            if finding.breached:
                breaches.setdefault(key_of(rule, finding), finding)
            elif finding.breached is None:
                unknown.add(key_of(rule, finding))
                if not finding.subject:
                    unknown_targets.add(finding.target)
            elif finding.near:
                near.add(key_of(rule, finding))
        for key, instance in mine.items():
            breached = True if key in breaches else None
            if breached is None and key not in unknown and key[2] not in unknown_targets:
                breached = False
            found = breaches.get(key)
            yield key, advance(rule, instance, breached, found, snapshot.at, near=key in near)
        for key, finding in breaches.items():
            if key not in mine:
                yield key, begin(rule, finding, replicas.get(finding.target), snapshot.at)

    def _findings(self, rule: Rule, snapshot: FleetSnapshot, *, only_breaches: bool) -> Iterable[Finding]:
        if isinstance(rule.check, EachReplica):
            return self._standing.findings(rule.check, only_breaches=only_breaches)
        return rule.check(snapshot)

    def _acknowledged(
        self, quiet: Quiet, kept: Mapping[Key, Instance], urls: Collection[str], at: float
    ) -> Mapping[Key, str]:
        """Who looks after which alert. What is acknowledged and over is forgotten."""
        if self._began is None:
            self._began = at
        if not quiet.acknowledgements:
            return {}
        self._over.intersection_update(quiet.acknowledgements)
        found: dict[Key, str] = {}
        for one in quiet.acknowledgements:
            if one in self._over or self._is_over(one, kept.get(one.key), urls, at):
                self._over.add(one)
            else:
                found[one.key] = one.text
        if self._over:
            self._quiet.forget(self._over)
        return found

    def _is_over(
        self, one: Acknowledgement, instance: Instance | None, urls: Collection[str], at: float
    ) -> bool:
        """Whether the alert that was meant has ended: as far as this book saw it, or must have seen it."""
        began = at if self._began is None else self._began
        if instance is not None:
            return began <= one.at and instance.alert.since > one.at + _BOOKS_DIFFER_SECONDS
        former = self._instances.get(one.key)
        if former is not None and former.alert.state == FIRING:
            return True
        rule = self._rules.get(one.key[:2])
        hold = 0.0 if rule is None else rule.hold_seconds
        return one.key[2] in urls and at - max(began, one.at) > hold + _RESTART_GRACE_SECONDS

    def _marked(
        self, snapshot: FleetSnapshot, alerts: Sequence[Alert], quiet: Quiet, acknowledged: Mapping[Key, str]
    ) -> tuple[Alert, ...]:
        """The alerts with what keeps each of them quiet, the gravest first."""
        if not alerts:
            return ()
        names = snapshot.names
        causes = inhibitors(alerts)
        silences = (*self._silences, *quiet.silences)
        marked = []
        for place, alert in enumerate(alerts):
            name = names.get(alert.target, alert.target)
            inhibited = causes.get(place, "")
            silenced, until = silenced_by(silences, alert, name, snapshot.at) if silences else NOT_SILENCED
            seen = acknowledged.get(identity(alert), "") if acknowledged else ""
            former = (alert.inhibited_by, alert.silenced_by, alert.silenced_until, alert.acknowledged_by)
            if (inhibited, silenced, until, seen) != former:
                alert = replace(
                    alert,
                    inhibited_by=inhibited,
                    silenced_by=silenced,
                    silenced_until=until,
                    acknowledged_by=seen,
                )
            marked.append(alert)
        return tuple(sorted(marked, key=_gravity))

    def _note(self, at: float, changed: Sequence[Alert], alerts: Sequence[Alert]) -> None:
        if changed:
            marked = {identity(alert): alert for alert in alerts}
            self._events.append(
                tuple(AlertEvent(at, marked.get(identity(alert), alert)) for alert in changed)
            )


_STATES = ("firing", "pending", "resolved")
_GRAVITY = {severity.value: -severity.rank for severity in Severity}


def _gravity(alert: Alert) -> tuple[int, int, float, str, str]:
    return _STATES.index(alert.state), _GRAVITY[alert.severity], alert.since, alert.target, alert.rule
