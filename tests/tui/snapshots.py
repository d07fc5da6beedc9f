"""Snapshots made by hand, and a source that a test drives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from enginetop.fleet.model import EngineKind, Quality, ReplicaState, Role, Target
from enginetop.fleet.observation import Failure, FailureKind
from enginetop.fleet.signals import DISTRIBUTIONS, SCALARS
from enginetop.fleet.snapshot import (
    Alert,
    CollectorHealth,
    Distribution,
    Event,
    FleetSnapshot,
    FleetSummary,
    GpuDevice,
    Quantile,
    ReplicaSnapshot,
    Scalar,
    Signals,
    SignalValue,
    Slo,
)

AT = 1_764_446_400.0


def scalar(value: float | tuple[float, ...] | None, quality: Quality = Quality.OK, **more: Any) -> Scalar:
    """A scalar signal; its unit does not matter to the screen."""
    if value is None and quality is Quality.OK:
        quality = Quality.UNKNOWN
    return Scalar(value, "", quality, **more)


def exact(value: float) -> Quantile:
    """A quantile whose bucket is known to be the value."""
    return Quantile(value, value, value)


def censored(low: float) -> Quantile:
    """A quantile past the last finite bucket."""
    return Quantile(None, low, None, censored=True)


def distribution(
    p50: float | Quantile, p95: float | Quantile, *, count: float = 100, quality: Quality = Quality.OK
) -> Distribution:
    """A distribution with p90 = p50 and p99 = p95, mean = p50."""
    low = p50 if isinstance(p50, Quantile) else exact(p50)
    high = p95 if isinstance(p95, Quantile) else exact(p95)
    return Distribution(
        count, None, low, {"p50": low, "p90": low, "p95": high, "p99": high}, "seconds", quality
    )


def no_distribution(quality: Quality = Quality.UNKNOWN, note: str = "") -> Distribution:
    """A distribution of which nothing is known."""
    return Distribution(None, None, Quantile(), {}, "seconds", quality, note)


def signals(**given: float | SignalValue | None) -> Signals:
    """Every signal of the catalogue: those given, the rest unknown."""
    known: dict[str, SignalValue] = {signal.name: scalar(None) for signal in SCALARS}
    known.update({signal.name: no_distribution() for signal in DISTRIBUTIONS})
    for name, value in given.items():
        assert name in known, name
        known[name] = value if isinstance(value, Scalar | Distribution) else scalar(value)
    return known


OK_SIGNALS = signals(
    requests_running=44,
    requests_waiting=0,
    kv_usage_ratio=0.64,
    preemptions_per_second=0,
    generation_tokens_per_second=2310,
    prompt_tokens_per_second=5120,
    requests_finished_per_second=4.2,
    prefix_hit_ratio=0.38,
    spec_accepted_length=3.2,
    ttft_seconds=distribution(0.12, 0.31),
    tpot_seconds=distribution(0.03, 0.038),
    itl_seconds=distribution(0.028, 0.041),
    e2e_seconds=distribution(8.1, 21.5),
    queue_seconds=distribution(0.004, 0.02),
)


def replica(
    name: str,
    state: ReplicaState = ReplicaState.OK,
    *,
    changes: Mapping[str, float | SignalValue | None] | None = None,
    **fields: Any,
) -> ReplicaSnapshot:
    """A healthy vLLM replica scraped a second ago, with the changes asked for."""
    values = dict(OK_SIGNALS)
    for key, value in (changes or {}).items():
        assert key in values, key
        values[key] = value if isinstance(value, Scalar | Distribution) else scalar(value)
    base = ReplicaSnapshot(
        target=Target(f"http://{name}.example:8000", name),
        engine=EngineKind.VLLM,
        engine_version="0.33.0",
        stack=None,
        model="Llama-3.3-70B",
        role=Role.DECODE,
        state=state,
        since=AT - 3600,
        reasons=(),
        scraped_at=AT - 1,
        scrape_seconds=0.012,
        bad_lines=0,
        signals=values,
        ranks=(),
        config={},
        events=(),
        gpus=(),
        advice=(),
        slo=Slo(),
    )
    return replace(base, **fields)


def down_replica(name: str, seconds: float = 72, **fields: Any) -> ReplicaSnapshot:
    """A replica that refuses connections since `seconds`."""
    known: dict[str, Any] = {
        "signals": signals(),
        "since": AT - seconds,
        "scraped_at": AT - seconds,
        "reasons": (f"connection refused for {seconds:.0f} s",),
        "last_failure": Failure(FailureKind.REFUSED, AT - 1, "connection refused"),
        "next_try_at": AT + 4,
        **fields,
    }
    return replica(name, ReplicaState.DOWN, **known)


def gpu(index: int = 0, **fields: Any) -> GpuDevice:
    """A busy H100."""
    known: dict[str, Any] = {
        "utilization_ratio": 0.94,
        "memory_used_bytes": 70 * 2**30,
        "memory_total_bytes": 80 * 2**30,
        "power_watts": 612.0,
        "power_limit_watts": 700.0,
        "temperature_celsius": 72.0,
        "sm_clock_mhz": 1755.0,
        **fields,
    }
    return GpuDevice(index=index, uuid=f"GPU-{index}", name="NVIDIA H100 80GB HBM3", **known)


def fleet(
    replicas: Sequence[ReplicaSnapshot],
    *,
    sequence: int = 1,
    at: float = AT,
    totals: Signals | None = None,
    alerts: Sequence[Alert] = (),
    collector: CollectorHealth = CollectorHealth(asked_per_second=6.0, achieved_per_second=6.0),  # noqa: B008
    **fields: Any,
) -> FleetSnapshot:
    """A snapshot of these replicas."""
    states: dict[ReplicaState, int] = {}
    for one in replicas:
        states[one.state] = states.get(one.state, 0) + 1
    return FleetSnapshot(
        at=at,
        sequence=sequence,
        interval_seconds=2.0,
        window_seconds=60.0,
        fleet=FleetSummary(len(replicas), states, OK_SIGNALS if totals is None else totals, Slo()),
        replicas=tuple(replicas),
        alerts=tuple(alerts),
        collector=collector,
        **fields,
    )


def alert(
    rule: str, target: str, severity: str = "warning", summary: str = "", since: float = AT - 60
) -> Alert:
    """A firing alert."""
    return Alert(rule, severity, "firing", target, since, None, None, summary)


def event(kind: str, ago: float, detail: str = "") -> Event:
    """Something that happened `ago` seconds before `AT`."""
    return Event(AT - ago, kind, detail)


class FakeSource:
    """A source whose snapshots a test publishes itself."""

    def __init__(self, snapshot: FleetSnapshot | None = None) -> None:
        self.snapshot = snapshot
        self.started = 0
        self.stopped = 0
        self.refreshes = 0
        self.at_end = False
        self._listeners: list[Callable[[], None]] = []

    def start(self) -> None:
        """Announce the snapshot that is there, if any."""
        self.started += 1
        if self.snapshot is not None:
            self._announce()

    def stop(self) -> None:
        """Count."""
        self.stopped += 1

    def latest(self) -> FleetSnapshot | None:
        """What was published last."""
        return self.snapshot

    def subscribe(self, on_snapshot: Callable[[], None]) -> Callable[[], None]:
        """Remember a listener."""
        self._listeners.append(on_snapshot)
        return lambda: self._listeners.remove(on_snapshot)

    def finished(self) -> bool:
        """Whether the test says that nothing follows."""
        return self.at_end

    def request_refresh(self) -> None:
        """Count."""
        self.refreshes += 1

    def publish(self, snapshot: FleetSnapshot) -> None:
        """Make this the newest snapshot and tell everybody."""
        self.snapshot = snapshot
        self._announce()

    def _announce(self) -> None:
        for listener in list(self._listeners):
            listener()
