"""The last pages of a replica as single values, for trends and means."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Moment:
    """One page, all ranks together; None: not known.

    Gauges: requests running and waiting, mean KV usage. `generated_tokens` is a running total.
    """

    at: float
    running: float | None = None
    waiting: float | None = None
    kv_usage_ratio: float | None = None
    generated_tokens: float | None = None
