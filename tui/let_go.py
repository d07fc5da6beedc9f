"""Pictures that nobody shows any more, given back in pieces.

A picture of a replica is some hundred objects: to free those of a large fleet takes as long as to draw the
next picture, and a key that is typed then would wait for both.
"""

from __future__ import annotations

from collections.abc import Callable

from enginetop.fleet.snapshot import FleetSnapshot, ReplicaSnapshot

AT_ONCE = 16
"""Replicas whose pictures are given back at one turn of the event loop: about a millisecond."""


class LetGo:
    """Holds what is no longer shown, and lets go of some at each turn: `later` calls at the next one."""

    def __init__(self, later: Callable[[Callable[[], None]], object]) -> None:
        self._later = later
        self._held: list[ReplicaSnapshot] = []
        self._called = False

    @property
    def held(self) -> int:
        """Pictures of replicas that wait."""
        return len(self._held)

    def replaced(self, former: FleetSnapshot | None, now: FleetSnapshot | None) -> None:
        """A picture takes the place of the former one; told before anybody shows it."""
        if former is None or now is None or former is now:
            return
        shown = {id(replica) for replica in now.replicas}
        gone = [replica for replica in former.replicas if id(replica) not in shown]
        if len(gone) > AT_ONCE:
            self._held += gone
            self._call()

    def _call(self) -> None:
        if not self._called:
            self._called = True
            self._later(self._some)

    def _some(self) -> None:
        self._called = False
        del self._held[-AT_ONCE:]
        if self._held:
            self._call()
