"""The pictures of the last 15 minutes, in memory of known size, and the alerts that began in them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from threading import Lock

from enginetop.alerts.rule import FIRING, Key, identity
from enginetop.fleet.packed import Packer
from enginetop.fleet.snapshot import Alert, FleetSnapshot

KEPT_SECONDS = 900.0
"""How far back one can look."""

MOST_REPLICA_PICTURES = 12_000
"""Kept pictures times their replicas, at most. A vLLM replica takes some 5.6 kB of a kept picture, so this is
about 70 MB: every picture of 26 replicas at 2 s, one in 75 s of 1000 (and those in which alerts begin)."""

_MOST_BEGINS = 1000
_JITTER = 0.9
"""Pictures are due a little early, or every other one would be missed at a spacing of one interval."""


@dataclass(frozen=True, slots=True)
class AlertBegin:
    """An alert as it was in the first picture in which it fired."""

    at: float
    alert: Alert


class Timeline:
    """A ring of snapshots in time order; times are those of the snapshots.

    `add` may be called from another thread than the rest.
    """

    def __init__(
        self, kept_seconds: float = KEPT_SECONDS, most_replica_pictures: int = MOST_REPLICA_PICTURES
    ) -> None:
        self._kept_seconds = kept_seconds
        self._most = most_replica_pictures
        self._packer = Packer()
        self._pictures: list[FleetSnapshot] = []
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
            self._drop(slice(bisect_left(self._pictures, at, key=attrgetter("at")), None))
            begun = self._begun(snapshot)
            last = self._pictures[-1].at if self._pictures else None
            due = last is None or at - last >= _JITTER * self._spacing(snapshot)
        picture = self._packer.pack(snapshot) if begun or due else None
        with self._lock:
            kept = [begin for begin in self._begins if at - self._kept_seconds <= begin.at < at]
            self._begins = [*kept, *begun][-_MOST_BEGINS:]
            if picture is not None:
                self._pictures.append(picture)
                self._replica_pictures += len(picture.replicas)
            self._forget(at)

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
            if not self._pictures:
                return None
            return self._pictures[max(bisect_right(self._pictures, at, key=attrgetter("at")) - 1, 0)]

    def nearest(self, at: float) -> FleetSnapshot | None:
        """The kept picture that is nearest to `at`; None: there is none."""
        with self._lock:
            return min(self._pictures, key=lambda picture: abs(picture.at - at), default=None)

    def beside(self, at: float, step: int) -> FleetSnapshot | None:
        """The kept picture `step` places before (-) or after (+) the instant `at`; None beyond the newest.

        Before the oldest there is only the oldest.
        """
        with self._lock:
            if step < 0:
                place = bisect_left(self._pictures, at, key=attrgetter("at")) + step
                return self._pictures[max(place, 0)] if self._pictures else None
            place = bisect_right(self._pictures, at, key=attrgetter("at")) + step - 1
            return self._pictures[place] if place < len(self._pictures) else None

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
        while self._pictures and (
            self._pictures[0].at < at - self._kept_seconds
            or (self._replica_pictures > self._most and len(self._pictures) > 1)
        ):
            self._drop(slice(0, 1))

    def _drop(self, which: slice) -> None:
        self._replica_pictures -= sum(len(picture.replicas) for picture in self._pictures[which])
        del self._pictures[which]
