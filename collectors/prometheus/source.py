"""A fleet read from a Prometheus, live: looks from a thread of its own, one immutable snapshot each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from collectors.discovery.membership import ChangingTracker, apply
from collectors.fetch import one_line
from collectors.listeners import Listeners
from collectors.prometheus.client import PrometheusClient, PrometheusError
from collectors.prometheus.direct import DirectSides
from collectors.prometheus.fleet import Look, PrometheusFleet
from collectors.prometheus.recorded import recorded_counts
from collectors.scrape import Feed, Intake, Scrape, ScrapeSink, Tracker, unchanged
from enginetop.fleet.burn import Counts
from enginetop.fleet.model import Target
from enginetop.fleet.observation import FailureKind
from enginetop.fleet.snapshot import CollectorHealth, FleetSnapshot

_DUTY = 2.0
"""After a look the server is left alone for at least as long as it worked, whatever the interval says."""
_STOP_SECONDS = 2.0
_LEAST_PAST_SECONDS = 60.0
"""So much of the past is asked for at the start, however long the server takes."""
_MOST_STEPS = 30
_MOST_PICTURES = 3000
"""Steps in which the past is looked at, and pictures of replicas that this may take."""


class MovingTracker(Tracker, ChangingTracker, Protocol):
    """A tracker whose targets come and go, and that may be told of days before."""

    def remember(self, ended: Sequence[tuple[float, Counts]]) -> None:
        """Take counts of the fleet's requests of before the first observation, oldest first."""


class PrometheusLooks:
    """Looks at a fleet and keeps a tracker up to date with them; not for several threads at once.

    `backfill_seconds`: how far back the first look goes. `direct` asks engines for what is not kept there.
    `limits` (seconds of TTFT and TPOT) are the fleet's one objective: days of requests are read from
    recording rules where they are there; None: they are not.
    """

    def __init__(
        self,
        client: PrometheusClient,
        *,
        tracker: MovingTracker,
        new_feed: Callable[[Target], Feed],
        backfill_seconds: float,
        finish: Callable[[FleetSnapshot], FleetSnapshot] = unchanged,
        recorder: ScrapeSink | None = None,
        direct: DirectSides | None = None,
        limits: tuple[float, float] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._tracker = tracker
        self._direct = direct
        self._limits = limits
        self._fleet = PrometheusFleet(client, new_feed, direct)
        self._backfill = backfill_seconds
        self._finish = finish
        self._intake = Intake(tracker, recorder)
        self._monotonic = monotonic
        self._clock: tuple[float, float] | None = None  # the server's time, and ours when it said so
        self._looked = False

    def look(self, at: float | None = None) -> FleetSnapshot:
        """One look (at the server's time; `at`: as of then) and the snapshot. PrometheusError: no answer."""
        now = self._client.now() if at is None else at
        self._clock = (now, self._monotonic())
        try:
            look = self._fleet.look(now, None if self._looked else now - self._backfill)
        except PrometheusError as error:
            if error.kind is FailureKind.TIMEOUT:  # a busy server may still have time for a shorter past
                self._backfill = min(self._backfill, max(_LEAST_PAST_SECONDS, self._backfill / 2))
            raise
        if not self._looked:
            self._remember(now - self._backfill)
        apply(look.changes, self._tracker, now)
        if self._looked:
            for scrape in look.scrapes:
                self._intake.take(scrape, None)
            for report in look.gpus:
                self._intake.take_gpus(report)
        else:
            self._begin_with(look, now)
        self._looked = True
        return self.picture(
            now, CollectorHealth(problem=self._intake.problem, discovery_problem=look.warning)
        )

    def _remember(self, end: float) -> None:
        """Lay what was recorded before `end` before what is seen from there on."""
        if self._limits is None:
            return
        try:
            recorded = recorded_counts(self._client, self._limits, end)
        except PrometheusError:
            return  # days are no reason to show no now: the long windows fill as time goes by
        self._tracker.remember(recorded)

    def _begin_with(self, look: Look, now: float) -> None:
        """Take the past in steps, each looked at: charts and trends begin with it."""
        replicas = max(1, len(self._fleet.targets))
        step = self._backfill / max(1, min(_MOST_STEPS, _MOST_PICTURES // replicas))
        mark = now - self._backfill + step
        for at, news in look.in_order():
            while at > mark < now - step:
                self._tracker.snapshot(mark, CollectorHealth())
                mark += step
            if isinstance(news, Scrape):
                self._intake.take(news, None)
            else:
                self._intake.take_gpus(news)

    def picture(self, now: float, health: CollectorHealth) -> FleetSnapshot:
        """The fleet as far as it is known."""
        return self._finish(self._tracker.snapshot(now, health))

    def without_answer(self, problem: str) -> FleetSnapshot:
        """The fleet while the server does not answer: what is known grows old."""
        if self._clock is None:
            return self.picture(time.time(), CollectorHealth(problem=problem))
        then, ours = self._clock
        return self.picture(then + self._monotonic() - ours, CollectorHealth(problem=problem))

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
        if self._direct is not None:
            self._direct.close()


class PrometheusSource:
    """A `FleetSource`: looks every `interval_seconds`, less often where a look takes long."""

    def __init__(self, looks: PrometheusLooks, interval_seconds: float) -> None:
        self._looks = looks
        self._interval = interval_seconds
        self._latest: FleetSnapshot | None = None
        self._listeners = Listeners()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._fault = ""
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin; returns at once."""
        self._latest = self._looks.without_answer("")
        self._thread = threading.Thread(target=self._run, name="enginetop-prometheus", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End; a look that hangs is left behind, and nobody is told of it."""
        self._stopping.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(_STOP_SECONDS)
            self._thread = None

    def latest(self) -> FleetSnapshot | None:
        """The newest snapshot; None before `start`."""
        return self._latest

    def subscribe(self, on_snapshot: Callable[[], None]) -> Callable[[], None]:
        """Call `on_snapshot` from the source's thread after each snapshot; returns the call that ends it."""
        return self._listeners.subscribe(on_snapshot)

    def finished(self) -> bool:
        """A live fleet always goes on."""
        return False

    def request_refresh(self) -> None:
        """Look now."""
        self._wake.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            begun = time.monotonic()
            seen = self._look()
            if self._stopping.is_set():
                break
            self._latest = seen
            self._listeners.notify(self._note_fault)
            took = time.monotonic() - begun
            self._wake.wait(max(self._interval - took, (_DUTY - 1) * took))
            self._wake.clear()
        self._looks.close()

    def _look(self) -> FleetSnapshot:
        try:
            return self._looks.look()
        except PrometheusError as error:
            return self._looks.without_answer(str(error))
        except Exception as error:  # noqa: BLE001 - becomes visible, the loop goes on
            self._note_fault(error)
            return self._looks.without_answer(self._fault)

    def _note_fault(self, error: Exception) -> None:
        self._fault = one_line(f"a fault of the collector: {type(error).__name__}: {error}")


def sample_prometheus(looks: PrometheusLooks) -> FleetSnapshot:
    """One look and its snapshot. PrometheusError when the server gives no usable answer."""
    try:
        return looks.look()
    finally:
        looks.close()
