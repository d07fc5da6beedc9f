"""What a rule may rest on: windows of steps, and knobs as they stand. Pure; time is the snapshot's."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from enginetop.fleet.knobs import KnobSheet
from enginetop.fleet.model import ReplicaState
from enginetop.fleet.snapshot import ReplicaSnapshot
from tuners import prefill
from tuners.step_time import StepWindow

BUDGET = "max_num_batched_tokens"
SEQUENCES = "max_num_seqs"
DRAFTS = "num_speculative_tokens"

WINDOW_SECONDS = 3.5
"""Least length of a window of steps: the tokens of a long prompt count when it is done, steps after they were
computed. Pages that come closer together are taken as one.
"""

_MOST_WINDOWS = 240
_LEAST_RUNNING = 2
"""Requests running at both ends of a window: with fewer the engine may have rested in between."""
_LONGEST_SPACINGS = 3


@dataclass(frozen=True, slots=True)
class Knobs:
    """The knobs that token rules need, as they stand now; None: not known.

    `budget` is `max_num_batched_tokens`, `drafts` the draft tokens of a decoding request. `least_budget` and
    `most_budget` are what the engine accepts live, `live` whether it accepts anything. `problem` says why the
    values cannot be relied on.
    """

    budget: int | None = None
    sequences: int | None = None
    drafts: int = 0
    live: bool = False
    least_budget: int | None = None
    most_budget: int | None = None
    source: str = ""
    problem: str = ""

    @property
    def floor(self) -> int | None:
        """The least budget: every sequence must get its token and drafts into one step (R5)."""
        by_rule = None if self.sequences is None else prefill.least_budget(self.sequences, self.drafts)
        known = [floor for floor in (by_rule, self.least_budget) if floor is not None]
        return max(known) if known else None


def knobs_of(replica: ReplicaSnapshot, sheet: KnobSheet | None = None) -> Knobs:
    """The knobs of a replica: from its knob sheet where there is one, else as its pages tell."""
    drafts = _configured(replica, DRAFTS) or 0
    sequences = _configured(replica, SEQUENCES)
    if sheet is None or (row := sheet.knob(BUDGET)) is None:
        setting = replica.config.get(BUDGET)
        return Knobs(
            _configured(replica, BUDGET), sequences, drafts, source=setting.source if setting else ""
        )
    problem = ""
    if sheet.applied != sheet.total:
        problem = f"mixed configuration: {sheet.applied} of {sheet.total} ranks confirm their knobs"
    return Knobs(
        budget=row.value,
        sequences=_sheet_value(sheet, SEQUENCES, sequences),
        drafts=_sheet_value(sheet, DRAFTS, drafts) or 0,
        live=True,
        least_budget=row.min,
        most_budget=row.max,
        source="knob API",
        problem=problem,
    )


def _configured(replica: ReplicaSnapshot, name: str) -> int | None:
    setting = replica.config.get(name)
    value = setting.value if setting is not None else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _sheet_value(sheet: KnobSheet, name: str, default: int | None) -> int | None:
    row = sheet.knob(name)
    return default if row is None or row.value is None else row.value


@dataclass(frozen=True, slots=True)
class _Mark:
    at: float
    steps: float
    tokens: float
    busy: bool


class EvidenceLog:
    """Windows of steps of one replica, newest last. Feed it every snapshot of the replica, in time order.

    A window lies between two pages at which the engine was at work, so that its step time is the time
    between them over the steps in them. All are forgotten when a knob changes or the engine restarts.
    """

    def __init__(self) -> None:
        self._windows: deque[StepWindow] = deque(maxlen=_MOST_WINDOWS)
        self._mark: _Mark | None = None
        self._made_with: object = None
        self._restarted_at = -math.inf

    @property
    def windows(self) -> Sequence[StepWindow]:
        """The windows so far."""
        return tuple(self._windows)

    def take(self, replica: ReplicaSnapshot, knobs: Knobs) -> bool:
        """Take the newest snapshot of the replica; whether everything before it was forgotten."""
        restarts = (event.at for event in replica.events if event.kind == "restarted")
        self._restarted_at = max((self._restarted_at, *restarts))  # old events leave the list
        made_with = (knobs.budget, knobs.sequences, knobs.drafts, replica.model, self._restarted_at)
        forgotten = self._made_with is not None and made_with != self._made_with
        if made_with != self._made_with:
            self._windows.clear()
            self._mark = None
            self._made_with = made_with
        mark = _mark(replica)
        if mark is None:
            self._mark = None
        elif self._mark is None or not mark.busy:
            self._mark = mark
        elif mark.at - self._mark.at >= WINDOW_SECONDS:
            self._close(mark, replica)
        return forgotten

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
        self._windows.append(StepWindow(tokens / steps, seconds * ranks / steps))


def _mark(replica: ReplicaSnapshot) -> _Mark | None:
    """The replica's step counters at its last page; None where they say nothing."""
    totals = replica.totals
    steps, tokens = totals.get("iteration_tokens.count"), totals.get("iteration_tokens.sum")
    if replica.scraped_at is None or steps is None or tokens is None:
        return None
    if replica.state not in (ReplicaState.OK, ReplicaState.IDLE):
        return None
    running = replica.scalar("requests_running").number
    ranks = max(1, len(replica.ranks))
    busy = running is not None and running >= _LEAST_RUNNING * ranks
    # vLLM counts a prompt with its cached part when its prefill is done, and of drafts the accepted ones.
    computed = tokens - totals.get("prefix_hits", 0.0)
    rejected = totals.get("spec_draft_tokens", 0.0) - totals.get("spec_accepted_tokens", 0.0)
    return _Mark(replica.scraped_at, steps, computed + rejected, busy)
