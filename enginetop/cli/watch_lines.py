"""The lines of `watch`: NDJSON for machines, sentences for people and screen readers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from collectors.fetch import one_line
from enginetop.alerts.book import AlertEvent
from enginetop.alerts.runbook import runbook_command
from enginetop.alerts.sinks.desk import SinkHealth
from enginetop.fleet.document import alert_document
from enginetop.fleet.model import STATE_ORDER, UP_STATES, Quality, ReplicaState
from enginetop.fleet.snapshot import Distribution, FleetSnapshot, ReplicaSnapshot, Scalar

_MOST_REPLICAS = 20
"""More lines than that at once, and nobody listens to the end."""
_QUIET_STATES = frozenset({ReplicaState.OK, ReplicaState.IDLE})
_SPOKEN_SCALARS = (
    ("requests_running", "{:.0f} running"),
    ("requests_waiting", "{:.0f} waiting"),
    ("kv_usage_ratio", "KV cache {:.0%}"),
    ("generation_tokens_per_second", "{:.0f} tokens per second"),
)
_SPOKEN_TIMES = (("ttft_seconds", "TTFT"), ("tpot_seconds", "TPOT"))


class Lines(Protocol):
    """Makes lines from what happens."""

    def alert(self, event: AlertEvent, names: Mapping[str, str]) -> str:
        """A change of state of an alert; `names` calls targets by name."""

    def heartbeat(self, snapshot: FleetSnapshot, sinks: Sequence[SinkHealth]) -> str:
        """A sign of life with the state of the whole."""

    def changes(self, snapshot: FleetSnapshot, before: FleetSnapshot) -> Sequence[str]:
        """Replicas that are in another state than in the snapshot before."""

    def replicas(self, snapshot: FleetSnapshot) -> Sequence[str]:
        """How each replica does, to be told with a heartbeat."""


class NdjsonLines:
    """One JSON object a line."""

    def alert(self, event: AlertEvent, names: Mapping[str, str]) -> str:  # noqa: ARG002 - the URL says it
        """See `Lines`."""
        told = {**alert_document(event.alert), "runbook": runbook_command(event.alert.rule)}
        return _json({"event": "alert", "at": event.at, **told})

    def heartbeat(self, snapshot: FleetSnapshot, sinks: Sequence[SinkHealth]) -> str:
        """See `Lines`."""
        states = snapshot.fleet.states
        return _json(
            {
                "event": "heartbeat",
                "at": snapshot.at,
                "replicas": snapshot.fleet.replicas,
                "states": {state.value: states[state] for state in STATE_ORDER if states.get(state)},
                "in_doubt": sum(replica.in_doubt for replica in snapshot.replicas),
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

    def changes(self, snapshot: FleetSnapshot, before: FleetSnapshot) -> Sequence[str]:  # noqa: ARG002
        """Nothing: the lines are events of alerts and heartbeats."""
        return ()

    def replicas(self, snapshot: FleetSnapshot) -> Sequence[str]:  # noqa: ARG002
        """Nothing: see `enginetop snapshot`."""
        return ()


class PlainLines:
    """One sentence a line, the time of day first; no columns, no glyphs, no colour, nothing written over.

    For people who have lines read to them, and for plain logs.
    """

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

    def changes(self, snapshot: FleetSnapshot, before: FleetSnapshot) -> Sequence[str]:
        """See `Lines`. Turns between ok and idle, every few seconds under little load, are no news."""
        former = {replica.target.url: replica for replica in before.replicas}
        now = {replica.target.url: replica for replica in snapshot.replicas}
        lines = []
        for url, replica in now.items():
            old = former.get(url)
            if old is None or _is_news(old.state, replica.state):
                was = "new" if old is None else f"was {old.state}"
                why = f". {'; '.join(replica.reasons)}" if replica.reasons else ""
                lines.append(f"{replica.target.name}: {replica.state}, {was}{why}")
            elif replica.in_doubt and not old.in_doubt:
                lines.append(f"{replica.target.name}: still {replica.state}. {'; '.join(replica.reasons)}")
            elif old.in_doubt and not replica.in_doubt:
                lines.append(f"{replica.target.name}: answers again")
        lines += (f"{old.target.name}: gone" for url, old in former.items() if url not in now)
        return [one_line(f"{_clock(snapshot.at)} {line}") for line in lines]

    def replicas(self, snapshot: FleetSnapshot) -> Sequence[str]:
        """See `Lines`. Those that do not serve come first; of a large fleet the rest is counted."""
        ranked = sorted(snapshot.replicas, key=lambda replica: replica.state in _QUIET_STATES)
        told, rest = ranked[:_MOST_REPLICAS], ranked[_MOST_REPLICAS:]
        lines = [f"{replica.target.name}: {', '.join(_facts(replica))}" for replica in told]
        if rest:
            counts = Counter(str(replica.state) for replica in rest)
            lines.append(f"and {len(rest)} more: {', '.join(f'{n} {state}' for state, n in counts.items())}")
        return [one_line(f"{_clock(snapshot.at)} {line}") for line in lines]


def _is_news(before: ReplicaState, now: ReplicaState) -> bool:
    return before is not now and not {before, now} <= _QUIET_STATES


def _facts(replica: ReplicaSnapshot) -> Iterator[str]:
    """State and the figures that are known, in words; what is not known is left out."""
    yield str(replica.state)
    yield from replica.reasons
    for name, form in _SPOKEN_SCALARS:
        value = replica.signals.get(name)
        number = value.number if isinstance(value, Scalar) else None
        if isinstance(value, Scalar) and number is not None and value.quality is not Quality.STALE:
            about = "" if value.quality is Quality.OK else "about "
            yield about + form.format(number)
    for name, title in _SPOKEN_TIMES:
        found = replica.signals.get(name)
        quantile = found.quantiles.get("p95") if isinstance(found, Distribution) else None
        seconds = None if quantile is None else quantile.at_least
        if quantile is not None and seconds is not None:
            over = "over " if quantile.censored else ""
            yield f"{title} p95 {over}{_spoken_seconds(seconds)}"
    if replica.outliers:
        from tui.view.condition import outlier_text  # of use to some

        yield f"unlike its like ({'; '.join(map(outlier_text, replica.outliers))})"


def _spoken_seconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} milliseconds" if seconds < 1 else f"{seconds:.1f} seconds"


def _clock(at: float) -> str:
    try:
        return f"{datetime.fromtimestamp(at).astimezone():%H:%M:%S}"
    except (OverflowError, ValueError, OSError):  # a recording may tell any time
        return f"second {at:g}"


def _json(document: object) -> str:
    return json.dumps(document, separators=(", ", ": "), allow_nan=False)
