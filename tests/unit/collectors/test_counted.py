"""Totals and breakdowns, shards and ranks: what of a family is added, and what never is."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.engines.mapping import Row, Table
from collectors.engines.matching import Plan, compile_layout
from collectors.page import Page
from enginetop.fleet.reading import Part
from tests.support.engine_pages import page_of

TABLE = Table(
    title="Engine",
    prefixes=("e:", "e_"),
    rank_labels=(("dp_rank",),),
    shard_labels=("tp_rank", "pp_rank"),
    rows=(
        Row("requests_running", ("running",), total_label="priority"),
        Row("requests_finished", ("done",), total_label="priority"),
        Row("ttft_seconds", ("ttft_seconds",), total_label="priority"),
        Row("preemptions", ("retracted",)),
        Row("generation_tokens", ("live",), where={"mode": frozenset({"decode"})}),
        Row("generation_tokens", ("finished",), unless=("live",), note="from the finish counter"),
        Row("external_prefix_hits", ("hits",), only_with=("host_size",), note="no host tier"),
        Row("requests_aborted", ("aborted",), unranked=True),
    ),
    moving_names=("http_", "clock_"),
)


def compiled(text: str) -> tuple[Page, Plan]:
    page = page_of(text)
    return page, compile_layout(TABLE, page.layout)


def values_of(text: str, measure: str, part: Part = Part.VALUE) -> list[float]:
    page, plan = compiled(text)
    pairs = zip(plan.columns.series, plan.values(page), strict=True)
    return [value for one, value in pairs if one.measure == measure and one.part is part]


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ('e:running{priority=""} 5\ne:running{priority="0"} 3\ne:running{priority="1"} 2\n', [5]),
        ('e:running{priority="1"} 2\ne:running 5\ne:running{priority="0"} 3\n', [5]),
        ('e:running{priority="0"} 3\ne:running{priority="1"} 2\n', [3, 2]),
        # Each model has its own total, or none.
        ('e:running{m="a",priority=""} 5\ne:running{m="a",priority="0"} 5\ne:running{m="b",priority="0"} 4\n',
         [5, 4]),
        ('e:running{priority=""} 0\ne:running{priority="7"} 1\n', [0]),
    ],
)  # fmt: skip
def test_a_total_and_its_breakdown_are_never_added(text: str, taken: list[float]) -> None:
    assert values_of(text, "requests_running") == taken


def test_each_family_has_its_own_rule() -> None:
    # SGLang with priority scheduling: a total for the scheduler's gauge, none for the counter of requests.
    text = """\
e:running{priority=""} 5
e:running{priority="0"} 3
e:running{priority="1"} 2
e:done_total{priority="0"} 30
e:done_total{priority="1"} 20
e:ttft_seconds_bucket{priority="0",le="1"} 10
e:ttft_seconds_bucket{priority="0",le="+Inf"} 30
e:ttft_seconds_bucket{priority="1",le="1"} 5
e:ttft_seconds_bucket{priority="1",le="+Inf"} 20
"""
    assert values_of(text, "requests_running") == [5]
    assert values_of(text, "requests_finished") == [30, 20]
    assert values_of(text, "ttft_seconds", Part.BUCKET) == [10, 30, 5, 20]


def test_a_row_without_the_rule_adds_whatever_there_is() -> None:
    assert values_of('e:retracted{priority=""} 5\ne:retracted{priority="0"} 3\n', "preemptions") == [5, 3]


def test_a_total_on_one_shard_stands_for_the_breakdown_on_another() -> None:
    text = 'e:running{tp_rank="1",priority=""} 5\ne:running{tp_rank="0",priority="0"} 5\n'
    assert values_of(text, "requests_running") == [5]


@pytest.mark.parametrize(
    ("shards", "taken"),
    [
        (['tp_rank="0"', 'tp_rank="1"'], 1),
        (['tp_rank="1"', 'tp_rank="0"'], 2),
        (['tp_rank="10"', 'tp_rank="9"'], 2),  # by number, not by text
        (['tp_rank="0",pp_rank="1"', 'tp_rank="1",pp_rank="0"', 'tp_rank="0",pp_rank="0"'], 3),
        (['tp_rank="0"', ""], 2),  # without a shard it speaks for all
        (['tp_rank="x"', 'tp_rank="7"'], 2),
        ([f'tp_rank="{"9" * 400}"', 'tp_rank="8"'], 2),
    ],
)
def test_shards_work_on_the_same_requests_and_the_lowest_speaks(shards: list[str], taken: int) -> None:
    text = "".join(f"e:running{{{shard}}} {at}\n" for at, shard in enumerate(shards, 1))
    assert values_of(text, "requests_running") == [taken]


def test_data_parallel_ranks_are_added_each_from_one_of_its_shards() -> None:
    # dp 2 x tp 2 with attention DP: tensor ranks 0, 1 are data-parallel rank 0, and 2, 3 are rank 1.
    text = "".join(
        f'e:running{{dp_rank="{tp // 2}",tp_rank="{tp}"}} {value}\n' for tp, value in enumerate((4, 4, 7, 7))
    )
    page, plan = compiled(text)
    by_rank = {s.rank: v for s, v in zip(plan.columns.series, plan.values(page), strict=True)}
    assert by_rank == {"0": 4, "1": 7}
    assert {rank: dict(labels) for rank, labels in plan.columns.ranks.items()} == {
        "0": {"dp_rank": "0"},
        "1": {"dp_rank": "1"},
    }


def test_a_histogram_comes_from_one_shard_as_a_whole() -> None:
    text = "".join(
        f'e:ttft_seconds_bucket{{tp_rank="{rank}",le="1"}} {rank + 1}\n'
        f'e:ttft_seconds_bucket{{tp_rank="{rank}",le="+Inf"}} {rank + 2}\n'
        f'e:ttft_seconds_sum{{tp_rank="{rank}"}} {rank + 3}\n'
        f'e:ttft_seconds_count{{tp_rank="{rank}"}} {rank + 2}\n'
        for rank in (1, 0)
    )
    assert values_of(text, "ttft_seconds", Part.BUCKET) == [1, 2]
    assert values_of(text, "ttft_seconds", Part.SUM) == [3]
    assert values_of(text, "ttft_seconds", Part.COUNT) == [2]


def test_the_identity_of_a_series_outlives_a_change_of_the_shard_that_speaks() -> None:
    # The first retraction may reach the page from one shard earlier than from another: no second increase.
    _, first = compiled('e:retracted_total{tp_rank="1",m="a"} 3\n')
    _, second = compiled('e:retracted_total{tp_rank="0",m="a"} 3\ne:retracted_total{tp_rank="1",m="a"} 3\n')
    assert [one.key for one in first.columns.series] == [one.key for one in second.columns.series]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('e:running{m="a"} 3\n', 'e_running{m="a"} 4\n'),  # a proxy that escapes colons, now and then
        ('e_live_total{mode="decode"} 3\n', 'e:live_total{mode="decode"} 4\n'),
        ('e:retracted_total{m="a"} 3\n', 'e:retracted{m="a"} 4\n'),  # another front end
        ('e:retracted_total{m="a",n="b"} 3\n', 'e:retracted_total{n="b",m="a"} 4\n'),
        ('e:ttft_seconds_bucket{le="1"} 3\n', 'e:ttft_seconds_bucket{le="1.0"} 4\n'),
        ('e:ttft_seconds_bucket{le="0.3"} 3\n', 'e_ttft_seconds_bucket{le="0.30000000000000004"} 4\n'),
        ('e:ttft_seconds_sum{m="a"} 3\n', 'e_ttft_seconds_sum{m="a"} 4\n'),
    ],
)
def test_the_identity_of_a_series_outlives_a_change_of_its_spelling(before: str, after: str) -> None:
    # Else what was counted over the whole life of the engine would be the increase of one step.
    _, first = compiled(before)
    _, second = compiled(after)
    assert [(s.measure, s.part, s.key, s.group) for s in first.columns.series] == [
        (s.measure, s.part, s.key, s.group) for s in second.columns.series
    ]
    assert len(first.columns.series) == 1


def test_labels_that_differ_otherwise_have_their_own_identity() -> None:
    _, plan = compiled(
        'e:retracted_total{tp_rank="0",m="a"} 3\ne:retracted_total{tp_rank="0",m="b"} 3\n'
        'e:retracted_total{m="c"} 3\n'
    )
    assert len({one.key for one in plan.columns.series}) == 3


def test_the_counters_of_every_shard_are_progress() -> None:
    page, plan = compiled('e:done_total{tp_rank="0"} 3\ne:done_total{tp_rank="1"} 3\n')
    later, _ = compiled('e:done_total{tp_rank="0"} 3\ne:done_total{tp_rank="1"} 4\n')
    assert plan.progress_token(page) != plan.progress_token(later)


@settings(max_examples=60, deadline=None)
@given(
    dp=st.integers(1, 3),
    tp=st.integers(1, 3),
    priorities=st.lists(st.integers(0, 50), min_size=1, max_size=4),
    total=st.booleans(),
    seed=st.integers(0, 999),
)
def test_the_sum_is_that_of_the_requests_however_the_page_repeats_them(
    dp: int, tp: int, priorities: list[int], total: bool, seed: int
) -> None:
    lines = []
    for rank, shard in itertools.product(range(dp), range(tp)):
        labels = f'dp_rank="{rank}",tp_rank="{rank * tp + shard}"'
        lines += [f'e:running{{{labels},priority="{p}"}} {n}' for p, n in enumerate(priorities)]
        if total:
            lines.append(f'e:running{{{labels},priority=""}} {sum(priorities)}')
    random.Random(seed).shuffle(lines)
    assert sum(values_of("\n".join(lines) + "\n", "requests_running")) == dp * sum(priorities)


def test_an_older_series_stands_in_only_where_the_page_has_none_of_the_newer() -> None:
    finished = "e:finished_total 40\n"
    live = 'e:live_total{mode="decode"} 55\ne:live_total{mode="prefill"} 900\n'
    assert values_of(finished, "generation_tokens") == [40]
    assert values_of(finished + live, "generation_tokens") == [55]
    assert values_of(finished + live.replace("e:", "e_"), "generation_tokens") == [55]
    # Before the first decode step nothing is taken rather than now the one, now the other.
    text = finished + 'e:live_total{mode="prefill"} 900\n'
    assert values_of(text, "generation_tokens") == []
    _, plan = compiled(text)
    assert plan.columns.absent["generation_tokens"].note == "exported, but nothing counted there yet"


def test_a_routers_copy_of_the_newer_series_takes_nothing_away() -> None:
    text = 'e:finished_total 40\ne:live_total{mode="decode",worker_addr="a"} 55\n'
    assert values_of(text, "generation_tokens") == [40]


def test_a_series_that_means_something_with_a_feature_only() -> None:
    text = "e:hits_total 0\n"
    assert values_of(text, "external_prefix_hits") == []
    _, plan = compiled(text)
    assert plan.columns.absent["external_prefix_hits"].note == "no host tier"
    assert values_of(text + "e:host_size 100\n", "external_prefix_hits") == [0]


def test_labels_of_an_unranked_row_make_no_ranks() -> None:
    _, plan = compiled('e:running 3\ne:aborted_total{dp_rank="0"} 1\ne:aborted_total{dp_rank="1"} 2\n')
    assert dict(plan.columns.ranks) == {}
    assert {one.rank for one in plan.columns.series} == {""}
    assert len(plan.columns.series) == 3


@pytest.mark.parametrize(
    ("name", "moved"), [("done", True), ("http_requests", False), ("clock_seconds", False)]
)
def test_what_moves_by_itself_is_no_progress(name: str, moved: bool) -> None:
    page, plan = compiled(f"e:{name}_total 3\n")
    later, _ = compiled(f"e:{name}_total 4\n")
    assert (plan.progress_token(page) != plan.progress_token(later)) is moved
