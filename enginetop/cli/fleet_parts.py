"""What every source of snapshots needs: a tracker, feeds of pages, and what is done to each snapshot."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from collectors.feed import TargetFeed
from collectors.layout import LayoutCache
from collectors.replay import Finish
from enginetop.cli.garbage import FreeMemory, pace_garbage
from enginetop.cli.settings import Settings
from enginetop.fleet.fleet_tracker import FleetTracker
from enginetop.fleet.model import Target
from enginetop.fleet.snapshot import FleetSnapshot


def finishing(advise: Finish, alert: Finish) -> Finish:
    """What is done to each snapshot: advice first, then alerts."""
    free_memory = FreeMemory()

    def finish(snapshot: FleetSnapshot) -> FleetSnapshot:
        pace_garbage(len(snapshot.replicas))
        free_memory()
        return alert(advise(snapshot))

    return finish


def tracker_of(
    settings: Settings,
    targets: Sequence[Target],
    spacing_seconds: float | None,
    pictures_per_second: float = math.inf,
) -> FleetTracker:
    """A tracker as the settings say. `spacing_seconds`: the asked interval; None: scrapes come as they do."""
    return FleetTracker(
        targets,
        interval_seconds=settings.interval_seconds,
        window_seconds=settings.window_seconds,
        slo_for=settings.slo_for,
        fixed_spacing_seconds=spacing_seconds,
        price=settings.price,
        pictures_per_second=pictures_per_second,
    )


def feeds() -> Callable[[Target], TargetFeed]:
    """A maker of feeds that share the layouts of their pages."""
    layouts = LayoutCache()
    return lambda target: TargetFeed(target, layouts)
