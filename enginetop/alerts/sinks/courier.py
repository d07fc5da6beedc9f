"""A courier: the thread that tells one sink what waits for it, again and again until it is taken."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from enginetop.alerts.sinks.notice import Notice
from enginetop.alerts.sinks.outbox import Outbox
from enginetop.fleet.frozen import frozen

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
_IDLE_SECONDS = 1.0


@frozen
class Delivery:
    """What came of telling a sink some notices, oldest first: `taken` of them from the start.

    The one after those failed for `problem`; `refused`: it will never be taken as it is.
    """

    taken: int
    problem: str = ""
    refused: bool = False


class Sink(Protocol):
    """Somewhere alerts are told. Called from one thread; bounded in time; faults are data."""

    @property
    def name(self) -> str:
        """What it is called in messages and in the journal; holds no secret."""

    @property
    def resend_seconds(self) -> float | None:
        """How often it wants to hear again of what fires; None: once is enough."""

    def deliver(self, notices: Sequence[Notice]) -> Delivery:
        """Tell these notices; there is at least one."""


class Courier:
    """Delivers to one sink from a thread of its own, with pauses that double after each failure.

    `delivered`, `failed` and `refused` count; `problem` says why the last attempt failed, empty after one
    that did not.
    """

    def __init__(self, sink: Sink, outbox: Outbox, monotonic: Callable[[], float]) -> None:
        self.sink = sink
        self.delivered = self.failed = self.refused = 0
        self.problem = ""
        self._outbox = outbox
        self._monotonic = monotonic
        self._stopping = threading.Event()
        self._pause = FIRST_PAUSE_SECONDS
        self._resent_at = float("-inf")
        self._thread = threading.Thread(target=self._run, name=f"enginetop-{sink.name}", daemon=True)

    def start(self) -> None:
        """Begin to deliver."""
        self._thread.start()

    def stop(self) -> None:
        """Ask for the end: the attempt under way is finished, and what waits is tried once more."""
        self._stopping.set()
        self._outbox.wake()

    def join(self, seconds: float) -> bool:
        """Wait for the end; False when a hanging receiver kept the thread from it."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping.is_set():
            if self._attempt():
                self._outbox.wait(self.sink.name, _IDLE_SECONDS)
            else:
                self._stopping.wait(self._pause)
                self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
        self._attempt()

    def _attempt(self) -> bool:
        """Tell what waits; whether the sink took all of it. Never raises: nobody would try again."""
        try:
            if told := self._told_all():
                self.problem = ""
            return told
        except Exception as error:  # noqa: BLE001 - told as the sink's problem, and tried again
            self.problem = f"a fault of enginetop itself: {type(error).__name__}"
            self.failed += 1
            return False

    def _told_all(self) -> bool:
        waiting = self._outbox.waiting(self.sink.name)
        if waiting:
            delivery = self._tell(waiting)
            self._outbox.settle(self.sink.name, waiting[: delivery.taken + delivery.refused])
            self.delivered += delivery.taken
            self.refused += delivery.refused
            if delivery.problem:
                return False
        return self._resend()

    def _resend(self) -> bool:
        every = self.sink.resend_seconds
        if every is None or self._monotonic() - self._resent_at < every:
            return True
        firing = self._outbox.firing(self.sink.name)
        if firing and self._tell(firing).problem:
            return False
        self._resent_at = self._monotonic()
        return True

    def _tell(self, notices: Sequence[Notice]) -> Delivery:
        try:
            delivery = self.sink.deliver(notices)
        except Exception as error:  # noqa: BLE001 - one sink's trouble ends neither the others nor the watch
            delivery = Delivery(0, type(error).__name__)
        self.problem = delivery.problem
        self.failed += bool(delivery.problem)
        if not delivery.problem:
            self._pause = FIRST_PAUSE_SECONDS
        return delivery
