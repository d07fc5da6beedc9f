"""What a simulated engine counts: the raw numbers behind its page, fed by its requests alone."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

from enginetop.fleet.snapshot import Slo
from enginetop.simulator.request import Request
from enginetop.simulator.truth import FINISH_REASONS

_REQUEST_LATENCY = (
    *(0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60),
    *(120, 240, 480, 960, 1920, 7680),
)
_FIRST_TOKEN = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560),
)
_INTER_TOKEN = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1, 2.5, 5, 7.5, 10, 20, 40, 80),
)
_STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_SAMPLES = (1, 2, 5, 10, 20)
_PREEMPTIONS = (1, 2, 3, 4, 5, 10, 20)
_FINE_FIRST_TOKEN = (
    *(0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.8),
    *(1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 7.5, 10, 15, 20, 30, 60, 120),
)
_FINE_PER_TOKEN = (
    *(0.005, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.045, 0.05, 0.06, 0.07, 0.08, 0.09),
    *(0.1, 0.125, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75, 1),
)
_REASONING = (0, 64, 128, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 32768)


def _one_two_five(largest: int) -> tuple[int, ...]:
    """1, 2, 5, 10, 20, 50, ... up to `largest`."""
    bounds = (digit * 10**power for power in range(len(str(largest))) for digit in (1, 2, 5))
    return tuple(bound for bound in bounds if bound <= largest)


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
    was answered; a request that goes on elsewhere is not judged here.
    """

    def __init__(self, max_model_len: int, positions: int, slo: Slo) -> None:
        tokens = _one_two_five(max_model_len)
        self.slo = slo
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
        self.speculation = SpeculationCounts(positions, 0, 0, [0] * positions)
        self.iteration_tokens = Histogram(_STEP_TOKENS)
        self.time_to_first_token = Histogram(_FIRST_TOKEN)
        self.inter_token_latency = Histogram(_INTER_TOKEN)
        self.time_per_output_token = Histogram(_INTER_TOKEN)
        self.e2e_latency = Histogram(_REQUEST_LATENCY)
        self.queue_time = Histogram(_REQUEST_LATENCY)
        self.inference_time = Histogram(_REQUEST_LATENCY)
        self.prefill_time = Histogram(_REQUEST_LATENCY)
        self.decode_time = Histogram(_REQUEST_LATENCY)
        self.request_prompt_tokens = Histogram(tokens)
        self.request_generation_tokens = Histogram(tokens)
        self.request_max_tokens = Histogram(tokens)
        self.request_samples = Histogram(_SAMPLES)
        self.request_preemptions = Histogram(_PREEMPTIONS)
        self.request_prefill_computed_tokens = Histogram(tokens)
        self.fine_first_token = Histogram(_FINE_FIRST_TOKEN)
        self.fine_per_token = Histogram(_FINE_PER_TOKEN)
        self.reasoning_tokens = Histogram(_REASONING)

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

    def judge(self, request: Request, within: bool) -> None:
        """The client of `request` has its answer, `within` the SLO or not."""
        self.judged[request.finish_reason] += 1
        self.within_slo += within
        self.fine_first_token.observe(request.client_ttft_seconds)
        self.fine_per_token.observe(request.tpot_seconds)
        self.reasoning_tokens.observe(request.reasoning_tokens)
