"""The block pool: what is free, what stays cached, what goes first."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from enginetop.simulator.kv import BlockPool


def with_prefix(pool: BlockPool, prefix: int, blocks: int) -> None:
    """A request computes the prefix and ends."""
    pool.hold(prefix)
    pool.take(blocks)
    pool.extend(prefix, blocks)
    pool.release(prefix)


def test_a_released_prefix_is_free_and_still_cached() -> None:
    pool = BlockPool(10)
    with_prefix(pool, 1, 4)
    assert pool.free == 10
    assert pool.cached_blocks(1, 99) == 4
    assert pool.cached_blocks(1, 3) == 3
    assert pool.cached_blocks(2, 3) == 0


def test_new_blocks_come_from_the_front_and_a_prefix_loses_its_end_first() -> None:
    """Ten blocks: six never used, then the four of the prefix. Eight are taken, two of them from that."""
    pool = BlockPool(10)
    with_prefix(pool, 1, 4)
    pool.take(8)
    assert pool.free == 2
    assert pool.cached_blocks(1, 4) == 2
    pool.take(2)
    assert pool.cached_blocks(1, 4) == 0


def test_what_was_used_last_is_evicted_last() -> None:
    pool = BlockPool(8)
    with_prefix(pool, 1, 3)
    with_prefix(pool, 2, 3)
    pool.hold(1)  # used again: now behind prefix 2
    pool.release(1)
    pool.take(5)  # two never used, three of prefix 2
    assert (pool.cached_blocks(1, 3), pool.cached_blocks(2, 3)) == (3, 0)


def test_a_held_prefix_is_not_evicted_and_holding_costs_once() -> None:
    pool = BlockPool(8)
    with_prefix(pool, 1, 3)
    assert pool.blocks_to_hold(1) == 3
    pool.hold(1)
    assert (pool.free, pool.blocks_to_hold(1)) == (5, 0)
    pool.hold(1)
    assert pool.free == 5
    pool.take(5)
    assert (pool.free, pool.cached_blocks(1, 3)) == (0, 3)
    pool.release(1)
    assert pool.free == 0, "the other holder needs it"
    pool.release(1)
    assert pool.free == 3


def test_only_the_first_to_compute_a_prefix_gives_its_blocks_away() -> None:
    pool = BlockPool(20)
    pool.hold(1)
    pool.hold(1)
    pool.take(4 + 4)
    assert pool.extend(1, 4) == 4
    assert pool.extend(1, 4) == 0
    assert pool.free == 12


def test_more_may_be_taken_than_there_is_until_some_is_given_back() -> None:
    pool = BlockPool(6)
    with_prefix(pool, 1, 2)
    pool.take(5)
    pool.take(3)
    assert pool.free == -2
    pool.give(5)
    assert pool.free == 3
    assert pool.cached_blocks(1, 2) == 0
    pool.take(3)
    assert pool.free == 0


@given(
    st.lists(
        st.tuples(st.sampled_from(["take", "give", "begin", "end"]), st.integers(0, 3), st.integers(1, 6))
    )
)
@settings(max_examples=80, deadline=None)
def test_blocks_are_neither_lost_nor_made(moves: list[tuple[str, int, int]]) -> None:
    """Against a plain account: capacity = free + own blocks of requests + blocks of prefixes in use."""
    pool = BlockPool(40)
    own, holders, computed = 0, dict.fromkeys(range(4), 0), dict.fromkeys(range(4), 0)
    for move, prefix, blocks in moves:
        if move == "take" and pool.free >= blocks:
            pool.take(blocks)
            own += blocks
        elif move == "give" and own >= blocks:
            pool.give(blocks)
            own -= blocks
        elif move == "begin" and pool.free >= pool.blocks_to_hold(prefix) + blocks:
            pool.hold(prefix)
            pool.take(blocks)
            gained = pool.extend(prefix, blocks)
            own += blocks - gained
            holders[prefix] += 1
            computed[prefix] = pool.cached_blocks(prefix, 99)
        elif move == "end" and holders[prefix]:
            pool.release(prefix)
            holders[prefix] -= 1
        in_use = sum(computed[one] for one in range(4) if holders[one])
        assert pool.free + own + in_use == 40
        cached = sum(pool.cached_blocks(one, 99) for one in range(4) if not holders[one])
        assert 0 <= cached <= pool.free
