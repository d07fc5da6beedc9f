"""The desk: takes the alerts of each snapshot without ever making the engine wait, and sends the couriers."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from enginetop.alerts.rule import PENDING
from enginetop.alerts.sinks.courier import Courier, Sink
from enginetop.alerts.sinks.outbox import Outbox
from enginetop.fleet.frozen import frozen
from enginetop.fleet.snapshot import Alert, FleetSnapshot

_MOST_LOOKS = 10_000
_JOIN_SECONDS = 8.0


@frozen
class SinkHealth:
    """How one sink does."""

    name: str
    delivered: int
    failed: int
    refused: int
    dropped: int
    waiting: int
    problem: str


class Desk:
    """Delivers what follows from snapshots to sinks.

    `take` only notes what changed; a thread of the desk writes it to the outbox, from which each courier
    tells its sink.
    """

    def __init__(self, outbox: Outbox, sinks: Sequence[Sink], monotonic: Callable[[], float]) -> None:
        self._outbox = outbox
        self._couriers = [Courier(sink, outbox, monotonic) for sink in sinks]
        self._looks: deque[tuple[float, tuple[Alert, ...]]] = deque(maxlen=_MOST_LOOKS)
        self._last: object = None
        self._news = threading.Event()
        self._stopping = False
        self._fault = ""
        self._thread = threading.Thread(target=self._run, name="enginetop-desk", daemon=True)

    def start(self) -> None:
        """Begin to deliver, what an earlier run left behind first."""
        self._thread.start()
        for courier in self._couriers:
            courier.start()

    def take(self, snapshot: FleetSnapshot) -> None:
        """Note the alerts of a snapshot; returns at once."""
        alerts = tuple(alert for alert in snapshot.alerts if alert.state != PENDING)
        seen = [replace(alert, value=None, summary="") for alert in alerts]
        if seen != self._last:
            self._last = seen
            self._looks.append((snapshot.at, alerts))
            self._news.set()

    def stop(self) -> tuple[str, ...]:
        """Write down what is to be told, try once to tell it, and end; the sinks that are still behind, each
        with the reason in brackets.
        """
        self._stopping = True
        self._news.set()
        self._thread.join()
        for courier in self._couriers:
            courier.stop()
        for courier in self._couriers:
            courier.join(_JOIN_SECONDS)
        behind = tuple(
            f"{courier.sink.name} ({courier.problem or 'no answer yet'})"
            for courier in self._couriers
            if self._outbox.waiting(courier.sink.name)
        )
        self._outbox.close()
        return behind

    def health(self) -> tuple[SinkHealth, ...]:
        """How each sink does."""
        return tuple(
            SinkHealth(
                courier.sink.name,
                courier.delivered,
                courier.failed,
                courier.refused,
                self._outbox.dropped(courier.sink.name),
                len(self._outbox.waiting(courier.sink.name)),
                courier.problem or self._fault or self._outbox.problem,
            )
            for courier in self._couriers
        )

    def _run(self) -> None:
        while True:
            self._news.wait()
            self._news.clear()
            last = self._stopping
            while self._looks:
                self._offer(*self._looks.popleft())
            if last:
                return

    def _offer(self, at: float, alerts: Sequence[Alert]) -> None:
        try:
            self._outbox.offer(at, alerts)
        except Exception as error:  # noqa: BLE001 - every sink says so; the next look is offered all the same
            self._fault = f"alerts were lost by a fault of enginetop itself: {type(error).__name__}"
