"""The figures of a whole fleet: its replicas that are up, merged into one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from types import MappingProxyType

from enginetop.fleet.beyond import beyond
from enginetop.fleet.burn import BurnHistory
from enginetop.fleet.derive import no_signals, signals
from enginetop.fleet.efficiency import MeanPower, Price, efficiency
from enginetop.fleet.facts import Facts, WindowFacts
from enginetop.fleet.goodput import Part, fleet_goodput, fleet_objective
from enginetop.fleet.gpus import NO_GPUS, GpuShare, total_power, whole_gpus
from enginetop.fleet.lazy import overlaid
from enginetop.fleet.model import UP_STATES, Quality, Role
from enginetop.fleet.models import Member, ModelBoard
from enginetop.fleet.replica import ReplicaTracker, SloFor
from enginetop.fleet.request_records import Records, judged_by_records, with_records
from enginetop.fleet.snapshot import FleetSummary, Goodput, ReplicaSnapshot, Scalar, Signals, Slo
from enginetop.fleet.stages import Flow, StagePart, StageRule, stage_of
from enginetop.fleet.thinking import HIT_RATIO, KV_TOKENS, hit_ratio, hits_in_records, kv_tokens_of_all

Seen = tuple[ReplicaTracker, ReplicaSnapshot]
"""What is remembered of a replica, and its picture now."""


class FleetBoard:
    """The fleet as one, with a memory: all that is merged stays while the windows are the same."""

    def __init__(
        self, window_seconds: float, slo_for: SloFor, price: Price | None, burn: BurnHistory
    ) -> None:
        """`burn` holds the requests of the whole fleet; it is fed elsewhere, page by page."""
        self._slo_for = slo_for
        self._price = price
        self._burn = burn
        self._power = MeanPower(window_seconds)
        self._stages = StageRule()
        self._models = ModelBoard()
        self._windows: tuple[tuple[WindowFacts, str | None], ...] | None = None
        self._merged: Facts | None = None
        self._signals: Signals = {}
        self._beyond: Signals = {}
        self._up: Sequence[Seen] = ()
        """The replicas that counted in the last summary, and what each of them counted for."""
        self._members: Sequence[Member] = ()
        self._decoding: frozenset[Flow] | None = None
        """Flows in which decode workers are among them; None: nobody has asked yet."""

    def summary(
        self,
        now: float,
        seen: Sequence[Seen],
        shares: Mapping[str, GpuShare],
        nobodys: Records,
        *,
        engines_told: bool,
    ) -> FleetSummary:
        """The fleet at Unix time `now`.

        `nobodys` are request records of no replica in particular. `engines_told`: an engine's own page was
        read, so that routers add nothing.
        """
        up = [
            (tracker, replica)
            for tracker, replica in seen
            if tracker.facts is not None
            and replica.state in UP_STATES
            and not (engines_told and tracker.who.is_router)
        ]
        members = self._counted(up)
        self._merge(members)
        slo = fleet_objective([replica.slo for _, replica in up], self._slo_for(None))
        good = fleet_goodput(self._signals, self._merged, slo, [member.part for member in members])
        telling = [one for one in seen if one[1].state in UP_STATES or one[1].scraped_at is None]
        shown, good = self._with_records(good, slo, telling, nobodys)
        hits = [*(tracker.budget_hits for tracker, _ in telling), hits_in_records(nobodys, None)]
        own = [shares.get(tracker.target.url, NO_GPUS) for tracker, _ in up]
        power = total_power(own)
        told = [replica.signals for _, replica in up]
        return FleetSummary(
            replicas=len(seen),
            states=MappingProxyType(Counter(replica.state for _, replica in seen)),
            signals=overlaid(
                shown,
                {
                    "power_watts": power,
                    HIT_RATIO: hit_ratio(hits),
                    **self._efficiency(now, good, own, power),
                },
                (KV_TOKENS,),  # where somebody asks: it asks every replica
                lambda _: kv_tokens_of_all(told, shown),
            ),
            slo=slo,
            goodput=replace(good, burn=self._burn.rows(now, slo.target)),
            beyond=self._beyond,
            models=self._models.summaries(members),
        )

    def repeats(self, tracker: ReplicaTracker) -> bool:
        """Whether a replica's requests are those of decode workers that are up: it is one of prefill."""
        if tracker.who.role is not Role.PREFILL:
            return False
        if self._decoding is None:
            self._decoding = frozenset(
                _flow(other)
                for other, _ in self._up
                if stage_of(other.who.role, other.who.stack) is Role.DECODE
            )
        flow = _flow(tracker)
        return any(flow.shares_with(other) for other in self._decoding)

    def _counted(self, up: Sequence[Seen]) -> Sequence[Member]:
        """What each replica counts for, with what another stage counts as well left out.

        Of a replica with the same picture and facts it is the same object as before.
        """
        facts = self._facts_of_stages(up)
        before = (
            zip(self._up, self._members, strict=True) if len(self._up) == len(up) else repeat((None, None))
        )
        self._members = [
            known
            if old is not None and old[1] is seen[1] and known is not None and known.facts is own
            else _member(*seen, own)
            for seen, own, (old, known) in zip(up, facts, before, strict=False)
        ]
        self._up, self._decoding = up, None
        return self._members

    def _facts_of_stages(self, up: Sequence[Seen]) -> Sequence[WindowFacts]:
        seen = [(tracker, tracker.facts) for tracker, _ in up]
        if not any(tracker.who.role is Role.PREFILL for tracker, _ in up):
            self._stages.counted(())
            return [facts for _, facts in seen if facts is not None]
        return self._stages.counted(
            [StagePart(facts, one.who.role, _flow(one)) for one, facts in seen if facts is not None]
        )

    def _merge(self, members: Sequence[Member]) -> None:
        windows = tuple((member.facts, member.model) for member in members)
        if windows == self._windows:
            return
        self._windows = windows
        self._merged = self._models.merged(members)
        if self._merged is not None:
            self._signals, self._beyond = signals(self._merged), beyond(self._merged)
        else:
            self._signals, self._beyond = no_signals(Quality.UNKNOWN, "no replica is up"), {}

    def _with_records(
        self, good: Goodput, slo: Slo, telling: Sequence[Seen], nobodys: Records
    ) -> tuple[Signals, Goodput]:
        """Signals and goodput with what request records tell, each held against its replica's objective."""
        served = [(record, replica.slo) for tracker, replica in telling for record in tracker.records]
        served += [(record, slo) for record in nobodys]
        if not served:
            return self._signals, good
        return with_records(self._signals, [record for record, _ in served]), judged_by_records(good, served)

    def _efficiency(self, now: float, good: Goodput, own: Sequence[GpuShare], power: Scalar) -> Signals:
        self._power.add(now, power)
        without = sum(not share.gpus for share in own)
        told = not without and power.number is not None and power.quality is Quality.OK
        return efficiency(
            self._signals,
            good,
            mean_watts=self._power.mean(now) if told else None,
            gpus=None if without else whole_gpus(one for share in own for one in share.placements),
            why_not=f"{without} of {len(own)} replicas without GPU figures" if without else power.note,
            price=self._price,
        )


def _member(tracker: ReplicaTracker, replica: ReplicaSnapshot, facts: WindowFacts) -> Member:
    part = Part(replica.goodput, facts.total, replica.slo)
    return Member(replica.target.name, replica.model, facts, part, tracker.records)


def _flow(tracker: ReplicaTracker) -> Flow:
    return Flow(tracker.who.stack, tracker.who.model)
