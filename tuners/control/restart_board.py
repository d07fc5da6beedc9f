"""A knob board for an engine whose knobs are set at its start: a new value means drain, restart, be ready.

What does not come back is started again with what it ran with before. Values on loan go back by themselves,
as with every knob board, and their time begins when they are in force. Pure but for the engine it is given:
`tick` is told the time, and nothing blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from enginetop.fleet.knobs import BY_HAND, FAILED, KnobRow, KnobSheet, Outcome, unknown_knob
from tuners.control.restart_move import DRAINING, GOING_BACK, RESTARTING, Move, Patience
from tuners.control.restartable import NothingDoneError, Restartable, RestartError, StartKnob, Values
from tuners.control.start_values import StartValues


class RestartBoard:
    """The knobs of `engine`, which runs with the start values of `knobs`, or with `present`; a `KnobBoard`.

    `instance` names this board's life, not the engine's: restarts are what it does. Requests go on with what
    is under way, unless `ticks_elsewhere`: then only calls of `tick` do. `stands` looks up which values are
    set where the engine reads them: what somebody else has put there is his, and stays. One thread at a time.
    """

    ranks = 1

    def __init__(
        self,
        engine: Restartable,
        knobs: tuple[StartKnob, ...],
        *,
        writer: str,
        instance: str,
        engine_name: str,
        patience: Patience | None = None,
        ticks_elsewhere: bool = False,
        present: Values | None = None,
        stands: Callable[[], Values] | None = None,
    ) -> None:
        self._engine = engine
        self._stands = stands
        self._knobs = {knob.name: knob for knob in knobs}
        self._writer, self._instance = writer, instance
        self._engine_name = engine_name
        self._patience = patience or Patience()
        self._values = StartValues(knobs, present or {})
        self._note = ""
        self._move: Move | None = None
        self._ticks_elsewhere = ticks_elsewhere
        self.failed = False
        """The engine could not be brought back."""
        self.ended = ""
        """How the engine ended by itself, with the values that are to stay; empty: it did not."""

    def sheet(self, now: float) -> KnobSheet:
        """See `KnobBoard`."""
        self._tick_here(now)
        return KnobSheet(
            engine=self._engine_name,
            engine_version="",  # its page tells it
            instance=self._instance,
            applied=1,
            total=1,
            knobs=tuple(self._row(knob, now) for knob in self._knobs.values()),
            writer=self._writer,
        )

    def patch(
        self,
        name: str,
        value: int,
        *,
        if_version: int | None,
        ttl_seconds: float | None,
        change: str,  # noqa: ARG002 - the same value again is a renewal, whoever asks
        now: float,
    ) -> Outcome:
        """See `KnobBoard`. The answer comes at once; the row tells what is under way."""
        self._tick_here(now)
        knob = self._knobs.get(name)
        if knob is None:
            return unknown_knob(name, self._knobs)
        version = self._values.version(name)
        if if_version is not None and if_version != version:
            return self._refusal(409, knob, now, f"at version {version}, not {if_version}")
        known = value in (self._values.lasting[name], knob.start)
        if not (known or knob.min <= value <= knob.max):
            return self._refusal(422, knob, now, f"{value} is not within {knob.min} to {knob.max}")
        return self._set(knob, value, ttl_seconds, now)

    def delete(self, name: str, now: float) -> Outcome:
        """See `KnobBoard`."""
        self._tick_here(now)
        knob = self._knobs.get(name)
        if knob is None:
            return unknown_knob(name, self._knobs)
        return self._set(knob, knob.start, None, now)

    def tick(self, now: float) -> None:
        """Go on with what is under way; take back what is on loan too long."""
        move = self._move
        if move is None:
            self._idle(now)
            return
        try:
            self._go_on(move, now)
        except RestartError as error:
            self._take(move, error, now)

    @property
    def settled(self) -> bool:
        """Whether no restart is under way."""
        return self._move is None

    @property
    def lasting(self) -> Values:
        """The values that are there to stay."""
        return dict(self._values.lasting)

    @property
    def note(self) -> str:
        """What was the matter last, in words; empty: nothing."""
        return self._note

    # Parts of these

    def _tick_here(self, now: float) -> None:
        if not self._ticks_elsewhere:
            self.tick(now)

    def _set(self, knob: StartKnob, value: int | None, ttl_seconds: float | None, now: float) -> Outcome:
        name, move = knob.name, self._move
        if move is not None:
            if move.knob == name and value == move.to[name]:
                move.ttl_seconds = None if move.back else ttl_seconds
                return self._done(knob, now)
            if move.phase == DRAINING and value == move.former[name]:
                self._cancel(move, "the change was taken back before anything was restarted")
                self._values.hold(
                    name, ttl_seconds, now
                )  # of a way back: the loan of the value ended with it
                return self._done(knob, now)
            return self._refusal(429, knob, now, f"the engine is {move.phase.replace('_', ' ')}", 2.0)
        if value == self._values.present[name] and not self.failed:
            self._values.hold(name, ttl_seconds, now)
            return self._done(knob, now)
        self._begin(name, {**self._values.present, name: value}, ttl_seconds, now)
        return self._done(knob, now)

    def _begin(self, name: str, to: Values, ttl_seconds: float | None, now: float) -> None:
        lasting = self._values.lasting
        move = Move(
            knob=name,
            to=to,
            former=dict(self._values.present),
            ttl_seconds=ttl_seconds,
            phase=DRAINING,
            until=now + self._patience.drain_seconds,
            back=to == lasting,
            cuts=self._patience.cuts_requests or to[name] in (lasting[name], self._knobs[name].start),
        )
        self._values.end_loans(known for known, value in to.items() if value == lasting[known])
        self._move, self._note = move, ""
        self._values.put(to)
        if self.failed:  # nothing runs that could be drained
            try:
                self._restart(move, now)
            except RestartError as error:
                self._take(move, error, now)

    def _go_on(self, move: Move, now: float) -> None:
        if move.phase != DRAINING:
            if self._engine.poll() and self._engine.load().ready:
                self._settle(move, now)
            elif now >= move.until:
                raise RestartError(f"it was not ready after {self._patience.ready_seconds:.0f} s")
            return
        load = self._engine.load()
        if load.requests == 0 or not load.ready:
            self._restart(move, now)
        elif now >= move.until:
            if move.cuts:
                self._restart(move, now)
                return
            many = "an unknown number of" if load.requests is None else f"{load.requests}"
            waited = f"{self._patience.drain_seconds:.0f} s"
            self._cancel(move, f"{many} requests still ran after {waited}; nothing was restarted")

    def _restart(self, move: Move, now: float) -> None:
        move.phase = GOING_BACK if move.back else RESTARTING
        move.until = now + self._patience.ready_seconds
        self._engine.begin(move.to)

    def _settle(self, move: Move, now: float) -> None:
        self._move, self.failed = None, False
        self._values.hold(move.knob, move.ttl_seconds, now)

    def _cancel(self, move: Move, why: str) -> None:
        self._values.put(move.former)
        self._move, self._note = None, why

    def _take(self, move: Move, error: RestartError, now: float) -> None:
        """What did not work is started again as it was; when that fails as well, a person has to do it."""
        why = str(error)
        if move.back:
            self._give_up(f"{self._note}; then {why}" if self._note else why)
        elif isinstance(error, NothingDoneError):
            self._cancel(move, why)
        else:
            self._note = f"{move.knob} {move.to[move.knob]} did not work: {why}"
            back = replace(move, to=self.lasting, ttl_seconds=None, back=True)
            self._values.end_loans(back.to)
            self._values.put(back.to)
            self._move = back
            try:
                self._restart(back, now)
            except RestartError as second:
                self._take(back, second, now)

    def _give_up(self, why: str) -> None:
        self._move, self.failed = None, True
        self._values.put(self.lasting)
        self._values.end_loans(self.lasting)
        self._note = f"{why}{BY_HAND}{self._engine.by_hand(self.lasting)}"

    def _idle(self, now: float) -> None:
        if self.failed or self.ended:
            return
        try:
            self._engine.poll()
        except RestartError as error:
            self._died(error, now)
            return
        self._adopt()
        over = self._values.take_expired(now)
        to = {**self._values.present, **{name: self._values.lasting[name] for name in over}}
        if to != self._values.present:
            self._begin(over[0], to, None, now)

    def _adopt(self) -> None:
        """Take over what somebody else has set."""
        with suppress(RestartError):
            found = self._stands() if self._stands is not None else {}
            for name, value in self._values.adopt(found).items():
                self._note = f"{name} was set to {value} by somebody else"

    def _died(self, error: RestartError, now: float) -> None:
        """It ended by itself: with a value on trial that value is blamed, else whoever owns us decides."""
        on_trial = self._values.on_trial()
        if on_trial is None:
            self.ended = str(error)
            return
        present = dict(self._values.present)
        self._take(Move(on_trial, present, present, None, RESTARTING, now, back=False), error, now)

    def _row(self, knob: StartKnob, now: float) -> KnobRow:
        left, move = self._values.loan_seconds(knob.name, now), self._move
        coming = move.ttl_seconds if move is not None and move.knob == knob.name else None
        phase = move.phase if move is not None else FAILED if self.failed else ""
        return KnobRow(
            name=knob.name,
            value=self._values.present[knob.name],
            start=knob.start,
            min=knob.min,
            max=knob.max,
            unit=knob.unit,
            version=self._values.version(knob.name),
            expires_in_seconds=coming if left is None else left,
            note=self._note,
            apply="restart",
            phase=phase,
            takes_seconds=self._patience.longest_seconds,
        )

    def _done(self, knob: StartKnob, now: float) -> Outcome:
        return Outcome(200, self._row(knob, now), 1)

    def _refusal(
        self, status: int, knob: StartKnob, now: float, detail: str, wait: float | None = None
    ) -> Outcome:
        return Outcome(status, self._row(knob, now), 0, detail, wait)
