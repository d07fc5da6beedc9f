"""What the numbers of a page did over a window, slot by slot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from enginetop.fleet.increase import LARGEST, NONE
from enginetop.fleet.quickly_made import quickly_made


@quickly_made(eq=False)
class Growth:
    """What every slot did from the baseline to the last page.

    `start` and `end` are the running totals at both ends, and
    `page` the numbers of the last page (NaN: none there), all by slot.
    `flipping` and `sums_fallen` are slots not to be believed; `from_nowhere` are those that had no number at
    the baseline and none before it, so that their increase is not known. `seconds` is 0 when there is one
    page only.
    """

    seconds: float
    start: Sequence[float]
    end: Sequence[float]
    page: Sequence[float]
    flipping: frozenset[int] = NONE
    sums_fallen: frozenset[int] = NONE
    from_nowhere: frozenset[int] = NONE

    def increase(self, slots: Iterable[int]) -> float:
        """What these slots gained together."""
        start, end = self.start, self.end
        return sum([end[slot] - start[slot] for slot in slots])

    def is_numberless(self, slots: Iterable[int]) -> bool:
        """Whether the last page holds no number for any of these slots."""
        page = self.page
        return not any(-LARGEST <= page[slot] <= LARGEST for slot in slots)
