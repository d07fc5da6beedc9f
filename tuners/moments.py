"""The last pages and minutes of a replica as single values, for trends and means."""

from __future__ import annotations

from enginetop.fleet.frozen import frozen


@frozen
class Moment:
    """One page, all ranks together; None: not known.

    Gauges: requests running and waiting, mean KV usage. `generated_tokens` is a running total.
    """

    at: float
    running: float | None = None
    waiting: float | None = None
    kv_usage_ratio: float | None = None
    generated_tokens: float | None = None


MINUTE_SECONDS = 60.0


@frozen
class Minute:
    """One window of requests that ended: how many, the share within the TTFT objective, the preemptions
    of all that time, the p90 of prompts and outputs in tokens (None: not known), and the most
    requests that ran at any page. Windows do not overlap.
    """

    at: float
    requests: float
    ttft_within: float
    preemptions: float
    prompt_p90: float | None = None
    output_p90: float | None = None
    most_running: float = 0.0
