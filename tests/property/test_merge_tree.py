"""A remembered merge is the merge: whatever changed, joined or left since the one before."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from enginetop.fleet.derive import signals
from enginetop.fleet.facts import WindowFacts, merge_facts
from enginetop.fleet.history import TargetHistory
from enginetop.fleet.merge_tree import MergeTree
from enginetop.fleet.snapshot import Signals
from tests.support.looks import page


def window(number: int) -> WindowFacts:
    """A replica that differs from the others in every figure; all are whole, so that sums are exact."""
    history = TargetHistory(60.0)
    for at, times in ((0.0, 0), (10.0, number)):
        look = page(
            at, running=number, kv=number % 7 / 8, tokens=10 * times, e2e=(times, 2 * times, 3 * times)
        )
        assert look.reading is not None
        history.append(look.reading)
    facts = history.window(60.0)
    assert facts is not None
    return facts


WINDOWS: Mapping[int, WindowFacts] = {number: window(number) for number in range(40)}
fleets = st.lists(st.integers(0, 39), min_size=1, max_size=80)


def flat(numbers: list[int]) -> Signals:
    return signals(merge_facts([WINDOWS[n] for n in numbers], [f"r{n}" for n in numbers]))


def by_tree(tree: MergeTree, numbers: list[int]) -> Signals:
    return signals(tree.merged([WINDOWS[n] for n in numbers], [f"r{n}" for n in numbers]))


@settings(max_examples=60, deadline=None)
@given(st.lists(fleets, min_size=1, max_size=4))
def test_any_fleets_one_after_another(story: list[list[int]]) -> None:
    tree = MergeTree()
    for numbers in story:
        assert by_tree(tree, numbers) == flat(numbers)


@settings(max_examples=40, deadline=None)
@given(fleets, st.data())
def test_one_replica_changes(numbers: list[int], data: st.DataObject) -> None:
    tree = MergeTree()
    by_tree(tree, numbers)
    place = data.draw(st.integers(0, len(numbers) - 1))
    changed = [*numbers[:place], data.draw(st.integers(0, 39)), *numbers[place + 1 :]]
    assert by_tree(tree, changed) == flat(changed)


def test_the_same_parts_give_the_same_object() -> None:
    tree = MergeTree()
    windows, names = [WINDOWS[n] for n in range(40)], [f"r{n}" for n in range(40)]
    whole = tree.merged(windows, names)
    assert tree.merged(windows, names) is whole
    windows[3] = WINDOWS[39]
    assert tree.merged(windows, names) is not whole


def test_no_replica_at_all() -> None:
    assert MergeTree().merged([], []).parts == 0
