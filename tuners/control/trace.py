"""What an engine's counters say of it at one snapshot, kept so that a later look can be held against it."""

from __future__ import annotations

from enginetop.fleet.frozen import frozen
from enginetop.fleet.snapshot import Distribution, ReplicaSnapshot, number_of

_ABORTED, _FINISHED = "requests_aborted", "requests_finished"


@frozen
class Trace:
    """None where it is not known. `at` is when the page was read (Unix seconds).

    Over the snapshot's window: `mean_tokens` a counted step; the 99th percentile of the time between two
    outputs of a request, which is the length of the longest steps; drafted tokens a draft step; the length of
    thoughts; the time that the longest requests take, at most. At the snapshot: requests running and waiting
    over `ranks` engines. Since first sight: requests that ended by themselves (who was aborted may never have
    run), draft steps, drafted tokens, generated tokens, and, where an engine counts them by themselves, steps
    that computed prompts and the tokens that these computed.
    """

    at: float = 0.0
    ranks: int = 1
    mean_tokens: float | None = None
    itl_p99_seconds: float | None = None
    drafts_per_step: float | None = None
    thoughts: Distribution | None = None
    longest_seconds: float | None = None
    running: float | None = None
    waiting: float | None = None
    ended: float | None = None
    draft_steps: float | None = None
    drafted_tokens: float | None = None
    generated_tokens: float | None = None
    prefill_steps: float | None = None
    prefill_tokens: float | None = None


NO_TRACE = Trace()


def trace_of(replica: ReplicaSnapshot | None) -> Trace:
    """The trace of a replica; an empty one for None."""
    if replica is None:
        return NO_TRACE
    steps, gaps, whole = (
        _distribution(replica, name) for name in ("iteration_tokens", "itl_seconds", "e2e_seconds")
    )
    totals = replica.totals
    finished = totals.get(_FINISHED)
    return Trace(
        at=replica.scraped_at or 0.0,
        ranks=max(1, len(replica.ranks)),
        mean_tokens=steps.mean.value if steps else None,
        itl_p99_seconds=gaps.quantiles["p99"].value if gaps else None,
        drafts_per_step=_drafts_per_step(replica),
        thoughts=_distribution(replica, "reasoning_tokens"),
        longest_seconds=whole.quantiles["p99"].high if whole else None,
        running=number_of(replica.signals, "requests_running"),
        waiting=number_of(replica.signals, "requests_waiting"),
        ended=None if finished is None else finished - totals.get(_ABORTED, 0.0),
        draft_steps=totals.get("spec_drafts"),
        drafted_tokens=totals.get("spec_draft_tokens"),
        generated_tokens=totals.get("generation_tokens"),
        prefill_steps=totals.get("prefill_steps"),
        prefill_tokens=totals.get("prefill_step_tokens"),
    )


def _drafts_per_step(replica: ReplicaSnapshot) -> float | None:
    """Of the accepted ones: a step's, which are its length less the bonus token, over the share accepted."""
    length = number_of(replica.signals, "spec_accepted_length")
    share = number_of(replica.signals, "spec_acceptance_ratio")
    return (length - 1) / share if length is not None and share else None


def _distribution(replica: ReplicaSnapshot, name: str) -> Distribution | None:
    value = replica.signals.get(name)
    return value if isinstance(value, Distribution) and value.count is not None else None
