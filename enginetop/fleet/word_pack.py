"""Words of several pages, compressed together: most pages of a window are not looked at before it begins at
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Final

from enginetop.fleet.deflate import deflated, inflated

_LEVEL: Final = 1


class WordPack:
    """Opened once, it stays open: who reads the words of one page reads those of the next ones soon."""

    __slots__ = ("_ends", "_held")

    def __init__(self, pages: Sequence[bytes]) -> None:
        self._ends = _ends(tuple(map(len, pages)))
        self._held = (deflated(b"".join(pages), _LEVEL), True)
        """The words one behind the other, and whether they are compressed."""

    def words(self, place: int) -> bytes:
        """Those of the page at this place."""
        held, packed = self._held
        if packed:
            held = inflated(held)
            self._held = (held, False)
        return held[self._ends[place] : self._ends[place + 1]]


@lru_cache(maxsize=256)
def _ends(lengths: tuple[int, ...]) -> tuple[int, ...]:
    """Where each page begins, and the end; targets of which the same words move share them."""
    return tuple(accumulate(lengths, initial=0))
