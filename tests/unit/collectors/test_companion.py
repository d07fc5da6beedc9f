"""What companions and the simulator add to a page is read alike whatever the engine."""

from __future__ import annotations

import pytest

from collectors.engines import llamacpp, llamacpp_table, vllm
from collectors.engines.companion import FAILED_OUTCOMES
from collectors.engines.mapping import Table
from collectors.engines.matching import Plan, compile_layout
from collectors.page import Page
from enginetop.fleet.model import Quality
from enginetop.fleet.reading import Part
from tests.support.engine_pages import page_of

TABLES = [vllm.TABLE, llamacpp_table.TABLE]

PAGE = """
vllm:num_requests_running{engine="0",model_name="m"} 3
llamacpp:requests_processing 3
enginetop_requests_total{engine="0",model_name="m",outcome="stop"} 90
enginetop_requests_total{engine="0",model_name="m",outcome="length"} 5
enginetop_requests_total{engine="0",model_name="m",outcome="abort"} 3
enginetop_requests_total{engine="0",model_name="m",outcome="error"} 2
enginetop_requests_within_slo_total{engine="0",model_name="m",tpot_seconds="0.05",ttft_seconds="0.6"} 71
enginetop_requests_within_slo_total{engine="0",model_name="m",tpot_seconds="0.1",ttft_seconds="1.0"} 8
enginetop_reasoning_tokens_bucket{engine="0",model_name="m",le="64.0"} 10
enginetop_reasoning_tokens_bucket{engine="0",model_name="m",le="+Inf"} 30
enginetop_reasoning_tokens_count{engine="0",model_name="m"} 30
enginetop_reasoning_tokens_sum{engine="0",model_name="m"} 9000
"""
OPEN_METRICS = PAGE.replace(
    "\nenginetop_requests_total{", "\n# TYPE enginetop_requests counter\nenginetop_requests_total{", 1
)
WITHOUT_TOTAL = PAGE.replace("_total{", "{")


def read(table: Table, text: str) -> tuple[Page, Plan]:
    page = page_of(text)
    return page, compile_layout(table, page.layout)


def added(table: Table, text: str, measure: str, part: Part = Part.VALUE) -> float:
    page, plan = read(table, text)
    found = [
        number
        for one, number in zip(plan.columns.series, plan.values(page), strict=True)
        if one.measure == measure and one.part is part
    ]
    assert found
    return sum(found)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.title)
@pytest.mark.parametrize("text", [PAGE, OPEN_METRICS, WITHOUT_TOTAL], ids=["text", "openmetrics", "bare"])
def test_every_engines_page_may_carry_them(table: Table, text: str) -> None:
    assert added(table, text, "requests_judged") == 100
    assert added(table, text, "requests_judged_failed") == 5
    assert added(table, text, "reasoning_tokens", Part.COUNT) == 30
    assert added(table, text, "reasoning_tokens", Part.SUM) == 9000


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.title)
def test_counts_of_each_objective_are_apart(table: Table) -> None:
    page, plan = read(table, PAGE)
    counts = {
        one.slo: number
        for one, number in zip(plan.columns.series, plan.values(page), strict=True)
        if one.measure == "requests_within_slo"
    }
    assert counts == {(0.6, 0.05): 71, (1.0, 0.1): 8}


@pytest.mark.parametrize("labels", ["", '{ttft_seconds="0.6"}', '{ttft_seconds="x",tpot_seconds="Inf"}'])
def test_an_objective_that_cannot_be_read_is_none(labels: str) -> None:
    _, plan = read(vllm.TABLE, f"enginetop_requests_within_slo_total{labels} 4\n")
    assert [one.slo for one in plan.columns.series] == [None]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.title)
def test_without_a_companion_the_page_says_what_is_missing(table: Table) -> None:
    _, plan = read(table, "vllm:num_preemptions_total 1\nllamacpp:requests_processing 1\n")
    for measure in ("requests_judged", "requests_judged_failed", "requests_within_slo"):
        absence = plan.columns.absent[measure]
        assert (absence.quality, absence.note) == (Quality.UNSUPPORTED, "needs the engine's companion")
    reasoning = plan.columns.absent["reasoning_tokens"]
    assert reasoning.quality is Quality.UNSUPPORTED
    assert (
        reasoning.note == f"{table.unsupported['reasoning_tokens']}; needs the engine's companion"
    )  # both why the engine does not count them and what would


def test_a_router_copy_of_them_is_not_the_engines() -> None:
    _, plan = read(vllm.TABLE, 'enginetop_requests_total{outcome="ok",server="http://a"} 4\n')
    assert plan.columns.series == ()


def test_they_make_no_engine_of_a_page() -> None:
    page = page_of(PAGE.replace("vllm:", "other:").replace("llamacpp:", "other:"))
    assert not vllm.recognise(page.layout)
    assert not llamacpp.LLAMACPP.recognise(page.layout)


def test_they_are_no_progress_of_the_engine_itself() -> None:
    before, plan = read(vllm.TABLE, PAGE)
    after = page_of(PAGE.replace('outcome="stop"} 90', 'outcome="stop"} 91'))
    assert plan.progress_token(before) == plan.progress_token(after)


def test_outcomes_of_the_simulator_that_failed() -> None:
    assert {"stop", "length", "abort", "error", "repetition"} & FAILED_OUTCOMES == {"abort", "error"}
