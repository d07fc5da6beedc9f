"""Pages in less memory: the numbers are the same to the last bit, and few bytes are kept of them."""

from __future__ import annotations

import gc
import sys
from array import array
from collections.abc import Sequence
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from enginetop.fleet.history import TargetHistory
from enginetop.fleet.page_words import WordKeeper
from enginetop.fleet.reached import Reached
from enginetop.fleet.slots import Slots
from enginetop.fleet.word_pack import WordPack
from tests.support.history_pages import INF, NAN, Told, columns, histogram, value

BOUNDS = (*range(1, 40), INF)
SERIES = (
    value("kv_usage_ratio"),
    *(value("generation_tokens", f"tokens {n}") for n in range(3)),
    *histogram("ttft_seconds", BOUNDS),
)
SLOTS = Slots(SERIES)
ODD = (0.0, -0.0, 5e-324, 1 / 3, 2.0**21 - 1, 2.0**21 + 1, 2.0**53, 1e200, NAN, INF)

_numbers = st.one_of(st.sampled_from(ODD), st.integers(0, 10**7).map(float), st.floats(0, 1e12))
_changes = st.dictionaries(st.integers(0, len(SERIES) - 1), _numbers, max_size=60)


@settings(max_examples=60, deadline=None)
@given(st.lists(_changes, min_size=1, max_size=12), st.integers(1, 8))
def test_every_number_that_counts_is_the_same_to_the_last_bit(
    changes: Sequence[dict[int, float]], rounds: int
) -> None:
    keeper, page = WordKeeper(SLOTS), array("d", bytes(8 * len(SERIES)))
    pages, shown = [], []
    for change in list(changes) * rounds:
        page = page[:]
        for slot, number in change.items():
            page[slot] = number
        pages.append(page)
        less = keeper.kept(page)
        shown.append(page if less is None else less[0].numbers(less[1]))
    for asked, told in zip(pages, shown, strict=True):
        assert told[1:].tobytes() == asked[1:].tobytes()  # the first is a gauge


def test_a_page_of_other_slots_is_kept_as_it_is() -> None:
    page = array("d", bytes(8 * len(SERIES)))
    keeper = WordKeeper(SLOTS)
    for other in (page[:-1], page + page, array("d")):
        assert keeper.kept(other) is None


def test_gauges_take_no_room_and_make_no_other_base() -> None:
    keeper, page = WordKeeper(SLOTS), array("d", bytes(8 * len(SERIES)))
    for tick in range(40):
        page = page[:]
        page[0], page[2], page[5] = tick / 3, tick, tick
        assert keeper.kept(page) is not None or tick < 2


def test_words_that_move_in_turns_are_all_picked_soon() -> None:
    """Of two counters each page moves the one that stood still on the page before."""
    keeper, page = WordKeeper(SLOTS), array("d", bytes(8 * len(SERIES)))
    whole = []
    for tick in range(12):
        page = page[:]
        page[2 + 3 * (tick % 2)] += 1.0
        whole.append(keeper.kept(page) is None)
    assert whole == [True] * 3 + [False] * 9


def test_targets_of_which_the_same_words_move_share_what_picks_them() -> None:
    def picks(moving: Sequence[int]) -> object:
        keeper, page = WordKeeper(SLOTS), array("d", bytes(8 * len(SERIES)))
        kept = None
        for tick in range(4):
            page = page[:]
            for slot in moving:
                page[slot] = float(tick)
            kept = keeper.kept(page) or kept
        assert kept is not None
        return kept[0]._picked

    first = picks((2, 5))
    assert first is picks((5, 2))
    assert first is not picks((2, 6))


def test_counts_of_a_window_take_a_third_of_their_numbers() -> None:
    """By hand: 12 of 46 series stand still and 32 count in whole numbers below two million, a word of 4 bytes
    each; one sum moves both its words. A header of 64 bytes and the fields are as large for 46 as for 460.
    """
    told = Told(columns(*SERIES), keep_seconds=60.0)
    for tick in range(300):
        moving = [1000.0 + 7 * tick] * 30
        told.page(tick, 0.5, tick * 50, 0, 0, *[0.0] * 10, *moving, tick / 3, 1000.0 + 7 * tick)
    words = words_of(told.history)
    assert len(words) >= 55  # of 61 pages: the newest two are whole, and each base
    assert max(map(len, words)) <= (32 + 2 + 1) * 4
    assert sum(map(len, words)) / len(words) < 46 * 8 * 0.4


def test_where_all_moves_pages_are_kept_whole() -> None:
    told = Told(columns(*SERIES), keep_seconds=60.0)
    for tick in range(100):
        told.page(tick, 0.5, *[tick / 3 + slot for slot in range(45)])
    assert words_of(told.history) == []


def test_what_moved_long_ago_is_not_kept_for_ever() -> None:
    told = Told(columns(*SERIES), keep_seconds=60.0)
    for tick in range(300):
        busy = tick < 100
        told.page(tick, 0.5, tick, 0, 0, *[float(tick if busy else 100)] * 30, *[0.0] * 12)
    assert max(map(len, words_of(told.history))) <= 3 * 4


def words_of(history: TargetHistory) -> list[bytes]:
    """Of the pages of which words are kept; to read them opens packs."""
    found = []
    for reached in history._samples._reached:
        kept = reached._kept
        if isinstance(kept, WordPack):
            found.append(kept.words(reached._place))
        elif isinstance(kept, bytes):
            found.append(kept)
    return found


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=300), min_size=1, max_size=8), st.data())
def test_words_are_the_same_in_a_pack_in_whatever_order_they_are_read(
    pages: Sequence[bytes], data: st.DataObject
) -> None:
    pack = WordPack(pages)
    for place in data.draw(st.lists(st.integers(0, len(pages) - 1), min_size=1)):
        assert pack.words(place) == pages[place]


def counting_fleet(ticks: int) -> tuple[TargetHistory, list[int]]:
    """Pages once a second of which 34 of 46 series count on; of each, how many packs a window had to open."""
    told, opened = Told(columns(*SERIES), keep_seconds=60.0), []
    for tick in range(ticks):
        moving = [1000.0 + 7 * tick] * 30
        told.page(tick, 0.5, tick * 50, 0, 0, *[0.0] * 10, *moving, tick / 3, 1000.0 + 7 * tick)
        window = told.history.window(60.0)
        assert window is not None
        gained = window.total.increase("generation_tokens")
        assert gained == (50 * min(tick, 60) if tick else None)
        opened.append(sum(not pack._held[1] for pack in packs_of(told.history)))
    return told.history, opened


def packs_of(history: TargetHistory) -> list[WordPack]:
    kept = {id(one._kept): one._kept for one in history._samples._reached}
    return [one for one in kept.values() if isinstance(one, WordPack)]


def test_of_a_window_only_the_pack_that_it_begins_in_is_open() -> None:
    history, opened = counting_fleet(300)
    assert len(packs_of(history)) in (7, 8)  # 61 pages: two are whole, and fewer than eight not packed yet
    assert max(opened) == 1


def test_pages_that_are_not_kept_in_less_memory_end_with_their_window() -> None:
    """Those that waited for their pack as well, where a fleet grows so that memory is spared no more."""

    def reached() -> int:
        gc.collect()
        return sum(isinstance(one, Reached) for one in gc.get_objects())

    before = reached()
    told = Told(columns(*SERIES), keep_seconds=10.0)
    for tick in range(100):
        told.history.spares_memory = tick < 50
        told.page(tick, 0.5, *[1000.0 + tick] * 45)
    assert reached() - before == 11


def test_packed_words_take_less_than_half_of_their_bytes() -> None:
    """Counters that all move alike would pack better than real ones: each of these moves by another."""
    told = Told(columns(*SERIES), keep_seconds=60.0)
    random, totals = Random(7), [1000.0] * 45
    for tick in range(300):
        totals = [total + random.randrange(9) for total in totals]
        told.page(tick, 0.5, *totals)
    packs = packs_of(told.history)
    assert len(packs) in (7, 8)
    held = sum(len(pack._held[0]) for pack in packs)
    assert held < 0.5 * sum(pack._ends[-1] for pack in packs)


def test_nothing_is_held_of_a_page_of_which_words_are_kept() -> None:
    keeper, page = WordKeeper(SLOTS), array("d", bytes(8 * len(SERIES)))
    before = sys.getrefcount(page)
    for tick in range(5):
        page = page[:]
        page[2] = page[3] = float(tick)
        kept = keeper.kept(page)
    assert kept is not None
    assert sys.getrefcount(page) == before
