"""LMDeploy 0.9 to 0.18, both of its engines.

Running, waiting and KV gauges are renewed every 10 s only; token counters move with each step. Some names
promise more than they hold: `iteration_tokens_total` is a histogram over the steps of single requests,
`request_success_total` counts no failure, and the request totals are gauges that only grow. The engine
preempts and does not tell. `GET /terminate` would end the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from collectors.engines.base import EngineTable, Look, PageReader, SidePage
from collectors.engines.identities import identity, served_model
from collectors.engines.mapping import LayoutMemo, Row, Table
from collectors.engines.matching import Plan, compile_layout
from collectors.engines.picks import first_named
from collectors.json_fields import flag
from collectors.page import Layout, Page
from enginetop.fleet.model import EngineKind
from enginetop.fleet.reading import EngineFlags, Reading

_UNSUPPORTED = {
    "preemptions": "LMDeploy does not tell its preemptions",
    "requests_aborted": "LMDeploy counts aborted requests with the failed ones",
    "kv_capacity_tokens": "LMDeploy does not tell it",
    "iteration_tokens": "LMDeploy counts the tokens of each request in a step, not those of the step",
    "reasoning_tokens": "LMDeploy counts no reasoning tokens",
    "external_prefix_queries": "LMDeploy does not tell it",
    "external_prefix_hits": "LMDeploy does not tell it",
}

TABLE = Table(
    title="LMDeploy",
    prefixes=("lmdeploy:", "lmdeploy_"),
    rank_labels=(("engine", "dp_rank"),),
    rows=(
        Row("requests_running", ("num_requests_running",)),
        # Two queues: of the engine, and for a free handle of the API server.
        Row("requests_waiting", ("num_requests_waiting",)),
        Row("requests_waiting", ("num_api_requests_waiting",), since="0.13"),
        Row("kv_usage_ratio", ("gpu_cache_usage_perc",)),
        Row("prompt_tokens_processed", ("prompt_tokens",)),
        Row("generation_tokens", ("generation_tokens",)),
        Row("requests_finished", ("num_requests_succeeded", "num_requests_finished")),
        Row("requests_finished", ("num_requests_failed",), since="0.13"),
        Row("requests_errored", ("num_requests_failed",), since="0.13"),
        # Prompt tokens of ended requests, so that they go with the cached ones.
        Row("prefix_queries", ("request_prompt_tokens_sum",)),
        Row("prefix_hits", ("cached_tokens",), since="0.14"),
        Row("spec_drafts", ("spec_decode_num_drafts",), since="0.14"),
        Row("spec_draft_tokens", ("spec_decode_num_draft_tokens",), since="0.14"),
        Row("spec_accepted_tokens", ("spec_decode_num_accepted_tokens",), since="0.14"),
        Row(
            "spec_accepted_at_position",
            ("spec_decode_num_accepted_tokens_per_pos",),
            position_label="position",
            lazy=True,
            note="appears at the first draft",
            since="0.14",
        ),
        Row("ttft_seconds", ("time_to_first_token_seconds",)),
        Row("tpot_seconds", ("time_per_output_token_seconds",)),
        Row("itl_seconds", ("iter_token_latency",), since="0.10"),
        Row("e2e_seconds", ("e2e_request_latency_seconds",)),
        Row("queue_seconds", ("request_queue_time_seconds",)),
        Row("prompt_tokens", ("request_prompt_tokens",)),
        Row("output_tokens", ("request_generation_tokens",)),
    ),
    unsupported=_UNSUPPORTED,
    enable=dict.fromkeys(
        ("spec_drafts", "spec_draft_tokens", "spec_accepted_tokens"), "start it with --speculative-algorithm"
    ),
)
_ESTIMATED = {
    "tpot_seconds": "one observation for each step of a request, not for each request",
    "requests_errored": "cancelled and aborted requests are among the failed ones",
}
_SLEEPING = "/is_sleeping"


def _describe(layout: Layout) -> tuple[Plan, str | None]:
    """The plan, and the model that the lines name."""
    return compile_layout(TABLE, layout, estimated=_ESTIMATED), first_named(layout, TABLE.prefixes)


_facts_of = LayoutMemo(_describe)


class LmdeployReader(PageReader):
    """Readings of one LMDeploy API server."""

    def read_page(self, look: Look, page: Page) -> Reading:
        """See `PageReader`."""
        plan, model = _facts_of(page.layout)
        return plan.reading(
            look.at,
            page,
            plan.values(page),
            identity(
                EngineKind.LMDEPLOY,
                (model, "label model_name"),
                served_model(look.sides),
            ),
            flags=EngineFlags(sleeping=flag(look.sides.get(_SLEEPING), "is_sleeping")),
        )


def _sources() -> Mapping[str, tuple[str, ...]]:
    succeeded = ("lmdeploy:num_requests_succeeded", "lmdeploy:num_requests_finished")
    failed = "lmdeploy:num_requests_failed"
    return MappingProxyType(
        {
            **TABLE.sources(),
            "requests_finished": (*succeeded, failed),
            "requests_errored": (failed,),
            "prefix_queries": ("lmdeploy:request_prompt_tokens_sum",),
        }
    )


LMDEPLOY = EngineTable(
    kind=EngineKind.LMDEPLOY,
    title="LMDeploy",
    recognise=TABLE.is_on,
    new_reader=LmdeployReader,
    side_pages=(
        SidePage("/v1/models", keep=("data[].id",)),
        SidePage(_SLEEPING, keep=("is_sleeping",), every_scrape=True),
    ),
    liveness_path=_SLEEPING,
    enable_hint="LMDeploy serves it on its API port unless --disable-metrics is set; before 0.18 it needs "
    "--enable-metrics",
    tables=(TABLE,),
    live_progress="lmdeploy:generation_tokens_total, with every step",
    sources=_sources(),
    never=(
        ("/terminate", "ends the server"),
        ("/nodes/terminate", "ends a server behind LMDeploy's proxy"),
        ("/nodes/terminate_all", "ends every server behind LMDeploy's proxy"),
    ),
    reads="requests, KV, latencies, tokens, prefix cache, speculation, sleep; gauges are up to 10 s old",
    changes="nothing live but sleep and wake-up; the rest at a restart",
)
