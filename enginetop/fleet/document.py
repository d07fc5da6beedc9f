"""The JSON form of a snapshot: `enginetop.snapshot/1`.

Plain dicts and lists that any strict JSON writer takes: a number that is not finite becomes null here, and
its quality `invalid`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from enginetop.fleet.model import STATE_ORDER, LocalProcess, Quality, ReplicaState
from enginetop.fleet.snapshot import (
    Advice,
    Alert,
    BurnRow,
    CollectorHealth,
    Distribution,
    Event,
    FleetSnapshot,
    FleetSummary,
    Goodput,
    GpuDevice,
    ModelSummary,
    Outlier,
    PoolAdvice,
    Quantile,
    RankSnapshot,
    ReplicaSnapshot,
    Scalar,
    Signals,
    SignalValue,
    Slo,
    Span,
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

Json = dict[str, Any]


def snapshot_document(snapshot: FleetSnapshot) -> Json:
    """The snapshot as the contract names its keys; every key is always there, empty when there is nothing.

    Beyond the contract's keys: `sequence`, `interval_seconds`, `simulated` (any replica is), `collector` and
    `gpu_problem`; of a replica `since` (Unix seconds), `simulated`, `next_try_at`, `spacing_seconds`,
    `failed_looks` (in a row), `unanswered_seconds` (of a look that waits too long), `product` (which router
    or gateway) and `sources` (where version, model and role were read); of both fleet and replica `beyond`,
    the signals that only some engines export, where they do; `pools`, advice on all replicas of a model and
    role as one; of the fleet `models`, a row for each with its own goodput; of a replica `outliers`, figures
    that stand out from the median of its like.
    """
    return {
        "schema": SCHEMA,
        "at": _finite(snapshot.at),
        "window_seconds": _finite(snapshot.window_seconds),
        "interval_seconds": _finite(snapshot.interval_seconds),
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
        "since": _finite(replica.since),
        "reasons": list(replica.reasons),
        "scraped_at": _finite(replica.scraped_at),
        "scrape_seconds": _finite(replica.scrape_seconds),
        "pod": replica.target.pod or None,
        "inference_pool": replica.target.inference_pool or None,
        "process": _process(replica.target.process),
        "spacing_seconds": _finite(replica.spacing_seconds),
        "next_try_at": _finite(replica.next_try_at),
        "failed_looks": replica.failed_looks,
        "unanswered_seconds": _finite(replica.unanswered_seconds),
        "bad_lines": replica.bad_lines,
        "simulated": replica.simulated,
        "signals": _signals(replica.signals),
        "ranks": [_rank(rank) for rank in replica.ranks],
        "product": replica.product,
        "sources": dict(replica.sources),
        "config": {
            key: {"value": _plain(setting.value), "source": setting.source}
            for key, setting in replica.config.items()
        },
        "beyond": _signals(replica.beyond),
        "bound_by": {word: _finite(share) for word, share in replica.bound_by.items()},
        "goodput": _goodput(replica.goodput, replica.slo),
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
        "signals": _signals(fleet.signals),
        "beyond": _signals(fleet.beyond),
        "goodput": _goodput(fleet.goodput, fleet.slo),
        "models": [_model(model) for model in fleet.models],
    }


def _model(summary: ModelSummary) -> Json:
    return {
        "model": summary.model,
        "replicas": summary.replicas,
        "signals": {name: signal_document(name, summary.signals[name]) for name in MODEL_SIGNALS},
        "goodput": _goodput(summary.goodput, summary.slo),
    }


def _states(states: Mapping[ReplicaState, int]) -> Json:
    """The states that occur, most severe first."""
    return {state.value: states[state] for state in STATE_ORDER if states.get(state)}


def _collector(health: CollectorHealth) -> Json:
    return {
        "asked_per_second": _finite(health.asked_per_second),
        "achieved_per_second": _finite(health.achieved_per_second),
        "late_ticks": health.late_ticks,
        "problem": health.problem,
        "bad_records": health.bad_records,
        "foreign_records": health.foreign_records,
        "record_problem": health.record_problem,
        "discovery_problem": health.discovery_problem,
    }


def _rank(rank: RankSnapshot) -> Json:
    return {"labels": dict(rank.labels), "signals": _signals(rank.signals)}


def _signals(signals: Signals) -> Json:
    return {name: signal_document(name, value) for name, value in signals.items()}


def signal_document(name: str, value: SignalValue) -> Json:
    """One entry of `signals`. `kv_usage_ratio` alone carries `mean`, and `worst` where there are ranks."""
    document = _distribution(value) if isinstance(value, Distribution) else _scalar(name, value)
    if value.note:
        document["note"] = value.note
    return document


def _scalar(name: str, scalar: Scalar) -> Json:
    if isinstance(scalar.value, tuple):
        value: Any = [_finite(item) for item in scalar.value]
        lost = None in value
    else:
        value = _finite(scalar.value)
        lost = value is None and scalar.value is not None
    quality = Quality.INVALID if lost else scalar.quality
    document: Json = {"value": value, "unit": scalar.unit, "quality": quality.value}
    if name == "kv_usage_ratio":
        document["mean"] = _finite(scalar.mean)
        if scalar.worst is not None:
            document["worst"] = dict(scalar.worst)
    return document


def _distribution(distribution: Distribution) -> Json:
    return {
        "count": _finite(distribution.count),
        "sum": _finite(distribution.sum),
        "mean": _quantile(distribution.mean),
        **{name: _quantile(quantile) for name, quantile in distribution.quantiles.items()},
        "unit": distribution.unit,
        "quality": distribution.quality.value,
    }


def _quantile(quantile: Quantile) -> Json:
    return {
        "value": _finite(quantile.value),
        "low": _finite(quantile.low),
        "high": _finite(quantile.high),
        "censored": quantile.censored,
    }


def _goodput(goodput: Goodput, slo: Slo) -> Json:
    """The documented structure. Without histograms a rate that was counted is its own bound."""
    within = _span(goodput.within_per_second)
    if within["low"] is None:
        within["low"] = within["high"] = _finite(goodput.good_per_second)
    return {
        "offered_per_second": _finite(goodput.offered_per_second),
        "requests_per_second": within,
        "attainment": {
            "ttft": _quantile(goodput.ttft),
            "tpot": _quantile(goodput.tpot),
            "joint": {**_span(goodput.joint), "exact": _finite(goodput.exact)},
        },
        "slo": {
            "ttft_seconds": _finite(slo.ttft_seconds),
            "tpot_seconds": _finite(slo.tpot_seconds),
            "target": _finite(slo.target),
            "source": slo.source,
        },
        "burn": [_burn(row) for row in goodput.burn],
        "quality": goodput.quality.value,
        "note": goodput.note,
    }


def _span(span: Span) -> Json:
    return {"low": _finite(span.low), "high": _finite(span.high), "independent": _finite(span.independent)}


def _burn(row: BurnRow) -> Json:
    return {
        "long_seconds": _finite(row.long_seconds),
        "short_seconds": _finite(row.short_seconds),
        "long": _finite(row.long),
        "short": _finite(row.short),
        "threshold": _finite(row.threshold),
        "firing": row.firing,
        "reachable": row.reachable,
    }


def _outlier(outlier: Outlier) -> Json:
    return {
        "signal": outlier.signal,
        "value": _finite(outlier.value),
        "median": _finite(outlier.median),
        "replicas": outlier.replicas,
    }


def _event(event: Event) -> Json:
    return {"at": _finite(event.at), "kind": event.kind, "detail": event.detail}


def _gpu(gpu: GpuDevice) -> Json:
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "name": gpu.name,
        "mig": gpu.mig,
        "utilization_ratio": _finite(gpu.utilization_ratio),
        "memory_used_bytes": _finite(gpu.memory_used_bytes),
        "memory_total_bytes": _finite(gpu.memory_total_bytes),
        "unified_memory": gpu.unified_memory,
        "power_watts": _finite(gpu.power_watts),
        "power_limit_watts": _finite(gpu.power_limit_watts),
        "temperature_celsius": _finite(gpu.temperature_celsius),
        "sm_clock_mhz": _finite(gpu.sm_clock_mhz),
        "throttle_reasons": list(gpu.throttle_reasons),
        "last_xid": gpu.last_xid,
        "state": gpu.state,
        "source": gpu.source,
        "note": gpu.note,
        "joined_by": gpu.joined_by or None,
        "changed_at": _finite(gpu.changed_at),
    }


def _advice(advice: Advice) -> Json:
    return {
        "knob": advice.knob,
        "action": advice.action,
        "from": _finite(advice.current),
        "to": _finite(advice.proposed),
        "bound_by": advice.bound_by,
        "because": list(advice.because),
        "expected": {name: _finite(value) for name, value in advice.expected.items()},
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
        "since": _finite(alert.since),
        "value": _finite(alert.value),
        "threshold": _finite(alert.threshold),
        "summary": alert.summary,
        "labels": dict(alert.labels),
        "inhibited_by": alert.inhibited_by,
        "silenced_by": alert.silenced_by,
        "acknowledged_by": alert.acknowledged_by,
    }


def _plain(value: float | str | bool | None) -> Any:
    return _finite(value) if isinstance(value, float) else value


def _finite(value: float | None) -> float | None:
    """The number, or None where it is none or JSON has no word for it."""
    return None if value is None or not math.isfinite(value) else value
