"""A knob board over an engine's own API that takes values while it runs.

Engines know neither versions nor ttls: both are kept here, as long as this process lives. Every write is read
back, and what the engine says of it counts for nothing.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol

from enginetop.fleet.frozen import frozen
from enginetop.fleet.knobs import KnobRow, KnobSheet, Outcome, unknown_knob
from tuners.control.knob_api import ReplyKind
from tuners.control.stock.exchange import STATUSES, StockError

CONFLICT = 409


@frozen
class LiveKnob:
    """One knob as the engine tells it: `values` of its ranks, its start value (None: not told) and bounds."""

    name: str
    values: tuple[int, ...]
    start: int | None
    min: int
    max: int
    unit: str
    note: str = ""

    @property
    def value(self) -> int | None:
        """The value of all ranks; None: they differ."""
        return self.values[0] if len(set(self.values)) == 1 else None


@frozen
class Standing:
    """What an engine says of its knobs. `instance` changes at its restart where the engine tells of one."""

    knobs: tuple[LiveKnob, ...]
    instance: str
    version: str = ""

    def knob(self, name: str) -> LiveKnob | None:
        """The knob of that name."""
        return next((knob for knob in self.knobs if knob.name == name), None)


class LiveApi(Protocol):
    """One engine's own API."""

    def read(self) -> Standing:
        """The knobs as they stand now. StockError when they cannot be read."""

    def write(self, knob: str, value: int) -> str:
        """Ask for a value on all ranks; what the engine answered, in words. StockError when it said no."""


class LiveBoard:
    """The knobs of `api`; a `KnobBoard`, whose calls raise StockError when the engine cannot be read.

    A value on loan goes back at the first request after its time, whoever makes it.
    """

    def __init__(self, api: LiveApi, *, writer: str, engine_name: str) -> None:
        self._api = api
        self._writer, self._engine_name = writer, engine_name
        self._seen: dict[str, tuple[int, ...]] = {}
        self._versions: dict[str, int] = {}
        self._lasting: dict[str, int] = {}
        self._expiries: dict[str, float] = {}
        self._changes: dict[str, str] = {}
        self._note = ""
        self.ranks = 1
        """How many told their value at the last look."""

    def sheet(self, now: float) -> KnobSheet:
        """See `KnobBoard`."""
        standing = self._current(now)
        agreeing = min((knob.values.count(knob.values[0]) for knob in standing.knobs), default=self.ranks)
        return KnobSheet(
            engine=self._engine_name,
            engine_version=standing.version,
            instance=standing.instance,
            applied=agreeing,
            total=self.ranks,
            knobs=tuple(self._row(knob, now) for knob in standing.knobs),
            writer=self._writer,
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
        """See `KnobBoard`. 501: the engine said yes and did nothing; 502, 504: what it did is not known."""
        standing = self._current(now)
        knob = standing.knob(name)
        if knob is None:
            return unknown_knob(name, (known.name for known in standing.knobs))
        version = self._versions[name]
        # several targets may have one API: what a change wrote for one of them stands for the others as well
        joins = knob.value == value and bool(change) and self._changes.get(name) == change
        if if_version is not None and if_version != version and not joins:
            words = f"at version {version}, not {if_version}"
            return self._refusal(CONFLICT, knob, now, "; ".join(filter(None, (words, self._note))))
        known = value in (self._lasting[name], knob.start)
        if not (known or knob.min <= value <= knob.max):
            return self._refusal(422, knob, now, f"{value} is not within {knob.min} to {knob.max}")
        outcome = self._set(knob, value, ttl_seconds, now)
        if outcome.status == 200:
            self._changes[name] = change
        return outcome

    def delete(self, name: str, now: float) -> Outcome:
        """See `KnobBoard`."""
        standing = self._current(now)
        knob = standing.knob(name)
        if knob is None:
            return unknown_knob(name, (known.name for known in standing.knobs))
        if knob.start is None:
            return self._refusal(422, knob, now, "the engine does not tell its start value")
        return self._set(knob, knob.start, None, now)

    def _set(self, knob: LiveKnob, value: int, ttl_seconds: float | None, now: float) -> Outcome:
        problem: StockError | None = None
        after = knob
        if knob.value != value:
            after, problem = self._write(knob, value)
        if after.value == value:
            self._note = ""
            self._hold(knob.name, value, ttl_seconds, now)
            return Outcome(200, self._row(after, now), len(after.values))
        if after.value is None and knob.value is not None:
            return self._halfway(knob, after, value, now)
        assert problem is not None  # what did not come about has a reason
        if after.values != knob.values and knob.value is not None:
            return self._astray(knob, after, problem, now)
        return self._refusal(problem.status, after, now, str(problem))

    def _write(self, knob: LiveKnob, value: int) -> tuple[LiveKnob, StockError | None]:
        """Write and read back; the knob afterwards, and what speaks against it."""
        said, problem = "", None
        try:
            said = self._api.write(knob.name, value)
        except StockError as error:
            problem = error
        try:
            after = self._look().knob(knob.name) or knob
        except StockError as error:
            if problem is not None and problem.kind is ReplyKind.MISSING:
                raise problem from None  # there was nobody to do it
            raise StockError(str(error), ReplyKind.UNREACHABLE) from None  # it may have been done
        if problem is not None and problem.answered and after.values == knob.values:
            no = ReplyKind.OUT_OF_BOUNDS if problem.kind is ReplyKind.BAD else problem.kind
            problem = StockError(f"{problem}; not changed: still {after.value}", no)
        elif problem is None and after.value != value:
            told = f"the engine answered {said}, and {knob.name} is {after.value}, not {value}"
            kind = ReplyKind.MISSING if after.values == knob.values else ReplyKind.BAD
            problem = StockError(f"not changed: {told}", kind)
        return after, problem

    def _halfway(self, knob: LiveKnob, after: LiveKnob, value: int, now: float) -> Outcome:
        """Some ranks took it: none shall have it."""
        took = after.values.count(value)
        after = self._written_back(knob, after)
        words = f"{took} of {len(after.values)} ranks took {value}"
        whole = after.value == knob.value
        back = "taken back" if whole else f"and it could not be taken back: {after.values}"
        return self._refusal(STATUSES[ReplyKind.NOT_ALL_RANKS], after, now, f"{words}; {back}")

    def _written_back(self, knob: LiveKnob, after: LiveKnob) -> LiveKnob:
        """The knob once its former value was asked for again; as it is known to be, where that fails."""
        assert knob.value is not None
        with suppress(StockError):
            self._api.write(knob.name, knob.value)
            return self._look().knob(knob.name) or after
        return after

    def _astray(self, knob: LiveKnob, after: LiveKnob, problem: StockError, now: float) -> Outcome:
        """The write led to a value that nobody asked for: the former one shall be there again."""
        after = self._written_back(knob, after)
        whole = after.values == knob.values
        status = STATUSES[ReplyKind.MISSING] if whole else problem.status
        back = "taken back" if whole else f"and it could not be taken back: it is {after.value}"
        words = f"{problem}; {back}"
        self._note = "" if whole else words  # whoever asks next hears of it as well
        return self._refusal(status, after, now, words)

    def _current(self, now: float) -> Standing:
        """What the engine says, once what is over was taken back."""
        standing = self._look()
        over = [name for name, moment in self._expiries.items() if moment <= now]
        for name in over:
            knob = standing.knob(name)
            if knob is not None and knob.value != self._lasting[name]:
                # raises without an answer: then the next request tries again
                _, problem = self._write(knob, self._lasting[name])
                self._note = f"its time is over, and it could not be taken back: {problem}" if problem else ""
            del self._expiries[name]
        return self._look() if over else standing

    def _look(self) -> Standing:
        standing = self._api.read()
        self.ranks = max((len(knob.values) for knob in standing.knobs), default=1)
        for knob in standing.knobs:
            if self._seen.get(knob.name) != knob.values:
                self._versions[knob.name] = self._versions.get(knob.name, -1) + 1
                self._seen[knob.name] = knob.values
            if knob.name not in self._lasting and knob.value is not None:
                self._lasting[knob.name] = knob.value
        return standing

    def _hold(self, name: str, value: int, ttl_seconds: float | None, now: float) -> None:
        if ttl_seconds is None:
            self._lasting[name] = value
            self._expiries.pop(name, None)
        else:
            self._expiries[name] = now + ttl_seconds

    def _row(self, knob: LiveKnob, now: float) -> KnobRow:
        expiry = self._expiries.get(knob.name)
        return KnobRow(
            name=knob.name,
            value=knob.value,
            start=knob.start,
            min=knob.min,
            max=knob.max,
            unit=knob.unit,
            version=self._versions[knob.name],
            expires_in_seconds=None if expiry is None else max(0.0, expiry - now),
            note="; ".join(filter(None, (knob.note, self._note))),
        )

    def _refusal(self, status: int, knob: LiveKnob, now: float, detail: str) -> Outcome:
        return Outcome(status, self._row(knob, now), 0, detail)
