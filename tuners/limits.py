"""What the rules have in common: when numbers count, and the steps that knobs are moved by. Heuristic."""

from __future__ import annotations

from enginetop.fleet.model import ReplicaState

FRESH = frozenset({ReplicaState.OK, ReplicaState.IDLE})
"""States of a replica whose numbers tell of now."""
FEWEST_FOR_P95 = 60
"""Then a p95 has three requests beyond it."""
FEWEST_FOR_P99 = 300
"""Then a p99 has three requests beyond it, and one in twenty are fifteen."""
SUSTAINED_SECONDS = 60.0
"""For so long every page must call for the same change before it is suggested."""
MULTIPLE_TOKENS = 256
"""Budgets are multiples of this: tiles of matrix products, and few enough values to try."""
MOST_PREEMPTED_RATIO = 0.01
"""KV pressure that comes and goes is pressure when over minutes so many preemptions meet a request."""
