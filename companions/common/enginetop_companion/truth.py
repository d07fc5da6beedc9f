"""The counters of ended requests, and what an end adds to them. Names: the contract, section 6."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from enginetop_companion.settings import Objective

FAILED = frozenset({"abort", "error"})
"""Outcomes of requests that were not answered in full: no latency is taken from them."""

TTFT_BUCKETS = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.8),
    *(1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0),
)
TPOT_BUCKETS = (
    *(0.002, 0.003, 0.005, 0.0075, 0.01, 0.0125, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.06, 0.075),
    *(0.1, 0.125, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75, 1.0, 2.0),
)
REASONING_BUCKETS = (
    *(0, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096),
    *(6144, 8192, 12288, 16384, 24576, 32768, 65536, 131072),
)


@dataclass(frozen=True, slots=True)
class Times:
    """What a request took. `tpot_seconds` None: it had one token, and so no time between tokens."""

    ttft_seconds: float
    tpot_seconds: float | None


class Counter(Protocol):
    """Of prometheus_client: a counter with its labels bound."""

    def inc(self, amount: float = 1) -> None: ...


class Histogram(Protocol):
    """Of prometheus_client: a histogram with its labels bound."""

    def observe(self, amount: float) -> None: ...


class Metrics(Protocol):
    """The five families, on whichever registry."""

    ttft: Histogram
    tpot: Histogram
    reasoning: Histogram

    def requests(self, outcome: str) -> Counter: ...

    def within(self, objective: Objective) -> Counter: ...


class PrometheusMetrics:
    """The families on a registry of prometheus_client.

    In its multiprocess mode that library itself adds all processes up.
    """

    def __init__(self, registry: Any) -> None:
        import prometheus_client as prometheus

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return prometheus.Histogram(name, text, buckets=buckets, registry=registry)

        self.ttft = histogram(
            "enginetop_ttft_seconds", "Time to first token, completed requests.", TTFT_BUCKETS
        )
        self.tpot = histogram("enginetop_tpot_seconds", "Time per output token, same.", TPOT_BUCKETS)
        self.reasoning = histogram(
            "enginetop_reasoning_tokens", "Reasoning of chat requests where known.", REASONING_BUCKETS
        )
        self._requests = prometheus.Counter(
            "enginetop_requests", "Ended requests.", ["outcome"], registry=registry
        )
        self._within = prometheus.Counter(
            "enginetop_requests_within_slo",
            "Completed requests that kept both times.",
            ["ttft_seconds", "tpot_seconds"],
            registry=registry,
        )

    def requests(self, outcome: str) -> Counter:
        """The counter of one outcome."""
        return self._requests.labels(outcome)

    def within(self, objective: Objective) -> Counter:
        """The counter of one objective."""
        return self._within.labels(str(objective.ttft_seconds), str(objective.tpot_seconds))


@functools.cache
def process_metrics() -> PrometheusMetrics:
    """The families on the default registry, which /metrics shows; it takes each name only once."""
    from prometheus_client import REGISTRY

    return PrometheusMetrics(REGISTRY)


class RequestTruth:
    """Counts ended requests. Its methods never raise: the engine's output loop would die with them."""

    def __init__(
        self, metrics: Metrics, objective: Objective, outcomes: Iterable[str], log: logging.Logger
    ) -> None:
        self._metrics = metrics
        self._by_outcome = {outcome: metrics.requests(outcome) for outcome in outcomes}
        self._log = log
        self._complained = False
        self.set_objective(objective)

    def set_objective(self, objective: Objective) -> None:
        """Judge by `objective` from now on; its counter shows at once, at 0."""
        self.objective = objective
        self._within = self._metrics.within(objective)

    def ended(self, outcome: str, read: Callable[[], Times]) -> None:
        """A request has ended. `read` is asked for its times only when it was answered in full."""
        try:
            self._count(outcome, 1)
            if outcome in FAILED:
                return
            times = read()
            self._metrics.ttft.observe(times.ttft_seconds)
            kept = times.ttft_seconds <= self.objective.ttft_seconds
            if times.tpot_seconds is not None:
                self._metrics.tpot.observe(times.tpot_seconds)
                kept = kept and times.tpot_seconds <= self.objective.tpot_seconds
            if kept:
                self._within.inc()
        except Exception as error:  # noqa: BLE001 - see the class
            self.complain(error)

    def aborted(self, requests: int) -> None:
        """Requests whose client went away, or that were taken off by an operator."""
        try:
            if requests:
                self._count("abort", requests)
        except Exception as error:  # noqa: BLE001 - see the class
            self.complain(error)

    def reasoned(self, tokens: int | None, *, text_seen: bool) -> None:
        """The parser's count for one response. None, or 0 with reasoning text, is unknown: not counted."""
        try:
            if tokens is not None and (tokens > 0 or not text_seen):
                self._metrics.reasoning.observe(tokens)
        except Exception as error:  # noqa: BLE001 - see the class
            self.complain(error)

    def complain(self, error: Exception) -> None:
        """Say once that a request could not be counted."""
        if not self._complained:
            self._complained = True
            self._log.warning("enginetop companion: a request could not be counted (said once): %r", error)

    def _count(self, outcome: str, requests: int) -> None:
        counter = self._by_outcome.get(outcome)
        if counter is None:  # a reason that a later version may add
            counter = self._by_outcome[outcome] = self._metrics.requests(outcome)
        counter.inc(requests)
