"""NVIDIA Dynamo's own series on a worker's system port, 0.7 to 1.6: alone, or beside those of an engine.

A worker whose page carries an engine's series is that engine: see `dynamo_passed`. A worker without any (a
prefill mocker, a unified backend, any worker before its first request) is read from these series alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from collectors.engines.base import Look
from collectors.engines.dynamo_card import METADATA, NO_CARD, SOURCE, WorkerCard, card_of
from collectors.engines.identities import identity
from collectors.engines.mapping import Labels, LayoutMemo, Row, Table
from collectors.engines.matching import Plan, compile_layout
from collectors.engines.picks import Pick, first, settings_on
from collectors.page import Layout, Page
from enginetop.fleet.foreign_json import model_name
from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import EngineKind, Quality, Role
from enginetop.fleet.reading import Absence, ConfigValue, Identity, Reading, Series
from enginetop.fleet.workers import worker_from_hex

COMPONENT = "dynamo_component_"

_GENERATE: Mapping[str, frozenset[str]] = MappingProxyType({"dynamo_endpoint": frozenset({"generate"})})
"""The endpoint that serves requests; a worker has others, for KV events and control."""

_PASSED = ("vllm:", "sglang:", "trtllm:")
_OF_MOCKER = ("trtllm:",)
"""Where the mocker of TensorRT-LLM exports what the real worker calls `trtllm_...` by other names."""

_IN_FLIGHT = "requests in the worker: those that run and those queued in its engine alike"
_COUNTED_GAPS = "first tokens and gaps between tokens, added: this engine counts no tokens"
_NO_QUEUE = "this worker does not tell the queue of its engine"

TABLE = Table(
    title="Dynamo worker",
    prefixes=(COMPONENT,),
    rank_labels=(("dp_rank", "engine"),),
    rows=(
        Row("requests_running", ("num_requests_running",), prefixes=_OF_MOCKER),
        Row("requests_waiting", ("num_requests_waiting",), prefixes=_OF_MOCKER),
        Row(
            "kv_usage_ratio",
            ("gpu_cache_usage_percent", "kvstats_gpu_cache_usage_percent"),
            note="exported by real engines and unified backends",
        ),
        Row("kv_usage_ratio", ("kv_cache_usage_perc",), prefixes=_OF_MOCKER),
        Row("preemptions", ("num_preemptions",), prefixes=_OF_MOCKER),
        Row("requests_finished", ("request_duration_seconds_count",), where=_GENERATE),
        Row("requests_aborted", ("cancellation",), where=_GENERATE, since="1.0"),
        Row("requests_errored", ("errors",), where=_GENERATE, lazy=True, note="counted at the first error"),
        Row("e2e_seconds", ("request_duration_seconds",), where=_GENERATE),
        Row("ttft_seconds", ("time_to_first_token_seconds",), prefixes=_OF_MOCKER),
        Row("itl_seconds", ("inter_token_latency_seconds",), prefixes=_OF_MOCKER),
        Row("generation_tokens", ("time_to_first_token_seconds_count",), prefixes=_PASSED),
        Row("generation_tokens", ("inter_token_latency_seconds_count",), prefixes=_PASSED),
        Row("kv_transfer_seconds", ("kv_transfer_latency_seconds",), prefixes=("trtllm_",)),
        Row("requests_rejected", ("rejection_request",), prefixes=("dynamo_",)),
        Row("admission_waiting_requests", ("request_queue",), prefixes=("dynamo_",)),
    ),
    unsupported={
        "requests_waiting": _NO_QUEUE,
        "reasoning_tokens": "Dynamo counts no reasoning tokens",
    },
)

_INFLIGHT_ROW = Row("requests_running", ("inflight_requests",), where=_GENERATE)
ESTIMATED: Mapping[str, str] = MappingProxyType({"generation_tokens": _COUNTED_GAPS})
CAPACITY = Series("kv_capacity_tokens", "", "dynamo model card capacity")
"""Where the card of a worker's model tells it."""
_CAPACITY_ABSENT = Absence(Quality.UNKNOWN, "the page tells blocks, and not how many tokens one holds")
_BLOCKS = (COMPONENT + "total_blocks", COMPONENT + "kvstats_total_blocks")

# Movement of the work itself: what counts arrivals or the worker's own housekeeping proves nothing.
_MOVING = frozenset({COMPONENT + "response_bytes_total", COMPONENT + "request_duration_seconds_count"})


@frozen
class WorkerFacts:
    """What the lines of a page tell of the process apart from its numbers.

    `moving` are the samples that change when requests end or answers flow.
    """

    model: str | None
    role: Role
    worker: int | None
    moving: tuple[int, ...]
    blocks: Pick

    def config(self, page: Page) -> Mapping[str, ConfigValue]:
        """Blocks of the KV cache of one rank."""
        return settings_on(page, {"num_gpu_blocks": self.blocks})


def _describe(layout: Layout) -> WorkerFacts:
    model: str | None = None
    component = ""
    worker: int | None = None
    moving: list[int] = []
    for index, (name, labels) in enumerate(zip(layout.names, layout.labels, strict=True)):
        if not name.startswith(COMPONENT):
            continue
        if worker is None:
            worker = worker_from_hex(labels.get("worker_id"))
        model = model or model_name(labels.get("model_name") or labels.get("model"))
        if _serves(labels):
            component = component or labels.get("dynamo_component", "")
            if name in _MOVING:
                moving.append(index)
    moving.sort(key=lambda index: layout.keys[index])
    return WorkerFacts(
        model, role_of_component(component), worker, tuple(moving), blocks=first(layout, _BLOCKS)
    )


worker_facts = LayoutMemo(_describe)


def _serves(labels: Labels) -> bool:
    return all(labels.get(label) in values for label, values in _GENERATE.items())


def role_of_component(component: str) -> Role:
    """The role that the name of a component says. `backend` may be either, its gateway knows."""
    name = component.lower()
    if "prefill" in name:
        return Role.PREFILL
    return Role.DECODE if "decode" in name else Role.AGGREGATED


def of_process(plan: Plan, worker: int | None) -> Plan:
    """The plan of the pages of a process: its id is new at every start.

    Not `now - uptime_seconds`, which jitters. Where ids are made from names of pods, a container that
    restarts keeps its id: then its counters tell by falling.
    """
    return replace(plan, named_start=None if worker is None else float(worker))


def has_worker_series(layout: Layout) -> bool:
    """Whether the page is that of a worker's system port."""
    return any(
        name.startswith(COMPONENT) and "dynamo_endpoint" in labels
        for name, labels in zip(layout.names, layout.labels, strict=True)
    )


_alone = replace(TABLE, rows=(*TABLE.rows, _INFLIGHT_ROW))


def _compile_alone(layout: Layout, *, with_capacity: bool) -> Plan:
    facts = worker_facts(layout)
    plan = compile_layout(
        _alone,
        layout,
        extra=(CAPACITY,) if with_capacity else (),
        estimated={**ESTIMATED, "requests_running": _IN_FLIGHT},
        absent={"kv_capacity_tokens": _CAPACITY_ABSENT},
    )
    return replace(of_process(plan, facts.worker), progress_picks=facts.moving)


_plan_with_capacity = LayoutMemo(partial(_compile_alone, with_capacity=True))
_plan_without_capacity = LayoutMemo(partial(_compile_alone, with_capacity=False))


def read_worker(look: Look, page: Page) -> Reading:
    """The reading of a worker that passes no engine's series through."""
    facts = worker_facts(page.layout)
    card = card_of(look.sides.get(METADATA), facts.worker) or NO_CARD
    plan_of = _plan_without_capacity if card.capacity_tokens is None else _plan_with_capacity
    plan = plan_of(page.layout)
    return plan.reading(
        look.at,
        page,
        plan.values(page, card.computed),
        worker_identity(facts, card),
        config={**card.config, **facts.config(page)},
    )


def worker_identity(facts: WorkerFacts, card: WorkerCard) -> Identity:
    """Who the worker is by its own series and its card."""
    named = None if facts.role is Role.AGGREGATED else facts.role
    return identity(
        EngineKind.DYNAMO,
        (facts.model, "label model"),
        (card.model, SOURCE),
        role=(named, "label dynamo_component") if card.role is None else (card.role, SOURCE),
        worker=facts.worker,
        product=TABLE.title,
    )


WORKER_NEVER: tuple[tuple[str, str], ...] = (
    ("/engine/*", "worker control: pauses, sleeps, flushes, ends requests"),
    ("/v1/loras", "on a worker the same path loads and unloads adapters"),
)
"""What is never asked of the system port of a worker."""
