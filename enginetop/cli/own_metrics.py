"""What `watch` tells Prometheus of itself: its scrapes, its alerts, its sinks, its build."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterator, Sequence

from enginetop import __version__
from enginetop.alerts.rule import FIRING, PENDING, Severity
from enginetop.alerts.sinks.desk import SinkHealth
from enginetop.fleet.prometheus_text import Kind, Sample, family_lines, page_text
from enginetop.fleet.snapshot import FleetSnapshot


def own_text(
    snapshot: FleetSnapshot | None, sinks: Sequence[SinkHealth], loop_age_seconds: float | None
) -> str:
    """Our own families in Prometheus's text format 0.0.4, with a line feed at the end.

    `loop_age_seconds`: time since the loop dealt with a snapshot; None: with none yet. Counters begin anew
    with the process, those of sinks also when the configured sinks change.
    """
    return page_text(_families(snapshot, sinks, loop_age_seconds))


def _families(
    snapshot: FleetSnapshot | None, sinks: Sequence[SinkHealth], loop_age_seconds: float | None
) -> Iterator[list[str]]:
    build = {"version": __version__, "python": platform.python_version()}
    yield family_lines("enginetop_build_info", "always 1; what this is", [(build, 1)])
    if loop_age_seconds is not None:
        yield family_lines(
            "enginetop_loop_age_seconds", "time since the last snapshot", [({}, loop_age_seconds)]
        )
    if snapshot is not None:
        health = snapshot.collector
        for name, said, value in (
            ("enginetop_scrapes_asked_total", "scrapes that were due", health.asked),
            ("enginetop_scrapes_achieved_total", "scrapes that were carried out", health.achieved),
            ("enginetop_late_ticks_total", "ticks left out because one took too long", health.late_ticks),
        ):
            yield family_lines(name, said, [({}, value)], Kind.COUNTER)
        yield family_lines("enginetop_alerts", "alerts by state and severity", _alerts(snapshot))
    for name, said, field, kind in _SINK_FAMILIES:
        rows: list[Sample] = [({"sink": sink.name}, getattr(sink, field)) for sink in sinks]
        yield family_lines(name, said, rows, kind)


_SINK_FAMILIES = (
    ("enginetop_sink_delivered_total", "notices that a sink took", "delivered", Kind.COUNTER),
    ("enginetop_sink_failures_total", "attempts to deliver that failed", "failed", Kind.COUNTER),
    ("enginetop_sink_refused_total", "notices that a sink refused for good", "refused", Kind.COUNTER),
    ("enginetop_sink_dropped_total", "notices dropped, a sink too far behind", "dropped", Kind.COUNTER),
    ("enginetop_sink_waiting", "notices that wait for a sink", "waiting", Kind.GAUGE),
)


def _alerts(snapshot: FleetSnapshot) -> list[Sample]:
    """Every state and severity has a sample, 0 where there is no alert: a rule on it need not be `absent`."""
    found = Counter((alert.state, alert.severity) for alert in snapshot.alerts)
    return [
        ({"state": state, "severity": severity.value}, found[state, severity.value])
        for state in (PENDING, FIRING)
        for severity in Severity
    ]
