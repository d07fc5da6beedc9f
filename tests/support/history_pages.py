"""Hand-made pages for the tests of histories and signals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from enginetop.fleet.history import Appended, TargetHistory
from enginetop.fleet.reading import Absence, Columns, Part, Reading, Series

NAN = math.nan
INF = math.inf


def value(measure: str, key: str = "", rank: str = "", position: int = -1) -> Series:
    """A gauge or counter."""
    return Series(measure, rank, key or f"{measure}{rank}{position}", position=position)


def histogram(
    measure: str, bounds: Sequence[float], rank: str = "", group: str = "", *, parts: str = "bucket sum count"
) -> tuple[Series, ...]:
    """A label set: its buckets in the order of `bounds`, then sum and count as far as `parts` names them."""
    key = f"{measure}{rank}{group}"
    series = [Series(measure, rank, f"{key} le {le!r}", Part.BUCKET, le, group=group) for le in bounds]
    series += [
        Series(measure, rank, f"{key} {part}", Part(part), group=group)
        for part in ("sum", "count")
        if part in parts
    ]
    return tuple(series)


def columns(
    *series: Series,
    ranks: Mapping[str, Mapping[str, str]] | None = None,
    births: tuple[tuple[int, ...], ...] = (),
    absent: Mapping[str, Absence] | None = None,
    estimated: Mapping[str, str] | None = None,
) -> Columns:
    """Columns with these series."""
    return Columns(series, ranks or {}, births, absent or {}, estimated or {})


def two_ranks() -> Mapping[str, Mapping[str, str]]:
    """Labels of ranks 0 and 1 as vLLM names them."""
    return {"0": {"engine": "0"}, "1": {"engine": "1"}}


class Told:
    """A history that is told page after page."""

    def __init__(self, shape: Columns, keep_seconds: float = 600.0) -> None:
        self.shape = shape
        self.history = TargetHistory(keep_seconds)

    def page(
        self,
        at: float,
        *values: float,
        shape: Columns | None = None,
        token: float | None = None,
        births: Sequence[float] = (),
        progress: int = 0,
    ) -> Appended:
        """Append a page of the given or the usual shape."""
        return self.history.append(
            Reading(at, shape or self.shape, values, births, start_token=token, progress_token=progress)
        )

    def increase(self, measure: str, seconds: float = 600.0) -> float | None:
        """A counter's increase over the window that ends with the last page."""
        window = self.history.window(seconds)
        assert window is not None
        return window.total.increase(measure)
