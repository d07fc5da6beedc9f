"""What-ifs on the screen: which values are asked for, and how the answers read."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginetop.fleet.snapshot import Advice, Outlook
from tests.tui.snapshots import replica
from tui.view.cells import line_text, line_width
from tui.view.what_if import typed_lines, typed_values, values_near, what_if_lines

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


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", ()),
        (" 64 ", (64,)),
        ("64, 128 64 -1", (64, 128, -1)),
        ("sixty", "sixty is no value: whole numbers, such as 64"),
        ("1e3", "1e3 is no value: whole numbers, such as 64"),
        ("--4", "--4 is no value: whole numbers, such as 64"),
        ("-", "- is no value: whole numbers, such as 64"),
        ("٣", "٣ is no value: whole numbers, such as 64"),
        ("1" * 10, f"{'1' * 10} is no value: whole numbers, such as 64"),
        ("1 2 3 4 5", "4 values at once"),
    ],
)
def test_what_is_typed(text: str, values: tuple[int, ...] | str) -> None:
    assert typed_values(text) == values


@settings(max_examples=80, deadline=None)
@given(st.text(max_size=70))
def test_whatever_is_typed_is_values_or_words(text: str) -> None:
    typed = typed_values(text)
    assert typed if isinstance(typed, str) else len(typed) <= 4


def test_typed_values_are_told_with_their_reasons() -> None:
    one = replica("b1", what_if=outlook, advice=(HOLD,))
    assert [line_text(line).rstrip() for line in typed_lines([one], BUDGET, (4096, 16384), 100)] == [
        "",
        " b1  max_num_batched_tokens 8192",
        " what if        4096  TPOT p95 61 → 36–38 ms",
        "                      a full step takes 37 ms",
        "               16384  withheld: the fit reaches 667 to 12000 tokens a step",
        "             step time 11.8 ms + 6.1 µs/token; attention over long contexts is not in the fit",
    ]
    # nothing typed yet: values near the present one, without reasons
    told = [line_text(line) for line in typed_lines([one], BUDGET, (), 100)]
    assert "what if        4096" in told[2]
    assert not any("a full step" in text for text in told)


def test_of_many_replicas_the_first_are_asked() -> None:
    fleet = [replica(f"b{place}", what_if=outlook, advice=(HOLD,)) for place in range(6)]
    told = "\n".join(line_text(line) for line in typed_lines(fleet, BUDGET, (4096,), 80))
    assert told.count("what if") == 4
    assert told.endswith("and 2 more replicas")
    assert all(line_width(line) <= 40 for line in typed_lines(fleet, BUDGET, (4096,), 40))
    (nobody,) = typed_lines([replica("b1")], BUDGET, (4096,), 80)
    assert "nobody can tell" in line_text(nobody)
