"""The knobs of one simulated engine: what a companion does with them, without any transport.

Values are whole numbers. A change that carries a ttl is on loan: unless it is renewed, the value goes back by
itself to the one that was last set to stay (at first the start value), however many changes came in between.
The time is whatever clock the caller keeps, in seconds. Semantics: contract, section 6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from enginetop.fleet.knobs import KnobRow, KnobSheet

BUDGET = "max_num_batched_tokens"
SEQUENCES = "max_num_seqs"
DRAFTS = "num_speculative_tokens"
THINKING = "thinking_token_budget"

NO_THINKING_BUDGET = -1
"""The value of `thinking_token_budget` with which nothing limits the reasoning."""

LONGEST_TTL_SECONDS = 24 * 3600.0
PAUSE_SECONDS = 1.0
"""Least time between two changes of one knob; the way back is always open."""

_UNITS: Mapping[str, str] = {
    BUDGET: "tokens",
    DRAFTS: "tokens",
    THINKING: "tokens",
    SEQUENCES: "requests",
}


class KnobbedEngine(Protocol):
    """What the board needs of an engine: its knobs by name, read and set between two steps."""

    def knobs(self) -> Mapping[str, int]:
        """The values in force."""

    def set_knob(self, name: str, value: int) -> None:
        """Put a value in force, from the next step on."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a request, as an HTTP status: 200 done (or nothing to do), 404 no such knob, 409 another
    version, 422 out of bounds, 429 too soon, 503 not every rank could apply, so none has.

    `row` is the knob as it stands afterwards (None: no such knob), `applied` how many ranks took the value.
    """

    status: int
    row: KnobRow | None
    applied: int
    detail: str = ""
    retry_after_seconds: float | None = None


@dataclass(slots=True)
class _Loan:
    """A value that was set with a ttl by the change `change`."""

    change: str
    expires_at: float


@dataclass(slots=True)
class _Knob:
    """`lasting` is the value that was last set to stay: where the end of a loan leads to."""

    start: int
    lasting: int
    version: int = 0
    loan: _Loan | None = None
    changed_at: float | None = None


class KnobBoard:
    """The knobs of `engine`, which has the values it was started with; `instance` names this life of it.

    `ranks` is the number of data-parallel ranks that have to confirm; for tests and faults, `refusing_ranks`
    of them do not. `thinking_cap` is the largest budget for reasoning, in tokens. A restarted engine gets a
    new board: changes do not outlive it.
    """

    def __init__(
        self,
        engine: KnobbedEngine,
        instance: str,
        *,
        engine_name: str = "vllm",
        engine_version: str = "",
        ranks: int = 1,
        thinking_cap: int = 32768,
        pause_seconds: float = PAUSE_SECONDS,
    ) -> None:
        self.instance = instance
        self.ranks = ranks
        self.refusing_ranks = 0
        self._engine = engine
        self._engine_name = engine_name
        self._engine_version = engine_version
        self._thinking_cap = thinking_cap
        self._pause_seconds = pause_seconds
        self._knobs = {
            name: _Knob(start=value, lasting=value)
            for name, value in engine.knobs().items()
            if name in _UNITS
        }

    @property
    def next_expiry(self) -> float | None:
        """When the next value goes back by itself; None: no value is on loan."""
        return min((knob.loan.expires_at for knob in self._knobs.values() if knob.loan), default=None)

    def sheet(self, now: float) -> KnobSheet:
        """All knobs at `now`."""
        self.tick(now)
        return KnobSheet(
            engine=self._engine_name,
            engine_version=self._engine_version,
            instance=self.instance,
            applied=self.ranks,
            total=self.ranks,
            knobs=tuple(self._row(name, now) for name in self._knobs),
        )

    def tick(self, now: float) -> None:
        """Take back every value whose loan is over, in the order of their ends."""
        while (expiry := self.next_expiry) is not None and expiry <= now:
            self._go_back(
                {
                    name: knob.lasting
                    for name, knob in self._knobs.items()
                    if knob.loan is not None and knob.loan.expires_at == expiry
                }
            )

    def patch(
        self,
        name: str,
        value: int,
        *,
        if_version: int | None,
        ttl_seconds: float | None,
        change: str,
        now: float,
    ) -> Outcome:
        """Set a knob, if it still is at `if_version` (None: whatever it is at).

        The same value from the same `change` again, at the version it has, is a renewal: nothing is counted,
        only the time moves. `ttl_seconds` None makes the value stay.
        """
        self.tick(now)
        knob = self._knobs.get(name)
        if knob is None:
            return self._unknown(name)
        if if_version is not None and if_version != knob.version:
            return self._refusal(409, name, now, f"at version {knob.version}, not {if_version}")
        renewal = knob.loan is not None and knob.loan.change == change and self._value(name) == value
        low, high = self._bounds(name)
        if not (renewal or low <= value <= high):
            return self._refusal(422, name, now, f"{value} is not within {low} to {high}")
        wait = 0.0 if renewal else self._wait(name, value, now)
        if wait > 0:
            return self._refusal(429, name, now, "changed a moment ago", wait)
        if self.refusing_ranks:
            return self._refusal(503, name, now, self._ranks_missing())
        if ttl_seconds is None:
            knob.lasting, knob.loan = value, None
        else:
            knob.loan = _Loan(change, now + ttl_seconds)
        if not renewal:
            self._put(name, value)
            knob.changed_at = now
        return Outcome(200, self._row(name, now), self.ranks)

    def delete(self, name: str, now: float) -> Outcome:
        """Set a knob to its start value, to stay. Nothing counts as a change where that is what it has."""
        self.tick(now)
        knob = self._knobs.get(name)
        if knob is None:
            return self._unknown(name)
        if self.refusing_ranks:
            return self._refusal(503, name, now, self._ranks_missing())
        if knob.loan is not None or self._value(name) != knob.start:
            knob.changed_at = now
            self._go_back({name: knob.start})
        return Outcome(200, self._row(name, now), self.ranks)

    # Parts of these

    def _value(self, name: str) -> int:
        return self._engine.knobs()[name]

    def _put(self, name: str, value: int) -> None:
        self._engine.set_knob(name, value)
        self._knobs[name].version += 1

    def _go_back(self, values: dict[str, int]) -> None:
        """End the loans of these knobs and set them to `values`, to stay.

        The budget that was set beside smaller values may then be too small for one decode step: it is lifted
        to what is needed, so that nothing stands in the way of going back.
        """
        for name, value in values.items():
            self._knobs[name].loan, self._knobs[name].lasting = None, value
        coming = {**self._engine.knobs(), **values}
        budget = max(coming[BUDGET], coming[SEQUENCES] * (1 + coming[DRAFTS]))
        if self._knobs[BUDGET].loan is None:
            self._knobs[BUDGET].lasting = budget
        # A larger budget comes first, a smaller one last: at no time is it too small.
        lifted = budget > self._value(BUDGET)
        if lifted:
            self._put(BUDGET, budget)
        for name, value in values.items():
            if name != BUDGET:
                self._put(name, value)
        if BUDGET in values and not lifted:
            self._put(BUDGET, budget)

    def _bounds(self, name: str) -> tuple[int, int]:
        """The least and the largest value that is accepted now.

        The budget never falls below one full decode step of all requests, and what a decode step takes never
        grows beyond the budget.
        """
        start = self._knobs[name].start
        if name == THINKING:
            return NO_THINKING_BUDGET, self._thinking_cap
        values = self._engine.knobs()
        budget, sequences, drafts = values[BUDGET], values[SEQUENCES], values[DRAFTS]
        if name == BUDGET:
            return sequences * (1 + drafts), start
        if name == SEQUENCES:
            return 1, min(start, budget // (1 + drafts))
        if self.ranks > 1:
            return start, start
        return 0, min(start, budget // sequences - 1)

    def _wait(self, name: str, value: int, now: float) -> float:
        """Seconds until `name` may be set to `value`; not above 0: now."""
        knob = self._knobs[name]
        if knob.changed_at is None or value in {knob.start, knob.lasting}:
            return 0.0
        return knob.changed_at + self._pause_seconds - now

    def _row(self, name: str, now: float) -> KnobRow:
        knob = self._knobs[name]
        low, high = self._bounds(name)
        return KnobRow(
            name=name,
            value=self._value(name),
            start=knob.start,
            min=low,
            max=high,
            unit=_UNITS[name],
            version=knob.version,
            expires_in_seconds=None if knob.loan is None else knob.loan.expires_at - now,
            note=self._note(name),
        )

    def _note(self, name: str) -> str:
        knob = self._knobs[name]
        if knob.loan is not None:
            return f"goes back to {knob.lasting} by itself"
        if name == THINKING:
            return f"{NO_THINKING_BUDGET}: no budget"
        if name == DRAFTS and self.ranks > 1:
            return "fixed: several data-parallel ranks draft in step"
        return ""

    def _unknown(self, name: str) -> Outcome:
        return Outcome(404, None, 0, f"no knob {name[:64]!r} here; there are: {', '.join(self._knobs)}")

    def _refusal(
        self, status: int, name: str, now: float, detail: str, retry_after_seconds: float | None = None
    ) -> Outcome:
        return Outcome(status, self._row(name, now), 0, detail, retry_after_seconds)

    def _ranks_missing(self) -> str:
        return f"{self.refusing_ranks} of {self.ranks} ranks could not apply it, so none has"
