"""Former pictures are given back some at a time, and none of those that are still shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.tui.snapshots import fleet, replica
from tui.let_go import AT_ONCE, LetGo


class Turns:
    """An event loop that is turned by hand."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def later(self, call: Callable[[], None]) -> None:
        """Call it at the next turn."""
        self.calls.append(call)

    def turn(self) -> bool:
        """Call what is due; whether there was anything."""
        due, self.calls = self.calls, []
        for call in due:
            call()
        return bool(due)


def test_a_large_picture_goes_in_pieces() -> None:
    turns = Turns()
    let_go = LetGo(turns.later)
    members = [replica(f"n{number}") for number in range(100)]
    former = fleet(members)
    kept = members[:10]
    now = fleet([*kept, *(replace(one, bad_lines=1) for one in members[10:])])
    let_go.replaced(former, now)
    left = []
    while turns.turn():
        left.append(let_go.held)
    assert left == [90 - AT_ONCE * turn for turn in range(1, 90 // AT_ONCE + 1)] + [0]


def test_what_comes_meanwhile_is_one_more_piece_and_no_second_call() -> None:
    turns = Turns()
    let_go = LetGo(turns.later)
    pictures = [fleet([replica(f"n{number}") for number in range(AT_ONCE + 1)]) for _ in range(3)]
    let_go.replaced(pictures[0], pictures[1])
    let_go.replaced(pictures[1], pictures[2])
    assert (len(turns.calls), let_go.held) == (1, 2 * AT_ONCE + 2)


def test_a_small_one_and_the_same_one_are_not_held() -> None:
    turns = Turns()
    let_go = LetGo(turns.later)
    small, other = fleet([replica("a")]), fleet([replica("a")])
    let_go.replaced(small, other)
    let_go.replaced(other, other)
    let_go.replaced(None, other)
    let_go.replaced(other, None)
    assert (turns.calls, let_go.held) == ([], 0)
