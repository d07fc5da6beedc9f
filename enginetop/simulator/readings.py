"""What a page of a simulated engine says, without the page: readings straight from the exact counters.

Measures come from the same series as on the page, so that whoever reads them finds the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from types import MappingProxyType

from enginetop.fleet.model import Quality
from enginetop.fleet.reading import Absence, Columns, ConfigValue, Identity, Part, Reading, Series
from enginetop.fleet.snapshot import Slo
from enginetop.simulator.metrics import EngineMetrics, Histogram
from enginetop.simulator.model import EngineModel
from enginetop.simulator.scenario import EngineSettings

CACHE_CONFIG = "cache_config_info"
_FAILED = ("abort", "error")

_GAUGES: Mapping[str, Callable[[EngineModel], float]] = {
    "requests_running": lambda engine: engine.requests_running,
    "requests_waiting": lambda engine: len(engine.waiting),
    "kv_usage_ratio": lambda engine: engine.kv_usage_ratio,
    "kv_capacity_tokens": lambda engine: engine.settings.kv_capacity_tokens,
}
_COUNTERS: Mapping[str, Callable[[EngineMetrics], float]] = {
    "preemptions": lambda m: m.preemptions,
    "prompt_tokens_processed": lambda m: m.prompt_tokens,
    "generation_tokens": lambda m: m.generation_tokens,
    "requests_finished": lambda m: sum(m.finished.values()),
    "requests_aborted": lambda m: m.finished["abort"],
    "requests_errored": lambda m: m.finished["error"],
    "requests_judged": lambda m: sum(m.judged.values()),
    "requests_judged_failed": lambda m: sum(m.judged[outcome] for outcome in _FAILED),
    "requests_within_slo": lambda m: next(reversed(m.within.values())),
    "prefix_queries": lambda m: m.prefix_queries,
    "prefix_hits": lambda m: m.prefix_hits,
}
_DRAFT_COUNTERS: Mapping[str, Callable[[EngineMetrics], float]] = {
    "spec_drafts": lambda m: m.speculation.drafts,
    "spec_draft_tokens": lambda m: m.speculation.draft_tokens,
    "spec_accepted_tokens": lambda m: sum(m.speculation.accepted_at),
}
_HISTOGRAMS: Mapping[str, Callable[[EngineMetrics], Histogram]] = {
    "ttft_seconds": lambda m: m.time_to_first_token,
    "tpot_seconds": lambda m: m.time_per_output_token,
    "itl_seconds": lambda m: m.inter_token_latency,
    "e2e_seconds": lambda m: m.e2e_latency,
    "queue_seconds": lambda m: m.queue_time,
    "prompt_tokens": lambda m: m.request_prompt_tokens,
    "output_tokens": lambda m: m.request_generation_tokens,
    "iteration_tokens": lambda m: m.iteration_tokens,
    "reasoning_tokens": lambda m: m.reasoning_tokens,
}


@dataclass(frozen=True)
class ReadingShape:
    """Reads one process after another of the same kind: engines alike in what they export share the columns.

    `slo` is what the requests are judged by, `identity` who answers.
    """

    columns: Columns
    config: Mapping[str, ConfigValue]
    identity: Identity

    @classmethod
    def of(cls, ranks: Sequence[EngineModel], slo: Slo, identity: Identity) -> ReadingShape:
        """The shape of a process with these data-parallel ranks."""
        series = [one for rank, engine in enumerate(ranks) for one in _series(engine, str(rank), slo)]
        named = {f"engine={rank}": MappingProxyType({"engine": str(rank)}) for rank in range(len(ranks))}
        settings = ranks[0].settings
        absent = {}
        if not settings.num_speculative_tokens:
            gone = Absence(Quality.UNSUPPORTED, "no speculative decoding is configured")
            absent = dict.fromkeys((*_DRAFT_COUNTERS, "spec_accepted_at_position"), gone)
        columns = Columns(tuple(series), MappingProxyType(named), absent=MappingProxyType(absent))
        return cls(columns, MappingProxyType(_config(settings)), identity)

    def read(self, ranks: Sequence[EngineModel], at: float, process_at: float) -> Reading:
        """The numbers now; `at` and `process_at` (the begin of the process) are Unix seconds."""
        values: list[float] = []
        moved = 0
        for engine in ranks:
            metrics = engine.metrics
            values.extend([read(engine) for read in _GAUGES.values()])
            values.extend([count(metrics) for count in _COUNTERS.values()])
            if metrics.speculation.positions:
                values.extend([count(metrics) for count in _DRAFT_COUNTERS.values()])
                values.extend(metrics.speculation.accepted_at)
            for histogram in _HISTOGRAMS.values():
                one = histogram(metrics)
                cumulative = list(accumulate(one.counts))
                values.extend(cumulative)
                values.extend((cumulative[-1], one.sum))
            moved += metrics.generation_tokens + metrics.prompt_tokens
        return Reading(
            at=at,
            columns=self.columns,
            values=values,
            start_token=process_at,
            progress_token=moved,
            identity=self.identity,
            config=self.config,
        )


def _series(engine: EngineModel, rank: str, slo: Slo) -> list[Series]:
    """One series for each number that `ReadingShape.read` takes from an engine, in its order."""
    metrics, of_rank = engine.metrics, f"engine={rank}"
    series = [Series(name, of_rank, f"{name} {rank}") for name in _GAUGES]
    judged_by = slo.limits
    series += [
        Series(name, of_rank, f"{name} {rank}", slo=judged_by if name == "requests_within_slo" else None)
        for name in _COUNTERS
    ]
    if metrics.speculation.positions:
        series += [Series(name, of_rank, f"{name} {rank}") for name in _DRAFT_COUNTERS]
        series += [
            Series("spec_accepted_at_position", of_rank, f"accepted {rank} {place}", position=place)
            for place in range(metrics.speculation.positions)
        ]
    for name, histogram in _HISTOGRAMS.items():
        series += [
            Series(name, of_rank, f"{name} {rank} {bound}", Part.BUCKET, bound)
            for bound in (*histogram(metrics).bounds, float("inf"))
        ]
        series += [Series(name, of_rank, f"{name} {rank} {part}", part) for part in (Part.COUNT, Part.SUM)]
    return series


def _config(settings: EngineSettings) -> dict[str, ConfigValue]:
    config = {
        "block_size": ConfigValue(settings.block_size, CACHE_CONFIG),
        "num_gpu_blocks": ConfigValue(settings.kv_blocks, CACHE_CONFIG),
        "max_model_len": ConfigValue(settings.max_model_len, "/v1/models"),
    }
    if settings.num_speculative_tokens:
        config["num_speculative_tokens"] = ConfigValue(settings.num_speculative_tokens, "draft positions")
    return config
