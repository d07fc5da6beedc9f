"""The state of one replica over time: what its looks amount to, since when, and the events of it."""

from __future__ import annotations

import math

from enginetop.fleet.events import EventLog
from enginetop.fleet.model import ReplicaState
from enginetop.fleet.observation import Failure, FailureKind, Observation
from enginetop.fleet.reading import EngineFlags, Reading
from enginetop.fleet.spacing import Spacing
from enginetop.fleet.state import (
    Evidence,
    FailureRun,
    Judgement,
    Standstill,
    is_connection_failure,
    judge,
    rests_on_page,
)
from enginetop.fleet.work import NO_WORK, work_of

_SHORTEST_HOLD_SECONDS = 30.0
_E2E_KEPT_SECONDS = 900.0


class StateWatch:
    """Feed it every look in time order. Changes of state, appearance and leave go to `log`.

    `page_at` is the Unix time of the newest good page and `scrape_seconds` how long it took, None before the
    first; `gone_at` is when discovery ceased to list the target, None while it is listed.
    `unanswered_seconds` is how long the look under way has waited, where that is longer than it should.
    """

    def __init__(self, log: EventLog, fixed_spacing_seconds: float | None) -> None:
        """`fixed_spacing_seconds`: the asked interval; None (a replay): judge age by the target's own."""
        self._log = log
        self._spacing = Spacing(fixed_spacing_seconds)
        self._standstill = Standstill()
        self._unreachable: FailureRun | None = None
        self._answer_failure: FailureRun | None = None
        self._answered = False
        self._failed_looks = 0
        self._reading: Reading | None = None
        self._work = NO_WORK
        self._longest_e2e: tuple[float, float] | None = None  # Unix time of a window, and its p99 in seconds
        self._judged_until = -math.inf
        self._calm: tuple[EngineFlags, bool | None] | None = None
        """What the judgement follows from alone, where it is that of a page that moved; else None."""
        self._since: float | None = None
        self.judgement = Judgement(ReplicaState.UNKNOWN)
        self.page_at: float | None = None
        self.scrape_seconds: float | None = None
        self.gone_at: float | None = None
        self.unanswered_seconds: float | None = None

    @property
    def state(self) -> ReplicaState:
        """The state as judged last."""
        return self.judgement.state

    @property
    def looked_at(self) -> bool:
        """Whether anything was ever observed, or nothing ever will be."""
        return self._answered or self.failure is not None or self.gone_at is not None

    @property
    def failure(self) -> Failure | None:
        """The newest failure that no good look has ended."""
        run = self._unreachable or self._answer_failure
        return run.newest if run is not None else None

    @property
    def failed_looks(self) -> int:
        """Failures in a row up to the newest look; 0 when none was, or a good look has ended them."""
        return self._failed_looks if self.failure is not None else 0

    @property
    def spacing_seconds(self) -> float | None:
        """The time between two pages, None while it is not known."""
        return self._spacing.seconds

    @property
    def fresh_seconds(self) -> float:
        """How long a page is fresh; infinite while the spacing is not known."""
        return self._spacing.fresh_seconds

    def since(self, now: float) -> float:
        """When the present state, or its cause, began; `now` before the first judgement."""
        return now if self._since is None else self._since

    def observe(self, observation: Observation, *, moved: bool) -> None:
        """Take the result of one look; `moved`: its reading shows that the engine works."""
        first_answer = not self._answered
        if observation.reading is not None:
            self._take_reading(observation.reading, observation, moved=moved)
        elif observation.failure is not None:
            self._take_failure(observation.failure)
        else:
            self._take_answer()
        calm = self._calm_page(observation, moved=moved)
        if calm is not None and calm == self._calm:
            self._judged_until = self._fresh_until()
            return
        self.unanswered_seconds = None
        self._judged_until = -math.inf
        appeared = first_answer and self._answered
        if appeared:
            self._log.appeared(observation.at)
        self.settle(observation.at, quiet=appeared and self.state is ReplicaState.UNKNOWN)
        self._calm = calm

    def _calm_page(self, observation: Observation, *, moved: bool) -> tuple[EngineFlags, bool | None] | None:
        """What the state follows from, where the newest look is a fresh page that moved; None: it is not."""
        reading = observation.reading
        if (
            not moved
            or reading is None
            or not observation.metrics_page
            or self._answer_failure is not None
            or self.gone_at is not None
            or observation.at > self._fresh_until()
        ):
            return None
        return reading.flags, self._work.busy

    def _fresh_until(self) -> float:
        return -math.inf if self.page_at is None else self.page_at + self.fresh_seconds

    def wait(self, seconds: float | None) -> None:
        """The look under way has waited so long, which is longer than it should; None: no longer so."""
        self.unanswered_seconds = seconds
        self._judged_until, self._calm = -math.inf, None

    def leave(self, at: float) -> None:
        """Discovery ceased to list the target."""
        self.gone_at = at
        self._log.gone(at, "not listed any more")
        self._judged_until = -math.inf
        self.settle(at, quiet=True)

    def come_back(self, at: float, *, moved_from: str = "") -> None:
        """The target is listed (again); `moved_from`: its former address, if that was another one."""
        if self.gone_at is not None:
            self._log.appeared(at, "listed again")
        if moved_from:
            self._log.appeared(at, f"moved from {moved_from}")
        self.gone_at = None
        self._unreachable = self._answer_failure = None  # of another address, or of long ago
        self.unanswered_seconds = None
        self._judged_until = -math.inf
        self.settle(at, quiet=True)

    def requests_took(self, at: float, seconds: float) -> None:
        """The slowest requests (p99) of the window that ends at `at` took so long."""
        self._longest_e2e = (at, seconds)

    def settle(self, now: float, *, quiet: bool = False) -> None:
        """Judge anew if `now` or a look may have changed the state. `quiet`: another event tells why."""
        if now <= self._judged_until:
            return
        evidence = self._evidence(now)
        old, judgement = self.judgement, judge(evidence)
        if self._since is None or judgement.state is not old.state:
            self._since = now if judgement.began is None else judgement.began
        if judgement.state is not old.state and not quiet:
            self._log.state_changed(now, old.state, judgement.state, judgement.reasons)
        self.judgement, self._calm = judgement, None
        # What rests on a page holds until the page is too old; the reasons of other states name durations.
        self._judged_until = evidence.fresh_until if rests_on_page(evidence) else -math.inf

    def _take_answer(self) -> None:
        """The target can be reached, whatever it said."""
        self._answered = True
        self._unreachable = None

    def _take_failure(self, failure: Failure) -> None:
        self._failed_looks = self.failed_looks + 1
        if is_connection_failure(failure):
            self._unreachable = FailureRun.extended(self._unreachable, failure)
            return
        if failure.kind is not FailureKind.COLLECTOR:
            self._answered = True
        self._unreachable = None
        run = self._answer_failure
        same = run if run is not None and run.newest.kind is failure.kind else None
        self._answer_failure = FailureRun.extended(same, failure)

    def _take_reading(self, reading: Reading, observation: Observation, *, moved: bool) -> None:
        self._take_answer()
        self._reading, self._work = reading, work_of(reading)
        self._standstill.observe(reading.at, self._work.busy, moved, observation.metrics_page)
        if observation.metrics_page:
            self._spacing.observe(reading.at)
        # A sleeping engine is not asked for its page (asking would wake it): its side pages are all there is.
        if observation.metrics_page or reading.flags.sleeping:
            self.page_at = reading.at
            self.scrape_seconds = observation.seconds
            self._answer_failure = None

    def _evidence(self, now: float) -> Evidence:
        page_at, reading = self.page_at, self._reading
        if self.gone_at is not None or page_at is None or reading is None:
            return Evidence(
                now,
                page_at,
                unreachable=self._unreachable,
                answer_failure=self._answer_failure,
                gone_at=self.gone_at,
                unanswered_seconds=self.unanswered_seconds,
            )
        return Evidence(
            now,
            page_at,
            fresh_until=self._fresh_until(),
            unreachable=self._unreachable,
            answer_failure=self._answer_failure,
            flags=reading.flags,
            work=self._work,
            standstill_pages=self._standstill.pages,
            standstill_since=self._standstill.since,
            hold_seconds=0.0 if reading.live_progress else self._hold_seconds(reading.at),
            unanswered_seconds=self.unanswered_seconds,
        )

    def _hold_seconds(self, at: float) -> float:
        """How long an engine that counts only finished requests may stand still before it means anything."""
        if self._longest_e2e is None or at - self._longest_e2e[0] > _E2E_KEPT_SECONDS:
            return _SHORTEST_HOLD_SECONDS
        return max(_SHORTEST_HOLD_SECONDS, 2 * self._longest_e2e[1])
