"""Where vLLM itself closes its books on a request: exact, and off the hot path.

Nothing runs per token: TTFT, TPOT and the number of tokens are those that vLLM's own histograms are fed with,
read once when a request ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from enginetop_companion.truth import RequestTruth, Times

OUTCOMES = ("stop", "length", "abort", "error", "repetition")


def finished(truth: RequestTruth, request: Any, reason: object) -> None:
    """`request` is vLLM's RequestState, at the moment of its last output. Never raises."""
    try:
        stats = request.stats
        if stats is None or request.detokenizer is None:  # no statistics, or a pooling request
            return
        truth.ended(str(reason), lambda: _times(stats))
    except Exception as error:  # noqa: BLE001 - vLLM's output loop would die with it
        truth.complain(error)


def _times(stats: Any) -> Times:
    tokens = stats.num_generation_tokens
    decode_seconds = stats.last_token_ts - stats.first_token_ts
    return Times(stats.first_token_latency, decode_seconds / (tokens - 1) if tokens > 1 else None)


def watch_output(processor: Any, truth: RequestTruth) -> None:
    """Wrap the two methods of this OutputProcessor in which a request ends."""
    their_finish = processor._update_stats_from_finished
    their_abort = processor.abort_requests
    depth = 0

    def finish(request: Any, reason: Any, iteration: Any) -> None:
        their_finish(request, reason, iteration)
        finished(truth, request, reason)

    def abort(request_ids: Iterable[str], internal: bool) -> list[str]:
        # For a request of several sequences vLLM's method calls itself; only the outer call is counted.
        nonlocal depth
        depth += 1
        try:
            gone: list[str] = their_abort(request_ids, internal)
        finally:
            depth -= 1
        if depth == 0:
            truth.aborted(len(gone))
        return gone

    processor._update_stats_from_finished = finish
    processor.abort_requests = abort
