"""What is remembered of a replica for its rules: windows of steps, last pages and minutes, thoughts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from enginetop.fleet.frozen import frozen
from enginetop.fleet.snapshot import ReplicaSnapshot
from tuners.draft_memory import Drafted, DraftMemory
from tuners.knob_values import Knobs
from tuners.limits import FRESH
from tuners.moments import MINUTE_SECONDS, Minute, Moment
from tuners.rows import RowLog, known_points
from tuners.step_time import StepWindow
from tuners.thought_log import ThoughtLog
from tuners.thoughts import Thoughts

WINDOW_SECONDS = 3.5
"""Least length of a window of steps: the tokens of a long prompt count when it is done, steps after they were
computed. Pages that come closer together are taken as one.
"""

_MOST_WINDOWS = 240
_MOST_MOMENTS = 300
_MOMENTS_SECONDS = 300.0
_MOMENTS_APART_SECONDS = 1.5
"""Of pages that come closer the newest stands for all: what is told by them goes on for longer."""
_MOST_MINUTES = 30
_LEAST_RUNNING = 2
"""Requests running at both ends of a window: with fewer the engine may have rested in between."""
_LONGEST_SPACINGS = 3


@frozen
class _Mark:
    at: float
    steps: float
    tokens: float
    waiting: float
    busy: bool


class EvidenceLog:
    """Windows of steps and last pages of one replica, newest last. Feed it every snapshot, in time order.

    A window lies between two pages at which the engine was at work, so that its step time is the time
    between them over the steps in them. All are forgotten when a knob changes or the engine restarts. A clock
    that is set back ends the window and the minute under way, and takes the pages that are not older now.
    """

    def __init__(self) -> None:
        self._windows = RowLog(StepWindow, _MOST_WINDOWS)
        self._moments = RowLog(Moment, _MOST_MOMENTS)
        self._minutes: tuple[Minute, ...] = ()
        self._minute_began: tuple[float, float] | None = None
        self._thoughts = ThoughtLog()
        self._mark: _Mark | None = None
        self._made_with: object = None
        self._drafts = 0
        self._model: str | None = None
        self._drafted_before: float | None = None
        self._memory = DraftMemory()
        self._restarted_at = -math.inf

    @property
    def windows(self) -> Sequence[StepWindow]:
        """The windows so far."""
        return self._windows.rows

    @property
    def recent(self) -> Sequence[Moment]:
        """Pages of the last five minutes since a knob changed or the engine restarted, the newest among them.

        They are a second and a half apart at least.
        """
        return self._moments.rows

    @property
    def minutes(self) -> Sequence[Minute]:
        """The minutes since a knob changed or the engine restarted, up to half an hour."""
        return self._minutes

    @property
    def thoughts(self) -> Thoughts | None:
        """How long requests thought in the last hours, whatever the knobs; None where nobody counts it."""
        return self._thoughts.thoughts

    @property
    def drafted(self) -> Drafted:
        """What other numbers of drafts were measured at."""
        return self._memory.known

    def drafted_steps(self, replica: ReplicaSnapshot, drafts: int) -> float | None:
        """Steps of requests that made drafts since the knobs are as they are; None: not counted."""
        drafted, before = replica.totals.get("spec_draft_tokens"), self._drafted_before
        if drafted is None or before is None or drafts <= 0:
            return None
        return (drafted - before) / drafts

    def take(self, replica: ReplicaSnapshot, knobs: Knobs) -> bool:
        """Take the newest snapshot of the replica; whether everything before it was forgotten."""
        restarts = (event.at for event in replica.events if event.kind == "restarted")
        self._restarted_at = max((self._restarted_at, *restarts))  # old events leave the list
        set_to = (knobs.budget, knobs.sequences, knobs.drafts, knobs.thinking)
        made_with = (set_to, replica.model, self._restarted_at)
        forgotten = self._made_with is not None and made_with != self._made_with
        if made_with != self._made_with:
            self._remember(replica)
            self._drafted_before = replica.totals.get("spec_draft_tokens")
            self._windows.clear()
            self._moments.clear()
            self._minutes = ()
            self._minute_began = None
            self._mark = None
            self._made_with, self._drafts, self._model = made_with, knobs.drafts, replica.model
        self._note(replica)
        self._note_minute(replica)
        self._thoughts.take(replica, knobs.thinking, self._restarted_at)
        mark = _mark(replica)
        if mark is None:
            self._mark = None
        elif self._mark is None or not mark.busy or mark.at < self._mark.at:
            self._mark = mark
        elif mark.at - self._mark.at >= WINDOW_SECONDS:
            self._close(mark, replica)
        return forgotten

    def _remember(self, replica: ReplicaSnapshot) -> None:
        """What was seen with the old knobs, for a comparison with the new ones."""
        if replica.model != self._model:
            self._memory.forget()
        else:
            self._memory.keep(self._drafts, self.windows, self.recent, max(1, len(replica.ranks)))

    def _note(self, replica: ReplicaSnapshot) -> None:
        moments, at = self._moments, replica.scraped_at
        if at is None or replica.state not in FRESH or (moments and at == moments.number(-1, "at")):
            return
        while moments and moments.number(-1, "at") >= at:
            moments.drop(newest=1)
        kv = replica.scalar("kv_usage_ratio")
        running, waiting = (replica.scalar(name).number for name in ("requests_running", "requests_waiting"))
        usage = kv.number if kv.mean is None else kv.mean
        if len(moments) > 1 and (
            moments.number(-1, "at") - moments.number(-2, "at") < _MOMENTS_APART_SECONDS
        ):
            moments.drop(newest=1)
        moments.append(Moment(at, running, waiting, usage, replica.totals.get("generation_tokens")))
        while moments.number(0, "at") < at - _MOMENTS_SECONDS:
            moments.drop(oldest=1)

    def _note_minute(self, replica: ReplicaSnapshot) -> None:
        at, preempted = replica.scraped_at, replica.totals.get("preemptions", 0.0)
        if at is None or replica.state not in FRESH:
            self._minute_began = None
            return
        if self._minute_began is None or at < self._minute_began[0]:
            self._minute_began = (at, preempted)
        began, before = self._minute_began
        if at - began < MINUTE_SECONDS:
            return
        self._minute_began = (at, preempted)
        requests = replica.distribution("ttft_seconds").count
        ttft = replica.goodput.ttft.value
        if requests and ttft is not None:
            ran = known_points(self.recent, "at", "running")
            most = max((running for then, running in ran if then > began), default=0.0)
            prompts, outputs = _lengths(replica)
            minute = Minute(at, requests, ttft, preempted - before, prompts, outputs, most)
            self._minutes = (*self._minutes, minute)[-_MOST_MINUTES:]

    def _close(self, mark: _Mark, replica: ReplicaSnapshot) -> None:
        before, self._mark = self._mark, mark
        if before is None or not before.busy:
            return
        seconds, steps = mark.at - before.at, mark.steps - before.steps
        longest = _LONGEST_SPACINGS * max(WINDOW_SECONDS, replica.spacing_seconds or 0.0)
        tokens = mark.tokens - before.tokens
        if steps <= 0 or tokens <= 0 or seconds > longest:
            return
        ranks = max(1, len(replica.ranks))
        waiting = min(before.waiting, mark.waiting)
        self._windows.append(StepWindow(tokens / steps, seconds * ranks / steps, waiting))


def _lengths(replica: ReplicaSnapshot) -> Iterator[float | None]:
    """The p90 of prompts and of outputs in the window."""
    for name in ("prompt_tokens", "output_tokens"):
        longest = replica.distribution(name).quantiles.get("p90")
        yield None if longest is None else longest.value


def _mark(replica: ReplicaSnapshot) -> _Mark | None:
    """The replica's step counters at its last page; None where they say nothing."""
    totals = replica.totals
    steps, tokens = totals.get("iteration_tokens.count"), totals.get("iteration_tokens.sum")
    if replica.scraped_at is None or steps is None or tokens is None:
        return None
    if replica.state not in FRESH:
        return None
    running = replica.scalar("requests_running").number
    waiting = replica.scalar("requests_waiting").number or 0.0
    ranks = max(1, len(replica.ranks))
    busy = running is not None and running >= _LEAST_RUNNING * ranks
    # vLLM counts a prompt with its cached part when its prefill is done, and of drafts the accepted ones.
    computed = tokens - totals.get("prefix_hits", 0.0)
    rejected = totals.get("spec_draft_tokens", 0.0) - totals.get("spec_accepted_tokens", 0.0)
    return _Mark(replica.scraped_at, steps, computed + rejected, waiting / ranks, busy)
