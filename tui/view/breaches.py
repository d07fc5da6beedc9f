"""What the numbers of one replica say by themselves, without alert rules and their hold times."""

from __future__ import annotations

from collections.abc import Callable

from enginetop.fleet.bound_by import KV_FULL_RATIO
from enginetop.fleet.goodput import ERRORS_MIN_PER_SECOND, ERRORS_SHARE
from enginetop.fleet.objective_half import LEAST_REQUESTS, TPOT, TTFT, Half, is_missed, miss_of
from enginetop.fleet.reading import UNHEALTHY_BACKENDS
from enginetop.fleet.snapshot import Distribution, ReplicaSnapshot
from enginetop.fleet.throttle import held_back_by
from tui.view.numbers import percent, rate, scalar_number, seconds_text
from tui.view.severity import Condition, Severity

MEDIAN = 0.5
MEDIAN_MIN_REQUESTS = 5
"""From so many on the median speaks: three of five beyond an objective that holds for 95 % is chance once in
860 windows (binomial), and a replica that is slow finishes few requests."""

Breach = Callable[[ReplicaSnapshot], Condition | None]


def _kv_breach(replica: ReplicaSnapshot) -> Condition | None:
    signals = replica.signals
    kv = scalar_number(signals.get("kv_usage_ratio"))
    preemptions = scalar_number(signals.get("preemptions_per_second")) or 0.0
    full = kv is not None and kv >= KV_FULL_RATIO
    if preemptions <= 0 and not full:
        return None
    waiting = scalar_number(signals.get("requests_waiting")) or 0.0
    at_kv = f" at KV {percent(kv)} %" if kv is not None else ""
    if preemptions > 0:
        word = "pressure" if full else "preempt"
        return Condition(
            Severity.WARN, word, f"preempting{at_kv}", f"{rate(preemptions)} preemptions/s{at_kv}"
        )
    if full and waiting > 0:
        return Condition(
            Severity.WARN, "pressure", f"KV {percent(kv)} %", f"{waiting:.0f} requests wait{at_kv}"
        )
    return None


def _latency_breach(half: Half, word: str) -> Breach:
    def breach(replica: ReplicaSnapshot) -> Condition | None:
        times = replica.signals.get(half.signal)
        if not isinstance(times, Distribution) or (count := times.count or 0) < MEDIAN_MIN_REQUESTS:
            return None
        wanted = replica.slo.target if count >= LEAST_REQUESTS else MEDIAN
        if not is_missed(half, replica, times, wanted):
            return None
        miss = miss_of(half, replica, times, wanted, seconds_text)
        return Condition(Severity.WARN, word, miss.shown, f"{miss.shown}, {miss.allowed}")

    return breach


def _error_breach(replica: ReplicaSnapshot) -> Condition | None:
    failed = replica.goodput.errored_per_second
    if failed is None or failed < ERRORS_MIN_PER_SECOND:
        return None
    offered = scalar_number(replica.signals.get("requests_finished_per_second"))
    if not offered or failed / offered <= ERRORS_SHARE:
        return None
    share = f"{percent(failed / offered)} % of requests fail"
    return Condition(Severity.WARN, "errors", share, f"{share}: {rate(failed)}/s end in an error")


def _gpu_breach(replica: ReplicaSnapshot) -> Condition | None:
    for gpu in replica.gpus:
        if gpu.state != "ok":
            return Condition(
                Severity.WARN,
                f"gpu {gpu.state}",
                f"GPU {gpu.index} {gpu.state}",
                f"GPU {gpu.index}: {gpu.state}",
            )
        if reasons := held_back_by(gpu):
            shown = f"GPU {gpu.index} {reasons[0]}"
            return Condition(Severity.WARN, "throttled", shown, f"{shown}: it runs below its clock")
    return None


def _backend_breach(replica: ReplicaSnapshot) -> Condition | None:
    """A gateway that cannot route to some of its backends, or to any."""
    healthy = scalar_number(replica.beyond.get("backends_healthy"))
    total = scalar_number(replica.beyond.get("backends_total"))
    if healthy is None or (healthy > 0 and (total is None or healthy >= total)):
        return None
    named = replica.config.get(UNHEALTHY_BACKENDS)
    because = f"not healthy: {named.value}" if named is not None and total else "no backend to route to"
    known = f" of {total:.0f}" if total else ""
    severity = Severity.WARN if healthy else Severity.CRIT
    return Condition(severity, "backends", f"{healthy:.0f}{known} backends healthy", because)


BREACHES: tuple[Breach, ...] = (
    _backend_breach,
    _error_breach,
    _kv_breach,
    _gpu_breach,
    _latency_breach(TTFT, "ttft slo"),
    _latency_breach(TPOT, "tpot slo"),
)
"""What a replica's own numbers may say, gravest first."""
