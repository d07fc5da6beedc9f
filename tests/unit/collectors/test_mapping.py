"""The declarative machinery: which spelling wins, what is added, what is missing and why."""

from __future__ import annotations

import gc
import math
import weakref
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.engines.mapping import LayoutMemo, Row, Table
from collectors.engines.matching import Plan, compile_layout
from collectors.page import Layout, Page
from enginetop.fleet.model import Quality
from enginetop.fleet.reading import Part, Series
from tests.support.engine_pages import page_of

TABLE = Table(
    title="Engine",
    prefixes=("e:", "e_"),
    rank_labels=(("engine", "dp_rank"), ("replica",)),
    rows=(
        Row("requests_running", ("running",)),
        Row("kv_usage_ratio", ("kv_new", "kv_old"), lazy=True, note="comes later"),
        Row("requests_finished", ("done",)),
        Row("requests_aborted", ("done",), where={"reason": frozenset({"abort"})}),
        Row("ttft_seconds", ("ttft_seconds",)),
        Row("e2e_seconds", ("e2e_ms",), scale=0.001),
        Row("prompt_tokens_processed", ("fresh",)),
        Row("prompt_tokens_processed", ("cached",)),
        Row("spec_accepted_at_position", ("accepted",), position_label="position"),
        Row("preemptions", ("preempted",), note="since version 2"),
    ),
    unsupported={"itl_seconds": "the engine does not tell"},
)


def compiled(text: str) -> tuple[Page, Plan]:
    page = page_of(text)
    return page, compile_layout(TABLE, page.layout)


def values_of(text: str, measure: str) -> list[float]:
    page, plan = compiled(text)
    return [v for s, v in zip(plan.columns.series, plan.values(page), strict=True) if s.measure == measure]


@pytest.mark.parametrize(
    ("text", "wins"),
    [
        ("e:kv_new 0.5\ne:kv_old 0.4\n", 0.5),
        ("e:kv_old 0.4\ne:kv_new 0.5\n", 0.5),
        ("e_kv_old 0.4\n", 0.4),
        ("e_kv_new 0.5\ne:kv_new 0.6\n", 0.6),
        # The newer name wins over the better prefix.
        ("e:kv_old 0.4\ne_kv_new 0.5\n", 0.5),
    ],
)
def test_one_spelling_is_taken_and_never_a_sum(text: str, wins: float) -> None:
    assert values_of(text, "kv_usage_ratio") == [wins]


@pytest.mark.parametrize("line", ["e:done_total 7", "e:done 7", "e_done_total 7", "e_done 7"])
def test_a_counter_is_one_with_or_without_total(line: str) -> None:
    assert values_of(f"{line}\n", "requests_finished") == [7]


def test_both_spellings_of_a_counter_are_one_series() -> None:
    assert values_of("e:done 7\ne:done_total 8\ne_done_total 9\n", "requests_finished") == [8]


def test_each_rank_takes_the_best_spelling_it_has() -> None:
    text = 'e:running{engine="0"} 1\ne_running{engine="0"} 2\ne_running{engine="1"} 3\n'
    page, plan = compiled(text)
    by_rank = {s.rank: v for s, v in zip(plan.columns.series, plan.values(page), strict=True)}
    assert by_rank == {"0": 1, "1": 3}
    assert {key: dict(labels) for key, labels in plan.columns.ranks.items()} == {
        "0": {"engine": "0"},
        "1": {"engine": "1"},
    }


def test_ranks_of_several_replicas_on_one_page_stay_apart() -> None:
    text = 'e:running{engine="0",replica="a"} 1\ne:running{engine="0",replica="b"} 2\n'
    _, plan = compiled(text)
    assert [s.rank for s in plan.columns.series] == ["0,a", "0,b"]


def test_a_page_without_rank_labels_names_no_rank() -> None:
    _, plan = compiled("e:running 1\n")
    assert [s.rank for s in plan.columns.series] == [""]
    assert dict(plan.columns.ranks) == {}


def test_children_are_kept_apart_and_filtered_by_label() -> None:
    text = 'e:done_total{reason="stop"} 5\ne:done_total{reason="abort"} 2\n'
    assert values_of(text, "requests_finished") == [5, 2]
    assert values_of(text, "requests_aborted") == [2]


def test_rows_of_one_measure_are_added() -> None:
    assert values_of("e:fresh_total 5\ne:cached_total 2\n", "prompt_tokens_processed") == [5, 2]


@pytest.mark.parametrize("label", ["server", "worker_addr"])
def test_a_routers_copy_is_not_the_engines_series(label: str) -> None:
    assert values_of(f'e:running{{{label}="http://a"}} 9\n', "requests_running") == []


def test_a_number_that_is_none_stays_missing() -> None:
    (value,) = values_of("e:running NaN\n", "requests_running")
    assert math.isnan(value)


def test_bounds_are_numbers_and_one_bound_is_one_bucket() -> None:
    text = """\
e:ttft_seconds_bucket{le="0.3"} 1
e:ttft_seconds_bucket{le="0.30"} 1
e:ttft_seconds_bucket{le="5e-1"} 2
e:ttft_seconds_bucket{le="junk"} 7
e:ttft_seconds_bucket 8
e:ttft_seconds_bucket{le="+Inf"} 3
e:ttft_seconds_sum 1.25
e:ttft_seconds_count 3
"""
    page, plan = compiled(text)
    found = [(s.part, s.le, v) for s, v in zip(plan.columns.series, plan.values(page), strict=True)]
    assert found[:3] == [(Part.BUCKET, 0.3, 1), (Part.BUCKET, 0.5, 2), (Part.BUCKET, math.inf, 3)]
    assert [(part, value) for part, _, value in found[3:]] == [(Part.SUM, 1.25), (Part.COUNT, 3)]
    assert len({s.group for s in plan.columns.series}) == 1


def test_histograms_of_two_label_sets_are_two_groups() -> None:
    _, plan = compiled('e:ttft_seconds_count{p="1"} 1\ne:ttft_seconds_count{p="2"} 1\n')
    assert len({s.group for s in plan.columns.series}) == 2


def test_a_scale_turns_bounds_and_sums_but_no_counts() -> None:
    text = 'e:e2e_ms_bucket{le="250"} 4\ne:e2e_ms_sum 1500\ne:e2e_ms_count 5\n'
    page, plan = compiled(text)
    assert [s.le for s in plan.columns.series if s.part is Part.BUCKET] == [0.25]
    assert list(plan.values(page)) == [4, 1.5, 5]


@pytest.mark.parametrize(
    ("label", "position"), [("0", 0), ("3", 3), ("-1", None), ("x", None), ("99999999", None), ("²", None)]
)
def test_draft_positions(label: str, position: int | None) -> None:
    _, plan = compiled(f'e:accepted_total{{position="{label}"}} 1\n')
    assert [s.position for s in plan.columns.series] == ([] if position is None else [position])


def test_created_times_belong_to_the_series_of_their_child() -> None:
    text = """\
e:done_total{reason="a"} 1
e:done_total{reason="b"} 2
e:done_created{reason="b"} 20
e:done_created{reason="a"} 10
e:ttft_seconds_bucket{le="+Inf"} 3
e:ttft_seconds_sum 1
e:ttft_seconds_count 3
e:ttft_seconds_created 30
"""
    page, plan = compiled(text)
    values = plan.values(page)
    groups = {
        birth: [values[i] for i in group]
        for birth, group in zip(plan.births(page), plan.columns.birth_groups, strict=True)
    }
    assert groups == {10: [1], 20: [2], 30: [3, 1, 3]}


def test_process_start_is_the_start_token() -> None:
    page, plan = compiled("e:running 1\nprocess_start_time_seconds 1.5e9\n")
    assert plan.start_token(page) == 1.5e9
    page, plan = compiled("e:running 1\nprocess_start_time_seconds NaN\n")
    assert plan.start_token(page) is None
    page, plan = compiled("e:running 1\n")
    assert plan.start_token(page) is None


PROGRESS = """\
# TYPE e:running gauge
e:running {running}
# TYPE e:done counter
e:done_total {done}
# TYPE e:other_total counter
e:other_total {other}
# TYPE e:ttft_seconds histogram
e:ttft_seconds_bucket{{le="+Inf"}} 1
e:ttft_seconds_sum 1
e:ttft_seconds_count {count}
e:done_created {created}
# TYPE python_gc counter
python_gc_total {python}
http_requests_total {python}
process_cpu_seconds_total {python}
"""
BASE = {"running": 1, "done": 1, "other": 1, "count": 1, "created": 1, "python": 1}


def progress(**changed: object) -> int:
    page, plan = compiled(PROGRESS.format(**{**BASE, **changed}))
    return plan.progress_token(page)


@pytest.mark.parametrize("moved", ["done", "other", "count"])
def test_own_counters_and_counts_are_progress(moved: str) -> None:
    assert progress(**{moved: 2}) != progress()


@pytest.mark.parametrize("moved", ["running", "created", "python"])
def test_gauges_births_and_the_process_are_no_progress(moved: str) -> None:
    assert progress(**{moved: 2}) == progress()


def test_a_counter_without_a_number_is_no_progress() -> None:
    assert progress(other="NaN") == progress(other="nan")


def test_the_order_of_lines_is_no_progress() -> None:
    one, two = 'e:done_total{reason="a"} 1', 'e:done_total{reason="b"} 2'
    page, plan = compiled(f"{one}\n{two}\n")
    turned, turned_plan = compiled(f"{two}\n{one}\n")
    assert plan.progress_token(page) == turned_plan.progress_token(turned)


def test_reasons_of_absence() -> None:
    _, plan = compiled('# TYPE e:ttft_seconds histogram\ne:done_total{reason="stop"} 1\n')
    absent = plan.columns.absent
    assert absent["ttft_seconds"].quality is Quality.UNKNOWN
    assert absent["requests_aborted"].quality is Quality.UNKNOWN
    assert (absent["kv_usage_ratio"].quality, absent["kv_usage_ratio"].note) == (
        Quality.UNKNOWN,
        "comes later",
    )
    assert (absent["preemptions"].quality, absent["preemptions"].note) == (
        Quality.UNSUPPORTED,
        "since version 2",
    )
    assert absent["itl_seconds"].note == "the engine does not tell"
    assert absent["queue_seconds"].quality is Quality.UNSUPPORTED
    assert "requests_finished" not in absent


def test_extra_series_follow_the_picked_ones() -> None:
    page = page_of("e:running 1\n")
    extra = Series("kv_capacity_tokens", "", "computed")
    plan = compile_layout(TABLE, page.layout, [extra], {"kv_capacity_tokens": "a guess", "preemptions": "no"})
    assert plan.columns.series[-1] is extra
    assert plan.values(page, [64.0]) == array("d", [1, 64])
    assert dict(plan.columns.estimated) == {"kv_capacity_tokens": "a guess"}
    assert "kv_capacity_tokens" not in plan.columns.absent


def test_the_mapping_is_data() -> None:
    assert TABLE.sources()["kv_usage_ratio"] == ("e:kv_new", "e:kv_old")
    assert TABLE.sources()["prompt_tokens_processed"] == ("e:fresh_total", "e:cached_total")


def test_a_layout_is_compiled_once_and_let_go() -> None:
    seen: list[Layout] = []

    def note(layout: Layout) -> int:
        seen.append(layout)
        return len(layout.names)

    memo = LayoutMemo(note)
    layout = page_of("e:running 1\n").layout
    assert (memo(layout), memo(layout)) == (1, 1)
    assert len(seen) == 1
    gone = weakref.ref(layout)
    seen.clear()
    del layout
    gc.collect()
    assert gone() is None


_NAMES = st.sampled_from(
    ["e:done", "e:done_total", "e_done_total", "e:ttft_seconds_bucket", "e:running", "x"]
)
_LABELS = st.dictionaries(
    st.sampled_from(["engine", "le", "position", "reason", "server"]), st.text(max_size=4), max_size=3
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(_NAMES, _LABELS), max_size=12, unique_by=lambda s: (s[0], tuple(sorted(s[1].items()))))
)
def test_any_lines_compile_into_parallel_columns(samples: list[tuple[str, dict[str, str]]]) -> None:
    layout = Layout(
        names=tuple(name for name, _ in samples),
        labels=tuple(labels for _, labels in samples),
        keys=tuple(f"{name}{sorted(labels.items())}" for name, labels in samples),
        types={},
    )
    page = Page(layout, [float(i) for i in range(len(samples))])
    plan = compile_layout(TABLE, layout)
    assert len(plan.values(page)) == len(plan.columns.series)
    assert all(s.rank == "" or s.rank in plan.columns.ranks for s in plan.columns.series)
    # No raw sample counts twice towards one part of a measure.
    taken = [(s.measure, s.part, s.key) for s in plan.columns.series]
    assert len(taken) == len(set(taken))
