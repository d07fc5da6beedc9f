"""NVIDIA Triton with the TensorRT-LLM backend, on its metrics port (8002).

Every model of a server has series of its own, and one request to an ensemble counts for the ensemble and for
each of its steps. So where models report in-flight batching (`nv_trt_llm_*`), only these count, each as a
rank when there are several. Latencies are sums of microseconds over successful requests: means, no quantiles;
a histogram of the first response only with `--metrics-config histogram_latencies=true`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from collectors.engines.base import EngineTable, Look, PageReader, SidePage
from collectors.engines.identities import identity
from collectors.engines.mapping import Labels, LayoutMemo, Table, rank_key
from collectors.engines.matching import Plan, compile_layout
from collectors.engines.picks import Pick, first, product, samples, settings_on, value_at
from collectors.engines.triton_gpus import GpuPicks, gpu_picks, gpus_of
from collectors.engines.triton_table import PLAIN_TABLE, TABLE, batching_table
from collectors.json_fields import text
from collectors.page import Layout, Page
from enginetop.fleet.foreign_json import model_name
from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import EngineKind, Quality
from enginetop.fleet.reading import Absence, Part, Reading, Series

_REQUESTS = ("nv_trt_llm_request_metrics",)
_BLOCKS = ("nv_trt_llm_kv_cache_block_metrics",)
_GENERAL = ("nv_trt_llm_general_metrics",)
_ANY_MODEL = ("nv_inference_request_success",)
_SERVING = ("nv_trt_llm_disaggregated_serving_metrics",)
_SERVING_TYPE = "disaggregated_serving_type"
_MEANS = {
    "e2e_seconds": "nv_inference_request_duration_us",
    "queue_seconds": "nv_inference_queue_duration_us",
}
_TRANSFER = "kv_transfer_seconds"
_MICROSECONDS, _MILLISECONDS = 1e-6, 1e-3
_SUMMED = "Triton tells sums of latencies only: a mean, no quantiles"
_OWN_QUEUE = f"{_SUMMED}; the backend takes requests at once, and its own queue has no time"
_ENSEMBLES = "requests of an ensemble count for each of its steps"
_NO_BLOCKS = Absence(Quality.UNSUPPORTED, "no nv_trt_llm_kv_cache_block_metrics on the page")


@frozen
class _Mean:
    """A latency of which a page tells the sum and, elsewhere, the number of observations."""

    measure: str
    spent: int
    count: int
    seconds: float
    """One unit of the sum."""


@frozen(eq=False)
class _Model:
    """The samples of one model that a reader computes from."""

    means: tuple[_Mean, ...]
    blocks: Pick
    block_size: Pick


@frozen(eq=False)
class _Facts:
    plan: Plan
    models: tuple[_Model, ...]
    name: str | None
    settings: Mapping[str, Pick]
    iteration: Pick
    gpus: tuple[GpuPicks, ...]


def _describe(layout: Layout) -> _Facts:
    batching = _models(layout, _REQUESTS)
    models = batching or _models(layout, _ANY_MODEL)
    table = _table_for(layout, batching)
    found: list[_Model] = []
    extra: list[Series] = []
    for labels in models:
        rank = rank_key(table.rank_of(labels))
        means = tuple(_means(layout, labels))
        blocks = first(layout, _BLOCKS, {**labels, "kv_cache_block_type": "max"})
        size = first(layout, _BLOCKS, {**labels, "kv_cache_block_type": "tokens_per"})
        found.append(_Model(means, blocks, size))
        for mean in means:
            group = f"triton {mean.measure} {sorted(labels.items())}"
            extra += (
                Series(mean.measure, rank, f"{group} {part}", part, group=group)
                for part in (Part.SUM, Part.COUNT)
            )
        if blocks is not None:
            extra.append(Series("kv_capacity_tokens", rank, f"triton KV blocks {sorted(labels.items())}"))
    only = models[0] if len(models) == 1 else None
    return _Facts(
        plan=compile_layout(
            table,
            layout,
            extra=extra,
            estimated=_estimated(batching),
            absent={"kv_capacity_tokens": _NO_BLOCKS},
        ),
        models=tuple(found),
        name=model_name(only.get("model")) if only else None,
        settings=_settings(layout, only),
        iteration=first(layout, _GENERAL, {"general_type": "iteration_counter"}),
        gpus=gpu_picks(layout),
    )


def _means(layout: Layout, labels: Labels) -> Iterator[_Mean]:
    """The latencies of one model; Triton sums those of successful requests."""
    count = first(layout, _ANY_MODEL, labels)
    for measure, raw in _MEANS.items():
        spent = first(layout, (raw,), labels)
        if spent is not None and count is not None:
            yield _Mean(measure, spent, count, _MICROSECONDS)
    moved = first(layout, _SERVING, {**labels, _SERVING_TYPE: "kv_cache_transfer_ms"})
    requests = first(layout, _SERVING, {**labels, _SERVING_TYPE: "request_count"})
    if moved is not None and requests is not None:
        yield _Mean(_TRANSFER, moved, requests, _MILLISECONDS)


def _models(layout: Layout, names: tuple[str, ...]) -> list[Labels]:
    """Model and version of those with one of the series, in the order of their names."""
    found = {(labels.get("model", ""), labels.get("version", "")) for _, labels in samples(layout, names)}
    return [{"model": model, "version": version} for model, version in sorted(found)]


def _table_for(layout: Layout, batching: list[Labels]) -> Table:
    if not batching:
        return PLAIN_TABLE
    queued = {"request_type": "waiting"}
    return batching_table(
        (labels["model"] for labels in batching),
        several=len(batching) > 1,
        queue_told=first(layout, _REQUESTS, queued) is not None,
    )


def _estimated(batching: list[Labels]) -> Mapping[str, str]:
    found = dict.fromkeys((*_MEANS, _TRANSFER), _SUMMED)
    if batching:
        found["queue_seconds"] = _OWN_QUEUE
    else:
        counts = ("requests_finished", "requests_aborted", "requests_errored", "requests_waiting")
        found |= dict.fromkeys(counts, _ENSEMBLES)
    return MappingProxyType(found)


def _settings(layout: Layout, only: Labels | None) -> Mapping[str, Pick]:
    """Limits of the one model that batches; those of several are not those of the server."""
    if only is None:
        return MappingProxyType({})
    return MappingProxyType(
        {
            "max_num_seqs": first(layout, _REQUESTS, {**only, "request_type": "max"}),
            "num_gpu_blocks": first(layout, _BLOCKS, {**only, "kv_cache_block_type": "max"}),
            "block_size": first(layout, _BLOCKS, {**only, "kv_cache_block_type": "tokens_per"}),
        }
    )


_facts_of = LayoutMemo(_describe)


def recognise(layout: Layout) -> bool:
    """Whether the page holds Triton's request series; its GPU series alone are those of no engine."""
    return any(name.startswith(("nv_trt_llm_", "nv_inference_")) for name in layout.names)


class TritonReader(PageReader):
    """Readings of one Triton server."""

    def read_page(self, look: Look, page: Page) -> Reading:
        """See `PageReader`."""
        facts = _facts_of(page.layout)
        plan = facts.plan
        iteration = () if facts.iteration is None else (value_at(page, facts.iteration),)
        return plan.reading(
            look.at,
            page,
            plan.values(page, _computed(page, facts.models)),
            identity(
                EngineKind.TRITON,
                (facts.name, "label model"),
                version=(text(look.sides.get("/v2"), "version"), "/v2"),
            ),
            moving=iteration,
            live_progress=facts.iteration is not None,
            config=settings_on(page, facts.settings),
            gpus=gpus_of(page, facts.gpus),
        )


def _computed(page: Page, models: tuple[_Model, ...]) -> list[float]:
    """Sums of seconds and counts of each model, then the tokens that its KV cache holds."""
    found: list[float] = []
    for model in models:
        for mean in model.means:
            found += (page.values[mean.spent] * mean.seconds, page.values[mean.count])
        if model.blocks is not None:
            found.append(product(page, model.blocks, model.block_size))
    return found


def _sources() -> Mapping[str, tuple[str, ...]]:
    """Triton's counters end in no `_total`."""
    named = {m: tuple(n.removesuffix("_total") for n in names) for m, names in TABLE.sources().items()}
    blocks = 'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max"}'
    return MappingProxyType(
        {
            **named,
            "requests_waiting": (*named["requests_waiting"], "nv_inference_pending_request_count"),
            **{m: (raw, "nv_inference_request_success") for m, raw in _MEANS.items()},
            _TRANSFER: tuple(
                f'{_SERVING[0]}{{{_SERVING_TYPE}="{kind}"}}'
                for kind in ("kv_cache_transfer_ms", "request_count")
            ),
            "kv_capacity_tokens": (f"{blocks} x tokens_per",),
        }
    )


TRITON = EngineTable(
    kind=EngineKind.TRITON,
    title="Triton",
    recognise=recognise,
    new_reader=TritonReader,
    side_pages=(SidePage("/v2", keep=("version",)),),
    enable_hint="Triton serves it on --metrics-port (8002) unless --allow-metrics=false is set",
    tables=(TABLE,),
    live_progress="the iteration_counter of nv_trt_llm_general_metrics (TensorRT-LLM), else none",
    sources=_sources(),
    reads="requests, failures by reason, mean latencies, in-flight batching and KV blocks of TensorRT-LLM",
    changes="nothing live; a model's configuration by loading it anew",
)
