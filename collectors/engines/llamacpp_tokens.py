"""Live count of generated tokens of a llama.cpp server.

`tokens_predicted_total` moves only when a request ends; `/slots` shows what the running ones have so far. Two
views of the truth, each a lower bound, are joined by taking the larger:

- what the slots have gained since the last look, added up (loses what a request produces between its last
  look and its end);
- the finish counter plus what the running slots hold (loses requests that were aborted, which the counter
  never gets, and for one look those that ended between the two pages).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from collectors.engines.base import Json
from collectors.json_fields import flag, integer
from enginetop.fleet.frozen import frozen

PERSISTENT_LOOKS = 30
"""What the second view has lacked in this many looks in a row is not late: it was aborted."""


@frozen
class Slot:
    """One slot: the task it works on or worked on last, and the tokens generated for it."""

    slot_id: int
    task: int | None
    decoded: int
    processing: bool


def slots_of(body: Json) -> tuple[Slot, ...]:
    """The slots of a `/slots` page; entries before their first use have no task."""
    if not isinstance(body, list):
        return ()
    return tuple(
        Slot(
            slot_id=at if (slot_id := integer(entry, "id")) is None else slot_id,
            task=integer(entry, "id_task"),
            decoded=max(0, _decoded(entry)),
            processing=flag(entry, "is_processing") is True,
        )
        for at, entry in enumerate(body)
    )


def _decoded(entry: Json) -> int:
    """Tokens generated so far: in a list of one in newer builds, in an object in older ones."""
    found = integer(entry, "next_token", 0, "n_decoded")
    if found is None:
        found = integer(entry, "next_token", "n_decoded")
    return found or 0


@dataclass(slots=True)
class LiveTokens:
    """The count since the server started. Never falls while the server lives, equals the finish counter when
    nothing runs and nothing was aborted.
    """

    _start: float | None = None
    _finished: float = math.nan
    _count: float = math.nan
    _aborted: float = 0.0
    _slots: dict[int, Slot] = field(default_factory=dict)
    _behind: deque[float] = field(default_factory=lambda: deque(maxlen=PERSISTENT_LOOKS))

    def update(
        self,
        finished: float,
        slots: Iterable[Slot] | None,
        start: float | None,
        *,
        at_rest: bool = False,
    ) -> float:
        """The count at this look.

        `finished` is the finish counter, `slots` those read after it (None: not known), `start` a token that
        changes when the server restarts. `at_rest`: nothing ran when the counter was read, after the last
        look at the slots, so that it held all but what was aborted.
        """
        if math.isnan(finished):
            return self._count
        if start != self._start or finished < self._finished or math.isnan(self._count):
            self._restart()
        self._start, self._finished = start, finished
        running = gained = 0.0
        if slots is not None:
            now = {slot.slot_id: slot for slot in slots}
            running = sum(slot.decoded for slot in now.values() if slot.processing)
            gained = sum(_gain(slot, self._slots.get(slot.slot_id)) for slot in now.values())
            self._slots = now
        if math.isnan(self._count):
            self._count = finished + running
            return self._count
        if at_rest:
            self._aborted = max(self._aborted, self._count - finished)
            self._behind.clear()
        by_end = finished + running + self._aborted
        self._count = max(self._count + gained, by_end)
        if slots is not None and not at_rest:
            self._note_deficit(self._count - by_end)
        return self._count

    def _note_deficit(self, deficit: float) -> None:
        """Take what the second view lacks for good as aborted."""
        self._behind.append(deficit)
        if len(self._behind) == PERSISTENT_LOOKS and (lost := min(self._behind)) > 0:
            self._aborted += lost
            self._behind.clear()

    def _restart(self) -> None:
        self._count, self._aborted = math.nan, 0.0
        self._slots = {}
        self._behind.clear()


def _gain(slot: Slot, before: Slot | None) -> int:
    """Tokens that a slot has certainly generated since the last look."""
    if before is None or slot.task != before.task:
        return slot.decoded
    return max(0, slot.decoded - before.decoded)
