"""What `bench.tuning` searches: the settings of a pool, the grid of them, and what each is truly worth.

Worth is exact goodput: requests per second and replica that were within the SLO, counted one by one by the
simulator, on traffic that depends on the seed alone. Settings that cut more than one thought in twenty are
not compared: goodput rises without limit as a thinking budget falls. That share is taken from the law that
lengths are drawn from, since the share of a few hundred requests is largely luck.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product

from enginetop.fleet.errors import ConfigError
from enginetop.simulator.fleet_model import FleetModel
from enginetop.simulator.live_knobs import NO_BUDGET
from enginetop.simulator.scenario import EngineSettings, Lengths, Scenario

MOST_SETTINGS = 60
MOST_TRUNCATED_RATIO = 0.05
EPOCH = 1_750_000_000.0
WARM_UP_SECONDS = 60.0
_SETTLE_SECONDS = 120.0
_JUDGED_SECONDS = 600.0

_BUDGETS = (256, 512, 768, 1024, 2048, 4096, 8192)
_SEQUENCES = (8, 16, 32, 64, 128, 256)
_NINETEEN_TWENTIETHS, _NINETY_NINE_HUNDREDTHS = 1.6449, 2.3263
"""Normal quantiles: the thinking budgets of the grid are those of a log-normal length."""


@dataclass(frozen=True, slots=True, order=True)
class Settings:
    """The four knobs of every replica of a pool."""

    max_num_batched_tokens: int
    max_num_seqs: int
    num_speculative_tokens: int
    thinking_token_budget: int

    @staticmethod
    def of(engine: EngineSettings) -> Settings:
        """Those of an engine."""
        return Settings(
            engine.max_num_batched_tokens,
            engine.max_num_seqs,
            engine.num_speculative_tokens,
            engine.thinking_token_budget,
        )

    def as_dict(self) -> dict[str, int]:
        """By the names of the knobs."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Subject:
    """One pool of a scenario, all replicas alike in their knobs. `name` is told in reports."""

    name: str
    scenario: Scenario

    @property
    def start(self) -> Settings:
        """The knobs that the scenario begins with."""
        return Settings.of(self.scenario.pools[0].members[0].engine)

    @property
    def replicas(self) -> int:
        """As many as show every member, and at least two."""
        return max(2, len(self.scenario.pools[0].members))

    def with_settings(self, settings: Settings) -> Scenario:
        """The scenario with these knobs. ConfigError: the engine cannot have them."""
        pool = self.scenario.pools[0]
        members = tuple(member.with_engine(**settings.as_dict()) for member in pool.members)
        return replace(self.scenario, pools=(replace(pool, members=members),))

    def allows(self, settings: Settings) -> bool:
        """Whether an engine can have these knobs."""
        try:
            self.with_settings(settings)
        except ConfigError:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Worth:
    """What settings are worth: good requests per second and replica, and the share of thoughts cut.

    `most_running` is the largest batch of any engine: no higher `max_num_seqs` changes anything. None where
    engines were restarted, so that it is not known.
    """

    goodput: float
    truncated_ratio: float
    most_running: int | None = None

    @property
    def comparable(self) -> bool:
        """Whether it cuts few enough thoughts."""
        return self.truncated_ratio <= MOST_TRUNCATED_RATIO


def subjects(scenario: Scenario) -> list[Subject]:
    """The pools that can be tuned one by one; none where replicas differ, or hand requests over."""
    found = []
    for pool in scenario.pools:
        alike = len({Settings.of(member.engine) for member in pool.members}) == 1
        if not alike or pool.role.value not in ("aggregated", "unknown"):
            continue
        name = scenario.name if len(scenario.pools) == 1 else f"{scenario.name}/{pool.name}"
        found.append(Subject(name, replace(scenario, pools=(pool,))))
    return found


def grid(subject: Subject) -> list[Settings]:
    """At most sixty settings around the start, the start among them: every combination of a few values."""
    start = subject.start
    acceptance = subject.scenario.pools[0].members[0].engine.acceptance
    drafts = range(len(acceptance) + 1) if start.num_speculative_tokens else (0,)
    thinking = sorted({start.thinking_token_budget, NO_BUDGET, *_thinking_budgets(subject)})
    budgets = sorted({*_BUDGETS, start.max_num_batched_tokens})
    sequences = sorted({*_SEQUENCES, start.max_num_seqs})
    while len(every := _combined(subject, budgets, sequences, drafts, thinking)) > MOST_SETTINGS:
        if len(budgets) >= len(sequences):
            budgets = _thinned(budgets, start.max_num_batched_tokens)
        else:
            sequences = _thinned(sequences, start.max_num_seqs)
    return every


def _combined(subject: Subject, *values: Iterable[int]) -> list[Settings]:
    """Every combination that an engine can have, in order."""
    return sorted(one for row in product(*values) if subject.allows(one := Settings(*row)))


def _thinned(values: list[int], kept: int) -> list[int]:
    """Every other value, the first, the last and `kept` among them."""
    return sorted({*values[::2], values[-1], kept})


def _thinking_budgets(subject: Subject) -> Iterator[int]:
    lengths = subject.scenario.pools[0].members[0].traffic.reasoning_tokens
    if lengths.median <= 0:
        return
    for quantile in (_NINETEEN_TWENTIETHS, _NINETY_NINE_HUNDREDTHS):
        yield math.ceil(lengths.median * math.exp(lengths.sigma * quantile) / 256) * 256


def worth(subject: Subject, settings: Settings, seed: int) -> Worth:
    """What these settings are worth on the traffic of this seed."""
    model = FleetModel(
        subject.with_settings(settings), subject.replicas, seed, EPOCH, WARM_UP_SECONDS, keeps_steps=False
    )
    model.advance(_SETTLE_SECONDS)
    before = sum(replica.truth.within_slo for replica in model.replicas)
    model.advance(_SETTLE_SECONDS + _JUDGED_SECONDS)
    truths = [replica.truth for replica in model.replicas]
    good = sum(truth.within_slo for truth in truths) - before
    budget = settings.thinking_token_budget
    cut = max(
        truncated_ratio(member.traffic.reasoning_tokens, budget)
        for member in subject.scenario.pools[0].members
    )
    engines = [engine for replica in model.replicas for engine in replica.engines]
    restarts = any(member.faults for member in subject.scenario.pools[0].members) or subject.scenario.faults
    most = None if restarts else max(engine.most_running for engine in engines)
    return Worth(good / _JUDGED_SECONDS / len(truths), cut, most)


def truncated_ratio(lengths: Lengths, budget: int) -> float:
    """Share of thoughts of log-normal length, in whole tokens, that a budget cuts."""
    if lengths.median <= 0 or budget == NO_BUDGET:
        return 0.0
    deviations = math.log((budget + 0.5) / lengths.median)
    if lengths.sigma <= 0:
        return float(deviations < 0)
    return 0.5 * math.erfc(deviations / lengths.sigma / math.sqrt(2.0))
