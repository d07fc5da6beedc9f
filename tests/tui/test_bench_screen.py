"""The bench of the screen: budgets are held against figures, and its terminal counts what comes."""

from __future__ import annotations

import sys

from bench.figures import spread
from bench.keys import Cursor
from bench.screen import BUDGETS, over_budget
from bench.screen_fleet import Churn
from bench.screen_terminal import Terminal


def test_what_is_over_its_budget_is_one_line_each() -> None:
    figures = dict(BUDGETS)
    assert over_budget(figures) == []
    figures["full_frame_bytes"] += 1
    figures["churn_0_percent_bytes_per_second"] = 12.5
    assert over_budget(figures) == [
        "full_frame_bytes is 16001, at most 16000 are allowed",
        "churn_0_percent_bytes_per_second is 12.5, at most 0 are allowed",
    ]


def test_churn_changes_that_share_of_the_replicas() -> None:
    source = Churn(50, 0.1)
    source.prepare()
    first = source.latest()
    source.prepare()
    second = source.latest()
    assert first is not None
    assert second is not None
    changed = [one is not other for one, other in zip(first.replicas, second.replicas, strict=True)]
    assert sum(changed) == 5


def test_the_terminal_counts_bytes_and_frames() -> None:
    program = (
        "import sys; sys.stdout.write('x' * 10 + '\\x1b[?2026h' + 'y' * 20); sys.stdout.flush(); input()"
    )
    with Terminal([sys.executable, "-c", program]) as terminal:
        received = 0
        while received < 38:
            block = terminal.read(5.0)
            assert block, "the program said nothing"
            received += len(block)
        assert received == 38  # 10, the eight of the mark, 20
        terminal.press(b"\n")
        assert sum(terminal.frames_for(0.2)) <= 2  # the line end, echoed


class Said(Terminal):
    """A terminal of which is known what comes."""

    def __init__(self, *blocks: str) -> None:
        self._blocks = [block.encode() for block in blocks]

    def read(self, seconds: float) -> bytes:
        return self._blocks.pop(0)


def test_a_cursor_is_followed_over_colours_and_torn_frames() -> None:
    long = "\x1b[38;5;9m" + 9000 * "x"
    cursor = Cursor(
        Said("▸\x1b[1mn001 ● ok", "no row", "\x1b[2;1H▸", "\x1b[1;38;5;9mn002 ▲" + long, "▸n002 again")
    )
    moves = [(cursor.read(0.0), cursor.row) for _ in range(5)]
    assert moves == [(True, b"n001"), (False, b"n001"), (False, b"n001"), (True, b"n002"), (False, b"n002")]


def test_a_hundred_times_by_hand() -> None:
    assert spread("key", [number / 1000 for number in range(100)]) == {
        "key_ms_median": 49.5,
        "key_ms_p90": 90.0,
        "key_ms_p99": 99.0,
        "key_ms_max": 99.0,
    }
    assert spread("key", []) == {}
