"""What may be asked of each knob. The expected bounds are worked out by hand from seqs x (1 + K)."""

from __future__ import annotations

import pytest

from enginetop_companion.board import Bounds, Knob
from enginetop_companion_vllm.knobs import Limits, knobs_of
from tests.companion.fakes import FakeCore, FakeScheduler, config_of


def knobs(core: FakeCore) -> tuple[Limits, dict[str, Knob]]:
    limits, found = knobs_of(core)
    return limits, {knob.name: knob for knob in found}


def bounds(knob: Knob) -> tuple[int, int]:
    found = knob.bounds()
    return found.low, found.high


def test_the_contract_example() -> None:
    _, by_name = knobs(FakeCore(FakeScheduler(budget=512, seqs=16, drafts=4)))
    assert by_name["max_num_batched_tokens"].bounds() == Bounds(80, 512)


def test_fewer_requests_or_drafts_lower_the_floor() -> None:
    _, by_name = knobs(FakeCore())
    by_name["max_num_seqs"].write(8)
    assert bounds(by_name["max_num_batched_tokens"]) == (40, 512)
    by_name["num_speculative_tokens"].write(1)
    assert bounds(by_name["max_num_batched_tokens"]) == (16, 512)
    by_name["num_speculative_tokens"].write(0)
    assert bounds(by_name["max_num_batched_tokens"]) == (8, 512)


def test_a_lowered_budget_holds_requests_and_drafts_down() -> None:
    _, by_name = knobs(FakeCore())
    by_name["num_speculative_tokens"].write(0)
    by_name["max_num_batched_tokens"].write(48)
    assert bounds(by_name["num_speculative_tokens"]) == (0, 2)  # 16 x 3 = 48
    by_name["num_speculative_tokens"].write(2)
    by_name["max_num_seqs"].write(8)
    assert bounds(by_name["max_num_seqs"]) == (1, 16)  # 48 / 3
    assert bounds(by_name["num_speculative_tokens"]) == (0, 4)  # 48 / 8 - 1 = 5, but it started with 4


def test_a_start_that_breaks_the_floor_leaves_no_room() -> None:
    """256 x (1 + 4) = 1280 does not fit 512: the server runs, but nothing lower is accepted."""
    _, by_name = knobs(FakeCore(FakeScheduler(budget=512, seqs=256, drafts=4)))
    assert bounds(by_name["max_num_batched_tokens"]) == (512, 512)
    assert bounds(by_name["max_num_seqs"]) == (1, 256)
    assert bounds(by_name["num_speculative_tokens"]) == (0, 4)


@pytest.mark.parametrize(
    ("change", "floor", "word"),
    [
        ({"enable_chunked_prefill": False}, 80 + 300, "prompt"),
        ({"disable_chunked_mm_input": True, "max_num_encoder_input_tokens": 200}, 80 + 200, "multimodal"),
        ({"disable_chunked_mm_input": True, "max_num_encoder_input_tokens": 0}, 80, ""),
        ({"need_mamba_block_aligned_split": True}, 80 + 32, "block"),
        ({"num_prefill_lookahead": 3}, 80 + 4, "drafter"),
        ({"num_prefill_lookahead": 1}, 80, ""),
    ],
)
def test_what_cannot_be_split_raises_the_floor(change: dict[str, int], floor: int, word: str) -> None:
    scheduler = FakeScheduler(model_len=300)
    for name, value in change.items():
        setattr(
            scheduler.scheduler_config if hasattr(scheduler.scheduler_config, name) else scheduler,
            name,
            value,
        )
    _, by_name = knobs(FakeCore(scheduler))
    found = by_name["max_num_batched_tokens"].bounds()
    assert (found.low, found.high) == (floor, 512)
    assert word in found.note
    chunk = by_name["long_prefill_token_threshold"].bounds()
    assert (chunk.low, chunk.high) == ((0, 0) if word else (0, 300))


def test_active_requests_never_the_slots() -> None:
    core = FakeCore()
    _, by_name = knobs(core)
    by_name["max_num_seqs"].write(2)
    assert core.scheduler.max_num_active_reqs == 2
    assert core.scheduler.max_num_running_reqs == 16


def test_drafts_cap_the_schedule_and_give_it_back() -> None:
    scheduler = FakeScheduler(seqs=4, drafts=4)
    schedule = [0, 4, 4, 2, 1]
    scheduler.dynamic_sd_lookup = schedule
    _, by_name = knobs(FakeCore(scheduler))
    by_name["num_speculative_tokens"].write(2)
    assert [scheduler.drafts_of(batch) for batch in range(1, 5)] == [2, 2, 2, 1]
    by_name["num_speculative_tokens"].write(4)
    assert scheduler.dynamic_sd_lookup is schedule


def test_drafts_without_a_schedule_reach_every_batch_size() -> None:
    scheduler = FakeScheduler(seqs=16, drafts=4)
    _, by_name = knobs(FakeCore(scheduler))
    by_name["num_speculative_tokens"].write(1)
    assert [scheduler.drafts_of(batch) for batch in range(17)] == [1] * 17
    by_name["num_speculative_tokens"].write(4)
    assert scheduler.dynamic_sd_lookup is None


@pytest.mark.parametrize(("method", "ranks"), [("suffix", 1), ("medusa", 1), ("ngram", 2), ("eagle", 8)])
def test_drafts_that_must_not_change_are_fixed(method: str, ranks: int) -> None:
    _, by_name = knobs(FakeCore(config=config_of(method=method, ranks=ranks)))
    assert bounds(by_name["num_speculative_tokens"]) == (4, 4)
    assert by_name["num_speculative_tokens"].bounds().note.startswith("fixed")


def test_what_the_server_lacks_is_no_knob() -> None:
    _, plain = knobs(FakeCore(FakeScheduler(drafts=0)))
    assert set(plain) == {
        "max_num_batched_tokens",
        "max_num_seqs",
        "long_prefill_token_threshold",
        "kv_watermark_blocks",
        "max_num_queued_reqs",
        "max_num_queued_tokens",
    }
    older = FakeScheduler(drafts=0)
    del older.scheduler_config.max_num_queued_reqs
    _, found = knobs(FakeCore(older))
    assert "max_num_queued_reqs" not in found
    _, reasoning = knobs(FakeCore(config=config_of(reasoning=True)))
    assert bounds(reasoning["thinking_token_budget"]) == (-1, 512)


def test_chunk_threshold_is_written_where_the_scheduler_reads_it() -> None:
    core = FakeCore()
    _, by_name = knobs(core)
    by_name["long_prefill_token_threshold"].write(64)
    assert core.scheduler.scheduler_config.long_prefill_token_threshold == 64


def test_the_watermark_is_written_where_admission_reads_it() -> None:
    core = FakeCore()
    _, by_name = knobs(core)
    assert (by_name["kv_watermark_blocks"].start, bounds(by_name["kv_watermark_blocks"])) == (0, (0, 50))
    by_name["kv_watermark_blocks"].write(20)
    assert core.scheduler.kv_cache_manager.watermark_blocks == 20
    high = FakeScheduler()
    high.kv_cache_manager.watermark_blocks = 60  # as it was started: the way back to it stays open
    _, by_name = knobs(FakeCore(high))
    assert bounds(by_name["kv_watermark_blocks"]) == (0, 60)


def test_a_queue_without_a_limit_is_minus_one() -> None:
    limited = FakeScheduler()
    limited.scheduler_config.max_num_queued_reqs = 300
    _, by_name = knobs(FakeCore(limited))
    assert (by_name["max_num_queued_reqs"].start, by_name["max_num_queued_tokens"].start) == (300, -1)
    assert bounds(by_name["max_num_queued_reqs"]) == (-1, 1 << 20)
