"""Advice on pools that does not flap: what a pool calls for has to last before it is said, and to be gone for
as long before it is taken back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from enginetop.fleet.snapshot import Advice, PoolAdvice
from tuners.limits import SUSTAINED_SECONDS


@dataclass(slots=True)
class _Call:
    """A change that a pool calls for: since when, when last, and whether it is said."""

    row: Advice
    since: float
    last: float
    said: bool = False

    def is_of(self, row: Advice) -> bool:
        """Whether `row` calls for the same, from the same value."""
        return (row.action, row.current) == (self.row.action, self.row.current)


class PoolMemory:
    """Feed it the advice on all pools of each snapshot, in time order."""

    def __init__(self) -> None:
        self._calls: dict[tuple[object, ...], _Call] = {}

    def settled(self, pools: Sequence[PoolAdvice], at: float) -> tuple[PoolAdvice, ...]:
        """The same pools, with rows that last. Pools that are gone are forgotten."""
        keys = {(pool.model, pool.role, row.knob) for pool in pools for row in pool.advice}
        self._calls = {key: call for key, call in self._calls.items() if key in keys}
        return tuple(replace(pool, advice=tuple(self._rows(pool, at))) for pool in pools)

    def _rows(self, pool: PoolAdvice, at: float) -> Iterator[Advice]:
        for row in pool.advice:
            yield self._row((pool.model, pool.role, row.knob), row, at)

    def _row(self, key: tuple[object, ...], row: Advice, at: float) -> Advice:
        call = self._calls.get(key)
        if call is not None:  # times of the future, by a clock that was set back, count as now
            call.since, call.last = min(call.since, at), min(call.last, at)
        if row.proposed is None:
            return self._quiet(key, call, row, at)
        if call is None or not call.is_of(row):
            call = self._calls[key] = _Call(row, at, at)
        call.row, call.last = row, at
        call.said = call.said or at - call.since >= SUSTAINED_SECONDS
        if call.said:
            return row
        why = f"seen for {at - call.since:.0f} s, a suggestion needs {SUSTAINED_SECONDS:.0f} s"
        return Advice(row.knob, "withheld", (*row.because[:1], why), row.current, bound_by=row.bound_by)

    def _quiet(self, key: tuple[object, ...], call: _Call | None, row: Advice, at: float) -> Advice:
        """A row that changes nothing, or what was said before while it may come again. Another value of the
        knob, also one that is not known or not level, ends it at once.
        """
        if call is None:
            return row
        if call.said and row.current == call.row.current and at - call.last < SUSTAINED_SECONDS:
            return call.row
        del self._calls[key]
        return row
