"""Checks of GPUs. A GPU that several replicas use is one alert, at the first of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from enginetop.alerts.rule import Check, Finding, untold
from enginetop.fleet.gpu_join import host_key, host_of
from enginetop.fleet.snapshot import FleetSnapshot, GpuDevice, ReplicaSnapshot
from enginetop.fleet.throttle import held_back_by

HOT_CELSIUS = 85.0
TOO_HOT_CELSIUS = 95.0

_Judgement = tuple[bool | None, float | None, str]
"""Breached or not, the value, and what is said about it."""


def devices(snapshot: FleetSnapshot) -> Iterator[tuple[str, ReplicaSnapshot, GpuDevice]]:
    """Every GPU once: what tells it from all others, the first replica that uses it, and what is known of it.

    That is its UUID, else its machine and its place there (`HOST/INDEX`, of a MIG instance with its profile).
    """
    seen: set[str] = set()
    for replica in snapshot.replicas:
        for gpu in replica.gpus:
            key = gpu.uuid or _place(replica, gpu)
            if key not in seen:
                seen.add(key)
                yield key, replica, gpu


def gpu_labels(gpu: GpuDevice) -> Mapping[str, str]:
    """Labels that name a GPU to people."""
    return {"gpu": str(gpu.index), **({"mig": gpu.mig} if gpu.mig else {})}


def _place(replica: ReplicaSnapshot, gpu: GpuDevice) -> str:
    place = f"{host_key(host_of(replica.target.url))}/{gpu.index}"
    return f"{place}/{gpu.mig}" if gpu.mig else place


def throttled() -> Check:
    """A GPU runs below its clock for a reason that is no normal operation; old figures do not tell."""
    return _check(_throttled, None)


def hot(limit_celsius: float) -> Check:
    """A GPU is hotter than the limit; old figures do not tell."""

    def judge(gpu: GpuDevice) -> _Judgement:
        heat = gpu.temperature_celsius
        if heat is None or gpu.old:
            return None, None, ""
        return heat > limit_celsius, heat, f"GPU {gpu.index} at {heat:.0f} °C"

    return _check(judge, limit_celsius)


def lost() -> Check:
    """The driver lost the GPU, also where it has told nothing since."""
    return _check(lambda gpu: (gpu.state == "lost", None, f"GPU {gpu.index} is lost"), None)


def _throttled(gpu: GpuDevice) -> _Judgement:
    if gpu.old:
        return None, None, ""
    words = held_back_by(gpu)
    return bool(words), gpu.sm_clock_mhz, f"GPU {gpu.index} throttled: {', '.join(words)}"


def _check(judge: Callable[[GpuDevice], _Judgement], limit: float | None) -> Check:
    def check(snapshot: FleetSnapshot) -> Iterator[Finding]:
        for replica in snapshot.replicas:
            if not replica.gpus:
                yield untold(replica.target.url)
        for key, replica, gpu in devices(snapshot):
            breached, value, said = judge(gpu)
            yield Finding(
                replica.target.url,
                breached,
                value,
                limit,
                said,
                subject={"gpu_uuid": key},
                labels=gpu_labels(gpu),
            )

    return check
