"""One simulated replica over its lives: it runs, dies, comes back with empty counters."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from enginetop.fleet.snapshot import Slo
from enginetop.simulator.families import families
from enginetop.simulator.model import EngineModel
from enginetop.simulator.pages import PageTemplate
from enginetop.simulator.scenario import Outage, ReplicaPlan
from enginetop.simulator.traffic import RequestSource

_SHORTEST_LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Load:
    """How hard a replica works, as shares of the time. `up` False: there is no process.

    `compute_ratio` is the share spent on computing tokens rather than on reading weights and KV.
    """

    up: bool
    busy_ratio: float
    compute_ratio: float


_FRESH = Load(up=True, busy_ratio=0.0, compute_ratio=0.0)


class SimulatedReplica:
    """One replica, from `begun_at` on. Its times are seconds; the plan's outages count from second 0.

    `epoch` is the Unix time of second 0. `engine` is None while the replica is down, else the model of its
    present life, whose own clock starts at `life_at`.
    """

    def __init__(
        self, name: str, plan: ReplicaPlan, slo: Slo, seed: int, epoch: float, begun_at: float = 0.0
    ) -> None:
        self.name = name
        self.plan = plan
        self.engine: EngineModel | None = None
        self.life_at = begun_at
        self._slo = slo
        self._seed = seed
        self._epoch = epoch
        self._now = begun_at
        self._lives = 0
        self._template: PageTemplate | None = None
        self._looked_at = begun_at
        self._busy_seconds = 0.0
        self._tokens = 0
        self._load = _FRESH
        self._changes = _changes(plan.outage)
        self._change_at = next(self._changes)
        self._begin_life()

    def advance(self, to: float) -> None:
        """Let the replica live until second `to`; going back does nothing."""
        while self._change_at <= to:
            self._run(self._change_at)
            if self.engine is None:
                self._begin_life()
            else:
                self.engine = self._template = None
            self._change_at = next(self._changes)
        self._run(to)

    def page(self) -> bytes | None:
        """The metrics page at the second last advanced to; None while the replica is down."""
        if self._template is None:
            return None
        return self._template.render(self._now - self.life_at)

    def load(self) -> Load:
        """The load over at least the last second, as far as the present life goes back."""
        if self.engine is None:
            return Load(up=False, busy_ratio=0.0, compute_ratio=0.0)
        elapsed = self._now - self._looked_at
        if elapsed >= _SHORTEST_LOOK_SECONDS:
            metrics = self.engine.metrics
            tokens = metrics.prompt_tokens - metrics.prompt_tokens_cached + metrics.generation_tokens
            compute_seconds = (tokens - self._tokens) * self.plan.engine.step.per_token_us / 1e6
            self._load = Load(
                up=True,
                busy_ratio=min(1.0, (self.engine.busy_seconds - self._busy_seconds) / elapsed),
                compute_ratio=min(1.0, compute_seconds / elapsed),
            )
            self._looked_at, self._busy_seconds, self._tokens = self._now, self.engine.busy_seconds, tokens
        return self._load

    def _run(self, to: float) -> None:
        self._now = max(self._now, to)
        if self.engine is not None:
            self.engine.advance(self._now - self.life_at)

    def _begin_life(self) -> None:
        self._lives += 1
        self.life_at = self._looked_at = self._now
        self._busy_seconds, self._tokens, self._load = 0.0, 0, _FRESH
        engine, traffic = self.plan.engine, self.plan.traffic
        source = RequestSource(traffic, engine, f"{self._seed}/{self.name}/{self._lives}")
        self.engine = EngineModel(engine, source, self._slo)
        process_at = self._epoch + self.life_at
        layout = families(engine, self._slo, process_at, reasons=traffic.reasoning_tokens.median > 0)
        self._template = PageTemplate(layout, self.engine, process_at)


def _changes(outage: Outage | None) -> Iterator[float]:
    """The seconds at which a replica goes down, comes back, goes down, ..."""
    if outage is None:
        while True:
            yield math.inf
    for cycle in count():
        down_at = outage.first_at_seconds + cycle * outage.every_seconds
        yield down_at
        yield down_at + outage.for_seconds
