"""The JSON form of a snapshot: `enginetop.snapshot/1`.

Plain dicts and lists that any strict JSON writer takes: a number that is not finite becomes null here, and
its quality `invalid`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from enginetop.fleet.figures_document import Json, finite, goodput_document, signal_document, signals_document
from enginetop.fleet.model import STATE_ORDER, LocalProcess, ReplicaState
from enginetop.fleet.snapshot import (
    Advice,
    Alert,
    CollectorHealth,
    Event,
    FleetSnapshot,
    FleetSummary,
    GpuDevice,
    ModelSummary,
    Outlier,
    PoolAdvice,
    RankSnapshot,
    ReplicaSnapshot,
)

SCHEMA = "enginetop.snapshot/1"

MODEL_SIGNALS: tuple[str, ...] = (
    "requests_running",
    "requests_waiting",
    "kv_usage_ratio",
    "preemptions_per_second",
    "generation_tokens_per_second",
    "requests_finished_per_second",
    "requests_aborted_per_second",
    "ttft_seconds",
    "tpot_seconds",
)
"""Signals of each row of `fleet.models`."""


def snapshot_document(snapshot: FleetSnapshot) -> Json:
    """The snapshot as the contract names its keys; every key is always there, empty when there is nothing.

    Beyond the contract's keys: `sequence`, `interval_seconds`, `simulated` (any replica is), `collector` and
    `gpu_problem`; of a replica `since` (Unix seconds), `simulated`, `next_try_at`, `spacing_seconds`,
    `failed_looks` (in a row), `unanswered_seconds` (of a look that waits too long), `product` (which router
    or gateway), `sources` (where version, model and role were read), and where it runs: `pod`,
    `inference_pool` and `process` of this machine; of both fleet and replica `beyond`,
    the signals that only some engines export, where they do; `pools`, advice on all replicas of a model and
    role as one; of the fleet `models`, a row for each with its own goodput; of a replica `outliers`, figures
    that stand out from the median of its like; of a GPU `old`, figures that stopped coming.
    """
    return {
        "schema": SCHEMA,
        "at": finite(snapshot.at),
        "window_seconds": finite(snapshot.window_seconds),
        "interval_seconds": finite(snapshot.interval_seconds),
        "sequence": snapshot.sequence,
        "simulated": any(replica.simulated for replica in snapshot.replicas),
        "collector": _collector(snapshot.collector),
        "gpu_problem": snapshot.gpu_problem,
        "fleet": _fleet(snapshot.fleet),
        "replicas": [replica_document(replica) for replica in snapshot.replicas],
        "pools": [pool_document(pool) for pool in snapshot.pools],
        "alerts": [alert_document(alert) for alert in snapshot.alerts],
    }


def replica_document(replica: ReplicaSnapshot) -> Json:
    """One item of `replicas`."""
    return {
        "target": replica.target.url,
        "name": replica.target.name,
        "engine": replica.engine.value,
        "engine_version": replica.engine_version,
        "stack": replica.stack,
        "model": replica.model,
        "role": replica.role.value,
        "state": replica.state.value,
        "since": finite(replica.since),
        "reasons": list(replica.reasons),
        "scraped_at": finite(replica.scraped_at),
        "scrape_seconds": finite(replica.scrape_seconds),
        "pod": replica.target.pod or None,
        "inference_pool": replica.target.inference_pool or None,
        "process": _process(replica.target.process),
        "spacing_seconds": finite(replica.spacing_seconds),
        "next_try_at": finite(replica.next_try_at),
        "failed_looks": replica.failed_looks,
        "unanswered_seconds": finite(replica.unanswered_seconds),
        "bad_lines": replica.bad_lines,
        "simulated": replica.simulated,
        "signals": signals_document(replica.signals),
        "ranks": [_rank(rank) for rank in replica.ranks],
        "product": replica.product,
        "sources": dict(replica.sources),
        "config": {
            key: {"value": _plain(setting.value), "source": setting.source}
            for key, setting in replica.config.items()
        },
        "beyond": signals_document(replica.beyond),
        "bound_by": {word: finite(share) for word, share in replica.bound_by.items()},
        "goodput": goodput_document(replica.goodput, replica.slo),
        "outliers": [_outlier(outlier) for outlier in replica.outliers],
        "events": [_event(event) for event in replica.events],
        "gpus": [_gpu(gpu) for gpu in replica.gpus],
        "advice": [_advice(advice) for advice in replica.advice],
    }


def _process(process: LocalProcess | None) -> Json | None:
    if process is None:
        return None
    return {
        "pid": process.pid,
        "argv": list(process.argv),
        "unit": process.unit or None,
        "container": process.container or None,
    }


def _fleet(fleet: FleetSummary) -> Json:
    return {
        "replicas": fleet.replicas,
        "states": _states(fleet.states),
        "signals": signals_document(fleet.signals),
        "beyond": signals_document(fleet.beyond),
        "goodput": goodput_document(fleet.goodput, fleet.slo),
        "models": [_model(model) for model in fleet.models],
    }


def _model(summary: ModelSummary) -> Json:
    return {
        "model": summary.model,
        "replicas": summary.replicas,
        "signals": {name: signal_document(name, summary.signals[name]) for name in MODEL_SIGNALS},
        "goodput": goodput_document(summary.goodput, summary.slo),
    }


def _states(states: Mapping[ReplicaState, int]) -> Json:
    """The states that occur, most severe first."""
    return {state.value: states[state] for state in STATE_ORDER if states.get(state)}


def _collector(health: CollectorHealth) -> Json:
    return {
        "asked_per_second": finite(health.asked_per_second),
        "achieved_per_second": finite(health.achieved_per_second),
        "late_ticks": health.late_ticks,
        "problem": health.problem,
        "bad_records": health.bad_records,
        "foreign_records": health.foreign_records,
        "record_problem": health.record_problem,
        "discovery_problem": health.discovery_problem,
    }


def _rank(rank: RankSnapshot) -> Json:
    return {"labels": dict(rank.labels), "signals": signals_document(rank.signals)}


def _outlier(outlier: Outlier) -> Json:
    return {
        "signal": outlier.signal,
        "value": finite(outlier.value),
        "median": finite(outlier.median),
        "replicas": outlier.replicas,
    }


def _event(event: Event) -> Json:
    return {"at": finite(event.at), "kind": event.kind, "detail": event.detail}


def _gpu(gpu: GpuDevice) -> Json:
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "name": gpu.name,
        "mig": gpu.mig,
        "utilization_ratio": finite(gpu.utilization_ratio),
        "memory_used_bytes": finite(gpu.memory_used_bytes),
        "memory_total_bytes": finite(gpu.memory_total_bytes),
        "unified_memory": gpu.unified_memory,
        "power_watts": finite(gpu.power_watts),
        "power_limit_watts": finite(gpu.power_limit_watts),
        "temperature_celsius": finite(gpu.temperature_celsius),
        "sm_clock_mhz": finite(gpu.sm_clock_mhz),
        "throttle_reasons": list(gpu.throttle_reasons),
        "last_xid": gpu.last_xid,
        "state": gpu.state,
        "source": gpu.source,
        "note": gpu.note,
        "old": gpu.old,
        "joined_by": gpu.joined_by or None,
        "changed_at": finite(gpu.changed_at),
    }


def _advice(advice: Advice) -> Json:
    return {
        "knob": advice.knob,
        "action": advice.action,
        "from": finite(advice.current),
        "to": finite(advice.proposed),
        "bound_by": advice.bound_by,
        "because": list(advice.because),
        "expected": {name: finite(value) for name, value in advice.expected.items()},
        "confidence": advice.confidence,
        "apply": advice.apply,
        "via": advice.via,
    }


def pool_document(pool: PoolAdvice) -> Json:
    """One item of `pools`: advice on all replicas of a model and role as one."""
    return {
        "model": pool.model,
        "role": pool.role.value,
        "replicas": list(pool.replicas),
        "advice": [_advice(advice) for advice in pool.advice],
    }


def alert_document(alert: Alert) -> Json:
    """One item of `alerts`; beyond the contract's keys, the target's name and what keeps it quiet."""
    return {
        "rule": alert.rule,
        "severity": alert.severity,
        "state": alert.state,
        "target": alert.target,
        "name": alert.name or alert.target,
        "since": finite(alert.since),
        "value": finite(alert.value),
        "threshold": finite(alert.threshold),
        "summary": alert.summary,
        "labels": dict(alert.labels),
        "inhibited_by": alert.inhibited_by,
        "silenced_by": alert.silenced_by,
        "acknowledged_by": alert.acknowledged_by,
    }


def _plain(value: float | str | bool | None) -> Any:
    return finite(value) if isinstance(value, float) else value
