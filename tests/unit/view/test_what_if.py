"""What-ifs on the screen: which values are asked for, and how the answers read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from enginetop.fleet.snapshot import Advice, Outlook
from tests.tui.snapshots import replica
from tui.view.cells import line_text, line_width
from tui.view.what_if import values_near, what_if_lines

BUDGET = "max_num_batched_tokens"
HOLD = Advice(BUDGET, "hold", ("TPOT is within its SLO",), 8192)


@pytest.mark.parametrize(
    ("knob", "now", "proposed", "values"),
    [
        (BUDGET, 8192, 6144, (4096, 6144, 16384)),
        (BUDGET, None, None, ()),
        ("max_num_seqs", 1, None, (2,)),
        ("num_speculative_tokens", 4, 1, (0, 1, 3, 5)),
        ("num_speculative_tokens", 0, None, (1,)),
        ("thinking_token_budget", -1, 6400, (2048, 4096, 6400, 8192, 16384)),
        ("thinking_token_budget", None, None, (2048, 4096, 8192, 16384)),
        ("thinking_token_budget", 4096, 8192, (2048, 8192)),
    ],
)
def test_values(knob: str, now: float | None, proposed: float | None, values: tuple[int, ...]) -> None:
    assert values_near(Advice(knob, "hold", ("why",), now, proposed)) == values


def outlook(knob: str, value: int) -> Outlook:
    if value > 8192:
        return Outlook(knob, value, "withheld", ("the fit reaches 667 to 12000 tokens a step",), 8192)
    expected = {"tpot_p95_seconds_from": 0.061, "tpot_p95_seconds_low": 0.036, "tpot_p95_seconds_high": 0.038}
    limits = ("step time 11.8 ms + 6.1 µs/token", "attention over long contexts is not in the fit")
    return Outlook(knob, value, "predicted", ("a full step takes 37 ms",), 8192, expected, limits)


def test_lines() -> None:
    lines = list(what_if_lines(replica("b1", what_if=outlook), HOLD, 100))
    assert [line_text(line).rstrip() for line in lines] == [
        " what if        4096  TPOT p95 61 → 36–38 ms",
        "               16384  withheld: the fit reaches 667 to 12000 tokens a step",
        "             step time 11.8 ms + 6.1 µs/token; attention over long contexts is not in the fit",
    ]
    narrow = what_if_lines(replica("b1", what_if=outlook), HOLD, 60)
    assert all(line_width(line) <= 60 for line in narrow)
    assert not list(what_if_lines(replica("b1"), HOLD, 100))
    assert not list(what_if_lines(replica("b1", what_if=outlook), replace(HOLD, current=None), 100))
