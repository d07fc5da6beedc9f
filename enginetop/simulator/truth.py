"""The exact truth about a replica's requests, kept beside the metrics and over all of its lives."""

from __future__ import annotations

from enginetop.fleet.snapshot import Slo
from enginetop.simulator.request import Request

FINISH_REASONS = ("stop", "length", "abort", "error", "repetition")
GOOD_REASONS = frozenset({"stop", "length"})
"""Reasons of a request that was answered in full."""


def is_within(request: Request, slo: Slo) -> bool:
    """Whether an ended request was answered in full, in time, as its client sees it."""
    return (
        request.finish_reason in GOOD_REASONS
        and request.client_ttft_seconds <= slo.ttft_seconds
        and request.tpot_seconds <= slo.tpot_seconds
    )


class Truth:
    """Sums over every judged request; the last requests whole are in `EngineModel.finished`.

    `lost` requests were in the engine when its process died. `missed` ones would have been within the SLO but
    for a fault that spoils them.
    """

    def __init__(self) -> None:
        self.outcomes = dict.fromkeys(FINISH_REASONS, 0)
        self.within_slo = 0
        self.missed = 0
        self.lost = 0
        self.reasoning_requests = 0
        self.truncated = 0
        self.output_tokens = 0

    @property
    def judged(self) -> int:
        """Requests that ended in any way, lost ones included."""
        return sum(self.outcomes.values()) + self.lost

    @property
    def attainment_ratio(self) -> float | None:
        """Share of the judged requests within the SLO; aborted, failed and lost ones are not."""
        return self.within_slo / self.judged if self.judged else None

    @property
    def truncated_ratio(self) -> float:
        """Share of the thinking requests that a budget cut short; 0 when nothing thinks."""
        return self.truncated / self.reasoning_requests if self.reasoning_requests else 0.0

    def ended(self, request: Request, within: bool, spoilt: bool) -> None:
        """Take an ended request. `spoilt`: a fault alone keeps it from being within the SLO."""
        self.outcomes[request.finish_reason] += 1
        self.missed += spoilt
        self.output_tokens += request.output_tokens
        self.reasoning_requests += request.drawn.reasoning_tokens > 0
        self.truncated += request.truncated
        self.within_slo += within
