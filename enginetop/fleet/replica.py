"""All that is remembered of one replica, and its picture at any instant."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from enginetop.fleet.bound_by import UNKNOWN, BoundShares, bound_by, load_of
from enginetop.fleet.burn import FINEST_SECONDS, BurnHistory, Counts, RequestCounter
from enginetop.fleet.derive import no_signals
from enginetop.fleet.efficiency import MeanPower, Price, efficiency
from enginetop.fleet.events import EventLog
from enginetop.fleet.facts import WindowFacts
from enginetop.fleet.goodput import goodput
from enginetop.fleet.gpus import NO_GPUS, GpuShare
from enginetop.fleet.history import TargetHistory
from enginetop.fleet.load_log import LoadLog
from enginetop.fleet.model import EngineKind, Quality, ReplicaState, Role, Target, is_router
from enginetop.fleet.observation import Failure, FailureKind, Observation
from enginetop.fleet.reading import Identity, Reading
from enginetop.fleet.request_records import (
    RequestFigures,
    RequestLog,
    judged_by_records,
    with_records,
)
from enginetop.fleet.snapshot import (
    BurnRow,
    Distribution,
    Goodput,
    RankSnapshot,
    ReplicaSnapshot,
    Scalar,
    Signals,
    SignalValue,
    Slo,
)
from enginetop.fleet.spacing import Spacing
from enginetop.fleet.state import (
    Evidence,
    FailureRun,
    Judgement,
    Standstill,
    duration_text,
    is_connection_failure,
    judge,
    rests_on_page,
)
from enginetop.fleet.thinking import (
    HIT_RATIO,
    KV_TOKENS,
    BudgetHits,
    as_budget,
    budget_of,
    hit_ratio,
    hits_in_histogram,
    hits_in_records,
    kv_tokens,
)
from enginetop.fleet.window_values import Values, WindowValues, aged
from enginetop.fleet.work import NO_WORK, work_of

SloFor = Callable[[str | None], Slo]
"""The objective of a model; None: of a target without a known model, and of the whole fleet."""

_PLACEHOLDER_MODELS = frozenset({"", "undefined", "none", "null"})

_VALUES_MEAN_NOTHING = frozenset(
    {
        ReplicaState.DOWN,
        ReplicaState.UNAUTHORIZED,
        ReplicaState.LOADING,
        ReplicaState.NO_ENGINE_METRICS,
        ReplicaState.UNKNOWN,
    }
)
"""In these states the last good page says nothing about now; in `stale` it is shown as old."""

_SHORTEST_HOLD_SECONDS = 30.0
_E2E_KEPT_SECONDS = 900.0
_NOBODY = Identity(EngineKind.UNKNOWN, role=Role.UNKNOWN)
_NO_WORKERS: Mapping[int, Role] = MappingProxyType({})


class ReplicaTracker:
    """Feed it every observation of one target, in time order; ask for pictures whenever one is wanted.

    An observation costs a step of the history; windows are worked out for a picture, and only if it differs
    from the one before.
    """

    def __init__(
        self,
        target: Target,
        *,
        window_seconds: float,
        slo_for: SloFor,
        fixed_spacing_seconds: float | None,
        interval_seconds: float = 2.0,
        price: Price | None = None,
    ) -> None:
        """`fixed_spacing_seconds`: the asked interval; None (a replay): judge age by the target's own.

        `interval_seconds` is how often a picture is expected.
        """
        self.target = target
        self._slo_for = slo_for
        self._slo: tuple[str | None, Slo] | None = None
        self._history = TargetHistory(window_seconds, interval_seconds)
        self._window_seconds = window_seconds
        self._window = WindowValues(self._history, window_seconds)
        self._spacing = Spacing(fixed_spacing_seconds)
        self._price = price
        self._power = MeanPower(window_seconds)
        self._share: GpuShare = NO_GPUS
        self._requests = RequestLog(window_seconds)
        self.records: tuple[RequestFigures, ...] = ()
        """Records of single requests in the window of the last picture."""
        self._knob_budget: float | None = None
        self.budget_hits: BudgetHits | None = None
        """Requests that reached their thinking budget, of the last picture; None: not known."""
        self._bounds = BoundShares(window_seconds)
        self._preemptions = 0.0
        self._standstill = Standstill()
        self._log = EventLog()
        self._counter = RequestCounter(slo_for(None))
        self._load = LoadLog(window_seconds)
        self._burn = BurnHistory()
        self._burn_rows: tuple[float, tuple[BurnRow, ...]] | None = None
        self.ended: tuple[float, Counts] | None = None
        """Time of the newest observation and what its page counted; None if it brought no page."""
        self._reading: Reading | None = None
        self._told_role: Role | None = None
        self._work = NO_WORK
        self._page_at: float | None = None
        self._scrape_seconds: float | None = None
        self._values: Values | None = None
        self._e2e_p99: tuple[float, float] | None = None  # time of the newest window with one, and seconds
        self._unreachable: FailureRun | None = None
        self._answer_failure: FailureRun | None = None
        self._answered = False
        self._next_try_at: float | None = None
        self._gone_at: float | None = None
        self._judgement = Judgement(ReplicaState.UNKNOWN)
        self._judged_until = -math.inf
        self._since: float | None = None
        self._picture: ReplicaSnapshot | None = None
        self._pictured: tuple[object, ...] | None = None

    @property
    def facts(self) -> WindowFacts | None:
        """What the window of the last picture says, None before the first good page."""
        return self._values.facts if self._values is not None else None

    @property
    def model(self) -> str | None:
        """The model that the newest page names, else discovery; None where none does."""
        return _model_name(self._identity.model) or _model_name(self.target.model)

    @property
    def looked_at(self) -> bool:
        """Whether anything was ever observed of it, or nothing ever will be."""
        looked = self._answered or self._unreachable is not None or self._answer_failure is not None
        return looked or self._gone_at is not None

    @property
    def is_router(self) -> bool:
        """Whether the newest page is a router's or gateway's view of engines rather than an engine's own."""
        return is_router(self._identity.engine, self.role)

    @property
    def worker(self) -> int | None:
        """The id by which gateways know this replica, as its newest page tells it."""
        return self._identity.worker

    @property
    def workers(self) -> Mapping[int, Role]:
        """The roles that the newest page, a gateway's, tells of the workers behind it."""
        return self._reading.workers if self._reading is not None else _NO_WORKERS

    @property
    def role(self) -> Role:
        """The role that the page tells, else the one that discovery or a gateway tells of it."""
        own, told = self._identity.role, self.target.role or self._told_role
        return told if told is not None and own in (Role.AGGREGATED, Role.UNKNOWN) else own

    @property
    def stack(self) -> str:
        """What this replica works in: the stack that its page names, else its engine."""
        return self._identity.stack or self._identity.engine.value

    def be_told(self, role: Role | None) -> None:
        """Take the role that a gateway tells of this replica; None: no gateway does."""
        if role is not self._told_role:
            self._told_role, self._picture = role, None

    def _sources(self) -> Mapping[str, str]:
        told = self._identity.sources
        if self.model is not None and _model_name(self._identity.model) is None:
            told = {**told, "model": "told by discovery"}
        if self.role is self._identity.role:
            return told
        return {**told, "role": f"told by {'discovery' if self.target.role else 'its gateway'}"}

    @property
    def _identity(self) -> Identity:
        return self._reading.identity if self._reading is not None else _NOBODY

    def observe(self, observation: Observation, next_try_at: float | None = None) -> None:
        """Take the result of one look. `next_try_at`: when a failing target is asked again, if known."""
        first_answer = not self._answered
        self.ended = None
        if observation.reading is not None:
            self._take_reading(observation.reading, observation)
        elif observation.failure is not None:
            self._take_failure(observation.failure)
        else:
            self._take_answer()
        self._next_try_at = next_try_at
        self._judged_until = -math.inf
        self._picture = None
        appeared = first_answer and self._answered
        if appeared:
            self._log.appeared(observation.at)
        self._settle(observation.at, quiet=appeared and self._judgement.state is ReplicaState.UNKNOWN)

    def leave(self, at: float) -> None:
        """Discovery ceased to list the target: it is asked no more, and counts for nothing."""
        self._gone_at, self._next_try_at = at, None
        self._log.gone(at, "not listed any more")
        self._judged_until, self._picture = -math.inf, None
        self._settle(at, quiet=True)

    def come_back(self, target: Target, at: float) -> None:
        """The replica is listed (again), as `target`: it may have moved. Its history goes on."""
        if self._gone_at is not None:
            self._log.appeared(at, "listed again")
        if target.url != self.target.url:
            self._log.appeared(at, f"moved from {self.target.url}")
        self.target, self._gone_at = target, None
        self._unreachable = self._answer_failure = None  # of another address, or of long ago
        self._judged_until, self._picture, self._slo = -math.inf, None, None
        self._settle(at, quiet=True)

    def set_thinking_budget(self, tokens: float | None) -> None:
        """Take the thinking budget that the knob API tells; what its page says goes first."""
        budget = as_budget(tokens)
        if budget != self._knob_budget:
            self._knob_budget, self._picture = budget, None

    def observe_request(self, record: RequestFigures) -> None:
        """Take the record of one request that this target served."""
        self._requests.add(record)

    def _take_answer(self) -> None:
        """The target can be reached, whatever it said."""
        self._answered = True
        self._unreachable = None

    def _take_failure(self, failure: Failure) -> None:
        if is_connection_failure(failure):
            self._unreachable = FailureRun.extended(self._unreachable, failure)
            return
        if failure.kind is not FailureKind.COLLECTOR:
            self._answered = True
        self._unreachable = None
        run = self._answer_failure
        same = run if run is not None and run.newest.kind is failure.kind else None
        self._answer_failure = FailureRun.extended(same, failure)

    def _take_reading(self, reading: Reading, observation: Observation) -> None:
        self._take_answer()
        old, self._reading = self._reading, reading
        self._work = work_of(reading)
        appended = self._history.append(reading)
        self._window.page_came(reading.at)
        self._count(reading)
        if appended.restarted:
            old_version = old.identity.engine_version if old is not None else None
            self._log.restarted(reading.at, appended.restarted, old_version, reading.identity.engine_version)
        changed = self._log.configured(reading.at, reading.config)
        if changed or (old is not None and old.identity.engine_version != reading.identity.engine_version):
            self._load = LoadLog(self._window_seconds)
        moved = appended.moved or bool(appended.restarted)
        self._standstill.observe(reading.at, self._work.busy, moved, observation.metrics_page)
        if observation.metrics_page:
            self._spacing.observe(reading.at)
        # A sleeping engine is not asked for its page (asking would wake it): its side pages are all there is.
        if observation.metrics_page or reading.flags.sleeping:
            self._page_at = reading.at
            self._scrape_seconds = observation.seconds
            self._answer_failure = None

    def _objective(self) -> Slo:
        """The objective of the model that the newest page names."""
        model = self.model
        if self._slo is None or self._slo[0] != model:
            self._slo = (model, self._slo_for(model))
        return self._slo[1]

    def _count(self, reading: Reading) -> None:
        """Keep what the page tells about requests for the error budget."""
        slo = self._objective()
        if self._counter.limits != (slo.ttft_seconds, slo.tpot_seconds):
            self._counter, self._burn, self._burn_rows = RequestCounter(slo), BurnHistory(), None
        self.ended = (reading.at, self._counter.take(*self._history.counted, self._history.totals))
        self._burn.add(*self.ended)

    def _settle(self, now: float, *, quiet: bool = False) -> None:
        """Judge the state anew if `now` or an observation may have changed it.

        `quiet`: another event tells why it changed.
        """
        if now <= self._judged_until:
            return
        evidence = self._evidence(now)
        old, judgement = self._judgement, judge(evidence)
        if self._since is None or judgement.state is not old.state:
            self._since = now if judgement.began is None else judgement.began
        if judgement.state is not old.state and not quiet:
            self._log.state_changed(now, old.state, judgement.state, judgement.reasons)
        self._judgement = judgement
        # What rests on a page holds until the page is too old; the reasons of other states name durations.
        self._judged_until = evidence.fresh_until if rests_on_page(evidence) else -math.inf

    def _evidence(self, now: float) -> Evidence:
        page_at, reading = self._page_at, self._reading
        evidence = Evidence(now, page_at, unreachable=self._unreachable, answer_failure=self._answer_failure)
        if self._gone_at is not None:
            return replace(evidence, gone_at=self._gone_at)
        if page_at is None or reading is None:
            return evidence
        return replace(
            evidence,
            fresh_until=page_at + self._spacing.fresh_seconds,
            flags=reading.flags,
            work=self._work,
            standstill_pages=self._standstill.pages,
            standstill_since=self._standstill.since,
            hold_seconds=0.0 if reading.live_progress else self._hold_seconds(reading.at),
        )

    def _hold_seconds(self, at: float) -> float:
        """How long an engine that counts only finished requests may stand still before it means anything."""
        if self._e2e_p99 is None or at - self._e2e_p99[0] > _E2E_KEPT_SECONDS:
            return _SHORTEST_HOLD_SECONDS
        return max(_SHORTEST_HOLD_SECONDS, 2 * self._e2e_p99[1])

    def snapshot(self, now: float, share: GpuShare = NO_GPUS) -> ReplicaSnapshot:
        """The replica at Unix time `now`; the same object as before while nothing has changed."""
        if share is not self._share:
            self._share = share
            self._power.add(now, share.power)
        values = self._window.at(now)
        if values is not None and values is not self._values:
            self._learn(now, values)
        self._values = values
        self._settle(now)
        self.records = self._requests.counted(now)
        pictured = (self._judgement, share, values, self.records)
        if self._picture is None or pictured != self._pictured:
            self._picture = self._draw(now, share)
            self._pictured = pictured
        return self._picture

    def _learn(self, now: float, values: Values) -> None:
        preemptions, e2e = values.signals["preemptions"], values.signals["e2e_seconds"]
        if isinstance(preemptions, Scalar):
            self._log.preemptions(now, preemptions.number)
        if isinstance(e2e, Distribution) and e2e.count:
            p99 = e2e.quantiles["p99"]
            longest = p99.low if p99.censored else p99.value
            if longest is not None:
                self._e2e_p99 = (values.facts.at, longest)

        self._note_bound(values)

    def _note_bound(self, values: Values) -> None:
        reading = self._reading
        if reading is None or (self._values is not None and self._values.facts.at == values.facts.at):
            return  # the same page, over a window that moved on
        preemptions = self._history.totals.get("preemptions", 0.0)
        slo = self._objective()
        load = load_of(
            values.signals,
            values.facts,
            reading.config,
            slo,
            preempted=preemptions > self._preemptions,
        )
        self._preemptions = preemptions
        self._bounds.add(values.facts.at, bound_by(load))

    def _draw(self, now: float, share: GpuShare) -> ReplicaSnapshot:
        reading, identity, judgement = self._reading, self._identity, self._judgement
        model = self.model
        slo = self._objective()
        signals, ranks = self._shown(now, share)
        good = goodput(signals, self._fresh_facts, slo)
        if self.records:
            signals, good = self._with_records(signals, good, slo)
        signals = self._with_thinking(signals)
        if self._fresh_facts is not None:
            signals = {**signals, **self._efficiency(now, signals, good, share)}
        self._history.add_trend_point(now, signals, good)
        if self._fresh_facts is None:
            self._load.away()
        else:
            self._load.take(now, signals, self._fresh_facts, good)
        failure = self._unreachable or self._answer_failure
        return ReplicaSnapshot(
            target=self.target,
            engine=identity.engine,
            engine_version=identity.engine_version,
            stack=identity.stack,
            model=model,
            role=self.role,
            product=identity.product,
            sources=self._sources(),
            state=judgement.state,
            since=now if self._since is None else self._since,
            reasons=judgement.reasons,
            scraped_at=self._page_at,
            scrape_seconds=self._scrape_seconds,
            bad_lines=reading.bad_lines if reading is not None else 0,
            signals=signals,
            ranks=ranks,
            beyond=self._beyond(now),
            config=reading.config if reading is not None else MappingProxyType({}),
            events=self._log.events(),
            gpus=share.gpus,
            advice=(),
            slo=slo,
            goodput=replace(good, burn=self._rows_of_burn(now, slo)),
            totals=self._history.totals,
            bound_by=UNKNOWN if self._fresh_facts is None else self._bounds.shares,
            simulated=identity.simulated,
            last_failure=failure.newest if failure is not None else None,
            next_try_at=self._next_try_at,
            gone_at=self._gone_at,
            spacing_seconds=self._spacing.seconds,
            live_progress=reading.live_progress if reading is not None else True,
            trends=self._history.trends.values,
            trend_times=self._history.trends.times,
            load=self._load.points,
        )

    def _rows_of_burn(self, now: float, slo: Slo) -> tuple[BurnRow, ...]:
        """Worked out anew once in the finest spacing of the history; the fleet's rows are at every tick."""
        span = now // FINEST_SECONDS
        if self._burn_rows is None or self._burn_rows[0] != span:
            self._burn_rows = (span, self._burn.rows(now, slo.target))
        return self._burn_rows[1]

    def _with_records(self, signals: Signals, good: Goodput, slo: Slo) -> tuple[Signals, Goodput]:
        """With what records of requests tell; where the page says nothing about now it is marked as old."""
        signals = with_records(signals, self.records)
        good = judged_by_records(good, [(record, slo) for record in self.records])
        if self._fresh_facts is not None or self._page_at is None:
            return signals, good
        return aged(signals, self._judgement.state.value), replace(good, quality=Quality.STALE)

    def _with_thinking(self, signals: Signals) -> Signals:
        """With what reasoning costs, from the engine side's own counts, else from records."""
        facts, config = self._fresh_facts, self._reading.config if self._reading is not None else {}
        budget = budget_of(config) or self._knob_budget
        counted = facts.total.histograms.get("reasoning_tokens") if facts is not None else None
        self.budget_hits = (
            hits_in_histogram(counted, budget)
            if counted is not None and counted.count
            else hits_in_records(self.records, budget)
        )
        if facts is None and not self.records:
            return signals
        return {**signals, HIT_RATIO: hit_ratio([self.budget_hits]), KV_TOKENS: kv_tokens(signals)}

    def _efficiency(
        self, now: float, signals: Signals, good: Goodput, share: GpuShare
    ) -> Mapping[str, SignalValue]:
        known = share.power.number is not None and share.power.quality is Quality.OK
        return efficiency(
            signals,
            good,
            mean_watts=self._power.mean(now) if known else None,
            gpus=share.whole,
            why_not=share.power.note if not known or not share.gpus else "the GPUs are not its own",
            price=self._price,
        )

    def _beyond(self, now: float) -> Signals:
        """The signals beyond the core, as the state allows."""
        values, state = self._values, self._judgement.state
        if values is None or not values.beyond or self._page_at is None or state in _VALUES_MEAN_NOTHING:
            return MappingProxyType({})
        if state is not ReplicaState.STALE:
            return values.beyond
        return aged(values.beyond, f"{duration_text(now - self._page_at)} old")

    @property
    def _fresh_facts(self) -> WindowFacts | None:
        """The facts of the window while they say something about now."""
        state = self._judgement.state
        if self._values is None or state in _VALUES_MEAN_NOTHING or state is ReplicaState.STALE:
            return None
        return self._values.facts

    def _shown(self, now: float, share: GpuShare) -> tuple[Signals, tuple[RankSnapshot, ...]]:
        """Signals and ranks as the state allows: as derived, old, or nothing."""
        values, state = self._values, self._judgement.state
        if values is None or self._page_at is None or state in _VALUES_MEAN_NOTHING:
            note = "no good page yet" if self._page_at is None else state.value
            return no_signals(Quality.UNKNOWN, note), ()
        signals: Signals = {**values.signals, "power_watts": share.power}
        if state is not ReplicaState.STALE:
            return signals, values.ranks
        note = f"{duration_text(now - self._page_at)} old"
        ranks = tuple(RankSnapshot(rank.labels, aged(rank.signals, note)) for rank in values.ranks)
        return aged(signals, note), ranks


def _model_name(name: str | None) -> str | None:
    return None if name is None or name.strip().lower() in _PLACEHOLDER_MODELS else name
