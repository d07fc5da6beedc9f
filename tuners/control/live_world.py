"""The world of a live fleet: its snapshots, its clock, the ways to its knobs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from enginetop.fleet.ports import FleetSource
from enginetop.fleet.snapshot import FleetSnapshot
from tuners.control.driver import ControlError
from tuners.control.knob_api import KnobClient, KnobReply, ReplyKind, by_path

_LONGEST_WAIT_SECONDS = 5.0
"""Without new snapshots the machine is asked all the same: a ttl runs on."""
_FIRST_SNAPSHOT_SECONDS = 30.0

Clients = Callable[[str], KnobClient | None]


class LiveWorld:
    """A `World` over a running `FleetSource`. `clock` tells Unix seconds, and never runs backwards: a renewal
    would wait for as long as it did.
    """

    def __init__(self, source: FleetSource, clients: Clients, clock: Callable[[], float]) -> None:
        self._source = source
        self._clients = clients
        self.now = clock
        self._fresh = threading.Event()
        self._unsubscribe: Callable[[], None] | None = source.subscribe(self._fresh.set)

    def snapshot(self) -> FleetSnapshot:
        """The newest snapshot. ControlError when the source brings none."""
        found = self._source.latest()
        if found is None:
            self._fresh.wait(_FIRST_SNAPSHOT_SECONDS)
            found = self._source.latest()
        if found is None:
            raise ControlError("no picture of the fleet arrives; nothing can be judged")
        return found

    def advance(self) -> None:
        """Wait for the next snapshot, or for `wake`."""
        self._fresh.wait(_LONGEST_WAIT_SECONDS)
        self._fresh.clear()

    def wake(self) -> None:
        """End a wait."""
        self._fresh.set()

    def client(self, target: str) -> KnobClient | None:
        """See `World`."""
        return self._clients(target)

    def close(self) -> None:
        """Ask for no more snapshots; a second call has no effect."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None

    def read_sheets(self, targets: Iterable[str]) -> dict[str, KnobReply]:
        """The knobs of targets, asked now; blocks for as long as that takes."""
        return {target: examined(self._clients(target)) for target in targets}


def examined(client: KnobClient | None, via: str = "") -> KnobReply:
    """What a target's knobs are by a path (empty: by any), asked now; None: it has no path."""
    if client is not None and via:
        client = by_path(client, via)
    return client.examine() if client else KnobReply(ReplyKind.MISSING, "no live path is configured")
