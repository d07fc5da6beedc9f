"""A parsed exposition page: a shared layout and one array of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from enginetop.fleet.frozen import frozen
from enginetop.fleet.quickly_made import quickly_made


@frozen(eq=False, weakref_slot=True)
class Layout:
    """Everything of a page but its numbers; one object for all pages, and all targets, with the same lines.

    `names[i]` and `labels[i]` belong to `Page.values[i]`: the sample name as exposed (`x_total`, `x_bucket`,
    ...) and its decoded, cleaned labels. `keys[i]` is a string that identifies the sample (name and sorted
    labels). `types` maps a family name as written in its TYPE line to the type in lower case. Compare by
    identity; usable as a weak dictionary key.
    """

    names: tuple[str, ...]
    labels: tuple[Mapping[str, str], ...]
    keys: tuple[str, ...]
    types: Mapping[str, str]


@quickly_made(eq=False)
class Page:
    """One page.

    NaN in `values` is what the page says, or stands for a number that nobody looked at. `bad_lines` counts
    lines that were skipped, and duplicates.

    `truncated` is set for an OpenMetrics page without its `# EOF`; `problem` names the first limit that was
    broken, by one line or by the page: then it is not `whole`, the rest was not read.
    """

    layout: Layout
    values: Sequence[float]
    bad_lines: int = 0
    truncated: bool = False
    problem: str = ""
    whole: bool = True
