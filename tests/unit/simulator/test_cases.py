"""Each built-in case is what its name says, by the exact truth about its requests."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from enginetop.fleet.model import Role
from enginetop.fleet.snapshot import Slo
from enginetop.simulator.builtin import scenario_named
from enginetop.simulator.fleet_model import FleetModel
from enginetop.simulator.model import EngineModel
from enginetop.simulator.replica import SimulatedReplica
from enginetop.simulator.request import Request
from enginetop.simulator.scenario import ReplicaPlan

SECONDS = 300.0


@dataclass(frozen=True)
class Lived:
    """A replica after some time."""

    replica: SimulatedReplica
    slo: Slo
    seconds: float

    @property
    def engine(self) -> EngineModel:
        (engine,) = self.replica.engines
        return engine

    @property
    def attainment(self) -> float:
        return self.replica.truth.attainment_ratio or 0.0

    @property
    def goodput(self) -> float:
        return self.replica.truth.within_slo / self.seconds

    @property
    def ended(self) -> list[Request]:
        return list(self.engine.finished)

    def share(self, requests: Iterable[Request], *, tpot: bool = False, ttft: bool = False) -> float:
        """Share of the requests that miss the TPOT, or the TTFT objective."""
        missed = [
            (tpot and r.tpot_seconds > self.slo.tpot_seconds)
            or (ttft and r.ttft_seconds > self.slo.ttft_seconds)
            for r in requests
        ]
        return sum(missed) / len(missed)


def plan_of(name: str) -> ReplicaPlan:
    return scenario_named(name).pools[0].members[0]


def lived(name: str, plan: ReplicaPlan | None = None, seconds: float = SECONDS, **engine: Any) -> Lived:
    """The case's replica after `seconds`, with other start values of the engine."""
    slo = scenario_named(name).slo
    replica = SimulatedReplica("a1", (plan or plan_of(name)).with_engine(**engine), slo, seed=1, epoch=0.0)
    replica.advance(seconds)
    return Lived(replica, slo, seconds)


def test_budget_too_large() -> None:
    start, better = lived("budget-too-large"), lived("budget-too-large", max_num_batched_tokens=768)
    assert plan_of("budget-too-large").engine.max_num_batched_tokens == 8192
    assert start.share(start.ended, tpot=True) > 0.10
    ttft_p95 = statistics.quantiles([r.ttft_seconds for r in start.ended], n=20)[-1]
    assert ttft_p95 < 0.5 * start.slo.ttft_seconds, "TTFT has slack"
    assert better.attainment > 0.98
    assert better.goodput > 1.1 * start.goodput
    # Full steps are the reason: 9 ms and 8192 tokens at 16 us each are 140 ms.
    assert max(step.seconds for step in start.engine.steps) > 0.14
    assert lived("budget-too-large", max_num_batched_tokens=4096).attainment < start.attainment + 0.02


def test_already_optimal() -> None:
    best = lived("already-optimal")
    assert best.attainment > 0.98
    for budget in (384, 1024, 8192):
        assert lived("already-optimal", max_num_batched_tokens=budget).attainment < best.attainment - 0.02
    fewer = lived("already-optimal", max_num_seqs=4)
    assert fewer.attainment < best.attainment - 0.02


def test_prefill_bound() -> None:
    start = lived("prefill-bound")
    assert start.share(start.ended, ttft=True) > 0.5
    assert start.share(start.ended, tpot=True) == 0.0
    full = [s for s in start.engine.steps if s.seconds * 1e3 > 12.0 + 0.9 * 512 * 0.055]
    assert len(full) > 0.5 * len(start.engine.steps), "most steps use the whole budget"
    assert start.engine.kv_usage_ratio < 0.5
    assert start.engine.metrics.preemptions == 0
    assert lived("prefill-bound", max_num_batched_tokens=2048).attainment > 0.9


def test_speculation_pays() -> None:
    four, one = lived("speculation-pays"), lived("speculation-pays", num_speculative_tokens=1)
    none = lived("speculation-pays", num_speculative_tokens=0)
    assert four.attainment > 0.95
    assert one.attainment < 0.1
    assert none.attainment < 0.01


def test_speculation_hurts() -> None:
    four = lived("speculation-hurts")
    none, one = (lived("speculation-hurts", num_speculative_tokens=drafts) for drafts in (0, 1))
    assert four.attainment < 0.3
    assert none.attainment > 0.98
    assert one.attainment > 0.98
    assert four.engine.metrics.preemptions == 0, "it is the drafts, not the cache"


def test_reasoning_overrun() -> None:
    start = lived("reasoning-overrun", seconds=600.0)
    assert start.attainment < 0.6
    assert start.engine.metrics.preemptions > 30
    # 95 % of log-normal thoughts end within 700 x e^(1.3 x 1.645) = 5943 tokens.
    cut = lived("reasoning-overrun", seconds=600.0, thinking_token_budget=6144)
    assert cut.replica.truth.truncated_ratio < 0.05
    assert cut.goodput > 1.3 * start.goodput
    assert cut.engine.metrics.preemptions < start.engine.metrics.preemptions


def test_kv_pressure() -> None:
    start = lived("kv-pressure")
    assert start.engine.metrics.preemptions > 0.02 * len(start.ended)
    enough = lived("kv-pressure", kv_blocks=2 * plan_of("kv-pressure").engine.kv_blocks)
    assert enough.engine.metrics.preemptions < start.engine.metrics.preemptions / 20
    assert enough.attainment > start.attainment + 0.3


def test_long_context_intruder() -> None:
    start = lived("long-context-intruder")
    short = [r for r in start.ended if r.drawn.prompt_tokens < 20_000]
    alone = lived("long-context-intruder", plan_of("long-context-intruder").with_traffic(long_ratio=0.0))
    assert alone.attainment > 0.99
    assert start.share(short, ttft=True) > 0.1, "those who did nothing wrong wait"
    assert len(short) > 0.95 * len(start.ended)
    other = lived("long-context-intruder", max_num_batched_tokens=512)
    assert other.attainment < 0.95, "no budget mends it"


def test_hot_rank() -> None:
    name = "hot-rank"
    replica = SimulatedReplica("a1", plan_of(name), scenario_named(name).slo, seed=1, epoch=0.0)
    replica.advance(SECONDS)
    shares = [engine.metrics.within_slo / sum(engine.metrics.judged.values()) for engine in replica.engines]
    assert shares[0] < 0.9
    assert min(shares[1:]) > 0.99
    even = SimulatedReplica(
        "a1", plan_of(name).with_traffic(rank_weights=()), scenario_named(name).slo, seed=1, epoch=0.0
    )
    even.advance(SECONDS)
    assert (even.truth.attainment_ratio or 0.0) > 0.99


@pytest.mark.parametrize(
    "engine",
    [{}, {"max_num_batched_tokens": 512}, {"max_num_batched_tokens": 8192}, {"max_num_seqs": 48}],
    ids=["as-it-is", "small-budget", "large-budget", "few-sequences"],
)
def test_out_of_capacity(engine: dict[str, Any]) -> None:
    start = lived("out-of-capacity", **engine)
    assert start.attainment < 0.05
    assert start.engine.busy_seconds > 0.99 * start.seconds
    assert len(start.engine.waiting) > 300
    late = [r for r in start.ended if r.drawn.arrival_at > 120.0]
    assert start.share(late, ttft=True) == 1.0


def test_half_the_load_would_be_within_capacity() -> None:
    plan = plan_of("out-of-capacity").with_traffic(requests_per_second=1.5)
    assert lived("out-of-capacity", plan).attainment > 0.9


def test_prefill_decode() -> None:
    scenario = scenario_named("prefill-decode")
    split = FleetModel(scenario, 4, seed=1, epoch=0.0, warm_up_seconds=0.0)
    split.advance(SECONDS)
    _, _, *decode = split.replicas
    assert [replica.plan.engine.role for replica in decode] == [Role.DECODE] * 2
    shares = [replica.truth.attainment_ratio or 0.0 for replica in decode]
    assert min(shares) > 0.95
    # The same engines, each with half of the prompts and all of their answers.
    both = ReplicaPlan(
        replace(decode[0].plan.engine, role=Role.AGGREGATED),
        replace(decode[0].plan.traffic, requests_per_second=1.5),
    )
    together = lived("prefill-decode", both)
    assert together.attainment < min(shares) - 0.2
    assert together.share(together.ended, tpot=True) > 0.2


def test_burst() -> None:
    plan = plan_of("burst")
    bursty = lived("burst", seconds=600.0)
    even = lived("burst", plan.with_traffic(burst_ratio=1.001), seconds=600.0)
    assert bursty.attainment < even.attainment - 0.02
    arrivals = sorted(r.drawn.arrival_at for r in bursty.ended)
    tens = [sum(second <= at < second + 10 for at in arrivals) for second in range(0, 600, 10)]
    # 3 a second on average: 90 in ten seconds of a burst, and 18 outside.
    assert max(tens) > 70
    assert statistics.median(tens) < 30
