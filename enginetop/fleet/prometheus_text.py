"""The snapshot in Prometheus's text format 0.0.4, as `enginetop_replica_*` and `enginetop_fleet_*` families.

Families are gauges, since every figure is of one window. Percentiles are a summary that has quantiles only:
mean and number of observations are of the window too, so that they are gauges of their own. What is not
known, old or in doubt has no sample; it is never 0. Engines' own names are not used, so that scraping both
counts nothing twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

from enginetop.fleet.model import BELIEVED, STATE_ORDER, UP_STATES
from enginetop.fleet.signals import DISTRIBUTIONS, PERCENTILES, SCALARS, SIGNALS, Shape
from enginetop.fleet.snapshot import (
    Distribution,
    FleetSnapshot,
    Quantile,
    ReplicaSnapshot,
    Scalar,
    Signals,
    SignalValue,
)

Labels = Mapping[str, str]
Sample = tuple[Labels, float]

_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_POSITIONS = "spec_acceptance_per_position"
_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})


class Kind(StrEnum):
    """Type of a family."""

    GAUGE = "gauge"
    COUNTER = "counter"
    SUMMARY = "summary"


def prometheus_text(snapshot: FleetSnapshot) -> str:
    """The whole page, with a line feed at its end."""
    return page_text(_families(snapshot))


def page_text(families: Iterable[list[str]]) -> str:
    """A page of families (see `family_lines`), with a line feed at its end."""
    return "".join(f"{line}\n" for family in families for line in family)


def _families(snapshot: FleetSnapshot) -> Iterator[list[str]]:
    replicas = [(_labels(replica), replica) for replica in snapshot.replicas]
    yield family_lines("enginetop_snapshot_time_seconds", "Unix time of the snapshot", [({}, snapshot.at)])
    yield family_lines(
        "enginetop_window_seconds", "window of rates and percentiles", [({}, snapshot.window_seconds)]
    )
    yield family_lines(
        "enginetop_replica_info",
        "always 1; what is known of a replica",
        [({**labels, **_info(replica)}, 1) for labels, replica in replicas],
    )
    yield family_lines(
        "enginetop_replica_up",
        "1 where a replica's figures are of now",
        [(labels, float(replica.state in UP_STATES)) for labels, replica in replicas],
    )
    yield family_lines(
        "enginetop_replica_state",
        "1 for the state of a replica, 0 for all others",
        [
            ({**labels, "state": state.value}, float(replica.state is state))
            for labels, replica in replicas
            for state in STATE_ORDER
        ],
    )
    yield family_lines(
        "enginetop_replica_page_age_seconds",
        "time since the last good page",
        [
            (labels, snapshot.at - replica.scraped_at)
            for labels, replica in replicas
            if replica.scraped_at is not None
        ],
    )
    yield family_lines(
        "enginetop_replica_failed_looks",
        "failed looks in a row up to the newest; 0 after a good one",
        [(labels, float(replica.failed_looks)) for labels, replica in replicas],
    )
    yield family_lines(
        "enginetop_replica_unanswered_seconds",
        "for how long the look under way has had no answer, where that is longer than it should be",
        [
            (labels, replica.unanswered_seconds)
            for labels, replica in replicas
            if replica.unanswered_seconds is not None
        ],
    )
    groups = [(labels, replica.signals) for labels, replica in replicas]
    yield from _signal_families("enginetop_replica", groups)
    yield from _signal_families("enginetop_fleet", [({}, snapshot.fleet.signals)])
    yield family_lines(
        "enginetop_alert",
        "1 for every alert that is pending or firing",
        [
            (
                {
                    **alert.labels,
                    "rule": alert.rule,
                    "severity": alert.severity,
                    "state": alert.state,
                    "target": alert.target,
                },
                1,
            )
            for alert in snapshot.alerts
            if alert.state != "resolved"
        ],
    )


def _signal_families(prefix: str, groups: list[tuple[Labels, Signals]]) -> Iterator[list[str]]:
    for signal in SCALARS:
        if signal.shape is Shape.SCALAR:
            samples = [
                (labels, value.number)
                for labels, value in _believed(groups, signal.name)
                if isinstance(value, Scalar) and value.number is not None
            ]
            yield family_lines(f"{prefix}_{signal.name}", f"{signal.meaning} ({signal.unit})", samples)
    yield family_lines(
        f"{prefix}_{_POSITIONS}",
        SIGNALS[_POSITIONS].meaning,
        [sample for labels, value in _believed(groups, _POSITIONS) for sample in _positions(labels, value)],
    )
    for signal in DISTRIBUTIONS:
        name, said = f"{prefix}_{signal.name}", f"{signal.meaning} ({signal.unit})"
        known = _believed(groups, signal.name)
        given = [(labels, value) for labels, value in known if isinstance(value, Distribution)]
        yield family_lines(
            name,
            f"{said}, percentiles of the window",
            [
                ({**labels, "quantile": f"{q:g}"}, quantile.value)
                for labels, value in given
                for key, q in PERCENTILES
                if (quantile := value.quantiles.get(key, Quantile())).value is not None
            ],
            Kind.SUMMARY,
        )
        yield family_lines(
            f"{name}_mean",
            f"{said}, mean of the window",
            [(labels, value.mean.value) for labels, value in given if value.mean.value is not None],
        )
        yield family_lines(
            f"{name}_observations",
            f"{signal.meaning}, observations in the window",
            [(labels, value.count) for labels, value in given if value.count is not None],
        )


def _believed(groups: Iterable[tuple[Labels, Signals]], name: str) -> list[tuple[Labels, SignalValue]]:
    """A signal of all that tell it, without what is old or in doubt: a scrape would give it today's date."""
    told = [(labels, signals.get(name)) for labels, signals in groups]
    return [(labels, value) for labels, value in told if value is not None and value.quality in BELIEVED]


def _positions(labels: Labels, signal: SignalValue) -> Iterator[Sample]:
    if isinstance(signal, Scalar) and isinstance(signal.value, tuple):
        for position, value in enumerate(signal.value):
            yield {**labels, "position": str(position)}, value


def _labels(replica: ReplicaSnapshot) -> Labels:
    return {"target": replica.target.url, "name": replica.target.name, "model": replica.model or ""}


def _info(replica: ReplicaSnapshot) -> Labels:
    return {
        "engine": replica.engine.value,
        "version": replica.engine_version or "",
        "role": replica.role.value,
        "stack": replica.stack or "",
    }


def family_lines(name: str, said: str, samples: Sequence[Sample], kind: Kind = Kind.GAUGE) -> list[str]:
    """The lines of a family; none at all where nothing is known."""
    lines = [f"{name}{_label_text(labels)} {_value_text(value)}" for labels, value in samples]
    if not lines:
        return []
    return [f"# HELP {name} {said.translate(_HELP_ESCAPES)}", f"# TYPE {name} {kind}", *lines]


def _label_text(labels: Labels) -> str:
    pairs = [f'{key}="{value.translate(_ESCAPES)}"' for key, value in labels.items() if value]
    return f"{{{','.join(pairs)}}}" if pairs else ""


def _value_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(float(value))
