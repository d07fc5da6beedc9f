"""What a simulated engine counts: the raw numbers behind its page, fed by its requests alone."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

from enginetop.fleet.model import EngineKind
from enginetop.fleet.snapshot import Slo
from enginetop.simulator.buckets import buckets
from enginetop.simulator.request import Request
from enginetop.simulator.truth import FINISH_REASONS, GOOD_REASONS

MOST_OBJECTIVES = 8


class Histogram:
    """Counts by bucket, each for itself; the last one is past all `bounds`. A bound is inclusive."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Iterable[float]) -> None:
        self.bounds = tuple(float(bound) for bound in bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count `value`, `times` over."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    def observe_each(self, values: Iterable[float], times: int = 1) -> None:
        """Count every one of `values`, `times` over; fast where neighbours share a bucket."""
        low = high = math.inf
        place, total = 0, self.sum
        for value in values:
            if not low < value <= high:
                place = bisect_left(self.bounds, value)
                low = self.bounds[place - 1] if place else -math.inf
                high = self.bounds[place] if place < len(self.bounds) else math.inf
            self.counts[place] += times
            total += value * times
        self.sum = total

    @property
    def count(self) -> int:
        """Observations so far."""
        return sum(self.counts)


@dataclass(slots=True)
class SpeculationCounts:
    """Draft steps, drafted tokens, and the accepted tokens of each draft position."""

    positions: int
    drafts: int
    draft_tokens: int
    accepted_at: list[int]


class EngineMetrics:
    """Every counter and histogram of one engine life.

    Prompt tokens count when the prompt is done, generated tokens step by step, the rest of a request when it
    ends, in whatever way: so does the engine that is imitated. `judged` and `within_slo` count what a client
    was answered; a request that goes on elsewhere is not judged here. `within` holds the latter by objective
    (TTFT and TPOT in seconds), the newest last.
    """

    def __init__(
        self, max_model_len: int, positions: int, slo: Slo, kind: EngineKind = EngineKind.VLLM
    ) -> None:
        bounds = buckets(kind, max_model_len)
        self.prefix_queries = 0
        self.prefix_hits = 0
        self.prompt_tokens = 0
        self.prompt_tokens_cached = 0
        self.prompt_tokens_transferred = 0
        self.generation_tokens = 0
        self.preemptions = 0
        self.finished = dict.fromkeys(FINISH_REASONS, 0)
        self.judged = dict.fromkeys(FINISH_REASONS, 0)
        self.within_slo = 0
        self.within: dict[tuple[float, float], int] = {}
        self._objective = (0.0, 0.0)
        self.speculation = SpeculationCounts(positions, 0, 0, [0] * positions)
        self.iteration_tokens = Histogram(bounds.step_tokens)
        self.time_to_first_token = Histogram(bounds.first_token)
        self.inter_token_latency = Histogram(bounds.inter_token)
        self.time_per_output_token = Histogram(bounds.inter_token)
        self.e2e_latency = Histogram(bounds.request_latency)
        self.queue_time = Histogram(bounds.queue)
        self.inference_time = Histogram(bounds.request_latency)
        self.prefill_time = Histogram(bounds.request_latency)
        self.decode_time = Histogram(bounds.request_latency)
        self.request_prompt_tokens = Histogram(bounds.tokens)
        self.request_generation_tokens = Histogram(bounds.tokens)
        self.request_max_tokens = Histogram(bounds.tokens)
        self.request_samples = Histogram(bounds.samples)
        self.request_preemptions = Histogram(bounds.preemptions)
        self.request_prefill_computed_tokens = Histogram(bounds.tokens)
        self.fine_first_token = Histogram(bounds.fine_first_token)
        self.fine_per_token = Histogram(bounds.fine_per_token)
        self.reasoning_tokens = Histogram(bounds.reasoning)
        self.judge_by(slo)

    def admitted(self, request: Request) -> None:
        """`request` was scheduled for the first time."""
        self.prefix_queries += request.drawn.prompt_tokens
        self.prefix_hits += request.cached_tokens

    def prompt_done(self, request: Request) -> None:
        """`request` got its first token."""
        self.prompt_tokens += request.drawn.prompt_tokens
        self.prompt_tokens_cached += request.first_cached_tokens + request.drawn.transferred_tokens
        self.prompt_tokens_transferred += request.drawn.transferred_tokens
        self.time_to_first_token.observe(request.ttft_seconds)

    def ended(self, request: Request) -> None:
        """`request` got its last token."""
        drawn = request.drawn
        prefill, decode = request.prefill_seconds, request.decode_seconds
        self.finished[request.finish_reason] += 1
        self.time_per_output_token.observe(request.tpot_seconds)
        self.e2e_latency.observe(request.e2e_seconds)
        self.queue_time.observe(request.queue_seconds)
        self.prefill_time.observe(prefill)
        self.decode_time.observe(decode)
        self.inference_time.observe(prefill + decode)
        self.request_prompt_tokens.observe(drawn.prompt_tokens)
        self.request_generation_tokens.observe(request.output_tokens)
        self.request_max_tokens.observe(drawn.max_tokens)
        self.request_samples.observe(1)
        self.request_preemptions.observe(request.preemptions)
        self.request_prefill_computed_tokens.observe(request.prompt_tokens_computed)

    def judge_by(self, slo: Slo) -> None:
        """Count requests within `slo` from now on; the counts of the last few objectives are kept."""
        self._objective = slo.limits
        self.within[self._objective] = self.within.pop(self._objective, 0)
        while len(self.within) > MOST_OBJECTIVES:
            del self.within[next(iter(self.within))]

    def judge(self, request: Request, within: bool) -> None:
        """The client of `request` has its answer, `within` the SLO or not.

        The histograms hold completed requests only, as those of the vLLM companion do.
        """
        self.judged[request.finish_reason] += 1
        self.within_slo += within
        self.within[self._objective] += within
        if request.finish_reason not in GOOD_REASONS:
            return
        self.fine_first_token.observe(request.client_ttft_seconds)
        self.fine_per_token.observe(request.tpot_seconds)
        self.reasoning_tokens.observe(request.reasoning_tokens)
