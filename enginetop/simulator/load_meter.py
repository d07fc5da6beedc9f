"""How hard a simulated replica works, as its GPUs show it."""

from __future__ import annotations

from collections.abc import Sequence

from enginetop.fleet.frozen import frozen
from enginetop.simulator.model import EngineModel

_SHORTEST_LOOK_SECONDS = 1.0


@frozen
class Load:
    """How hard a replica works, as shares of the time. `up` False: there is no process.

    `compute_ratio` is the share spent on computing tokens rather than on reading weights and KV.
    """

    up: bool
    busy_ratio: float
    compute_ratio: float


_FRESH = Load(up=True, busy_ratio=0.0, compute_ratio=0.0)
GONE = Load(up=False, busy_ratio=0.0, compute_ratio=0.0)


class LoadMeter:
    """The load of one life, which began at second `at`, over at least the last second; mean of the ranks."""

    def __init__(self, at: float) -> None:
        self._looked_at = at
        self._worked = (0.0, 0)
        self._load = _FRESH

    def look(self, engines: Sequence[EngineModel], now: float) -> Load:
        """The load at second `now`, as far as the life goes back."""
        elapsed = (now - self._looked_at) * len(engines)
        if now - self._looked_at >= _SHORTEST_LOOK_SECONDS:
            busy_seconds, tokens = _work(engines)
            busy_before, before = self._worked
            computed = tokens - before if tokens >= before else tokens  # counters may begin anew in a life
            compute_seconds = computed * engines[0].settings.step.per_token_us / 1e6
            self._load = Load(
                up=True,
                busy_ratio=min(1.0, (busy_seconds - busy_before) / elapsed),
                compute_ratio=min(1.0, compute_seconds / elapsed),
            )
            self._looked_at, self._worked = now, (busy_seconds, tokens)
        return self._load


def _work(engines: Sequence[EngineModel]) -> tuple[float, int]:
    """Seconds of work in this life, and tokens computed as its counters have it; all ranks."""
    every = [engine.metrics for engine in engines]
    tokens = sum(m.prompt_tokens - m.prompt_tokens_cached + m.generation_tokens for m in every)
    return sum(engine.busy_seconds for engine in engines), tokens
