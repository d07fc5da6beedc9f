"""How a bench tells its figures: one a line for people, and one JSON object as the last line for programs."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence


def spread(name: str, times: Sequence[float]) -> dict[str, float]:
    """Median, 90th and 99th percentile and the largest of times in seconds, in milliseconds."""
    ranked = sorted(1000 * one for one in times)
    if not ranked:
        return {}
    shares = {"p90": 0.9, "p99": 0.99}
    return {
        f"{name}_ms_median": round(statistics.median(ranked), 1),
        **{f"{name}_ms_{word}": round(ranked[int(len(ranked) * share)], 1) for word, share in shares.items()},
        f"{name}_ms_max": round(ranked[-1], 1),
    }


def tell(figures: Mapping[str, object], *, as_json: bool) -> None:
    """Print the figures, six digits of each number; `as_json` adds the object, with all digits."""
    width = max(map(len, figures), default=0)
    for name, value in figures.items():
        shown = f"{value:.6g}" if isinstance(value, float) else str(value)
        print(f"{name:{width}} {shown:>12}")
    if as_json:
        print(json.dumps(figures))
    print(end="", flush=True)
