"""TensorRT-LLM 1.0 to 1.3: `trtllm-serve` with `return_perf_metrics`, and as a Dynamo worker.

Its `/metrics` is a queue of iteration records that each reader empties for the others; it is no metrics page
and is never asked once the Prometheus page is known. That page comes from prometheus_client in multiprocess
mode: gauges carry the `pid` of the process that set them, counters and histograms do not, and no series
tells when the process started.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from collectors.engines.base import EngineTable, Look, PageReader, SidePage
from collectors.engines.identities import Told, identity, served_model, stack_of
from collectors.engines.mapping import LayoutMemo, rank_key
from collectors.engines.matching import Plan, compile_layout
from collectors.engines.picks import (
    Pick,
    first,
    first_labels,
    first_named,
    product,
    samples,
    settings_on,
    spelled,
    typed,
    value_at,
)
from collectors.engines.trtllm_queue import TAKEN
from collectors.engines.trtllm_table import OLDER_TABLE, PREFIXES, STAND_IN, TABLE
from collectors.json_fields import text
from collectors.page import Layout, Page
from enginetop.fleet.foreign_json import model_name
from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import EngineKind, Quality
from enginetop.fleet.reading import Absence, ConfigValue, Reading, Series

_CACHED_TOKENS = spelled(PREFIXES, "prompt_cached_tokens_total")
_BARE_SIGN = ("e2e_request_latency_seconds_count", "time_to_first_token_seconds_count")
_SETTINGS = {
    "max_num_batched_tokens": "max_num_tokens_runtime",
    "max_num_seqs": "max_batch_size_runtime",
    "num_gpu_blocks": "kv_cache_max_blocks",
    "block_size": "kv_cache_tokens_per_block",
}
_INFORMATION = {
    "max_model_len": ("model_config_info", "max_model_len"),
    "quantization": ("model_config_info", "quantization"),
    "tensor_parallel_size": ("parallel_config_info", "tensor_parallel_size"),
    "num_speculative_tokens": ("speculative_config_info", "spec_num_tokens"),
    "speculative_method": ("speculative_config_info", "spec_method"),
    "enable_prefix_caching": ("kv_cache_config_info", "enable_block_reuse"),
    "kv_free_memory_fraction": ("kv_cache_config_info", "free_gpu_memory_fraction"),
}
# Gauges of the newest iteration: they stand still with the engine, and move while a request is decoded.
_ITERATION = ("iteration_latency_seconds", "kv_cache_used_blocks", "avg_decoded_tokens_per_iter")
_TWO_CLOCKS = "drafts are counted when a request ends, accepted tokens at each step"
_RECORDS = dict.fromkeys(
    (
        "requests_running",
        "requests_waiting",
        "requests_finished",
        "spec_draft_tokens",
        "spec_accepted_tokens",
    ),
    "from the iteration records that were taken here; other readers of /metrics take some too",
)
_NO_CAPACITY = "no number of KV blocks on the page"


@frozen(eq=False)
class _Facts:
    """What the lines of a page tell apart from its numbers."""

    plan: Plan
    model: Told
    stack: str | None
    information: Mapping[str, ConfigValue]
    settings: Mapping[str, Pick]
    blocks: Pick
    block_size: Pick
    iteration: tuple[Pick, ...]


def _describe(layout: Layout) -> _Facts:
    blocks = first(layout, spelled(PREFIXES, "kv_cache_max_blocks"))
    rank = rank_key(TABLE.rank_of(layout.labels[blocks])) if blocks is not None else ""
    settings = {name: first(layout, spelled(PREFIXES, raw)) for name, raw in _SETTINGS.items()}
    return _Facts(
        plan=compile_layout(
            TABLE if first(layout, _CACHED_TOKENS) is not None else OLDER_TABLE,
            layout,
            extra=[Series("kv_capacity_tokens", rank, "trtllm KV blocks")] if blocks is not None else (),
            estimated=_RECORDS if first(layout, (TAKEN,)) is not None else {"spec_drafts": _TWO_CLOCKS},
            absent={"kv_capacity_tokens": Absence(Quality.UNKNOWN, _NO_CAPACITY)},
        ),
        model=_model(layout),
        stack=stack_of(layout),
        information=_information(layout),
        settings=settings,
        blocks=blocks,
        block_size=settings["block_size"],
        iteration=tuple(first(layout, spelled(PREFIXES, name)) for name in _ITERATION),
    )


def _model(layout: Layout) -> Told:
    """The model's name; early releases fill the label with the word `undefined`."""
    served = first_labels(layout, spelled(PREFIXES, "model_config_info"))
    if (named := first_named(layout, PREFIXES)) is not None:
        return named, "label model_name"
    return model_name(served.get("served_model_name")) or model_name(served.get("model")), "model_config_info"


def _information(layout: Layout) -> Mapping[str, ConfigValue]:
    found: dict[str, ConfigValue] = {}
    for setting, (series, label) in _INFORMATION.items():
        labels = first_labels(layout, spelled(PREFIXES, series))
        if (value := typed(labels.get(label))) is not None:
            found[setting] = ConfigValue(value, series)
    return MappingProxyType(found)


_facts_of = LayoutMemo(_describe)


def recognise(layout: Layout) -> bool:
    """Whether the page holds TensorRT-LLM's series; those of 1.0 by their labels."""
    return TABLE.is_on(layout) or any("engine_type" in labels for _, labels in samples(layout, _BARE_SIGN))


class TrtllmReader(PageReader):
    """Readings of one `trtllm-serve`, or of a Dynamo worker that passes its series through."""

    def read_page(self, look: Look, page: Page) -> Reading:
        """See `PageReader`."""
        facts = _facts_of(page.layout)
        plan = facts.plan
        computed = (product(page, facts.blocks, facts.block_size),) if facts.blocks is not None else ()
        # Tokens are counted when a request ends; the gauges of an iteration only help to see movement.
        moving = [value_at(page, pick) for pick in facts.iteration]
        return plan.reading(
            look.at,
            page,
            plan.values(page, computed),
            identity(
                EngineKind.TRTLLM,
                facts.model if facts.model[0] else served_model(look.sides),
                version=(text(look.sides.get("/version"), "version"), "/version"),
                stack=facts.stack,
            ),
            moving=moving,
            live_progress=False,
            config=MappingProxyType({**facts.information, **settings_on(page, facts.settings)}),
        )


TRTLLM = EngineTable(
    kind=EngineKind.TRTLLM,
    title="TensorRT-LLM",
    recognise=recognise,
    new_reader=TrtllmReader,
    side_pages=(
        SidePage("/version", keep=("version",)),
        SidePage("/v1/models", keep=("data[].id",)),
    ),
    liveness_path="/version",
    enable_hint="set return_perf_metrics and enable_iter_perf_stats in the options file of trtllm-serve",
    tables=(TABLE,),
    live_progress="none: its counters move when a request ends",
    sources={
        **{measure: names for measure, names in TABLE.sources().items() if measure not in STAND_IN},
        "kv_capacity_tokens": ("trtllm_kv_cache_max_blocks x trtllm_kv_cache_tokens_per_block",),
    },
    never=(
        ("/metrics", "empties the queue of iteration records for every other reader"),
        ("/perf_metrics", "empties the queue of request records"),
        ("/kv_cache_events", "empties the queue of cache events"),
        ("/health", "ends a server that has met a fatal error"),
        ("/health_generate", "generates a token"),
        ("/steady_clock_offset", "holds the server for 0.2 s"),
    ),
    reads="requests, KV blocks, latencies, tokens (when a request ends), speculation, host KV tier",
    changes="nothing live but the thinking budget of a request; the rest at a restart",
)
