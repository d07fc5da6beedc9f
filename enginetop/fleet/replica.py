"""All that is remembered of one replica, and its picture at any instant."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from enginetop.fleet.bound_by import UNKNOWN, BoundShares, bound_by, load_of
from enginetop.fleet.budget_watch import BudgetWatch, Ended
from enginetop.fleet.changing import changed
from enginetop.fleet.efficiency import EFFICIENCY, MeanPower, Price, efficiency
from enginetop.fleet.events import EventLog
from enginetop.fleet.facts import WindowFacts
from enginetop.fleet.goodput import goodput
from enginetop.fleet.gpus import NO_GPUS, GpuShare
from enginetop.fleet.history import TargetHistory
from enginetop.fleet.lazy import overlaid
from enginetop.fleet.load_log import LoadLog
from enginetop.fleet.model import Quality, ReplicaState, Role, Target
from enginetop.fleet.observation import Observation
from enginetop.fleet.reading import Reading
from enginetop.fleet.request_records import (
    RequestFigures,
    RequestLog,
    judged_by_records,
    with_records,
)
from enginetop.fleet.snapshot import (
    Distribution,
    Goodput,
    ReplicaSnapshot,
    Scalar,
    Signals,
    SignalValue,
    Slo,
)
from enginetop.fleet.state_watch import StateWatch
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
from enginetop.fleet.who import Who
from enginetop.fleet.window_values import Shown, Values, WindowValues, aged, shown

SloFor = Callable[[str | None], Slo]
"""The objective of a model; None: of a target without a known model, and of the whole fleet."""

_OWN = (HIT_RATIO, KV_TOKENS, *EFFICIENCY)
"""Signals of a replica that are made of others and of its GPUs."""

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
        self.who = Who(target)
        """What is known of its identity."""
        self._slo_for = slo_for
        self._slo: tuple[str | None, Slo] | None = None
        self._history = TargetHistory(window_seconds, interval_seconds)
        self._window_seconds = window_seconds
        self._window = WindowValues(self._history, window_seconds)
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
        self._log = EventLog()
        self._state = StateWatch(self._log, fixed_spacing_seconds)
        self._budget = BudgetWatch(self._history, slo_for(None))
        self._load = LoadLog(window_seconds)
        self._reading: Reading | None = None
        self._first_page_at: float | None = None
        self._values: Values | None = None
        self._next_try_at: float | None = None
        self._picture: ReplicaSnapshot | None = None
        """The last picture; None: something beside a look has changed what it shows."""
        self._pictured: tuple[object, ...] | None = None
        self._looked_since = False

    @property
    def facts(self) -> WindowFacts | None:
        """What the window of the last picture says, None before the first good page."""
        return self._values.facts if self._values is not None else None

    @property
    def target(self) -> Target:
        """The target, as it was listed last."""
        return self.who.target

    @property
    def looked_at(self) -> bool:
        """Whether anything was ever observed of it, or nothing ever will be."""
        return self._state.looked_at

    @property
    def workers(self) -> Mapping[int, Role]:
        """The roles that the newest page, a gateway's, tells of the workers behind it."""
        return self._reading.workers if self._reading is not None else _NO_WORKERS

    def be_told(self, role: Role | None) -> None:
        """Take the role that a gateway tells of this replica; None: no gateway does."""
        if role is not self.who.gateways_role:
            self.who, self._picture = replace(self.who, gateways_role=role), None

    def spare(self, *, memory: bool) -> None:
        """Keep pages in fewer bytes, at some CPU a page, or as they are."""
        self._history.spares_memory = memory

    def observe(self, observation: Observation, next_try_at: float | None = None) -> None:
        """Take the result of one look. `next_try_at`: when a failing target is asked again, if known."""
        moved = observation.reading is not None and self._take_reading(observation.reading)
        self._state.observe(observation, moved=moved)
        self._next_try_at = next_try_at
        self._looked_since = True

    def wait(self, seconds: float | None) -> None:
        """The look under way has waited so long, which is longer than it should; None: no longer so."""
        self._state.wait(seconds)
        self._looked_since = True

    def leave(self, at: float) -> None:
        """Discovery ceased to list the target: it is asked no more, and counts for nothing."""
        self._next_try_at, self._picture = None, None
        self._state.leave(at)

    def come_back(self, target: Target, at: float) -> None:
        """The replica is listed (again), as `target`: it may have moved. Its history goes on."""
        former = self.target.url
        self.who = replace(self.who, target=target)
        self._picture, self._slo = None, None
        self._state.come_back(at, moved_from=former if former != target.url else "")

    def set_thinking_budget(self, tokens: float | None) -> None:
        """Take the thinking budget that the knob API tells; what its page says goes first."""
        budget = as_budget(tokens)
        if budget != self._knob_budget:
            self._knob_budget, self._picture = budget, None

    def observe_request(self, record: RequestFigures) -> None:
        """Take the record of one request that this target served."""
        self._requests.add(record)

    def _take_reading(self, reading: Reading) -> bool:
        """Keep what the page tells; whether it shows that the engine works."""
        old, self._reading = self._reading, reading
        if old is None:
            self._first_page_at = reading.at
        if reading.identity != self.who.identity:
            self.who = replace(self.who, identity=reading.identity)
        appended = self._history.append(reading)
        self._window.page_came(reading.at)
        if self._budget.is_due(reading.at):
            self._budget.count(reading.at, self._objective())
        if appended.restarted:
            old_version = old.identity.engine_version if old is not None else None
            self._log.restarted(reading.at, appended.restarted, old_version, reading.identity.engine_version)
        changed = self._log.configured(reading.at, reading.config)
        if changed or (old is not None and old.identity.engine_version != reading.identity.engine_version):
            self._load = LoadLog(self._window_seconds)
        return appended.moved or bool(appended.restarted)

    def _objective(self) -> Slo:
        """The objective of the model that the newest page names."""
        model = self.who.model
        if self._slo is None or self._slo[0] != model:
            self._slo = (model, self._slo_for(model))
        return self._slo[1]

    def take_ended(self) -> Ended:
        """What pages counted since the former call (`BudgetWatch`).

        Of a replica that fails or is gone every page is, at the next snapshot.
        """
        return self._budget.take_ended()

    def snapshot(self, now: float, share: GpuShare = NO_GPUS, *, may_wait: bool = False) -> ReplicaSnapshot:
        """The replica at Unix time `now`; the same object as before while nothing has changed.

        `may_wait`: new figures may be worked out another time; the former picture does, unless the state is
        another one or the last look failed.
        """
        if may_wait and self._picture is not None and self._pictured is not None:
            self._state.settle(now)
            if not self._judged_anew():
                return self._picture
        if share is not self._share:
            self._share = share
            self._power.add(now, share.power)
        away = self._state.failure is not None or self._state.gone_at is not None
        if away and self._reading is not None and self._reading.at != self._budget.counted_at:
            self._budget.count(self._reading.at, self._objective())  # no page of another span may come
        values = self._window.at(now, self._state.fresh_seconds)
        if values is not None and values is not self._values:
            self._learn(now, values)
        self._values = values
        self._state.settle(now)
        self.records = self._requests.counted(now)
        pictured = (self._state.judgement, share, values, self.records)
        if self._picture is None or self._looked_since or pictured != self._pictured:
            self._picture = self._draw(now, share)
            self._pictured, self._looked_since = pictured, False
        return self._picture

    def _judged_anew(self) -> bool:
        """Whether the state is another one than the picture shows, or another look failed.

        How long ago a look failed, and for how long a page is old or an answer overdue, can wait its turn: a
        watcher that is starved finds its whole fleet so, and would be kept by drawing it from looking at it.
        """
        now, shown = self._state.judgement, self._picture
        if shown is None or self._pictured is None or now.state is not shown.state:
            return True
        failure, overdue = self._state.failure, self._state.unanswered_seconds is not None
        if failure is not shown.last_failure or overdue is not (shown.unanswered_seconds is not None):
            return True
        ages = failure is not None or overdue or now.state is ReplicaState.STALE
        return not ages and now != self._pictured[0]

    def _learn(self, now: float, values: Values) -> None:
        preemptions = values.signals["preemptions"]
        if isinstance(preemptions, Scalar):
            self._log.preemptions(now, preemptions.number)
        if self._reading is not None and not self._reading.live_progress:
            self._note_longest(values)  # nobody else asks for it
        self._note_bound(values)

    def _note_longest(self, values: Values) -> None:
        e2e = values.signals["e2e_seconds"]
        if isinstance(e2e, Distribution) and e2e.count:
            longest = e2e.quantiles["p99"].at_least
            if longest is not None:
                self._state.requests_took(values.facts.at, longest)

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
        reading, state, who = self._reading, self._state, self.who
        slo = self._objective()
        told = shown(self._values, state.state, state.page_at, now, share.power)
        signals, good = told.signals, goodput(told.signals, told.facts, slo)
        if self.records:
            signals, good = self._with_records(signals, good, slo, told)
        self._count_budget_hits(told.facts)
        if told.facts is not None:
            power = {"power_watts": share.power}
            signals = overlaid(signals, power, _OWN, self._own_signals(now, signals, good, share))
        elif self.records:
            signals = overlaid(
                signals, {HIT_RATIO: hit_ratio([self.budget_hits]), KV_TOKENS: kv_tokens(signals)}
            )
        self._history.add_trend_point(now, signals, good)
        if told.facts is None:
            self._load.away()
        else:
            self._load.take(now, signals, told.facts, good)
        return ReplicaSnapshot(
            target=self.target,
            engine=who.identity.engine,
            engine_version=who.identity.engine_version,
            stack=who.identity.stack,
            model=who.model,
            role=who.role,
            product=who.identity.product,
            sources=who.sources,
            state=state.state,
            since=state.since(now),
            reasons=state.judgement.reasons,
            scraped_at=state.page_at,
            scrape_seconds=state.scrape_seconds,
            bad_lines=reading.bad_lines if reading is not None else 0,
            signals=signals,
            ranks=told.ranks,
            beyond=told.beyond,
            config=reading.config if reading is not None else MappingProxyType({}),
            events=self._log.events(),
            gpus=share.gpus,
            advice=(),
            slo=slo,
            goodput=changed(good, burn=self._budget.rows(now, slo.target)),
            totals=self._history.totals,
            first_page_at=self._first_page_at,
            bound_by=UNKNOWN if told.facts is None else self._bounds.shares,
            simulated=who.identity.simulated,
            last_failure=state.failure,
            failed_looks=state.failed_looks,
            unanswered_seconds=state.unanswered_seconds,
            next_try_at=self._next_try_at,
            gone_at=state.gone_at,
            spacing_seconds=state.spacing_seconds,
            live_progress=reading.live_progress if reading is not None else True,
            trends=self._history.trends.values,
            trend_times=self._history.trends.times,
            load=self._load.points,
        )

    def _with_records(
        self, signals: Signals, good: Goodput, slo: Slo, told: Shown
    ) -> tuple[Signals, Goodput]:
        """With what records of requests tell; where the page says nothing about now it is marked as old."""
        signals = with_records(signals, self.records)
        good = judged_by_records(good, [(record, slo) for record in self.records])
        if told.facts is not None or self._state.page_at is None:
            return signals, good
        return aged(signals, self._state.state.value), replace(good, quality=Quality.STALE)

    def _count_budget_hits(self, facts: WindowFacts | None) -> None:
        """What reached its thinking budget, from the engine side's own counts, else from records."""
        budget = budget_of(self._reading.config if self._reading is not None else {}) or self._knob_budget
        counted = facts.total.histograms.get("reasoning_tokens") if facts is not None else None
        self.budget_hits = (
            hits_in_histogram(counted, budget)
            if counted is not None and counted.count
            else hits_in_records(self.records, budget)
        )

    def _own_signals(
        self, now: float, signals: Signals, good: Goodput, share: GpuShare
    ) -> Callable[[str], SignalValue]:
        """How the signals of `_OWN`, which no page tells, are worked out of those that `signals` hold."""
        known = share.power.number is not None and share.power.quality is Quality.OK
        watts = self._power.mean(now) if known else None
        why_not = share.power.note if not known or not share.gpus else "the GPUs are not its own"
        hits, price = self.budget_hits, self._price

        def work(name: str) -> SignalValue:
            if name == HIT_RATIO:
                return hit_ratio([hits])
            if name == KV_TOKENS:
                return kv_tokens(signals)
            figures = efficiency(
                signals, good, mean_watts=watts, gpus=share.whole, why_not=why_not, price=price
            )
            return figures[name]

        return work
