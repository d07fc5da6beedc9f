"""llama.cpp server: its metrics page as a table, and what its slots add to it."""

from __future__ import annotations

from functools import partial

from collectors.engines.mapping import LayoutMemo, Row, Table
from collectors.engines.matching import Plan, compile_layout
from collectors.page import Layout
from enginetop.fleet.model import Quality
from enginetop.fleet.reading import Absence, Columns, Series
from enginetop.fleet.signals import MEASURES

_SPECULATE = "start it with a draft model (--spec-type, --spec-draft-n-max)"
_AT_RESPONSE = "llama.cpp tells it in each response only"
_KV_NOTE = (
    "tokens in all slots over n_ctx x slots, cached prompts of idle slots included; "
    "too low with --kv-unified, which the server does not tell"
)
_CAPACITY_NOTE = "n_ctx x slots; too high with --kv-unified, which the server does not tell"
_NO_SLOTS_NOTE = "counted when a request ends: /slots is not readable"
_NO_CACHED_NOTE = "cached prompt tokens are missing: not exported by this build"

TABLE = Table(
    title="llama.cpp",
    prefixes=("llamacpp:", "llamacpp_"),
    rows=(
        Row("requests_running", ("requests_processing",)),
        Row("requests_waiting", ("requests_deferred",)),
        # prompt_tokens leaves cached ones out.
        Row("prompt_tokens_processed", ("prompt_tokens",)),
        Row("prompt_tokens_processed", ("prompt_tokens_cached",)),
        Row("prefix_queries", ("prompt_tokens",)),
        Row("prefix_queries", ("prompt_tokens_cached",)),
        Row("prefix_hits", ("prompt_tokens_cached",)),
        Row("spec_drafts", ("spec_decode_num_drafts",)),
        Row("spec_draft_tokens", ("spec_decode_num_draft_tokens",)),
        Row("spec_accepted_tokens", ("spec_decode_num_accepted_tokens",)),
        Row(
            "spec_accepted_at_position",
            ("spec_decode_num_accepted_tokens_per_pos",),
            position_label="position",
            lazy=True,
            note="appears when the first speculative request has ended",
        ),
    ),
    unsupported={
        "preemptions": "llama.cpp preempts nothing: requests fail when the KV cache is full",
        "requests_finished": "llama.cpp counts no requests",
        "requests_aborted": "llama.cpp counts no requests",
        "requests_errored": "llama.cpp counts no requests",
        "ttft_seconds": _AT_RESPONSE,
        "tpot_seconds": _AT_RESPONSE,
        "itl_seconds": _AT_RESPONSE,
        "e2e_seconds": _AT_RESPONSE,
        "queue_seconds": "llama.cpp does not tell it",
        "prompt_tokens": _AT_RESPONSE,
        "output_tokens": _AT_RESPONSE,
        "iteration_tokens": "llama.cpp does not tell it",
        "reasoning_tokens": "llama.cpp counts no reasoning tokens",
        "external_prefix_queries": "llama.cpp has no external KV cache",
        "external_prefix_hits": "llama.cpp has no external KV cache",
    },
    enable={
        "spec_drafts": _SPECULATE,
        "spec_draft_tokens": _SPECULATE,
        "spec_accepted_tokens": _SPECULATE,
        "spec_accepted_at_position": _SPECULATE,
    },
)

_GENERATED = Series("generation_tokens", "", "llamacpp live generated tokens")
_FROM_SLOTS = (
    Series("kv_usage_ratio", "", "llamacpp slots usage"),
    Series("kv_capacity_tokens", "", "llamacpp slots capacity"),
)
_NO_KV = Absence(
    Quality.UNKNOWN, "llama.cpp has no KV metric, and /slots is not readable", "start it without --no-slots"
)


def _compile(layout: Layout, *, slots_known: bool) -> Plan:
    estimated = {} if slots_known else {"generation_tokens": _NO_SLOTS_NOTE}
    if slots_known:
        estimated |= {"kv_usage_ratio": _KV_NOTE, "kv_capacity_tokens": _CAPACITY_NOTE}
    if not any(name.endswith("prompt_tokens_cached_total") for name in layout.names):
        estimated["prompt_tokens_processed"] = _NO_CACHED_NOTE
    return compile_layout(
        TABLE,
        layout,
        extra=(_GENERATED, *(_FROM_SLOTS if slots_known else ())),
        estimated=estimated,
        absent={"kv_usage_ratio": _NO_KV, "kv_capacity_tokens": _NO_KV},
    )


plan_with_slots = LayoutMemo(partial(_compile, slots_known=True))
"""The table and three series that the reader works out: generated tokens, KV usage and KV capacity."""
plan_without_slots = LayoutMemo(partial(_compile, slots_known=False))
"""The table and one series that the reader works out: generated tokens."""
ASLEEP = Columns((), absent={measure: Absence(Quality.UNKNOWN, "asleep") for measure in MEASURES})
"""Of a server that has slept since it was first asked."""
