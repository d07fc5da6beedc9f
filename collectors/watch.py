"""The turns of one target: it sleeps until the next one is due, looks, hands over what came, sleeps again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from collectors.schedule import TargetSchedule, Turn
from collectors.scrape import Clock, Scrape, Scraper
from collectors.wheel import Wheel
from enginetop.fleet.frozen import frozen

Took = Callable[[Scrape, Turn, float], None]
"""Takes a scrape, the turn after it, and how many seconds from now that is due. Never raises."""


@frozen
class Beat:
    """What all watches of one engine share: their wheel, their clocks, and how long a scrape may take."""

    wheel: Wheel
    clock: Clock
    patient_time: Callable[[], float]
    timeout_seconds: float


class Watch:
    """One target, from `begin` to `end`: at most one scrape in flight, and none queued."""

    __slots__ = (
        "_asked",
        "_beat",
        "_begun",
        "_ended",
        "_lasted",
        "_schedule",
        "_scraper",
        "_sleep",
        "_took",
        "_turn",
    )

    def __init__(self, scraper: Scraper, schedule: TargetSchedule, beat: Beat, took: Took) -> None:
        self._scraper = scraper
        self._schedule = schedule
        self._beat = beat
        self._took = took
        self._turn = schedule.first
        self._begun = self._asked = 0.0
        self._lasted = 0.0
        self._ended = float("-inf")
        self._sleep: int | None = None
        """The call that the wheel makes when the turn is due; None: a scrape is in flight."""

    @property
    def url(self) -> str:
        """The target's base URL."""
        return self._scraper.target.url

    def begin(self) -> None:
        """Wait for the first turn."""
        self._wait_for(self._schedule.first)

    def end(self) -> asyncio.Task[None] | None:
        """Look no more; the task that a scrape in flight leaves, if it has one, has been cancelled."""
        if self._sleep is not None:
            self._beat.wheel.call_off(self._sleep)
            self._sleep = None
            return None
        return self._scraper.call_off()

    def rests(self, seconds: float) -> bool:
        """Whether no scrape is in flight, and the last one ended so long ago."""
        return self._sleep is not None and self._beat.clock.monotonic() - self._ended >= seconds

    def overdue_seconds(self, patience: float) -> float | None:
        """How long the scrape in flight has waited; None where that is at most `patience`, or none is.

        Who took its time before is given twice as long. What holds us up is left out.
        """
        if self._sleep is not None:
            return None
        waited = self._beat.patient_time() - self._asked
        return waited if waited > max(patience, 2 * self._lasted) else None

    def look_now(self) -> None:
        """Look out of turn, where no scrape is in flight."""
        if self._sleep is not None:
            self._beat.wheel.call_off(self._sleep)
            self._look(self._beat.clock.monotonic())

    def _wait_for(self, turn: Turn) -> None:
        self._turn = turn
        self._sleep = self._beat.wheel.at(turn.due, self._look_in_turn)

    def _look_in_turn(self) -> None:
        self._look(self._turn.due)

    def _look(self, begun: float) -> None:
        self._sleep, self._begun, self._asked = None, begun, self._beat.patient_time()
        self._scraper.begin(self._beat.timeout_seconds, self._beat.patient_time, self._looked)

    def _looked(self, scrape: Scrape) -> None:
        self._ended = self._beat.clock.monotonic()
        self._lasted = self._beat.patient_time() - self._asked
        turn = self._schedule.next_turn(self._begun, self._ended, scrape.unanswered)
        self._wait_for(turn)
        self._took(scrape, turn, turn.due - self._ended)
