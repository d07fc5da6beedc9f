"""vLLM 0.6 to 0.33: Python and Rust frontends, one or several API servers, Ray, and Dynamo workers.

The metrics page is open even where the API has a key,
so the side pages may answer 401 while the metrics page is good.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeGuard

from collectors.engines import lora
from collectors.engines.base import EngineTable, Look, PageReader, SidePage, Sides
from collectors.engines.identities import identity, served_model, stack_of
from collectors.engines.mapping import LayoutMemo, SidesMemo, rank_key
from collectors.engines.matching import ROUTER_LABELS, Plan, compile_layout
from collectors.engines.picks import typed
from collectors.engines.vllm_table import TABLE as TABLE
from collectors.json_fields import flag, integer, items, text
from collectors.page import Layout, Page
from enginetop.fleet.foreign_json import model_name
from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import EngineKind, Quality, Role
from enginetop.fleet.reading import Absence, ConfigValue, EngineFlags, Identity, Reading, Series

CACHE_CONFIG = "cache_config_info"
_CACHE_CONFIG_NAMES = frozenset(prefix + CACHE_CONFIG for prefix in TABLE.prefixes)
_LORA_NAMES = tuple(prefix + "lora_requests_info" for prefix in TABLE.prefixes)
_SLEEP_STATE_NAMES = frozenset(prefix + "engine_sleep_state" for prefix in TABLE.prefixes)
_CONFIG_LABELS = {
    "block_size": "block_size",
    "num_gpu_blocks": "num_gpu_blocks",
    "kv_cache_dtype": "cache_dtype",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "enable_prefix_caching": "enable_prefix_caching",
}
_SERVER_INFO = "/server_info"
_IS_PAUSED = "/is_paused"
_AS_STARTED = "/server_info, as started"
_START_NUMBERS = {
    "max_num_batched_tokens": ("vllm_config", "scheduler_config", "max_num_batched_tokens"),
    "max_num_seqs": ("vllm_config", "scheduler_config", "max_num_seqs"),
    "max_num_queued_reqs": ("vllm_config", "scheduler_config", "max_num_queued_reqs"),
    "num_speculative_tokens": ("vllm_config", "speculative_config", "num_speculative_tokens"),
    "block_size": ("vllm_config", "cache_config", "block_size"),
    "num_gpu_blocks": ("vllm_config", "cache_config", "num_gpu_blocks"),
    "tensor_parallel_size": ("vllm_config", "parallel_config", "tensor_parallel_size"),
    "data_parallel_size": ("vllm_config", "parallel_config", "data_parallel_size"),
}
_SCHEDULED_TOKENS = ("vllm_config", "scheduler_config", "max_num_scheduled_tokens")
"""What a step is really filled to where it is given: less than the budget, for the slots of draft tokens."""
_START_WORDS = {
    "speculative_method": ("vllm_config", "speculative_config", "method"),
    "reasoning_parser": ("vllm_config", "structured_outputs_config", "reasoning_parser"),
    "kv_role": ("vllm_config", "kv_transfer_config", "kv_role"),
}
"""Settings on the development page, which never shows what was changed since the start."""
_ROLE_OF_KV = {"kv_producer": Role.PREFILL, "kv_consumer": Role.DECODE}
_NO_CAPACITY = Absence(
    Quality.UNSUPPORTED,
    "no cache_config_info with a number of blocks",
    "the Python front end, started without VLLM_USE_RUST_FRONTEND",
)


@frozen(eq=False)
class _Facts:
    """What the lines of a page tell apart from its numbers."""

    plan: Plan
    model: str | None
    config: Mapping[str, ConfigValue]
    capacity: tuple[float, ...]
    awake_picks: tuple[int, ...]
    lora_picks: tuple[int, ...]
    stack: str | None


def _describe(layout: Layout) -> _Facts:
    config: dict[str, ConfigValue] = {}
    capacity: dict[str, float] = {}
    awake: list[int] = []
    model: str | None = None
    for index, (name, labels) in enumerate(zip(layout.names, layout.labels, strict=True)):
        if not TABLE.owns(name) or not ROUTER_LABELS.isdisjoint(labels):
            continue
        model = model or model_name(labels.get("model_name"))
        if name in _CACHE_CONFIG_NAMES:
            for key, label in _CONFIG_LABELS.items():
                if (value := typed(labels.get(label))) is not None:
                    config.setdefault(key, ConfigValue(value, CACHE_CONFIG))
            if (tokens := _capacity(labels)) is not None:
                capacity[rank_key(TABLE.rank_of(labels))] = tokens
        elif name in _SLEEP_STATE_NAMES and labels.get("sleep_state") == "awake":
            awake.append(index)
    stamps = lora.stamps(layout, _LORA_NAMES)
    plan = compile_layout(
        TABLE,
        layout,
        extra=[
            *(Series("kv_capacity_tokens", rank, f"{CACHE_CONFIG} tokens {rank}") for rank in capacity),
            *(lora.SERIES if stamps else ()),
        ],
        absent={"kv_capacity_tokens": _NO_CAPACITY},
    )
    if (drafts := _draft_positions(plan)) is not None:
        config["num_speculative_tokens"] = drafts
    return _Facts(
        plan=plan,
        model=model,
        config=MappingProxyType(config),
        capacity=tuple(capacity.values()),
        awake_picks=tuple(awake),
        lora_picks=stamps,
        stack=stack_of(layout),
    )


facts_of = LayoutMemo(_describe)


def recognise(layout: Layout) -> bool:
    """Whether the page holds series of a vLLM engine; a router's copies of them do not count."""
    return TABLE.is_on(layout) and bool(facts_of(layout).plan.columns.series)


class VllmReader(PageReader):
    """Readings of one vLLM server."""

    def __init__(self) -> None:
        self._identity = SidesMemo(_identity)
        self._config = SidesMemo(_config)
        self._paused = SidesMemo(_paused)

    def read_page(self, look: Look, page: Page) -> Reading:
        """See `PageReader`."""
        facts = facts_of(page.layout)
        plan = facts.plan
        adapters = lora.adapters(page, facts.lora_picks) if facts.lora_picks else ()
        return plan.reading(
            look.at,
            page,
            plan.values(page, (*facts.capacity, *adapters)),
            self._identity(facts, look.sides),
            flags=EngineFlags(sleeping=_sleeping(facts, page), paused=self._paused(facts, look.sides)),
            config=self._config(facts, look.sides),
        )


def _identity(facts: _Facts, sides: Sides) -> Identity:
    role = _ROLE_OF_KV.get(text(sides.get(_SERVER_INFO), *_START_WORDS["kv_role"]) or "")
    return identity(
        EngineKind.VLLM,
        (facts.model, "label model_name") if facts.model else served_model(sides),
        version=(text(sides.get("/version"), "version"), "/version"),
        role=(role, "/server_info kv_role"),
        stack=facts.stack,
    )


def _paused(_: _Facts, sides: Sides) -> bool | None:
    return flag(sides.get(_IS_PAUSED), "is_paused")


def _develops(sides: Sides) -> bool:
    """Whether the server has shown a development page, so that it may have the others too."""
    return isinstance(sides.get(_SERVER_INFO), dict)


def _sleeping(facts: _Facts, page: Page) -> bool | None:
    """Asleep when no rank is awake; a level 0 sleep sets no state but `awake` to 0."""
    awake = [page.values[i] for i in facts.awake_picks if not math.isnan(page.values[i])]
    return not any(awake) if awake else None


def _capacity(labels: Mapping[str, str]) -> float | None:
    """Tokens that the KV cache of one rank holds."""
    if _is_count(tokens := typed(labels.get("kv_cache_size_tokens"))):
        return float(tokens)
    blocks, size = typed(labels.get("num_gpu_blocks")), typed(labels.get("block_size"))
    return float(blocks * size) if _is_count(blocks) and _is_count(size) else None


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**53


def _draft_positions(plan: Plan) -> ConfigValue | None:
    """The configured number of drafts: the server has one series for each draft position."""
    series = plan.columns.series
    positions = {one.position for one in series if one.measure == "spec_accepted_at_position"}
    if not positions:
        return None
    return ConfigValue(max(positions) + 1, "positions of spec_decode_num_accepted_tokens_per_pos")


def _config(facts: _Facts, sides: Sides) -> Mapping[str, ConfigValue]:
    """What the metrics page tells, and what the side pages add."""
    cards = items(sides.get("/v1/models"), "data")
    length = next((n for card in cards if (n := integer(card, "max_model_len")) is not None), None)
    info = sides.get(_SERVER_INFO)
    numbers = {name: integer(info, *path) for name, path in _START_NUMBERS.items()}
    words = {name: text(info, *path) for name, path in _START_WORDS.items()}
    started = {
        name: ConfigValue(value, _AS_STARTED)
        for name, value in {**numbers, **words}.items()
        if value is not None
    }
    if (scheduled := integer(info, *_SCHEDULED_TOKENS)) is not None and scheduled > 0:
        source = "/server_info max_num_scheduled_tokens, as started"
        started["max_num_batched_tokens"] = ConfigValue(scheduled, source)
    if length is None and not started:
        return facts.config
    model = {} if length is None else {"max_model_len": ConfigValue(length, "/v1/models")}
    return {**started, **facts.config, **model}


VLLM = EngineTable(
    kind=EngineKind.VLLM,
    title="vLLM",
    recognise=recognise,
    new_reader=VllmReader,
    side_pages=(
        SidePage("/version", keep=("version",)),
        SidePage("/v1/models", keep=("data[].id", "data[].max_model_len")),
        # Only with VLLM_SERVER_DEV_MODE=1; 404 otherwise.
        SidePage(
            _SERVER_INFO,
            keep=tuple(
                ".".join(path)
                for path in (*_START_NUMBERS.values(), *_START_WORDS.values(), _SCHEDULED_TOKENS)
            ),
            query="config_format=json",
        ),
        SidePage(_IS_PAUSED, keep=("is_paused",), every_scrape=True, when=_develops),
    ),
    liveness_path="/health",
    enable_hint="vLLM serves it on its API port; --disable-log-stats takes the engine's series away",
    tables=(TABLE,),
    live_progress="vllm:generation_tokens_total, with every step",
    sources={
        **TABLE.sources(),
        "kv_capacity_tokens": (
            "vllm:cache_config_info kv_cache_size_tokens, or num_gpu_blocks x block_size",
        ),
        **{one.measure: ("vllm:lora_requests_info, newest",) for one in lora.SERIES},
    },
    never=(
        ("/sleep", "stops the scheduler and ends requests"),
        ("/wake_up", "wakes the engine"),
        ("/pause", "stops the scheduler and ends requests"),
        ("/resume", "acts on the scheduler"),
        ("/abort_requests", "ends every request"),
        ("/reset_prefix_cache", "empties the prefix cache"),
        ("/collective_rpc", "calls methods of the workers"),
        ("/scale_elastic_ep", "resizes the engine; open without a key"),
        ("/start_profile", "starts profiling"),
        ("/invocations", "generates tokens"),
    ),
    reads="scheduler, KV, latencies, tokens as they come, caches, speculation, LoRA; limits at its start",
    changes="token budget, running requests and drafts live through its companion; the rest at a restart",
)
