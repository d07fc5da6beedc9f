"""Where SGLang itself closes its books on a request: hooks on two methods of its TokenizerManager.

`collect_metrics` is called for each batch of outputs that carries a request, `_handle_abort_req` for one that
was taken out of the waiting queue. The times are those that SGLang's own histograms are fed with.
"""

from __future__ import annotations

from typing import Any

from enginetop_companion.truth import RequestTruth, Times

OUTCOMES = ("stop", "length", "abort")
_OWN = "_enginetop_truth"


def count_with(manager: Any, truth: RequestTruth) -> None:
    """Count what ends at this TokenizerManager from now on."""
    setattr(manager, _OWN, truth)


def collected(_result: Any, manager: Any, state: Any, batch: Any, index: int) -> None:
    """AFTER hook of `collect_metrics`. Never raises."""
    truth: RequestTruth | None = getattr(manager, _OWN, None)
    if truth is None or not state.finished:
        return
    try:
        outcome = str((batch.finished_reasons[index] or {}).get("type"))
        tokens = getattr(batch, "completion_tokens", None)
        written = tokens[index] if tokens else 0
        if outcome != "abort" and not written:  # an embedding, or a prompt that is only put into the cache
            return
        truth.ended(outcome, lambda: _times(state.time_stats, written))
        reasoning = getattr(batch, "reasoning_tokens", None)
        if outcome != "abort" and reasoning:
            # Of a request that was not asked to think, 0 may as well be thoughts that nobody parsed.
            asked = getattr(state.obj, "require_reasoning", False)
            truth.reasoned(reasoning[index], text_seen=not asked)
    except Exception as error:  # noqa: BLE001 - SGLang's output loop would die with it
        truth.complain(error)


def taken_from_the_queue(manager: Any, request: Any) -> None:
    """BEFORE hook of `_handle_abort_req`: a request that is known still ends here. Never raises."""
    truth: RequestTruth | None = getattr(manager, _OWN, None)
    if truth is None:
        return
    try:
        state = manager.rid_to_state.get(request.rid)
        if state is not None and state.obj.log_metrics:
            truth.aborted(1)
    except Exception as error:  # noqa: BLE001 - as above
        truth.complain(error)


def _times(stats: Any, tokens: int) -> Times:
    return Times(stats.get_first_token_latency(), stats.get_time_per_output_token(tokens))
