"""What `apply` waits for before it says what an observation can show."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from enginetop.cli.apply import _wait_for_rates
from enginetop.fleet.snapshot import FleetSnapshot
from tests.support.virtual_fleet import VirtualFleet, plan_for, three


class Pictures:
    """A source that has another picture at each look: two pages a replica are there from the second on.

    A request is seen to end from picture `busy_from` on; None: never.
    """

    def __init__(self, fleet: VirtualFleet, busy_from: int | None) -> None:
        self.fleet, self.busy_from, self.looks = fleet, busy_from, 0

    def latest(self) -> FleetSnapshot:
        self.looks += 1
        self.fleet.advance()
        busy = self.busy_from is not None and self.looks >= self.busy_from
        for engine in self.fleet.engines.values():
            engine.rate = 4.0 if busy else 0.0
        return self.fleet.snapshot()

    def subscribe(self, on_snapshot: Callable[[], None]) -> Callable[[], None]:
        return lambda: None

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def request_refresh(self) -> None: ...

    def finished(self) -> bool:
        return False


@pytest.mark.parametrize(("busy_from", "looks"), [(1, 3), (7, 7)])
def test_apply_waits_until_a_request_of_the_canary_ended(busy_from: int, looks: int) -> None:
    """Two quick pages of a fleet with three requests a second show none: it told of no traffic."""
    fleet = three()
    source = Pictures(fleet, busy_from)
    _wait_for_rates(source, plan_for(fleet), 0.01)
    assert source.looks == looks
