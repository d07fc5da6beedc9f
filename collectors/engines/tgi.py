"""Hugging Face Text Generation Inference 2 and 3.

Request counters and histograms move when a request ends; the batch series move with each step. There is no
time to the first token. What limits a batch is not the tokens in the KV cache but those reserved for it:
prompt and `max_new_tokens` of every request, so that nothing is ever preempted. `tgi_request_count` counts
arrivals, some of them twice; what has ended is what succeeded and what failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from collectors.engines.base import EngineTable, Look, PageReader, SidePage, Sides
from collectors.engines.identities import identity
from collectors.engines.mapping import LayoutMemo, Row, Table
from collectors.engines.matching import Plan, compile_layout
from collectors.engines.picks import Pick, first, spelled, value_at
from collectors.json_fields import integer, text
from collectors.page import Layout, Page
from enginetop.fleet.foreign_json import model_name
from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import EngineKind, Quality
from enginetop.fleet.reading import Absence, ConfigValue, Reading, Series

_FAILED = ("generation", "incomplete", "overloaded", "template", "validation")


def _err(*reasons: str) -> Mapping[str, frozenset[str]]:
    return MappingProxyType({"err": frozenset(reasons)})


TABLE = Table(
    title="TGI",
    prefixes=("tgi_",),
    rows=(
        Row("requests_running", ("batch_current_size",), lazy=True, note="set at the first batch"),
        Row("requests_waiting", ("queue_size",), lazy=True, note="set at the first request"),
        Row("kv_capacity_tokens", ("batch_max_total_tokens",)),
        Row("prompt_tokens_processed", ("request_input_length_sum",), lazy=True),
        Row("generation_tokens", ("request_generated_tokens_sum",), lazy=True),
        Row("requests_finished", ("request_success",), lazy=True),
        Row("requests_finished", ("request_failure",), lazy=True),
        # The client went away.
        Row("requests_aborted", ("request_failure",), where=_err("dropped"), lazy=True),
        Row("requests_errored", ("request_failure",), where=_err(*_FAILED), lazy=True),
        Row("requests_rejected", ("request_failure",), where=_err("overloaded")),
        Row("tpot_seconds", ("request_mean_time_per_token_duration",), lazy=True),
        Row("e2e_seconds", ("request_duration",), lazy=True),
        Row("queue_seconds", ("request_queue_duration",), lazy=True),
        Row("prompt_tokens", ("request_input_length",), lazy=True),
        Row("output_tokens", ("request_generated_tokens",), lazy=True),
    ),
    unsupported={
        "preemptions": "TGI preempts nothing: it reserves the tokens of a request before it starts",
        "ttft_seconds": "TGI does not tell it; the queue time and a prefill are the nearest",
        "itl_seconds": "TGI tells the time per token of whole requests only",
        "iteration_tokens": "TGI does not tell it",
        "prefix_queries": "TGI does not tell what its prefix cache finds",
        "prefix_hits": "TGI does not tell what its prefix cache finds",
        "external_prefix_queries": "TGI has no external KV cache",
        "external_prefix_hits": "TGI has no external KV cache",
        "spec_drafts": "TGI tells accepted extra tokens only",
        "spec_draft_tokens": "TGI tells accepted extra tokens only",
        "spec_accepted_tokens": "TGI tells accepted extra tokens only",
        "spec_accepted_at_position": "TGI tells accepted extra tokens only",
        "reasoning_tokens": "TGI counts no reasoning tokens",
    },
    # Counted by the router as requests come in, also while no shard answers.
    moving_names=(
        "request_count",
        "request_failure",
        "request_input_length",
        "request_max_new_tokens",
        "request_validation_duration",
    ),
)
_RESERVED = "tokens reserved for the running batch (prompts and max_new_tokens) over those a batch may hold"
_ESTIMATED = {
    "kv_usage_ratio": _RESERVED,
    "tpot_seconds": "the prefill is in it: inference time over generated tokens",
}
_NOT_YET = Absence(Quality.UNKNOWN, "set at the first batch")
_STEPS = ("tgi_batch_inference_count", "tgi_batch_inference_count_total", "tgi_batch_forward_duration_count")
"""They move with every step of a batch."""

_INFO = "/info"
_SETTINGS = {
    "max_model_len": "max_total_tokens",
    "max_input_tokens": "max_input_tokens",
    "max_concurrent_requests": "max_concurrent_requests",
    "max_num_seqs": "max_batch_size",
    "max_num_batched_tokens": "max_batch_prefill_tokens",
}
"""The batch limits were on this page up to TGI 2.0."""


@frozen(eq=False)
class _Facts:
    plan: Plan
    reserved: Pick
    capacity: Pick
    steps: bool


def _describe(layout: Layout) -> _Facts:
    reserved = first(layout, spelled(TABLE.prefixes, "batch_current_max_tokens"))
    capacity = first(layout, spelled(TABLE.prefixes, "batch_max_total_tokens"))
    known = reserved is not None and capacity is not None
    plan = compile_layout(
        TABLE,
        layout,
        extra=[Series("kv_usage_ratio", "", "tgi reserved share")] if known else (),
        estimated=_ESTIMATED,
        absent={"kv_usage_ratio": _NOT_YET},
    )
    return _Facts(
        plan,
        reserved if known else None,
        capacity if known else None,
        first(layout, _STEPS) is not None,
    )


_facts_of = LayoutMemo(_describe)


class TgiReader(PageReader):
    """Readings of one TGI router with its shards."""

    def read_page(self, look: Look, page: Page) -> Reading:
        """See `PageReader`."""
        facts = _facts_of(page.layout)
        plan = facts.plan
        computed = (_share(page, facts.reserved, facts.capacity),) if facts.reserved is not None else ()
        info = look.sides.get(_INFO)
        return plan.reading(
            look.at,
            page,
            plan.values(page, computed),
            identity(
                EngineKind.TGI,
                (model_name(text(info, "model_id")), _INFO),
                version=(text(info, "version"), _INFO),
            ),
            live_progress=facts.steps,
            config=_config(look.sides),
        )


def _share(page: Page, part: Pick, whole: Pick) -> float:
    """One sample over another, NaN where the other is not positive."""
    size = value_at(page, whole)
    return value_at(page, part) / size if size > 0 else float("nan")


def _config(sides: Sides) -> Mapping[str, ConfigValue]:
    info = sides.get(_INFO)
    found: dict[str, ConfigValue] = {}
    for setting, field in _SETTINGS.items():
        if (value := integer(info, field)) is not None:
            found[setting] = ConfigValue(value, f"{_INFO} {field}")
    if "max_input_tokens" not in found and (older := integer(info, "max_input_length")) is not None:
        found["max_input_tokens"] = ConfigValue(older, f"{_INFO} max_input_length")
    return MappingProxyType(found)


TGI = EngineTable(
    kind=EngineKind.TGI,
    title="TGI",
    recognise=TABLE.is_on,
    new_reader=TgiReader,
    side_pages=(SidePage(_INFO, keep=("version", "model_id", *_SETTINGS.values(), "max_input_length")),),
    liveness_path=_INFO,
    enable_hint="TGI serves it on its API port, and on --prometheus-port",
    tables=(TABLE,),
    live_progress="tgi_batch_inference_count or tgi_batch_forward_duration, with every step; else none",
    sources=MappingProxyType(
        {
            **{
                measure: tuple(name.removesuffix("_total") for name in names)
                for measure, names in TABLE.sources().items()
            },
            "kv_usage_ratio": ("tgi_batch_current_max_tokens / tgi_batch_max_total_tokens",),
        }
    ),
    never=(
        ("/health", "generates a token when the last generation failed"),
        ("/ping", "generates a token when the last generation failed"),
    ),
    reads="queue, batch, reserved KV, latencies (when a request ends), failures by cause; no TTFT",
    changes="nothing live; everything at a restart",
)
