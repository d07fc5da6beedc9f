"""The knobs of one scheduler: what they are called, what is written where, and what may be asked of them.

Nothing is ever raised above its start value: buffers, graphs and the memory profile were sized by it. Bounds
are those of the moment, since the token budget must hold one step of every admitted request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from enginetop_companion.board import Bounds, Knob

BUDGET = "max_num_batched_tokens"
SEQUENCES = "max_num_seqs"
DRAFTS = "num_speculative_tokens"
CHUNK = "long_prefill_token_threshold"
WATERMARK = "kv_watermark_blocks"
THINKING = "thinking_token_budget"
QUEUED, QUEUED_TOKENS = "max_num_queued_reqs", "max_num_queued_tokens"
QUEUE_LIMITS = (QUEUED, QUEUED_TOKENS)
"""Named as the fields of vLLM's scheduler config, which API servers look at for every request."""
SERVED = (THINKING, *QUEUE_LIMITS)
"""What API servers apply."""

NO_LIMIT = -1
"""vLLM itself writes None, and -1 in its request field for thinking."""

DRAFT_METHODS = frozenset({"ngram", "ngram_gpu", "eagle", "eagle3", "mtp", "draft_model", "dflash"})
"""Speculation methods whose proposer takes the number of drafts from each step's schedule."""


@dataclass(frozen=True, slots=True)
class Indivisible:
    """The largest piece of a prompt that must be scheduled in one step, in tokens; 0: none."""

    tokens: int
    why: str = ""


def indivisible_piece(scheduler: Any) -> Indivisible:
    """What this scheduler cannot split, read from its own conditions for putting a request off."""
    config = scheduler.scheduler_config
    if not config.enable_chunked_prefill:
        return Indivisible(scheduler.max_model_len, "prefill is not chunked: a whole prompt must fit")
    if config.disable_chunked_mm_input and scheduler.max_num_encoder_input_tokens:
        return Indivisible(scheduler.max_num_encoder_input_tokens, "a whole multimodal item must fit")
    if scheduler.need_mamba_block_aligned_split:
        return Indivisible(scheduler.block_size, "chunks end at block boundaries")
    if scheduler.num_prefill_lookahead > 1:
        return Indivisible(scheduler.num_prefill_lookahead + 1, "the drafter looks ahead in the prompt")
    return Indivisible(0)


class Limits:
    """The scheduler's limits at start, and what they leave open now."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.start_budget: int = scheduler.max_num_scheduled_tokens
        self.start_sequences: int = scheduler.max_num_active_reqs
        self.start_drafts: int = scheduler.num_spec_tokens
        self.drafts: int = scheduler.num_spec_tokens
        self.piece = indivisible_piece(scheduler)

    @property
    def sequences(self) -> int:
        """Requests that may be admitted now."""
        return int(self.scheduler.max_num_active_reqs)

    @property
    def budget(self) -> int:
        """Tokens that one step may hold now."""
        return int(self.scheduler.max_num_scheduled_tokens)

    def lowest_budget(self) -> int:
        """One step of every admitted request, its drafts included, and what cannot be split beside them."""
        return min(self.sequences * (1 + self.drafts) + self.piece.tokens, self.start_budget)

    def floors(self) -> Mapping[str, int]:
        """More requests or drafts than a lowered budget holds: then that gives way."""
        return {BUDGET: self.lowest_budget()}

    def room(self) -> int | None:
        """Tokens left for decoding in a lowered budget; None: the budget is as at start and sets no limit."""
        return None if self.budget >= self.start_budget else self.budget - self.piece.tokens


class BudgetKnob:
    """Tokens per step. Read at the top of every schedule."""

    name = BUDGET
    unit = "tokens"

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.start: int = limits.start_budget

    def bounds(self) -> Bounds:
        """See `Knob`."""
        return Bounds(self._limits.lowest_budget(), self._limits.start_budget, self._limits.piece.why)

    def write(self, value: int) -> None:
        """See `Knob`."""
        self._limits.scheduler.max_num_scheduled_tokens = value


class SequencesKnob:
    """Active requests. Only admission looks at it: what runs above it drains.

    `max_num_running_reqs` is the number of slots in the model runner and is asserted on; it is never written.
    """

    name = SEQUENCES
    unit = "requests"

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.start: int = limits.start_sequences

    def bounds(self) -> Bounds:
        """See `Knob`."""
        room = self._limits.room()
        high = self._limits.start_sequences
        if room is not None:
            high = min(high, max(1, room // (1 + self._limits.drafts)))
        return Bounds(1, high)

    def write(self, value: int) -> None:
        """See `Knob`."""
        self._limits.scheduler.max_num_active_reqs = value


class DraftsKnob:
    """Draft tokens a step, as a cap on the schedule by batch size that the server was started with."""

    name = DRAFTS
    unit = "tokens"

    def __init__(self, limits: Limits, *, fixed: str = "") -> None:
        self._limits = limits
        self._fixed = fixed
        self.start: int = limits.start_drafts
        self._start_lookup: list[int] | None = limits.scheduler.dynamic_sd_lookup

    def bounds(self) -> Bounds:
        """See `Knob`."""
        if self._fixed:
            return Bounds(self._limits.start_drafts, self._limits.start_drafts, self._fixed)
        room = self._limits.room()
        high = self._limits.start_drafts
        if room is not None:
            high = min(high, max(0, room // self._limits.sequences - 1))
        return Bounds(0, high)

    def write(self, value: int) -> None:
        """See `Knob`."""
        scheduler = self._limits.scheduler
        if value == self.start:
            scheduler.dynamic_sd_lookup = self._start_lookup
        else:
            base = self._start_lookup or [self.start] * (scheduler.max_num_running_reqs + 1)
            scheduler.dynamic_sd_lookup = [min(value, one) for one in base]
        self._limits.drafts = value


class ChunkKnob:
    """Longest piece of one prompt in a step while other requests wait; 0: no such limit."""

    name = CHUNK
    unit = "tokens"

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.start: int = limits.scheduler.scheduler_config.long_prefill_token_threshold

    def bounds(self) -> Bounds:
        """See `Knob`."""
        if self._limits.piece.tokens:
            return Bounds(self.start, self.start, self._limits.piece.why)
        return Bounds(0, self._limits.scheduler.max_model_len)

    def write(self, value: int) -> None:
        """See `Knob`."""
        self._limits.scheduler.scheduler_config.long_prefill_token_threshold = value


class WatermarkKnob:
    """Blocks of the KV cache that stay free when somebody is admitted beside others, who grow into them."""

    name = WATERMARK
    unit = "blocks"

    def __init__(self, limits: Limits) -> None:
        self._manager = limits.scheduler.kv_cache_manager
        self.start: int = self._manager.watermark_blocks

    def bounds(self) -> Bounds:
        """See `Knob`."""
        half = self._manager.block_pool.num_gpu_blocks // 2
        return Bounds(0, max(self.start, half), "above half of the cache hardly anybody would be admitted")

    def write(self, value: int) -> None:
        """See `Knob`."""
        self._manager.watermark_blocks = value


class ServedKnob:
    """A setting that API servers apply. Kept here so that all of them agree; -1: no limit."""

    def __init__(self, name: str, unit: str, start: int | None, high: int, note: str) -> None:
        self.name, self.unit = name, unit
        self.start = NO_LIMIT if start is None else start
        self._bounds = Bounds(NO_LIMIT, high, f"{note}; -1: no limit")

    def bounds(self) -> Bounds:
        """See `Knob`."""
        return self._bounds

    def write(self, value: int) -> None:
        """Nothing to write: the board's value is what API servers ask for."""


def _queue_limits(config: Any) -> Iterator[ServedKnob]:
    note = "of each API server process; requests beyond it get a 503"
    for name, unit, high in ((QUEUED, "requests", 1 << 20), (QUEUED_TOKENS, "tokens", 1 << 30)):
        if hasattr(config, name):
            yield ServedKnob(name, unit, getattr(config, name), high, note)


def knobs_of(core: Any) -> tuple[Limits, list[Knob]]:
    """The knobs of one EngineCore. Without speculation or reasoning the knobs of these are missing."""
    scheduler, config = core.scheduler, core.vllm_config
    limits = Limits(scheduler)
    knobs: list[Knob] = [BudgetKnob(limits), SequencesKnob(limits), ChunkKnob(limits), WatermarkKnob(limits)]
    if limits.start_drafts:
        knobs.append(DraftsKnob(limits, fixed=_why_drafts_are_fixed(config)))
    reasoning = getattr(config, "reasoning_config", None)
    if reasoning is not None and reasoning.enabled:
        note = "for requests that set none"
        knobs.append(ServedKnob(THINKING, "tokens", None, scheduler.max_model_len, note))
    knobs.extend(_queue_limits(scheduler.scheduler_config))
    return limits, knobs


def _why_drafts_are_fixed(config: Any) -> str:
    if config.parallel_config.data_parallel_size > 1:
        return "fixed: data-parallel ranks that draft differently block each other"
    method = config.speculative_config.method
    return "" if method in DRAFT_METHODS else f"fixed: {method} does not take it from each step"
