"""The tracker of a whole fleet: observations in, one immutable snapshot a tick out."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from urllib.parse import urlsplit

from enginetop.fleet.attribution import ClaimedRecord, owner_of
from enginetop.fleet.budget_watch import Ended
from enginetop.fleet.burn import BurnHistory, Counts
from enginetop.fleet.efficiency import Price
from enginetop.fleet.fleet_board import FleetBoard
from enginetop.fleet.gpus import NO_GPUS, GpuBoard
from enginetop.fleet.model import Target
from enginetop.fleet.observation import Observation
from enginetop.fleet.outliers import OutlierBoard
from enginetop.fleet.replica import ReplicaTracker, SloFor
from enginetop.fleet.request_records import (
    MOST_RECORDS,
    RequestFigures,
    RequestLog,
)
from enginetop.fleet.snapshot import (
    CollectorHealth,
    FleetSnapshot,
    GpuReport,
)
from enginetop.fleet.workers import roles_of_workers

_NO_HEALTH = CollectorHealth()
_ALL_FOREIGN = (
    "the request records name servers or models that no target has; say whose they are: FILE=TARGET"
)


class FleetTracker:
    """Feed it observations and GPU reports in time order; ask for a snapshot once a tick.

    Not for use from several threads at once. Nothing here reads a clock: `now` is Unix time, and in a replay
    the recording's.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        *,
        interval_seconds: float,
        window_seconds: float,
        slo_for: SloFor,
        fixed_spacing_seconds: float | None,
        price: Price | None = None,
        pictures_per_second: float = math.inf,
    ) -> None:
        """`fixed_spacing_seconds` is the asked interval, or None in a replay, where it is not known.

        `pictures_per_second`: in a fleet of more, replicas take turns: figures of each are worked out anew at
        one tick of several. States never wait.
        """
        self._interval_seconds = interval_seconds
        self._window_seconds = window_seconds
        self._slo_for = slo_for
        self._fixed_spacing_seconds = fixed_spacing_seconds
        self._trackers: dict[str, ReplicaTracker] = {}
        self._board = GpuBoard(fixed_spacing_seconds)
        self._sequence = 0
        self._price = price
        self._burn = BurnHistory()
        self._ended_at = -math.inf
        """Time of the newest counts in it."""
        self._fleet = FleetBoard(window_seconds, slo_for, price, self._burn)
        self._claimed: deque[ClaimedRecord] = deque(maxlen=MOST_RECORDS)
        self._records = RequestLog(window_seconds)
        self._owned = self._foreign = 0
        self._outliers = OutlierBoard()
        self._unanswered: frozenset[str] = frozenset()
        self._pictures_a_tick = max(1.0, pictures_per_second * interval_seconds)
        self._turns = 1
        for target in targets:
            self._track(target)

    def observe(self, url: str, observation: Observation, next_try_at: float | None = None) -> None:
        """Take one observation; a URL that no target has joins the fleet at its end."""
        tracker = self._trackers.get(url)
        if tracker is None:
            tracker = self._track(Target(url, self._free_name(url)))
        tracker.observe(observation, next_try_at)
        if observation.reading is not None and observation.reading.gpus:
            self._board.observe_own(url, observation.reading.at, observation.reading.gpus)
        if ended := tracker.take_ended():
            self._take_ended(tracker, ended)

    def _take_ended(self, tracker: ReplicaTracker, ended: Ended, *, not_before: float = -math.inf) -> None:
        """Count for the fleet what pages of a replica counted, unless others count the same."""
        if (tracker.who.is_router and self._engines_told) or self._fleet.repeats(tracker):
            return
        for at, counts in ended:
            self._ended_at = max(at, not_before)
            self._burn.add(self._ended_at, counts)

    def follow(self, target: Target, at: float) -> None:
        """A target is listed: it joins the fleet at its end, or comes back if it had gone."""
        tracker = self._trackers.get(target.url)
        if tracker is None:
            self._track(target)
        else:
            tracker.come_back(target, at)

    def move(self, moves: Mapping[str, Target], at: float) -> None:
        """Replicas have other addresses: their histories go on there. By their former URLs, all at once."""
        former, self._trackers = self._trackers, {}
        for url, tracker in former.items():
            target = moves.get(url)
            if target is not None:
                tracker.come_back(target, at)
                self._board.forget(url)
            self._trackers[tracker.target.url] = tracker

    def lose(self, url: str, at: float) -> None:
        """A target is listed no more: it stays in the picture as gone until it is dropped."""
        if (tracker := self._trackers.get(url)) is not None:
            tracker.leave(at)

    def drop(self, url: str) -> None:
        """Forget a target and all that is known of it."""
        self._trackers.pop(url, None)
        self._board.forget(url)

    def remember(self, ended: Sequence[tuple[float, Counts]]) -> None:
        """Take counts of the fleet's requests of before the first observation, oldest first."""
        for at, counts in ended:
            self._burn.add(at, counts)

    def observe_request(self, url: str, record: RequestFigures) -> None:
        """Take the record of one request; a URL that no target has joins the fleet at its end."""
        tracker = self._trackers.get(url) or self._track(Target(url, self._free_name(url)))
        tracker.observe_request(record)

    def set_thinking_budget(self, url: str, tokens: float | None) -> None:
        """Take the thinking budget of the target `url` as its knob API tells it; None or -1: none."""
        tracker = self._trackers.get(url)
        if tracker is not None:
            tracker.set_thinking_budget(tokens)

    def observe_claimed(self, records: Sequence[ClaimedRecord]) -> None:
        """Take records of a log, each to be given to the replica that served it.

        They wait for the next snapshot, and there until every target was looked at: a model is known only
        then. Records of nobody in particular count in the fleet's figures alone; those of strangers do not.
        """
        self._claimed.extend(records)

    def observe_gpus(self, report: GpuReport) -> None:
        """Take the newest GPU figures of one host."""
        self._board.observe(report)

    def snapshot(self, now: float, collector: CollectorHealth = _NO_HEALTH) -> FleetSnapshot:
        """The fleet at Unix time `now`. Replicas on which nothing changed are the same objects as before."""
        trackers = tuple(self._trackers.values())
        self._give_out(trackers)
        self._tell_unanswered(collector.unanswered)
        roles = roles_of_workers(tracker.workers for tracker in trackers if tracker.workers)
        for tracker in trackers:
            worker = tracker.who.identity.worker
            tracker.be_told(None if worker is None else roles.get(worker))
        engines = frozenset(tracker.target.url for tracker in trackers if not tracker.who.is_router)
        shares = self._board.shares([tracker.target for tracker in trackers], engines, now)
        self._sequence += 1
        turns = self._turns_of(trackers)
        replicas = tuple(
            tracker.snapshot(
                now,
                shares.get(tracker.target.url, NO_GPUS),
                may_wait=turns > 1 and place * turns // len(trackers) != self._sequence % turns,
            )
            for place, tracker in enumerate(trackers)
        )
        for tracker in trackers:
            if ended := tracker.take_ended():
                # the pages of others may be newer, and a time that goes back means a clock that was set back
                self._take_ended(tracker, ended, not_before=self._ended_at)
        return FleetSnapshot(
            at=now,
            sequence=self._sequence,
            interval_seconds=self._interval_seconds,
            window_seconds=self._window_seconds,
            fleet=self._fleet.summary(
                now,
                tuple(zip(trackers, replicas, strict=True)),
                shares,
                self._records.counted(now),
                engines_told=self._engines_told,
            ),
            replicas=self._outliers.marked(replicas),
            collector=self._with_strangers(collector),
            gpu_problem=self._board.problem(now),
            turns=turns,
        )

    def _turns_of(self, trackers: Sequence[ReplicaTracker]) -> int:
        """In how many ticks each has its turn. A fleet that takes turns is short of CPU, not of memory."""
        turns = math.ceil(len(trackers) / self._pictures_a_tick) or 1
        if turns > 1 or self._turns > 1:
            for tracker in trackers:
                tracker.spare(memory=turns == 1)
        self._turns = turns
        return turns

    def _give_out(self, trackers: Sequence[ReplicaTracker]) -> None:
        """Give the records that wait to their owners."""
        if not self._claimed or not all(tracker.looked_at for tracker in trackers):
            return
        known = [(tracker.target, tracker.who.model) for tracker in trackers if not tracker.who.is_router]
        while self._claimed:
            record = self._claimed.popleft()
            owner = owner_of(record, known)
            if owner.foreign:
                self._foreign += 1
                continue
            self._owned += 1
            if owner.url is None:
                self._records.add(record.figures)
            else:
                self.observe_request(owner.url, record.figures)

    def _tell_unanswered(self, unanswered: Mapping[str, float]) -> None:
        for url in self._unanswered | unanswered.keys():
            if (tracker := self._trackers.get(url)) is not None:
                tracker.wait(unanswered.get(url))
        self._unanswered = frozenset(unanswered)

    def _with_strangers(self, collector: CollectorHealth) -> CollectorHealth:
        """The collector's state with the records that were passed over, a problem if that is all of them."""
        if not self._foreign:
            return collector
        problem = collector.record_problem or ("" if self._owned else _ALL_FOREIGN)
        return replace(collector, foreign_records=self._foreign, record_problem=problem)

    def _track(self, target: Target) -> ReplicaTracker:
        tracker = self._trackers[target.url] = ReplicaTracker(
            target,
            window_seconds=self._window_seconds,
            slo_for=self._slo_for,
            fixed_spacing_seconds=self._fixed_spacing_seconds,
            interval_seconds=self._interval_seconds,
            price=self._price,
        )
        return tracker

    def _free_name(self, url: str) -> str:
        taken = {tracker.target.name for tracker in self._trackers.values()}
        name = default_name(url)
        numbered = (f"{name} ({number})" for number in count(2))
        return name if name not in taken else next(other for other in numbered if other not in taken)

    @property
    def _engines_told(self) -> bool:
        """Whether an engine's own page was read: routers then add nothing."""
        return any(
            tracker.facts is not None and not tracker.who.is_router for tracker in self._trackers.values()
        )


def default_name(url: str) -> str:
    """What a target without a name is called: host and port, and the path if it has one."""
    printable = "".join(character for character in url if character.isprintable())
    try:
        parts = urlsplit(printable)
    except ValueError:
        return printable.rpartition("@")[2]
    return parts.netloc.rpartition("@")[2] + parts.path.rstrip("/") or printable
