"""Two replicas side by side: what differs, by how much, and plots on one scale."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginetop.fleet.model import Role
from enginetop.fleet.reading import ConfigValue
from enginetop.fleet.snapshot import ReplicaSnapshot
from tests.property.test_view_properties import replicas
from tests.tui.snapshots import AT, distribution, down_replica, fleet, replica, scalar
from tui.view.beside import beside_lines, beside_title, others
from tui.view.cells import line_text, line_width
from tui.view.compare import figure_lines
from tui.view.picture import Picture

A1 = replica(
    "a1",
    changes={"requests_running": 40, "ttft_seconds": distribution(0.1, 0.2), "kv_usage_ratio": 0.5},
    config={"max_num_seqs": ConfigValue(64, "x"), "block_size": ConfigValue(16, "x")},
    bound_by={"none": 1.0},
)
A2 = replica(
    "a2",
    changes={"requests_running": 50, "ttft_seconds": distribution(0.1, 0.7), "kv_usage_ratio": 0.25},
    config={"max_num_seqs": ConfigValue(256, "x"), "block_size": ConfigValue(16, "x")},
    bound_by={"kv": 0.25, "none": 0.75},
)


def texts(first: ReplicaSnapshot, second: ReplicaSnapshot, width: int = 80) -> list[str]:
    picture = Picture(fleet([first, second]))
    return [
        line_text(line).rstrip() for line in beside_lines(picture, first.target.url, second.target.url, width)
    ]


def row(lines: list[str], label: str) -> list[str]:
    """The words of a row after its label."""
    found = next(line for line in lines if line.startswith(f" {label}  "))
    return found[len(label) + 1 :].split()


@pytest.mark.parametrize(
    ("first", "second", "between"),
    [(-1.7e308, 1.7e308, "–"), (5e-324, 1.0, "+1"), (1.0, 1.5, "+0.50 (+50%)")],
)
def test_what_lies_between_two_figures(first: float, second: float, between: str) -> None:
    """A difference that no float holds is not known, and of next to nothing there is no share."""
    sides = ({"requests_running": scalar(number)} for number in (first, second))
    (line,) = figure_lines(*sides)
    assert line_text(line).endswith(f"  {between}")


@pytest.mark.parametrize("width", [60, 72, 80, 200])
def test_a_figure_can_be_told_by_its_name(width: int) -> None:
    """From 71 cells on names are whole; below they keep their ends, which name the quantile."""
    first, second = (replica(name, changes={"queue_seconds": distribution(0.1, 0.2)}) for name in "ab")
    names = [line.split("  ")[0].strip() for line in texts(first, second, width)]
    assert {"queue seconds p50", "queue seconds p95"} <= set(names)
    assert any(name == "generation tokens per second" for name in names) == (width > 70)
    assert len({name for name in names if "per second" in name}) > 3


def test_what_is_set_and_measured_differently_by_hand() -> None:
    lines = texts(A1, A2)
    assert lines[0].split() == ["a1", "a2", "a2", "-", "a1"]
    assert row(lines, "max num seqs") == ["64", "256", "differs"]
    assert row(lines, "settings") == ["1", "are", "the", "same"]
    assert row(lines, "requests running") == ["40", "50", "+10", "(+25%)"]
    assert row(lines, "ttft seconds p95") == ["200", "ms", "700", "ms", "+500", "ms", "(+250%)"]
    assert row(lines, "kv usage ratio")[:5] == ["50.0", "%", "25.0", "%", "-25.0"]
    assert row(lines, "bound by kv") == ["0", "%", "25", "%", "differs"]
    assert row(lines, "state") == ["ok", "ok", "same"]


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        (0.5, 0.4999, ["-<0.1", "points"]),
        (0.5, 0.5001, ["+<0.1", "points"]),
        (0.5, 0.4988, ["-0.1", "points"]),
        (0.5, 0.49, ["-1.0", "points", "(-2%)"]),
        (0.5, 0.5, ["0"]),
    ],
)
def test_a_small_difference_is_neither_zero_nor_a_share_of_zero(
    before: float, after: float, change: list[str]
) -> None:
    first = replica("a", changes={"kv_usage_ratio": before})
    second = replica("b", changes={"kv_usage_ratio": after})
    assert row(texts(first, second), "kv usage ratio")[4:] == change


def test_words_that_are_too_long_for_a_column_have_a_line_each() -> None:
    other = replace(A2, engine_version="0.34.0", model="Qwen3-32B")
    lines = texts(A1, other)
    engine = next(number for number, line in enumerate(lines) if line.startswith(" engine "))
    assert [lines[engine].split()[1:], lines[engine + 1].split()] == [["vLLM", "0.33.0"], ["vLLM", "0.34.0"]]


def test_a_dead_one_beside_a_good_one_has_no_numbers_not_zeros() -> None:
    lines = texts(A1, down_replica("c0"))
    assert row(lines, "requests running") == ["40", "–", "–"]
    assert row(lines, "state") == ["ok", "down", "differs"]


def test_both_plots_have_one_scale() -> None:
    times = tuple(AT - 2 * step for step in range(149, -1, -1))
    low = replace(A1, trends={"requests_running": (10.0,) * 150}, trend_times=times)
    high = replace(A2, trends={"requests_running": (40.0,) * 150}, trend_times=times)
    lines = texts(low, high, 140)
    caption = next(number for number, line in enumerate(lines) if line.count("running, last") == 2)
    assert lines[caption + 1].split().count("40") == 2
    # a quarter of the scale: of four rows the left one fills the lowest alone, the right one all
    assert [line[:69].count("█") > 20 for line in lines[caption + 1 : caption + 5]] == [
        False,
        False,
        False,
        True,
    ]
    assert all(line[70:].count("█") > 20 for line in lines[caption + 1 : caption + 5])


def test_those_of_the_same_pool_come_first() -> None:
    other_model = replica("b1", model="Qwen3-32B")
    other_role = replica("b2", role=Role.PREFILL)
    picture = Picture(fleet([A1, other_model, other_role, A2]))
    names = [picture.name_of(url) for url in others(picture, A1.target.url)]
    assert names == ["a2", "b1", "b2"]
    assert others(picture, "http://gone") == []


def test_alone_or_gone() -> None:
    alone = Picture(fleet([A1]))
    assert line_text(beside_lines(alone, A1.target.url, None, 80)[0]) == " there is no other replica"
    gone = beside_lines(alone, "http://gone", A1.target.url, 80)
    assert line_text(gone[0]) == " this replica is no longer in the fleet"
    assert line_text(beside_title(alone, A1.target.url, None, 80)).startswith(" a1 ")


@settings(max_examples=40, deadline=None)
@given(replicas(1), replicas(2), st.integers(20, 300))
def test_no_line_is_wider_than_the_terminal(
    first: ReplicaSnapshot, second: ReplicaSnapshot, width: int
) -> None:
    picture = Picture(fleet([first, second]))
    lines = beside_lines(picture, first.target.url, second.target.url, width)
    for line in (*lines, beside_title(picture, first.target.url, second.target.url, width)):
        assert line_width(line) <= width, line_text(line)


def test_what_binds_a_replica_that_is_down_is_not_known() -> None:
    """It had `0 %` in each of these rows."""
    lines = texts(down_replica("a1"), A2)
    assert row(lines, "bound by kv") == ["–", "25", "%", "–"]
    assert row(lines, "bound by none") == ["–", "75", "%", "–"]
