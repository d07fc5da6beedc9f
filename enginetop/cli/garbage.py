"""How often Python looks for cycles: seldom enough that a tick of the fleet goes by without.

Snapshots are trees, which end with their last reference; a tick makes its own before it drops those of the
tick before. Python's usual threshold of 700 new objects would look for cycles in them some hundred times a
tick, at a quarter of the CPU of a large fleet, and one below what a tick makes would do so at every tick.
Memory does not grow by it: new objects that stay are looked at all the same.
"""

from __future__ import annotations

import gc

FEWEST_OBJECTS = 50_000
OBJECTS_A_REPLICA = 250
"""More than a tick makes of one replica."""
_OLDER_GENERATIONS = 20, 10


def pace_garbage(replicas: int = 0) -> None:
    """Look for cycles at the pace of a fleet of so many."""
    new_objects = FEWEST_OBJECTS + OBJECTS_A_REPLICA * replicas
    if gc.get_threshold()[0] != new_objects:
        gc.set_threshold(new_objects, *_OLDER_GENERATIONS)
