"""The knobs of one scheduler: what is read and written where, and within which bounds.

Nothing is ever raised above its start value: graphs, buffers and pools were sized by it. The config that the
scheduler was started with is left as it is, since other parts size themselves by it later.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

CHUNK = "max_num_batched_tokens"
RUNNING = "max_num_seqs"
PREFILL = "max_prefill_tokens"
RATIO = "new_token_ratio"

STOCK_KEYS = {RUNNING: "pp_max_micro_batch_size"}
"""Knobs that SGLang itself changes, by its own key of `set_internal_state`."""

LEAST_CHUNK_TOKENS = 32
"""Smaller chunks serve nobody: a prompt of a thousand tokens would take as many steps."""


@dataclass(frozen=True, slots=True)
class LiveKnob:
    """One knob: `low` to `start` is accepted, in multiples of `step`. Both the same: it is fixed."""

    name: str
    unit: str
    start: int
    low: int
    step: int
    note: str
    read: Callable[[], int]
    write: Callable[[int], None]

    def fixed(self, why: str) -> LiveKnob:
        """The same knob, where it must not be changed."""
        return replace(self, low=self.start, step=1, note=why)

    def refusal(self, value: float) -> str:
        """Why this value is not taken; empty: it is."""
        if value != int(value) or not self.low <= value <= self.start:
            return f"{self.name}={value} is not within {self.low} to {self.start}"
        if value % self.step and value not in (self.low, self.start):
            return f"{self.name}={value} is not a multiple of {self.step}"
        return ""

    def row(self) -> dict[str, Any]:
        """What the server process is told of it."""
        return {
            "name": self.name,
            "unit": self.unit,
            "value": self.read(),
            "start": self.start,
            "low": self.low,
            "step": self.step,
            "note": self.note,
        }


def refused_mode(scheduler: Any, contexts: Any) -> str:
    """The mode in which nothing that sizes prefill may move, in words; empty: none.

    Raises AttributeError where that cannot be told: then no knob of ours is there at all.
    """
    parallel = contexts.get_parallel()
    deterministic = contexts.get_exec().deterministic.enable_deterministic_inference
    role_switch = contexts.get_disagg().enable_pd_role_switch
    modes = (
        (scheduler.disaggregation_mode.value != "null" or role_switch, "prefill/decode disaggregation"),
        (scheduler.dynamic_chunk_sizer is not None, "dynamic chunking over pipeline stages"),
        (parallel.pp_size > 1, "pipeline stages"),
        (scheduler.is_hybrid_ssm, "Mamba or linear-attention layers"),
        (deterministic, "deterministic inference"),
        (scheduler.dllm_config is not None, "a diffusion language model"),
        (scheduler.server_args.nnodes > 1, "ranks on several machines"),
    )
    found = next((words for is_on, words in modes if is_on), "")
    return f"fixed with {found}" if found else ""


def chunk_knob(scheduler: Any) -> LiveKnob | None:
    """Tokens of all prefill in one step, handed to each prefill batch. None: prefill is not chunked.

    A chunk ends at a page and at the alignment that some models ask for; with mixed chunks the tokens of
    decoding come out of the same number.
    """
    start = scheduler.chunked_prefill_size
    if start is None:
        return None
    step = math.lcm(scheduler.page_size, scheduler.truncation_align_size or 1)
    decoding = scheduler.max_running_requests if scheduler.is_mixed_chunk else 0
    low = min(start, step * math.ceil((decoding + LEAST_CHUNK_TOKENS) / step))

    def write(value: int) -> None:
        scheduler.chunked_prefill_size = value

    return LiveKnob(
        CHUNK,
        "tokens",
        start,
        low,
        step,
        "SGLang's chunked_prefill_size",
        lambda: scheduler.chunked_prefill_size,
        write,
    )


def prefill_knob(scheduler: Any) -> LiveKnob:
    """Tokens of all prompts admitted to one prefill batch. A chunk, or a page, always fits."""
    start = scheduler.max_prefill_tokens
    low = min(start, scheduler.chunked_prefill_size or scheduler.page_size)

    def write(value: int) -> None:
        scheduler.max_prefill_tokens = value

    return LiveKnob(PREFILL, "tokens", start, low, 1, "", lambda: scheduler.max_prefill_tokens, write)


def ratio_knob(scheduler: Any) -> LiveKnob:
    """The share of its allowed output that a request is expected to write, at first: what admission reserves.

    It decays from there to the tracker's least value, in as many steps as at start, and never goes below.
    """
    tracker = scheduler.new_token_ratio_tracker
    init, least, decay, _ = tracker.init, tracker.min, tracker.decay, tracker.current
    start = max(1, round(init * 100))
    low = min(start, max(1, math.ceil(least * 100)))
    steps = (init - least) / decay if decay > 0 else 0.0

    def read() -> int:
        return start if tracker.init == init else round(float(tracker.init) * 100)

    def write(value: int) -> None:
        ratio = init if value == start else max(value / 100, least)
        tracker.init = ratio
        tracker.decay = decay if value == start else (ratio - least) / steps if steps else 0.0
        tracker.current = min(tracker.current, ratio)

    return LiveKnob(RATIO, "percent", start, low, 1, "too low a share: requests are retracted", read, write)


def running_knob(scheduler: Any, contexts: Any) -> LiveKnob:
    """Requests that run, of each data-parallel rank. Only admission looks at it: what runs above it drains.

    SGLang's own handler writes it; with pipeline stages it counts the requests of one micro-batch.
    """
    parallel = contexts.get_parallel()
    start = parallel.pp_max_micro_batch_size
    highest = scheduler.max_running_requests // parallel.pp_size
    knob = LiveKnob(
        RUNNING,
        "requests",
        min(start, highest),
        1,
        1,
        "",
        lambda: int(contexts.get_parallel().pp_max_micro_batch_size),
        _not_ours,
    )
    return knob.fixed("with pipeline stages it counts micro-batches") if parallel.pp_size > 1 else knob


def _not_ours(_value: int) -> None:
    raise AssertionError("SGLang's own handler writes this")
