"""How far the series of one target have come at a page, in as few numbers as that takes.

Over pages that only counted on, which nearly all do, the increase is the difference of their numbers: running
totals are added up only where something else happened in between.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from operator import add, sub
from typing import Final

from enginetop.fleet.page_words import Base, WordKeeper
from enginetop.fleet.slots import Pick, Slots
from enginetop.fleet.word_pack import WordPack

_PAGES_A_PACK: Final = 8


class _Stretch:
    """Pages on which every series only counted on. `totals` and `numbers` are those of its first page, the
    latter None while that is the only one.
    """

    __slots__ = ("numbers", "totals")

    def __init__(self, totals: array[float]) -> None:
        self.totals = totals
        self.numbers: array[float] | None = None


class Reached:
    """How far all series have come at one page, by slot; what it tells of gauges means nothing."""

    __slots__ = ("_base", "_kept", "_known", "_place", "_stretch")

    def __init__(self, stretch: _Stretch, numbers: array[float] | None = None) -> None:
        """`numbers` of a page within the stretch; None: of its first one."""
        self._stretch = stretch
        self._kept: array[float] | bytes | WordPack | None = numbers
        self._base: Base | None = None
        """Of what is kept of the numbers, where that is words of them."""
        self._place = 0
        """Of these words in a pack."""
        self._known: array[float] | None = None

    @classmethod
    def at(cls, totals: array[float]) -> Reached:
        """At a page after which another stretch begins."""
        return cls(_Stretch(totals))

    def counted_on(self, before: Sequence[float], page: Sequence[float]) -> Reached:
        """At the next page of the same stretch; `before` are the numbers of the page before it."""
        stretch = self._stretch
        if stretch.numbers is None:
            stretch.numbers = array("d", before)
        return Reached(stretch, page if isinstance(page, array) else array("d", page))

    @property
    def totals(self) -> array[float]:
        """Running totals since first sight; never to be changed."""
        stretch, numbers = self._stretch, self._numbers
        if numbers is None or stretch.numbers is None:
            return stretch.totals
        if self._known is None:
            self._known = array("d", map(add, stretch.totals, map(sub, numbers, stretch.numbers)))
        return self._known

    def __getitem__(self, slot: int) -> float:
        """The running total of one series."""
        stretch, numbers = self._stretch, self._numbers
        if numbers is None or stretch.numbers is None:
            return stretch.totals[slot]
        return stretch.totals[slot] + (numbers[slot] - stretch.numbers[slot])

    def picked(self, pick: Pick) -> Sequence[float]:
        """The running totals of the series that `pick` takes; those of no other are added up."""
        stretch, numbers = self._stretch, self._numbers
        begun = pick(stretch.totals)
        if numbers is None or stretch.numbers is None:
            return begun
        return list(map(add, begun, map(sub, pick(numbers), pick(stretch.numbers))))

    def let_go(self) -> None:
        """Keep no totals: they are worked out again if anybody asks."""
        self._known = None

    def since(self, start: Reached) -> tuple[Sequence[float], Sequence[float]]:
        """Numbers by slot, of `start` and of this, whose differences are what was gained in between. Series
        that came later began from zero.
        """
        if start._stretch is self._stretch:
            return start._raw(), self._raw()
        begun, ended = start.totals, self.totals
        missing = len(ended) - len(begun)
        return (begun + array("d", bytes(8 * missing)) if missing else begun), ended

    def _raw(self) -> array[float]:
        numbers = self._numbers
        if numbers is not None:
            return numbers
        first = self._stretch.numbers
        return self._stretch.totals if first is None else first

    @property
    def _numbers(self) -> array[float] | None:
        kept = self._kept
        if kept is None or isinstance(kept, array):
            return kept
        assert self._base is not None  # set before these words were
        return self._base.numbers(kept if isinstance(kept, bytes) else kept.words(self._place))


class Saver:
    """Keeps the numbers of a target's former pages in less memory, for as long as it has these slots.

    Of each page only words are kept (`page_words`), and of several pages these are compressed together.
    """

    __slots__ = ("_keeper", "_unpacked")

    def __init__(self, slots: Slots) -> None:
        self._keeper = WordKeeper(slots)
        self._unpacked: list[Reached] = []

    @property
    def slots(self) -> Slots:
        """Those of the pages."""
        return self._keeper.slots

    def save(self, reached: Reached) -> None:
        """Take the next page."""
        kept = reached._kept
        if not isinstance(kept, array) or (less := self._keeper.kept(kept)) is None:
            return
        reached._base, reached._kept = less
        self._unpacked.append(reached)
        if len(self._unpacked) == _PAGES_A_PACK:
            self._pack()

    def _pack(self) -> None:
        pages, self._unpacked = self._unpacked, []
        pack = WordPack([page._kept for page in pages if isinstance(page._kept, bytes)])
        for place, page in enumerate(pages):
            page._place, page._kept = place, pack
