"""The knobs of one scheduler: bounds worked out by hand, modes that refuse, parts that are not there."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginetop_companion_sglang.scheduler_knobs import (
    LiveKnob,
    chunk_knob,
    prefill_knob,
    ratio_knob,
    running_knob,
)
from enginetop_companion_sglang.scheduler_side import SchedulerSide
from tests.companion.sglang.fakes import Contexts, FakeScheduler

CHUNK, RUNNING = "max_num_batched_tokens", "max_num_seqs"
PREFILL, RATIO = "max_prefill_tokens", "new_token_ratio"
Change = Callable[[FakeScheduler, Contexts], None]

MODES: dict[str, Change] = {
    "prefill/decode disaggregation": lambda s, _: setattr(s.disaggregation_mode, "value", "decode"),
    "disaggregation": lambda _, c: setattr(c.disagg, "enable_pd_role_switch", True),
    "dynamic chunking": lambda s, _: setattr(s, "dynamic_chunk_sizer", object()),
    "pipeline stages": lambda _, c: setattr(c.parallel, "pp_size", 2),
    "Mamba": lambda s, _: setattr(s, "is_hybrid_ssm", True),
    "deterministic": lambda _, c: setattr(c.execution.deterministic, "enable_deterministic_inference", True),
    "diffusion": lambda s, _: setattr(s, "dllm_config", object()),
    "several machines": lambda s, _: setattr(s.server_args, "nnodes", 2),
}


def knobs(scheduler: FakeScheduler, contexts: Contexts | None = None) -> dict[str, LiveKnob]:
    return {knob.name: knob for knob in SchedulerSide(scheduler, contexts or Contexts()).knobs}


def present(knob: LiveKnob | None) -> LiveKnob:
    assert knob is not None
    return knob


def test_all_knobs_of_a_plain_scheduler() -> None:
    found = {name: (knob.low, knob.start, knob.read()) for name, knob in knobs(FakeScheduler()).items()}
    assert found == {
        RUNNING: (1, 8, 8),
        CHUNK: (32, 256, 256),
        PREFILL: (256, 16384, 16384),
        RATIO: (5, 35, 35),
    }


@pytest.mark.parametrize("words", MODES)
def test_a_mode_in_which_nothing_that_sizes_prefill_moves(words: str) -> None:
    scheduler, contexts = FakeScheduler(), Contexts()
    MODES[words](scheduler, contexts)
    found = knobs(scheduler, contexts)
    for name in (CHUNK, PREFILL, RATIO):
        assert words in found[name].note
        assert found[name].low == found[name].start
        assert found[name].refusal(found[name].start - 1)
        assert not found[name].refusal(found[name].start)
    # The running cap is SGLang's own: only where it counts something else it is fixed.
    assert (found[RUNNING].low == 1) == (words != "pipeline stages")


@pytest.mark.parametrize(
    ("page", "align", "mixed", "low", "step"),
    [
        (1, None, False, 32, 1),
        (16, None, False, 32, 16),
        (64, None, False, 64, 64),
        (16, 24, False, 48, 48),  # the least common multiple of both
        (1, None, True, 40, 1),  # 8 decoding requests come out of the same tokens
        (16, None, True, 48, 16),
        (512, None, False, 256, 512),  # never above the start value
    ],
)
def test_the_floor_of_a_chunk(page: int, align: int | None, mixed: bool, low: int, step: int) -> None:
    scheduler = FakeScheduler()
    scheduler.page_size, scheduler.truncation_align_size, scheduler.is_mixed_chunk = page, align, mixed
    knob = present(chunk_knob(scheduler))
    assert (knob.low, knob.step) == (low, step)


def test_what_a_chunk_refuses() -> None:
    scheduler = FakeScheduler()
    scheduler.page_size = 16
    knob = present(chunk_knob(scheduler))
    assert [knob.refusal(value) == "" for value in (31, 32, 33, 48, 64.5, 256, 257, -1)] == [
        *(False, True, False, True, False, True, False, False)
    ]


def test_without_chunks_there_is_no_such_knob_and_a_page_fits_a_batch() -> None:
    scheduler = FakeScheduler()
    scheduler.chunked_prefill_size, scheduler.page_size = None, 16
    side = SchedulerSide(scheduler, Contexts())
    assert CHUNK not in {knob.name for knob in side.knobs}
    assert side.absent == {CHUNK: "prefill is not chunked"}
    assert prefill_knob(scheduler).low == 16


def test_writes_go_where_sglang_reads() -> None:
    scheduler = FakeScheduler()
    chunk, prefill = present(chunk_knob(scheduler)), prefill_knob(scheduler)
    chunk.write(64)
    prefill.write(512)
    assert (scheduler.chunked_prefill_size, scheduler.max_prefill_tokens) == (64, 512)
    assert (chunk.read(), prefill.read()) == (64, 512)


def test_a_lowered_ratio_decays_to_the_same_least_in_as_many_steps() -> None:
    scheduler = FakeScheduler()
    tracker = scheduler.new_token_ratio_tracker
    knob = ratio_knob(scheduler)
    knob.write(20)
    # (0.35 - 0.05) / 0.0005 = 600 steps; (0.20 - 0.05) / 600 = 0.00025
    assert (tracker.init, tracker.min, tracker.current) == (0.2, 0.05, 0.2)
    assert tracker.decay == pytest.approx(0.00025)
    assert knob.read() == 20
    tracker.current = 0.07  # decayed since; the way back leaves it where it is
    knob.write(35)
    assert (tracker.init, tracker.min, tracker.decay, tracker.current) == (0.35, 0.05, 0.0005, 0.07)
    assert knob.read() == 35


@settings(max_examples=50, deadline=None)
@given(
    conservativeness=st.floats(0.01, 2.0),
    factor=st.floats(0.0, 1.0),
    written=st.lists(st.integers(1, 100), max_size=4),
)
def test_the_ratio_stays_within_what_sglang_would_reach_itself(
    conservativeness: float, factor: float, written: list[int]
) -> None:
    init = min(0.7 * conservativeness, 1.0)
    least = init * factor
    tracker = SimpleNamespace(init=init, min=least, decay=(init - least) / 600, current=init)
    scheduler = FakeScheduler()
    scheduler.new_token_ratio_tracker = tracker
    knob = ratio_knob(scheduler)
    assert 1 <= knob.low <= knob.start
    for value in written:
        if knob.refusal(value):
            continue
        knob.write(value)
        assert knob.read() == value
        assert least <= tracker.init <= init + 0.005
        assert tracker.decay >= 0
    knob.write(knob.start)
    assert (tracker.init, tracker.decay) == (init, (init - least) / 600)


@pytest.mark.parametrize(
    ("part", "lost"),
    [
        ("chunked_prefill_size", {CHUNK, PREFILL}),
        ("max_prefill_tokens", {PREFILL}),
        ("max_running_requests", {RUNNING}),
        ("page_size", {CHUNK}),
        ("truncation_align_size", {CHUNK}),
        ("is_mixed_chunk", {CHUNK}),
        ("new_token_ratio_tracker", {RATIO}),
        # What says whether it is safe: nothing that needs it.
        ("disaggregation_mode", {CHUNK, PREFILL, RATIO}),
        ("dynamic_chunk_sizer", {CHUNK, PREFILL, RATIO}),
        ("is_hybrid_ssm", {CHUNK, PREFILL, RATIO}),
        ("dllm_config", {CHUNK, PREFILL, RATIO}),
        ("server_args", {CHUNK, PREFILL, RATIO}),
    ],
)
def test_a_part_that_another_version_lacks_takes_its_knobs_with_it(part: str, lost: set[str]) -> None:
    scheduler = FakeScheduler()
    delattr(scheduler, part)
    side = SchedulerSide(scheduler, Contexts())
    assert {knob.name for knob in side.knobs} == {RUNNING, CHUNK, PREFILL, RATIO} - lost
    assert all(part in why for why in side.absent.values())
    assert side.absent


@pytest.mark.parametrize("part", ["init", "min", "decay", "current"])
def test_a_tracker_of_another_version(part: str) -> None:
    scheduler = FakeScheduler()
    delattr(scheduler.new_token_ratio_tracker, part)
    assert RATIO not in knobs(scheduler)


def test_the_running_cap_starts_where_it_is() -> None:
    contexts = Contexts()
    contexts.parallel.pp_max_micro_batch_size = 6
    knob = running_knob(FakeScheduler(), contexts)
    assert (knob.low, knob.start, knob.read()) == (1, 6, 6)
    contexts.parallel.pp_max_micro_batch_size = 2
    assert knob.read() == 2
