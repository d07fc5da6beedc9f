"""The iteration records of TensorRT-LLM's `/metrics`, written as the metrics page of the same engine.

Each read empties the queue for every other reader, so the page is asked only when somebody names it. A record
tells of one iteration; what records count is added up over all that were taken here. An idle server makes no
iterations and answers an empty list.
"""

from __future__ import annotations

from collections.abc import Mapping

from collectors.engines.base import Json
from collectors.json_fields import number

TAKEN = "trtllm_iteration_records_taken_total"
"""On such a page only: how many records were taken from the queue."""

_GAUGES: Mapping[str, tuple[str, ...]] = {
    "num_requests_running": ("numActiveRequests",),
    "num_requests_waiting": ("numQueuedRequests",),
    "num_paused_requests": ("inflightBatchingStats", "numPausedRequests"),
    "max_num_active_requests": ("maxNumActiveRequests",),
    "max_batch_size_runtime": ("maxBatchSizeRuntime",),
    "max_num_tokens_runtime": ("maxNumTokensRuntime",),
    "kv_cache_max_blocks": ("kvCacheStats", "maxNumBlocks"),
    "kv_cache_used_blocks": ("kvCacheStats", "usedNumBlocks"),
    "kv_cache_tokens_per_block": ("kvCacheStats", "tokensPerBlock"),
    "avg_decoded_tokens_per_iter": ("inflightBatchingStats", "avgNumDecodedTokensPerIter"),
    # The engine itself counts these two since its start.
    "kv_cache_reused_blocks_total": ("kvCacheStats", "reusedBlocks"),
    "kv_cache_missed_blocks_total": ("kvCacheStats", "missedBlocks"),
}
_SUMS: Mapping[str, tuple[str, ...]] = {
    'request_success_total{finished_reason="unknown"}': ("numCompletedRequests",),
    "spec_decode_num_draft_tokens_total": ("specDecodingStats", "numDraftTokens"),
    "spec_decode_num_accepted_tokens_total": ("specDecodingStats", "numAcceptedTokens"),
}
_SIGNS = frozenset({"numActiveRequests", "iterLatencyMS", "inflightBatchingStats", "kvCacheStats"})
QUEUE_FIELDS: tuple[str, ...] = (
    "[].iterLatencyMS",
    *dict.fromkeys("[]." + ".".join(path) for path in (*_GAUGES.values(), *_SUMS.values())),
)
"""What a recording may hold of a record."""

_WORK = ("num_requests_running", "num_requests_waiting")


def is_queue(records: list[Json]) -> bool:
    """Whether these are iteration records; an empty list may be one of an idle server."""
    return all(isinstance(record, dict) and not _SIGNS.isdisjoint(record) for record in records)


class IterationQueue:
    """The records of one server so far."""

    def __init__(self) -> None:
        self._levels: dict[str, float] = {}
        self._sums: dict[str, float] = {}
        self._taken = 0

    def page(self, records: list[Json]) -> bytes:
        """The page after these records, oldest first; they are added to those before."""
        for record in records:
            for name, path in _SUMS.items():
                if (value := number(record, *path)) is not None and value >= 0:
                    self._sums[name] = self._sums.get(name, 0.0) + value
        newest = next((record for record in reversed(records) if isinstance(record, dict)), None)
        if newest is None:
            self._levels |= dict.fromkeys(_WORK, 0.0)
        else:
            self._levels |= _levels(newest)
        self._taken += len(records)
        lines = {**self._levels, **self._sums}
        written = [f"trtllm_{name} {value!r}" for name, value in lines.items()]
        return "\n".join([*written, f"{TAKEN} {self._taken}", ""]).encode()


def _levels(record: Json) -> dict[str, float]:
    found = {name: number(record, *path) for name, path in _GAUGES.items()}
    levels = {name: value for name, value in found.items() if value is not None}
    used, size = levels.get("kv_cache_used_blocks"), levels.get("kv_cache_max_blocks")
    if used is not None and size:
        levels["kv_cache_utilization"] = used / size
    if (milliseconds := number(record, "iterLatencyMS")) is not None:
        levels["iteration_latency_seconds"] = milliseconds / 1000.0
    return levels
