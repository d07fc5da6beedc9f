"""Numbers of pages in a third of their memory, exactly: what moves of them from page to page, word by word.

A number is two words of 32 bits. Most counters that count on change one of them, since whole numbers below
two million fill no more, and many buckets neither. Of a page only those words are kept that may differ from
an earlier one, its base; they are picked and compared for all series at once.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import repeat
from operator import itemgetter, setitem
from struct import Struct
from typing import Final
from weakref import WeakKeyDictionary, WeakValueDictionary

from enginetop.fleet.slots import Kind, Slots

_FEWEST_SERIES: Final = 16
"""Pages of fewer are kept as they are."""
_PAGES_A_BASE: Final = 64
"""After so many pages another one is the base, and words that stand still again are left out."""
_FEW_PAGES: Final = 8
"""Where a base has served for no more, the words that moved too are picked from then on."""
_MOST_PICKED_RATIO: Final = 0.75
"""Where more words move than this share, pages are kept as they are."""
_WORD: Final = "I"
_WORD_BYTES: Final = array(_WORD).itemsize
_WORDS: Final = 8 // _WORD_BYTES
"""A number has so many."""


class _Counting:
    """Words of numbers that count, for all targets that have the same slots: `ones` is a page of them."""

    __slots__ = ("_picked", "_places", "ones")

    def __init__(self, slots: Slots) -> None:
        self._picked: WeakValueDictionary[bytes, _Picked] = WeakValueDictionary()
        self._places = tuple(range(_WORDS * len(slots)))
        counting = (slot for slot, kind in enumerate(slots.kinds) if kind is not Kind.GAUGE)
        self.ones = _ones_at(_WORDS * slot + word for slot in counting for word in range(_WORDS))

    def shared(self, places: Iterable[int]) -> list[int]:
        """The same places, as objects that all targets share."""
        return [self._places[place] for place in places]

    def picked(self, places: Iterable[int]) -> _Picked:
        """What picks these words, the same for all targets of which the same words move."""
        ordered = array("I", sorted(places))
        key = ordered.tobytes()
        picked = self._picked.get(key)
        if picked is None:
            picked = self._picked[key] = _Picked(ordered, self)
        return picked


class _Picked:
    """Which words are kept of a page; all others that count are those of its base."""

    __slots__ = ("__weakref__", "_pick", "_still", "_struct", "places")

    def __init__(self, places: array[int], counting: _Counting) -> None:
        self.places = places
        self._struct = _struct(len(self.places))
        self._pick: Callable[[array[int]], Iterable[int]] = (
            itemgetter(*counting.shared(self.places))
            if len(self.places) > 1
            else itemgetter(slice(self.places[0], self.places[0] + 1))
        )
        self._still = counting.ones & ~_ones_at(self.places)

    def of(self, page: bytes, differing: int) -> bytes | None:
        """These words of a page; None where there are others in which it differs from its base."""
        return None if differing & self._still else self._struct.pack(*self._pick(array(_WORD, page)))

    def page(self, words: bytes, base: array[float]) -> array[float]:
        """The page that these words are of."""
        page = array(_WORD, base.tobytes())
        deque(map(setitem, repeat(page), self.places, self._struct.unpack(words)), maxlen=0)
        return array("d", page.tobytes())


_struct = lru_cache(maxsize=256)(lambda words: Struct(f"{words}{_WORD}"))


class Base:
    """A page that is kept whole, and which words are kept of those that follow it."""

    __slots__ = ("_page", "_picked")

    def __init__(self, page: array[float], picked: _Picked) -> None:
        self._page, self._picked = page, picked

    def numbers(self, words: bytes) -> array[float]:
        """The numbers by slot of the page of which these words are kept; those of gauges are the base's."""
        return self._picked.page(words, self._page)


class WordKeeper:
    """Takes pages of one target, one after the other, for as long as it has these slots."""

    __slots__ = ("_base", "_counting", "_pages", "_picked", "_whole_base", "slots")

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        counting = _counting.get(slots)
        if counting is None:
            counting = _counting[slots] = _Counting(slots)
        self._counting = counting
        self._base: Base | None = None
        self._whole_base: int | None = None
        self._picked: _Picked | None = None
        self._pages = 0

    def kept(self, page: array[float]) -> tuple[Base, bytes] | None:
        """What tells the numbers of a page in less memory: words, and the base that they belong to. None: the
        page itself is to be kept. It is never changed.
        """
        if len(page) != len(self.slots) or len(page) < _FEWEST_SERIES:
            return None
        as_bytes = page.tobytes()
        whole = _whole(as_bytes)
        self._pages += 1
        if self._whole_base is not None:
            differing = whole ^ self._whole_base
            if self._base is not None and self._picked is not None and self._pages < _PAGES_A_BASE:
                words = self._picked.of(as_bytes, differing)
                if words is not None:
                    return self._base, words
            self._choose(self._places_of(differing & self._counting.ones))
        self._base = None if self._picked is None else Base(page, self._picked)
        self._whole_base, self._pages = whole, 0
        return None

    def _choose(self, moved: set[int]) -> None:
        """Say which words are picked, where `moved` are those in which a page differs from its base."""
        picked = self._picked
        if picked is not None:
            if _FEW_PAGES < self._pages < _PAGES_A_BASE:
                return  # what moves so seldom is not worth a place in every page
            if self._pages < _PAGES_A_BASE:
                moved = moved.union(picked.places)
            if moved == set(picked.places):
                return
        worth_it = 0 < len(moved) < _MOST_PICKED_RATIO * _WORDS * len(self.slots)
        self._picked = self._counting.picked(moved) if worth_it else None

    def _places_of(self, words: int) -> set[int]:
        """The places of words in which there is a one."""
        page = array(_WORD, words.to_bytes(8 * len(self.slots), "little"))
        return {place for place, word in enumerate(page) if word}


_counting: WeakKeyDictionary[Slots, _Counting] = WeakKeyDictionary()


def _whole(page: bytes | bytearray) -> int:
    """A page as one number, in which the order of its bytes does not matter."""
    return int.from_bytes(page, "little")


def _ones_at(places: Iterable[int]) -> int:
    """A page in which the words at these places are all ones."""
    ones = bytearray()
    for place in places:
        end = _WORD_BYTES * (place + 1)
        ones.extend(bytes(max(0, end - len(ones))))
        ones[end - _WORD_BYTES : end] = b"\xff" * _WORD_BYTES
    return _whole(ones)
