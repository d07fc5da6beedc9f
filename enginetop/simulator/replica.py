"""One simulated replica over its lives: it runs, suffers faults, dies, comes back with a cold cache."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import Role
from enginetop.fleet.snapshot import Slo
from enginetop.simulator.arrivals import Spells
from enginetop.simulator.engine_page import page_template
from enginetop.simulator.faults import Conditions, Fault, FaultKind
from enginetop.simulator.live_knobs import KnobBoundsError, KnobState, UnknownKnobError
from enginetop.simulator.load_meter import GONE, Load, LoadMeter
from enginetop.simulator.model import EngineModel
from enginetop.simulator.pages import PageTemplate
from enginetop.simulator.pools import Mailbox
from enginetop.simulator.request import Request
from enginetop.simulator.scenario import ReplicaPlan
from enginetop.simulator.traffic import DrawnRequest, RequestSource
from enginetop.simulator.truth import Truth


@frozen
class _Return:
    """The agenda's entry for the end of a time without a process."""


_RETURN = _Return()


class SimulatedReplica:
    """One replica, from `begun_at` on. Times are seconds of the fleet; `epoch` is the Unix time of second 0.

    `engines` holds the model of each data-parallel rank, none while the replica is down; their own clocks
    start at `life_at`. `truth` adds up over all lives. `lives` counts them, and `plan` follows restarts.
    """

    def __init__(
        self,
        name: str,
        plan: ReplicaPlan,
        slo: Slo,
        seed: int,
        epoch: float,
        begun_at: float = 0.0,
        *,
        keeps_steps: bool = True,
    ) -> None:
        self.name = name
        self.plan = plan
        self.engines: tuple[EngineModel, ...] = ()
        self.life_at = begun_at
        self.lives = 0
        self.truth = Truth()
        self.slo = slo
        self._start_slo = slo
        self._seed = seed
        self._keeps_steps = keeps_steps
        self._epoch = epoch
        self._begun_at = self._now = begun_at
        self._conditions = Conditions()
        self._active: list[Fault] = []
        self._agenda: list[tuple[float, int, Fault | _Return, bool]] = []
        self._order = count()
        self._down_until = -math.inf
        self._sources: list[RequestSource] = []
        self._mailboxes = tuple(Mailbox() for _ in range(plan.engine.ranks))
        self._dealt = 0
        self._handed_over: list[tuple[float, Request]] = []
        self._template: PageTemplate | None = None
        self._meter = LoadMeter(begun_at)
        self._begin_life()
        for fault in plan.faults:
            self.inject(fault)

    @property
    def engine(self) -> EngineModel | None:
        """The engine of the first rank; None while the replica is down."""
        return self.engines[0] if self.engines else None

    @property
    def answers(self) -> bool:
        """Whether HTTP requests get an answer while there is a process."""
        return all(fault.kind is not FaultKind.UNRESPONSIVE for fault in self._active)

    def advance(self, to: float) -> None:
        """Let the replica live until second `to`; going back does nothing."""
        while self._agenda and self._agenda[0][0] <= to:
            at, _, entry, begins = heapq.heappop(self._agenda)
            self._run(at)
            if isinstance(entry, _Return):
                if self._now >= self._down_until and not self.engines:
                    self._begin_life()
            elif begins:
                self._begin(entry)
            else:
                self._active.remove(entry)
                self._apply()
        self._run(to)

    def knobs(self) -> tuple[KnobState, ...]:
        """The live knobs, with the bounds that all ranks take; none while the replica is down.

        With several ranks the draft length is fixed: ranks that differ would wait for each other.
        """
        first, *others = [engine.knobs() for engine in self.engines] or [()]
        return tuple(
            replace(state, min=state.value, max=state.value)
            if others and state.name == "num_speculative_tokens"
            else replace(
                state,
                min=max([state.min, *(other[place].min for other in others)]),
                max=min([state.max, *(other[place].max for other in others)]),
            )
            for place, state in enumerate(first)
        )

    def set_knob(self, name: str, value: int) -> KnobState:
        """Change a knob on every rank, or on none.

        Raises:
            UnknownKnobError, KnobBoundsError: nothing is changed.
        """
        known = {state.name: state for state in self.knobs()}
        if name not in known:
            raise UnknownKnobError(name)
        if not known[name].min <= value <= known[name].max:
            raise KnobBoundsError(name, value, known[name].min, known[name].max)
        for engine in self.engines:
            engine.set_knob(name, value)
        return next(state for state in self.knobs() if state.name == name)

    def set_slo(self, slo: Slo) -> None:
        """Judge requests by `slo` until the process ends."""
        self.slo = slo
        self._template = None
        for engine in self.engines:
            engine.set_slo(slo)

    def inject(self, fault: Fault) -> None:
        """Let `fault` happen, at once if its time has passed."""
        self._put(max(fault.at_seconds, self._now), fault, begins=True)

    def restart(self, **start_values: object) -> None:
        """Stop now and come back after the engine's `restart_seconds` with other start values.

        Raises:
            ConfigError: an engine cannot be started with these; nothing happens.
        """
        self.plan = self.plan.with_engine(**start_values)
        self._go_down(self._now + self.plan.engine.restart_seconds)

    def page(self) -> bytes | None:
        """The metrics page at the second last advanced to; None while the replica is down."""
        if not self.engines:
            return None
        if self._template is None:
            process_at = self._epoch + self.life_at
            reasons = self.plan.traffic.reasoning_tokens.median > 0
            self._template = page_template(self.engines, process_at, reasons=reasons)
        return self._template.render(self._now - self.life_at)

    def load(self) -> Load:
        """The load over at least the last second, as far as the present life goes back; mean of the ranks."""
        return self._meter.look(self.engines, self._now) if self.engines else GONE

    def take_handed_over(self) -> Sequence[tuple[float, Request]]:
        """Requests that a prefill replica has ended since the last call, with the begin of their engine."""
        self._collect_handed_over()
        handed, self._handed_over = self._handed_over, []
        return sorted(handed, key=lambda one: one[0] + (one[1].last_token_at or 0.0))

    def deliver(self, request: DrawnRequest) -> None:
        """Take a request for a decode replica; its ranks get them in turn."""
        self._mailboxes[self._dealt % len(self._mailboxes)].deliver(request)
        self._dealt += 1

    def _collect_handed_over(self) -> None:
        for engine in self.engines:
            self._handed_over.extend((self.life_at, request) for request in engine.outbox)
            engine.outbox.clear()

    def _run(self, to: float) -> None:
        self._now = max(self._now, to)
        for engine in self.engines:
            engine.advance(self._now - self.life_at)

    def _put(self, at: float, entry: Fault | _Return, *, begins: bool) -> None:
        heapq.heappush(self._agenda, (at, next(self._order), entry, begins))

    def _begin(self, fault: Fault) -> None:
        end = self._now + fault.for_seconds
        if fault.every_seconds is not None:
            self._put(self._now + fault.every_seconds, fault, begins=True)
        if fault.kind is FaultKind.DOWN:
            self._go_down(end)
        elif fault.kind is FaultKind.RESET:
            for engine in self.engines:
                engine.reset_metrics()
        elif fault.kind is FaultKind.HANG:
            for engine in self.engines:
                engine.hold_up(self._now - self.life_at, end - self.life_at)
        else:
            self._active.append(fault)
            self._put(end, fault, begins=False)
            self._apply()

    def _apply(self) -> None:
        """Make the engines feel the faults that are active."""

        def active(kind: FaultKind) -> list[Fault]:
            return [fault for fault in self._active if fault.kind is kind]

        self._conditions.slowness = math.prod(fault.factor for fault in active(FaultKind.SLOW))
        self._conditions.error_ratio = 1.0 - math.prod(1.0 - f.ratio for f in active(FaultKind.ERRORS))
        self._conditions.miss_ratio = 1.0 - math.prod(1.0 - f.ratio for f in active(FaultKind.MISSES))
        surge = math.prod(fault.factor for fault in active(FaultKind.SURGE))
        for source in self._sources:
            source.clock.surge = surge

    def _go_down(self, until: float) -> None:
        self._collect_handed_over()
        if self.plan.engine.role is not Role.PREFILL:
            self.truth.lost += sum(len(engine.unfinished()) for engine in self.engines)
        self.engines, self._template, self._sources = (), None, []
        self._down_until = max(self._down_until, until)
        self._put(until, _RETURN, begins=True)

    def _begin_life(self) -> None:
        self.lives += 1
        self.life_at = self._now
        self._meter = LoadMeter(self.life_at)
        settings, self.slo = self.plan.engine, self._start_slo
        self.engines = tuple(
            EngineModel(
                settings,
                self._arrivals(rank, seed),
                self.slo,
                truth=self.truth,
                conditions=self._conditions,
                seed=seed,
                keeps_steps=self._keeps_steps,
            )
            for rank, seed in enumerate(self._seeds(settings.ranks))
        )
        self._apply()

    def _seeds(self, ranks: int) -> list[str]:
        return [f"{self._seed}/{self.name}/{self.lives}/{rank}" for rank in range(ranks)]

    def _arrivals(self, rank: int, seed: str) -> Mailbox | RequestSource:
        settings, traffic = self.plan.engine, self.plan.traffic
        if settings.role is Role.DECODE:
            mailbox = self._mailboxes[rank]
            self.truth.lost += mailbox.open(self.life_at)
            return mailbox
        share = traffic.share_of_rank(rank, settings.ranks)
        # One stream of requests to a model is dealt to all of its replicas: they have their bursts together.
        spells = Spells(traffic, f"{self._seed}/{settings.model}/bursts", self._begun_at)
        source = RequestSource(traffic, settings, seed, share, self.life_at, spells)
        self._sources.append(source)
        return source
