"""The fleet that `bench.screen` draws: GPUs, trends, marks, trouble as a real one has them; of any size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from enginetop.fleet.model import EngineKind, Quality, ReplicaState, Role, Target
from enginetop.fleet.reading import ConfigValue
from enginetop.fleet.signals import DISTRIBUTIONS, SCALARS
from enginetop.fleet.snapshot import (
    Alert,
    Distribution,
    Event,
    FleetSnapshot,
    FleetSummary,
    Goodput,
    GpuDevice,
    Outlier,
    Quantile,
    ReplicaSnapshot,
    Scalar,
    SignalValue,
    Slo,
    Span,
)

AT = 1_764_446_400.0
_EVERY = 50
"""One in so many replicas is down, one has an alert, one stands out, one restarted."""


def signals(seed: int) -> dict[str, SignalValue]:
    """Every signal with a number of this seed."""
    found: dict[str, SignalValue] = {
        row.name: Scalar(float(1 + (seed * 7 + number) % 97), row.unit, Quality.OK)
        for number, row in enumerate(SCALARS)
    }
    found["kv_usage_ratio"] = Scalar((seed * 13 % 90) / 100, "ratio", Quality.OK)
    found["preemptions_per_second"] = Scalar(0.0, "1/s", Quality.OK)
    for number, row in enumerate(DISTRIBUTIONS):
        value = 0.001 * (1 + (seed * 11 + number) % 89)
        point = Quantile(value, value, value)
        quantiles = {"p50": point, "p90": point, "p95": point, "p99": point}
        found[row.name] = Distribution(100, 1.0, point, quantiles, row.unit, Quality.OK)
    return found


def replica(number: int, seed: int) -> ReplicaSnapshot:
    """One replica with two GPUs and five minutes of trends."""
    times = tuple(AT - 2.0 * step for step in range(150, 0, -1))
    wave = tuple(((number * 3 + step) % 50) / 50 for step in range(150))
    down = number % _EVERY == 7
    marked = (Outlier("ttft_seconds.p95", 0.09, 0.04, 40),) if number % _EVERY == 11 else ()
    events = (Event(AT - 300, "restarted", "0.32.0 -> 0.33.0"),) if number % _EVERY == 13 else ()
    return ReplicaSnapshot(
        target=Target(f"http://10.0.{number // 250}.{number % 250}:8000", f"n{number:04}"),
        engine=EngineKind.VLLM,
        engine_version="0.33.0",
        stack=None,
        model=f"model-{number % 4}",
        role=Role.DECODE,
        state=ReplicaState.DOWN if down else ReplicaState.OK,
        since=AT - 900,
        reasons=("connection refused for 15 min",) if down else (),
        scraped_at=AT,
        scrape_seconds=0.01,
        bad_lines=0,
        signals=signals(seed),
        ranks=(),
        config={"max_num_seqs": ConfigValue(64 if number % _EVERY else 32, "/server_info")},
        events=events,
        gpus=tuple(
            GpuDevice(
                index, f"GPU-{number}-{index}", "NVIDIA H100", utilization_ratio=(seed % 50 + 50) / 100,
                power_watts=400.0 + seed % 300, temperature_celsius=60.0 + seed % 20,
            )
            for index in range(2)
        ),
        advice=(),
        slo=Slo(),
        trends={"kv_usage_ratio": wave, "generation_tokens_per_second": wave},
        trend_times=times,
        outliers=marked,
        goodput=Goodput(5.0, 4.0, 0.94 + seed % 7 / 100, quality=Quality.OK),
        bound_by={"kv": 0.6, "none": 0.4},
    )  # fmt: skip


def fleet(
    replicas: Sequence[ReplicaSnapshot], sequence: int, totals: dict[str, SignalValue]
) -> FleetSnapshot:
    """A snapshot of these replicas; its time stands still, so that only what changed is drawn."""
    states: dict[ReplicaState, int] = {}
    for one in replicas:
        states[one.state] = states.get(one.state, 0) + 1
    goodput = Goodput(47.1, within_per_second=Span(40.8, 43.0, 42.0))
    summary = FleetSummary(len(replicas), states, totals, Slo(), goodput)
    alerts = tuple(
        Alert("TtftSlo", "warning", "firing", one.target.url, AT - 60, 1.2, 1.0, "TTFT p95 1.2 s")
        for one in replicas[17::_EVERY]
    )
    return FleetSnapshot(AT, sequence, 2.0, 60.0, summary, tuple(replicas), alerts)


class Churn:
    """A source whose next snapshot changes a share of the replicas."""

    def __init__(self, count: int, share: float) -> None:
        self._replicas = [replica(number, number) for number in range(count)]
        self._totals = signals(1)
        self._share = share
        self._sequence = 0
        self._listeners: list[Callable[[], None]] = []
        self._snapshot: FleetSnapshot | None = None

    def start(self) -> None:
        """The first snapshot."""
        self.step()

    def stop(self) -> None:
        """Nothing to release."""

    def latest(self) -> FleetSnapshot | None:
        """The newest snapshot."""
        return self._snapshot

    def subscribe(self, on_snapshot: Callable[[], None]) -> Callable[[], None]:
        """Remember who is told."""
        self._listeners.append(on_snapshot)
        return lambda: self._listeners.remove(on_snapshot)

    def finished(self) -> bool:
        """Never."""
        return False

    def request_refresh(self) -> None:
        """Another snapshot."""
        self.step()

    def step(self) -> None:
        """Make the next snapshot and tell everybody."""
        self.prepare()
        for listener in list(self._listeners):
            listener()

    def prepare(self) -> None:
        """Make the next snapshot: the share of the replicas, evenly spread, is changed."""
        self._sequence += 1
        if self._share:
            every = round(1 / self._share)
            for number in range(self._sequence % every, len(self._replicas), every):
                seed = number + 31 * self._sequence
                self._replicas[number] = replace(self._replicas[number], signals=signals(seed))
        self._snapshot = fleet(self._replicas, self._sequence, self._totals)
