"""Bucket bounds of the engines' histograms, as they ship them, and finer ones of our own."""

from __future__ import annotations

from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import EngineKind

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
_SGLANG_TOKENS = (
    *(100, 300, 500, 700, 1000, 1500, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000, 10000),
    *(12500, 15000, 17500, 20000, 22500, 25000, 27500, 30000, 35000, 40000, 60000, 80000, 100000),
    *(200_000, 300_000, 400_000, 600_000, 800_000, 1_000_000, 1_100_000),
)
_SGLANG_FIRST_TOKEN = (*(0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400),)
_SGLANG_LATENCY = (*_SGLANG_FIRST_TOKEN, 600, 1200, 1800, 2400)
_SGLANG_INTER_TOKEN = (
    *(0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08),
    *(0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8),
)
_SGLANG_QUEUE = (
    *(0, 0.001, 0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1, 2, 3, 4, 5, 10, 15, 20, 30, 40, 50, 60, 70, 80, 90),
    *(100, 200, 300, 400, 500, 600, 700, 800, 900, 1000, 1200, 1400, 1600, 1800, 2000, 2500, 3000),
)


@frozen
class Buckets:
    """Bounds by what is measured: times in seconds, lengths in tokens. `fine_*` are ours, of any engine."""

    first_token: tuple[float, ...]
    inter_token: tuple[float, ...]
    request_latency: tuple[float, ...]
    queue: tuple[float, ...]
    tokens: tuple[float, ...]
    step_tokens: tuple[float, ...] = _STEP_TOKENS
    samples: tuple[float, ...] = _SAMPLES
    preemptions: tuple[float, ...] = _PREEMPTIONS
    fine_first_token: tuple[float, ...] = _FINE_FIRST_TOKEN
    fine_per_token: tuple[float, ...] = _FINE_PER_TOKEN
    reasoning: tuple[float, ...] = _REASONING


def buckets(kind: EngineKind, max_model_len: int) -> Buckets:
    """The bounds of an engine of `kind` (SGLang's, else vLLM's) with this longest context."""
    if kind is EngineKind.SGLANG:
        return Buckets(
            _SGLANG_FIRST_TOKEN, _SGLANG_INTER_TOKEN, _SGLANG_LATENCY, _SGLANG_QUEUE, _SGLANG_TOKENS
        )
    return Buckets(
        _FIRST_TOKEN, _INTER_TOKEN, _REQUEST_LATENCY, _REQUEST_LATENCY, _one_two_five(max_model_len)
    )


def _one_two_five(largest: int) -> tuple[int, ...]:
    """1, 2, 5, 10, 20, 50, ... up to `largest`."""
    bounds = (digit * 10**power for power in range(len(str(largest))) for digit in (1, 2, 5))
    return tuple(bound for bound in bounds if bound <= largest)
