"""The page as a text: held against a real vLLM page and against Prometheus's own client."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.utils import floatToGoString

from enginetop.fleet.snapshot import Slo
from enginetop.simulator.builtin import SCENARIOS
from enginetop.simulator.pages import number_text
from enginetop.simulator.replica import SimulatedReplica
from enginetop.simulator.scenario import ReplicaPlan
from tests.unit.simulator.read_page import ReadPage

FIXTURES = Path(__file__).parents[2] / "fixtures" / "vllm" / "0.32.0"
REAL_PAGES = ("vllm-0.32.0-loaded.prom", "vllm-0.32.0-spec-2api-loaded.prom")
OPTIONAL = re.compile(r"vllm:(kv_block_|corrupted_requests)|http_|python_gc_")
"""On the real pages only because of a flag, or not the engine's own."""
QWEN = SCENARIOS["demo"].pools[0].members[0]
SPECULATING = SCENARIOS["demo"].pools[0].members[4]


def page_of(plan: ReplicaPlan, seconds: float = 20.0) -> bytes:
    replica = SimulatedReplica("r", plan, Slo(), seed=1, epoch=1_764_446_400.0)
    replica.advance(seconds)
    page = replica.page()
    assert page is not None
    return page


def shapes(text: str) -> dict[str, tuple[str, set[frozenset[str]], set[str]]]:
    """Of each family: its type, the label names of its samples, and its sample names."""
    return {
        family.name: (
            family.type,
            {frozenset(sample.labels) for sample in family.samples},
            {sample.name for sample in family.samples},
        )
        for family in text_string_to_metric_families(text)
    }


@pytest.mark.parametrize("name", REAL_PAGES)
def test_families_types_and_labels_are_those_of_a_real_page(name: str) -> None:
    real = shapes((FIXTURES / name).read_text())
    ours = shapes(page_of(SPECULATING).decode())
    wanted = {family for family in real if not OPTIONAL.match(family)}
    assert len(wanted) > 35
    assert wanted - ours.keys() == set()
    for family in wanted - {"vllm:cache_config_info"}:
        assert ours[family] == real[family], family
    cache_labels = real["vllm:cache_config_info"][1]
    assert all(any(ours_ <= theirs for theirs in cache_labels) for ours_ in ours["vllm:cache_config_info"][1])


def test_nothing_is_added_but_what_says_that_it_is_ours() -> None:
    real = set().union(*(shapes((FIXTURES / name).read_text()) for name in REAL_PAGES))
    # Times of creation are missing from the real page with speculation: it came from two API servers.
    ours = {name.removesuffix("_created") for name in shapes(page_of(SPECULATING).decode())}
    assert ours - real == {
        "enginetop_simulated",
        "enginetop_requests",
        "enginetop_requests_within_slo",
        "enginetop_ttft_seconds",
        "enginetop_tpot_seconds",
        "enginetop_reasoning_tokens",
    }


def bounds(text: str) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.endswith("_bucket"):
                found.setdefault(family.name, []).append(float(sample.labels["le"]))
    return found


def test_bucket_bounds_are_those_of_a_real_page() -> None:
    real = bounds((FIXTURES / REAL_PAGES[0]).read_text())
    ours = bounds(page_of(QWEN).decode())
    for family, expected in real.items():
        if OPTIONAL.match(family):
            continue
        if family.endswith("_tokens") and "iteration" not in family:
            # The 1-2-5 series ends at the longest context: 500 of 512 there, 20000 of 32768 here.
            assert ours[family][: len(expected) - 1] == expected[:-1]
            assert ours[family][-2:] == [20_000.0, math.inf]
        else:
            assert ours[family] == expected, family


def test_lines_stand_in_the_order_of_a_real_page() -> None:
    real = list(shapes((FIXTURES / REAL_PAGES[0]).read_text()))
    ours = list(shapes(page_of(QWEN).decode()))
    common = [family for family in ours if family in real]
    assert common == [family for family in real if family in ours]


def test_the_page_is_marked_and_of_the_usual_size() -> None:
    page = page_of(QWEN)
    assert b"\nenginetop_simulated{" in page
    assert ReadPage.of(page).value("enginetop_simulated") == 1.0
    assert 50 * 1024 < len(page) < 75 * 1024
    assert page.endswith(b"\n")
    assert b"\n\n" not in page


def test_only_numbers_change_between_two_pages() -> None:
    replica = SimulatedReplica("r", SPECULATING, Slo(), seed=1, epoch=1_764_446_400.0)
    pages = []
    for second in (0.0, 30.0):
        replica.advance(second)
        page = replica.page()
        assert page is not None
        pages.append(page.decode().splitlines())
    empty, full = ([line.rpartition(" ")[0] for line in page if line[0] != "#"] for page in pages)
    assert empty == full
    assert pages[0] != pages[1]


def test_start_and_births_tell_when_the_process_began() -> None:
    page = ReadPage.of(page_of(QWEN))
    births = {value for (name, _), value in page.samples.items() if name.endswith("_created")}
    assert births == {1_764_446_400.0}
    assert page.value("process_start_time_seconds") == 1_764_446_400.0


def test_a_label_cannot_break_a_line() -> None:
    page = page_of(QWEN.with_engine(model='a"b\\c\nd'))
    models = {
        sample.labels["model_name"]
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
        if "model_name" in sample.labels
    }
    assert models == {'a"b\\c\nd'}


def test_reasoning_stands_only_where_the_model_reasons() -> None:
    llama = SCENARIOS["demo"].pools[1].members[2]
    assert b"enginetop_reasoning_tokens" in page_of(QWEN)
    assert b"enginetop_reasoning_tokens" not in page_of(llama)


@given(st.one_of(st.floats(-1e5, 1e15, allow_nan=False), st.integers(0, 10**15)))
@settings(max_examples=120, deadline=None)
@example(math.nan)
@example(math.inf)
@example(-math.inf)
def test_numbers_are_written_as_prometheus_clients_do(value: float) -> None:
    assert number_text(value) == floatToGoString(value)  # type: ignore[no-untyped-call]
    assert float(number_text(value)) == float(value) or math.isnan(value)
