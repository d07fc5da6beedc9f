"""The pictures of the last 15 minutes, in memory of known size, and the alerts that began in them."""

from __future__ import annotations

import gc
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import attrgetter
from threading import Lock

from enginetop.alerts.rule import FIRING, Key, identity
from enginetop.fleet.frozen import frozen
from enginetop.fleet.kept import KeptSnapshot
from enginetop.fleet.snapshot import Alert, FleetSnapshot

KEPT_SECONDS = 900.0
"""How far back one can look."""

MOST_REPLICA_PICTURES = 12_000
"""Kept pictures times their replicas, at most. A vLLM replica takes 1 to 2 kB of a packed picture, so this is
12 to 24 MB: a picture in 5 s of 66 replicas, one in 75 s of 1000 (and those in which alerts begin)."""

MOST_FRESH = 160
"""Pictures times their replicas that stay as they came: to pack one, every figure of it has to be worked out,
which costs half of what a look costs. So of small fleets only one in some seconds is packed."""

_LEAST_SPACING_SECONDS = 5.0
"""Packed pictures are not closer together."""

_MOST_BEGINS = 1000
_JITTER = 0.9
"""Pictures are due a little early, or every other one would be missed at a spacing of one interval."""


@frozen
class AlertBegin:
    """An alert as it was in the first picture in which it fired."""

    at: float
    alert: Alert


class Timeline:
    """A ring of snapshots in time order; times are those of the snapshots.

    The newest are kept as they came and as close together as they came; what leaves them is packed, or let
    go where the last packed one is near. `add` may be called from another thread than the rest.
    """

    def __init__(
        self,
        kept_seconds: float = KEPT_SECONDS,
        most_replica_pictures: int = MOST_REPLICA_PICTURES,
        most_fresh: int = MOST_FRESH,
    ) -> None:
        self._kept_seconds = kept_seconds
        self._most = most_replica_pictures
        self._most_fresh = most_fresh
        self._packed: list[KeptSnapshot] = []
        self._fresh: list[FleetSnapshot] = []
        self._begins: list[AlertBegin] = []
        self._firing: frozenset[Key] | None = None
        self._replica_pictures = 0
        self._lock = Lock()

    def add(self, snapshot: FleetSnapshot) -> None:
        """Take the newest snapshot. It is kept if it is due, or if an alert begins in it.

        Pictures that are not older than it (a clock set back, a recording wound back) are dropped.
        """
        at = snapshot.at
        with self._lock:
            self._drop_from(at)
            begun = self._begun(snapshot)
            kept = [begin for begin in self._begins if at - self._kept_seconds <= begin.at < at]
            self._begins = [*kept, *begun][-_MOST_BEGINS:]
            last = self._last_at
            if begun or last is None or at - last >= _JITTER * self._spacing(snapshot):
                self._fresh.append(snapshot)
                self._replica_pictures += len(snapshot.replicas)
            leaving = self._leaving()
        for picture in leaving:
            self._settle(picture)
        with self._lock:
            self._forget(at)

    def _leaving(self) -> list[FleetSnapshot]:
        """The oldest fresh pictures, of which there are too many."""
        fresh = sum(len(picture.replicas) for picture in self._fresh)
        leaving = []
        for picture in self._fresh:
            if fresh <= self._most_fresh:
                break
            leaving.append(picture)
            fresh -= len(picture.replicas)
        return leaving

    def _settle(self, picture: FleetSnapshot) -> None:
        """Pack the oldest fresh picture, or let it go: it is near the last one, and nothing begins in it."""
        last = self._packed[-1].at if self._packed else None
        spacing = max(self._spacing(picture), _LEAST_SPACING_SECONDS)
        due = last is None or picture.at - last >= _JITTER * spacing
        packed = _packed(picture) if due or any(one.at == picture.at for one in self._begins) else None
        with self._lock:
            del self._fresh[0]
            if packed is None:
                self._replica_pictures -= len(picture.replicas)
            else:
                self._packed.append(packed)

    @property
    def _last_at(self) -> float | None:
        newest = self._fresh or self._packed
        return newest[-1].at if newest else None

    @property
    def _pictures(self) -> list[KeptSnapshot | FleetSnapshot]:
        """All that are kept, oldest first."""
        return [*self._packed, *self._fresh]

    @property
    def times(self) -> Sequence[float]:
        """When the kept pictures are from, oldest first."""
        with self._lock:
            return [picture.at for picture in self._pictures]

    @property
    def begins(self) -> Sequence[AlertBegin]:
        """Where alerts began, oldest first."""
        return self._begins

    @property
    def replica_pictures(self) -> int:
        """Kept pictures times their replicas."""
        return self._replica_pictures

    def at(self, at: float) -> FleetSnapshot | None:
        """The newest kept picture that is not later than `at`, else the oldest; None: there is none."""
        with self._lock:
            pictures = self._pictures
        return _one_of(pictures, max(bisect_right(pictures, at, key=attrgetter("at")) - 1, 0))

    def nearest(self, at: float) -> FleetSnapshot | None:
        """The kept picture that is nearest to `at`; None: there is none."""
        with self._lock:
            pictures = self._pictures
        nearest = min(range(len(pictures)), key=lambda place: abs(pictures[place].at - at), default=0)
        return _one_of(pictures, nearest)

    def beside(self, at: float, step: int) -> FleetSnapshot | None:
        """The kept picture `step` places before (-) or after (+) the instant `at`; None beyond the newest.

        Before the oldest there is only the oldest.
        """
        with self._lock:
            pictures = self._pictures
        if step < 0:
            place = bisect_left(pictures, at, key=attrgetter("at")) + step
            return _one_of(pictures, max(place, 0))
        return _one_of(pictures, bisect_right(pictures, at, key=attrgetter("at")) + step - 1)

    def begin_beside(self, at: float, step: int) -> AlertBegin | None:
        """The last begin of an alert before (-1) or the first after (1) an instant; None: there is none."""
        begins = self._begins  # `add` makes a new list
        if step < 0:
            place = bisect_left(begins, at, key=attrgetter("at")) - 1
        else:
            place = bisect_right(begins, at, key=attrgetter("at"))
        return begins[place] if 0 <= place < len(begins) else None

    def begin_of(self, alert: Alert) -> float:
        """When an alert began to fire, as far as it was seen; else when it was first breached."""
        key = identity(alert)
        seen = (begin.at for begin in reversed(self._begins) if identity(begin.alert) == key)
        return next(seen, alert.since)

    def _spacing(self, snapshot: FleetSnapshot) -> float:
        """How far apart pictures of so many replicas are kept.

        Never less than half an interval: the steps of a recording may be milliseconds apart.
        """
        pictures = max(self._most // max(len(snapshot.replicas), 1), 1)
        return max(self._kept_seconds / pictures, snapshot.interval_seconds / 2)

    def _begun(self, snapshot: FleetSnapshot) -> list[AlertBegin]:
        firing = {identity(alert): alert for alert in snapshot.alerts if alert.state == FIRING}
        former, self._firing = self._firing, frozenset(firing)
        if former is None:  # what fires in the first picture began before it
            return []
        return [AlertBegin(snapshot.at, alert) for key, alert in firing.items() if key not in former]

    def _forget(self, at: float) -> None:
        """Let go of what is too old, and of the oldest while there is too much."""
        pictures = self._pictures
        gone = 0
        for picture in pictures:
            crowded = self._replica_pictures > self._most and gone < len(pictures) - 1
            if picture.at >= at - self._kept_seconds and not crowded:
                break
            self._replica_pictures -= _members(picture)
            gone += 1
        fresh_gone = max(gone - len(self._packed), 0)
        del self._packed[:gone], self._fresh[:fresh_gone]

    def _drop_from(self, at: float) -> None:
        """Let go of what is not older than an instant."""
        kept: tuple[list[KeptSnapshot], list[FleetSnapshot]] = (self._packed, self._fresh)
        for pictures in kept:
            place = bisect_left(pictures, at, key=attrgetter("at"))
            self._replica_pictures -= sum(_members(picture) for picture in pictures[place:])
            del pictures[place:]


def _packed(picture: FleetSnapshot) -> KeptSnapshot:
    """The picture packed. Its figures are worked out for that and let go of, all without a cycle.

    Looking for cycles among them held up everything for as long as a quarter of a second.
    """
    looks = gc.isenabled()
    gc.disable()
    try:
        return KeptSnapshot(picture)
    finally:
        if looks:
            gc.enable()


def _one_of(pictures: Sequence[KeptSnapshot | FleetSnapshot], place: int) -> FleetSnapshot | None:
    """The picture at a place; None: there are not so many."""
    if place >= len(pictures):
        return None
    picture = pictures[place]
    return picture.open() if isinstance(picture, KeptSnapshot) else picture


def _members(picture: KeptSnapshot | FleetSnapshot) -> int:
    return picture.members if isinstance(picture, KeptSnapshot) else len(picture.replicas)
