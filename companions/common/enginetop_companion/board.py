"""Values, versions and leases of the knobs of one engine. Pure: told the time, and told when to look at it.

A change with a lease goes back by itself: to the last value that was not leased, however many leased changes
came after it, so that a controller which vanishes leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

SPACING_SECONDS = 2.0
"""Least time between two changes of one knob. Renewals, returns and resets do not wait."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is accepted now, both ends included, and why where it is less than one would think.

    Values other than the ends and the start value are multiples of `step`.
    """

    low: int
    high: int
    note: str = ""
    step: int = 1


class Knob(Protocol):
    """One knob: its value at start, what is accepted now, and how it is put in force."""

    name: str
    unit: str
    start: int

    def bounds(self) -> Bounds:
        """What is accepted now."""

    def write(self, value: int) -> None:
        """Put it in force at once; what the engine raises goes to whoever asked."""


Floors = Callable[[], Mapping[str, int]]
"""By knob, what it must not be below at present, since others have moved."""


def no_floors() -> Mapping[str, int]:
    """No knob depends on another."""
    return {}


@dataclass(frozen=True, slots=True)
class Lease:
    """Until when a value holds (the clock's seconds), and the value that follows it."""

    deadline: float
    former: int


@dataclass(frozen=True, slots=True)
class Standing:
    """What is in force of one knob: enough to put it back."""

    value: int
    lease: Lease | None
    change: str


@dataclass(frozen=True, slots=True)
class Answer:
    """HTTP's word for what came of a request, and what to say with it."""

    status: int
    body: dict[str, Any]


class _Place:
    """One knob's place on the board."""

    __slots__ = ("before", "changed_at", "knob", "now", "ticket", "version", "version_before")

    def __init__(self, knob: Knob) -> None:
        self.knob = knob
        self.now = Standing(knob.start, None, "")
        self.version = 0
        self.changed_at = float("-inf")
        self.before = self.now
        self.version_before = 0
        self.ticket = ""


class Board:
    """All knobs of one engine. Every method takes the time, in seconds of a clock that never goes back."""

    def __init__(self, knobs: Iterable[Knob], floors: Floors = no_floors) -> None:
        self._floors = floors
        self._places = {knob.name: _Place(knob) for knob in knobs}

    def rows(self, now: float) -> list[dict[str, Any]]:
        """All rows in the contract's form."""
        return [self._row(place, now) for place in self._places.values()]

    def value(self, name: str) -> Standing | None:
        """What is in force of the knob `name`; None: there is no such knob."""
        place = self._places.get(name)
        return place.now if place else None

    def change(self, asked: dict[str, Any], now: float) -> Answer:
        """Take `knob value if_version ttl_seconds change`; `ticket` names the attempt, for `undo`.

        The value in force, asked for again by the change that set it, is a renewal: only its lease moves.
        200 applied or renewed, 404 no such knob, 409 another version, 422 out of bounds, 429 too soon.
        """
        place = self._places.get(asked["knob"])
        if place is None:
            return self._unknown()
        if asked["if_version"] not in (None, place.version):
            return self._refuse(409, f"at version {place.version}, not {asked['if_version']}", place, now)
        value, ttl = asked["value"], asked["ttl_seconds"]
        renewed = value == place.now.value and asked["change"] == place.now.change
        if not renewed:
            refusal = self._refusal(place, value, now)
            if refusal is not None:
                return refusal
        place.before, place.version_before = place.now, place.version
        standing = Standing(value, _lease(place.now, ttl, now), asked["change"])
        if renewed:
            place.now = standing
        else:
            place.changed_at = now
            self._put(place, standing)
        place.ticket = asked.get("ticket", "")
        return Answer(200, self._row(place, now))

    def hold(self, name: str, ticket: str, ttl: float | None, now: float) -> Answer:
        """Give the change of `ticket` its lease for good: all ranks have taken it."""
        place = self._places.get(name)
        if place is None or place.ticket != ticket:
            return Answer(409, {"error": "another change came between"})
        place.now = Standing(place.now.value, _lease(place.now, ttl, now), place.now.change)
        return Answer(200, self._row(place, now))

    def undo(self, name: str, ticket: str, now: float) -> Answer:
        """Take back the change of `ticket`, if it came to that and nothing came after it.

        The version goes back too: ranks that never took the change have the same one.
        """
        place = self._places.get(name)
        if place is None or place.ticket != ticket:
            return Answer(200, {})
        place.changed_at = float("-inf")
        self._put(place, place.before)
        place.version = place.version_before
        self._keep_the_floors()
        return Answer(200, self._row(place, now))

    def reset(self, name: str, now: float) -> Answer:
        """Back to the start value, whatever version, bounds and spacing say. 404: no such knob."""
        place = self._places.get(name)
        if place is None:
            return self._unknown()
        if place.now != Standing(place.knob.start, None, ""):
            self._put(place, Standing(place.knob.start, None, ""))
            self._keep_the_floors()
        return Answer(200, self._row(place, now))

    def expire(self, now: float) -> list[str]:
        """Let every lease that is over go back; the names of the knobs that did."""
        over = [
            place for place in self._places.values() if place.now.lease and place.now.lease.deadline <= now
        ]
        for place in over:
            lease = place.now.lease
            assert lease is not None
            self._put(place, Standing(lease.former, None, ""))
        if over:
            self._keep_the_floors()
        return [place.knob.name for place in over]

    def next_deadline(self) -> float | None:
        """When the next lease is over; None: there is none."""
        return min(
            (place.now.lease.deadline for place in self._places.values() if place.now.lease), default=None
        )

    def _refusal(self, place: _Place, value: int, now: float) -> Answer | None:
        bounds = place.knob.bounds()
        if not bounds.low <= value <= bounds.high:
            why = f" ({bounds.note})" if bounds.note else ""
            return self._refuse(422, f"{value} is not within {bounds.low} to {bounds.high}{why}", place, now)
        if value % bounds.step and value not in (bounds.low, bounds.high, place.knob.start):
            return self._refuse(422, f"{value} is not a multiple of {bounds.step}", place, now)
        on_the_way_back = value == place.knob.start or (place.now.lease and value == place.now.lease.former)
        wait = place.changed_at + SPACING_SECONDS - now
        if wait > 0 and not on_the_way_back:
            answer = self._refuse(429, f"changed a moment ago, again in {wait:.1f} s", place, now)
            answer.body["retry_after_seconds"] = round(wait, 3)
            return answer
        return None

    def _refuse(self, status: int, error: str, place: _Place, now: float) -> Answer:
        return Answer(status, {"error": f"{place.knob.name}: {error}"} | self._row(place, now))

    def _unknown(self) -> Answer:
        return Answer(404, {"error": f"no such knob here; there are {', '.join(self._places)}"})

    def _put(self, place: _Place, standing: Standing) -> None:
        place.knob.write(standing.value)
        place.now = standing
        place.version += 1
        place.ticket = ""

    def _keep_the_floors(self) -> None:
        """A return may leave more than another lowered knob holds: then that one gives way."""
        for name, floor in self._floors().items():
            place = self._places.get(name)
            if place is not None and place.now.value < floor:
                self._put(place, Standing(floor, place.now.lease, place.now.change))

    def _row(self, place: _Place, now: float) -> dict[str, Any]:
        bounds = place.knob.bounds()
        lease = place.now.lease
        return {
            "name": place.knob.name,
            "value": place.now.value,
            "start": place.knob.start,
            "min": bounds.low,
            "max": bounds.high,
            "unit": place.knob.unit,
            "version": place.version,
            "expires_in_seconds": None if lease is None else max(0.0, round(lease.deadline - now, 3)),
            "note": bounds.note,
        }


def _lease(standing: Standing, ttl: float | None, now: float) -> Lease | None:
    """The lease that follows on `standing`: its way back leads past every leased value before it."""
    former = standing.lease.former if standing.lease else standing.value
    return None if ttl is None else Lease(now + ttl, former)
