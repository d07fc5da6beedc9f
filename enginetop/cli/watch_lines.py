"""The lines of `watch`: NDJSON for machines, sentences for people and screen readers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from collectors.fetch import one_line
from enginetop.alerts.book import AlertEvent
from enginetop.alerts.sinks.desk import SinkHealth
from enginetop.fleet.document import alert_document
from enginetop.fleet.model import STATE_ORDER, UP_STATES
from enginetop.fleet.snapshot import FleetSnapshot


class Lines(Protocol):
    """Makes lines from what happens."""

    def alert(self, event: AlertEvent, names: Mapping[str, str]) -> str:
        """A change of state of an alert; `names` calls targets by name."""

    def heartbeat(self, snapshot: FleetSnapshot, sinks: Sequence[SinkHealth]) -> str:
        """A sign of life with the state of the whole."""


class NdjsonLines:
    """One JSON object a line."""

    def alert(self, event: AlertEvent, names: Mapping[str, str]) -> str:  # noqa: ARG002 - the URL says it
        """See `Lines`."""
        return _json({"event": "alert", "at": event.at, **alert_document(event.alert)})

    def heartbeat(self, snapshot: FleetSnapshot, sinks: Sequence[SinkHealth]) -> str:
        """See `Lines`."""
        states = snapshot.fleet.states
        return _json(
            {
                "event": "heartbeat",
                "at": snapshot.at,
                "replicas": snapshot.fleet.replicas,
                "states": {state.value: states[state] for state in STATE_ORDER if states.get(state)},
                "alerts": dict(Counter(alert.state for alert in snapshot.alerts)),
                "late_ticks": snapshot.collector.late_ticks,
                "problem": snapshot.collector.told,
                "sinks": {
                    sink.name: {
                        "delivered": sink.delivered,
                        "failed": sink.failed,
                        "refused": sink.refused,
                        "dropped": sink.dropped,
                        "waiting": sink.waiting,
                        "problem": sink.problem,
                    }
                    for sink in sinks
                },
            }
        )


class PlainLines:
    """One sentence a line, the time of day first; no columns, no glyphs, no colour."""

    def alert(self, event: AlertEvent, names: Mapping[str, str]) -> str:
        """See `Lines`."""
        alert = event.alert
        name = names.get(alert.target, alert.target)
        quiet = alert.inhibited_by or alert.silenced_by
        aside = f" (not told: {quiet})" if quiet else ""
        said = f"{name}: {alert.rule} {alert.state}, {alert.severity}{aside}. {alert.summary}"
        return one_line(f"{_clock(event.at)} {said}")

    def heartbeat(self, snapshot: FleetSnapshot, sinks: Sequence[SinkHealth]) -> str:
        """See `Lines`."""
        up = sum(count for state, count in snapshot.fleet.states.items() if state in UP_STATES)
        firing = [alert for alert in snapshot.alerts if alert.state == "firing"]
        said = f"{up} of {snapshot.fleet.replicas} up, {len(firing)} firing"
        behind = [f"{sink.name} {sink.problem}" for sink in sinks if sink.problem]
        return one_line("; ".join([f"{_clock(snapshot.at)} {said}", *behind]))


def _clock(at: float) -> str:
    return f"{datetime.fromtimestamp(at).astimezone():%H:%M:%S}"


def _json(document: object) -> str:
    return json.dumps(document, separators=(", ", ": "), allow_nan=False)
