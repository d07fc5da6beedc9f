"""The knobs of one simulated engine: what a companion does with them, without any transport.

Values are whole numbers. A change that carries a ttl is on loan: unless it is renewed, the value goes back by
itself to the one that was last set to stay (at first the start value), however many changes came in between.
The time is whatever clock the caller keeps, in seconds. Semantics: contract, section 6.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from enginetop.fleet.knobs import KnobRow, KnobSheet, Outcome, unknown_knob
from enginetop.simulator.live_knobs import NO_BUDGET, KnobState

BUDGET = "max_num_batched_tokens"
SEQUENCES = "max_num_seqs"
DRAFTS = "num_speculative_tokens"
THINKING = "thinking_token_budget"

LONGEST_TTL_SECONDS = 24 * 3600.0
PAUSE_SECONDS = 1.0
"""Least time between two changes of one knob; the way back is always open."""


class KnobbedEngine(Protocol):
    """What the board needs of an engine: its knobs with their bounds, read and set between two steps."""

    def knobs(self) -> tuple[KnobState, ...]:
        """Every knob that can be changed live."""

    def set_knob(self, name: str, value: int) -> KnobState:
        """Put a value within the bounds in force, from the next step on."""


@dataclass(slots=True)
class _Knob:
    """`lasting` is the value that was last set to stay: where the end of a loan leads to.

    `change` set the present value (empty: it is there by itself), which is on loan until `expires_at`.
    """

    lasting: int
    version: int = 0
    change: str = ""
    expires_at: float | None = None
    changed_at: float | None = None


class KnobBoard:
    """The knobs of `engine`, which has the values it was started with; `instance` names this life of it.

    `ranks` is the number of data-parallel ranks that have to confirm; for tests and faults, `refusing_ranks`
    of them do not. A restarted engine gets a new board: changes do not outlive it.
    """

    def __init__(
        self,
        engine: KnobbedEngine,
        instance: str,
        *,
        engine_name: str = "vllm",
        engine_version: str = "",
        ranks: int = 1,
        pause_seconds: float = PAUSE_SECONDS,
    ) -> None:
        self.instance = instance
        self.ranks = ranks
        self.refusing_ranks = 0
        self._engine = engine
        self._engine_name = engine_name
        self._engine_version = engine_version
        self._pause_seconds = pause_seconds
        self._knobs = {state.name: _Knob(lasting=state.value) for state in engine.knobs()}

    @property
    def next_expiry(self) -> float | None:
        """When the next value goes back by itself; None: no value is on loan."""
        ends = (knob.expires_at for knob in self._knobs.values())
        return min((end for end in ends if end is not None), default=None)

    def sheet(self, now: float) -> KnobSheet:
        """All knobs at `now`."""
        self.tick(now)
        return KnobSheet(
            engine=self._engine_name,
            engine_version=self._engine_version,
            instance=self.instance,
            applied=self.ranks,
            total=self.ranks,
            knobs=tuple(row for name in self._knobs if (row := self._found_row(name, now)) is not None),
        )

    def tick(self, now: float) -> None:
        """Take back every value whose loan is over, in the order of their ends."""
        while (expiry := self.next_expiry) is not None and expiry <= now:
            self._go_back(
                {name: knob.lasting for name, knob in self._knobs.items() if knob.expires_at == expiry}
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
        state, knob = self._state(name), self._knobs.get(name)
        if state is None or knob is None:
            return unknown_knob(name, self._knobs)
        if if_version is not None and if_version != knob.version:
            return self._refusal(409, name, now, f"at version {knob.version}, not {if_version}")
        renewal = knob.change == change and state.value == value
        if not (renewal or state.min <= value <= state.max):
            return self._refusal(422, name, now, f"{value} is not within {state.min} to {state.max}")
        wait = 0.0 if renewal or value == state.start else self._wait(knob, value, now)
        if wait > 0:
            return self._refusal(429, name, now, "changed a moment ago", wait)
        if self.refusing_ranks:
            return self._refusal(503, name, now, self._ranks_missing())
        if ttl_seconds is None:
            knob.lasting, knob.expires_at = value, None
        else:
            knob.expires_at = now + ttl_seconds
        if not renewal:
            self._put(name, value)
            knob.change, knob.changed_at = change, now
        return self._done(name, now)

    def delete(self, name: str, now: float) -> Outcome:
        """Set a knob to its start value, to stay. Nothing counts as a change where that is what it has."""
        self.tick(now)
        state, knob = self._state(name), self._knobs.get(name)
        if state is None or knob is None:
            return unknown_knob(name, self._knobs)
        if self.refusing_ranks:
            return self._refusal(503, name, now, self._ranks_missing())
        if knob.expires_at is not None or state.value != state.start:
            knob.changed_at = now
            self._go_back({name: state.start})
        return self._done(name, now)

    # Parts of these

    def _state(self, name: str) -> KnobState | None:
        return next((state for state in self._engine.knobs() if state.name == name), None)

    def _put(self, name: str, value: int) -> None:
        self._engine.set_knob(name, value)
        self._knobs[name].version += 1

    def _go_back(self, values: dict[str, int]) -> None:
        """End the loans of these knobs and set them to `values`, to stay.

        The budget that was set beside smaller values may then be too small for one decode step: it is lifted
        to what is needed, so that nothing stands in the way of going back.
        """
        for name, value in values.items():
            knob = self._knobs[name]
            knob.lasting, knob.change, knob.expires_at = value, "", None
        states = {state.name: state for state in self._engine.knobs()}
        present = {name: state.value for name, state in states.items()}
        coming = {**present, **values}
        # The present floor is what the requests of a decode step take now; some may be draining.
        requests = states[BUDGET].min // (1 + present.get(DRAFTS, 0))
        floor = max(requests, coming[SEQUENCES]) * (1 + coming.get(DRAFTS, 0))
        budget = max(coming[BUDGET], floor)
        if self._knobs[BUDGET].expires_at is None:
            self._knobs[BUDGET].lasting = budget
        moves = {**values, BUDGET: budget} if budget > present[BUDGET] or BUDGET in values else values

        def turn(name: str) -> int:
            """A larger budget comes first, a smaller one last, and in between sizes shrink before others
            grow: at no time does a decode step take more than the budget.
            """
            smaller = moves[name] < present[name]
            if name == BUDGET:
                return 3 if smaller else 0
            return 1 if smaller else 2

        for name in sorted(moves, key=turn):
            self._put(name, moves[name])

    def _wait(self, knob: _Knob, value: int, now: float) -> float:
        """Seconds until `knob` may be set to `value`; not above 0: now."""
        if knob.changed_at is None or value == knob.lasting:
            return 0.0
        return knob.changed_at + self._pause_seconds - now

    def _row(self, state: KnobState, now: float) -> KnobRow:
        knob = self._knobs[state.name]
        return KnobRow(
            name=state.name,
            value=state.value,
            start=state.start,
            min=state.min,
            max=state.max,
            unit=state.unit,
            version=knob.version,
            expires_in_seconds=None if knob.expires_at is None else knob.expires_at - now,
            note=self._note(state.name),
        )

    def _note(self, name: str) -> str:
        knob = self._knobs[name]
        if knob.expires_at is not None:
            return f"goes back to {knob.lasting} by itself"
        if name == THINKING:
            return f"{NO_BUDGET}: no budget"
        if name == DRAFTS and self.ranks > 1:
            return "fixed: several data-parallel ranks draft in step"
        return ""

    def _done(self, name: str, now: float) -> Outcome:
        return Outcome(200, self._found_row(name, now), self.ranks)

    def _refusal(
        self, status: int, name: str, now: float, detail: str, retry_after_seconds: float | None = None
    ) -> Outcome:
        return Outcome(status, self._found_row(name, now), 0, detail, retry_after_seconds)

    def _found_row(self, name: str, now: float) -> KnobRow | None:
        state = self._state(name)
        return None if state is None else self._row(state, now)

    def _ranks_missing(self) -> str:
        return f"{self.refusing_ranks} of {self.ranks} ranks could not apply it, so none has"
