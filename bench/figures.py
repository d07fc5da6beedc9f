"""How a bench tells its figures: one a line for people, and one JSON object as the last line for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping


def tell(figures: Mapping[str, object], *, as_json: bool) -> None:
    """Print the figures, six digits of each number; `as_json` adds the object, with all digits."""
    width = max(map(len, figures), default=0)
    for name, value in figures.items():
        shown = f"{value:.6g}" if isinstance(value, float) else str(value)
        print(f"{name:{width}} {shown:>12}")
    if as_json:
        print(json.dumps(figures))
