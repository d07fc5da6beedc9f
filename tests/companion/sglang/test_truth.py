"""What is counted of a request, on SGLang's own bookkeeping calls."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from enginetop_companion.settings import Objective
from enginetop_companion.truth import PrometheusMetrics, RequestTruth
from enginetop_companion_sglang.truth import OUTCOMES, collected, count_with, taken_from_the_queue

LOG = logging.getLogger("tests.companion.sglang")


class Stats:
    """Of APIServerReqTimeStats."""

    def __init__(self, ttft: float, decode_seconds: float) -> None:
        self.ttft = ttft
        self.decode_seconds = decode_seconds

    def get_first_token_latency(self) -> float:
        return self.ttft

    def get_time_per_output_token(self, tokens: int) -> float | None:
        return None if tokens <= 1 else self.decode_seconds / (tokens - 1)


class Books:
    """A TokenizerManager whose requests are counted in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.manager = SimpleNamespace(rid_to_state={})
        metrics = PrometheusMetrics(self.registry)
        count_with(self.manager, RequestTruth(metrics, Objective(0.6, 0.05), OUTCOMES, LOG))

    def end(
        self,
        kind: str | None = "stop",
        *,
        ttft: float = 0.2,
        decode_seconds: float = 2.0,
        tokens: int = 101,
        finished: bool = True,
        asked_to_think: bool = False,
        reasoning: int = 0,
    ) -> None:
        state = SimpleNamespace(
            finished=finished,
            time_stats=Stats(ttft, decode_seconds),
            obj=SimpleNamespace(require_reasoning=asked_to_think),
        )
        batch = SimpleNamespace(
            finished_reasons=[None, {"type": kind} if kind else None],
            completion_tokens=[7, tokens],
            reasoning_tokens=[9, reasoning],
        )
        collected(None, self.manager, state, batch, 1)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"enginetop_{name}", labels)

    def outcomes(self) -> dict[str, float | None]:
        return {one: self.value("requests_total", outcome=one) for one in OUTCOMES}

    def within(self) -> float | None:
        return self.value("requests_within_slo_total", ttft_seconds="0.6", tpot_seconds="0.05")


def test_a_request_that_kept_both_times() -> None:
    books = Books()
    books.end()  # 2 s for 100 tokens after the first
    assert books.outcomes() == {"stop": 1, "length": 0, "abort": 0}
    assert (books.value("ttft_seconds_sum"), books.value("tpot_seconds_sum")) == (0.2, 0.02)
    assert books.within() == 1


@pytest.mark.parametrize(
    ("ttft", "decode_seconds", "tokens", "kept"),
    [
        (0.6, 5.0, 101, 1.0),  # both at their limits
        (0.601, 2.0, 101, 0.0),
        (0.2, 5.1, 101, 0.0),
        (0.2, 9.0, 1, 1.0),  # one token: there is no time between tokens
    ],
)
def test_the_objective(ttft: float, decode_seconds: float, tokens: int, kept: float) -> None:
    books = Books()
    books.end("length", ttft=ttft, decode_seconds=decode_seconds, tokens=tokens)
    assert books.within() == kept
    assert books.value("tpot_seconds_count") == (tokens > 1)


def test_an_abort_has_no_times() -> None:
    books = Books()
    books.end("abort", asked_to_think=True, reasoning=5)
    books.end("abort", tokens=0)
    assert books.outcomes() == {"stop": 0, "length": 0, "abort": 2}
    assert (books.value("ttft_seconds_count"), books.within()) == (0, 0)
    assert books.value("reasoning_tokens_count") == 0


def test_what_is_under_way_or_wrote_nothing_is_not_counted() -> None:
    books = Books()
    books.end(None, finished=False)
    books.end("length", tokens=0)  # a prompt that several samples share is put into the cache first
    assert books.outcomes() == {"stop": 0, "length": 0, "abort": 0}


def test_a_reason_that_a_later_version_may_add() -> None:
    books = Books()
    books.end("loop_detected")
    assert books.value("requests_total", outcome="loop_detected") == 1


@pytest.mark.parametrize(
    ("asked", "tokens", "counted"), [(True, 12, 1), (True, 0, 1), (False, 12, 1), (False, 0, 0)]
)
def test_reasoning(asked: bool, tokens: int, counted: int) -> None:
    books = Books()
    books.end(asked_to_think=asked, reasoning=tokens)
    assert books.value("reasoning_tokens_count") == counted
    assert books.value("reasoning_tokens_sum") == tokens * counted


def test_a_request_taken_out_of_the_queue() -> None:
    books = Books()
    books.manager.rid_to_state = {
        "a": SimpleNamespace(obj=SimpleNamespace(log_metrics=True)),
        "probe": SimpleNamespace(obj=SimpleNamespace(log_metrics=False)),
    }
    for rid in ("a", "probe", "ended before"):
        taken_from_the_queue(books.manager, SimpleNamespace(rid=rid))
    assert books.outcomes() == {"stop": 0, "length": 0, "abort": 1}


@pytest.mark.parametrize("broken", ["time_stats", "obj", "finished_reasons"])
def test_nothing_raises_and_it_is_said_once(caplog: pytest.LogCaptureFixture, broken: str) -> None:
    books = Books()
    state: Any = SimpleNamespace(finished=True, time_stats=Stats(0.1, 1.0), obj=SimpleNamespace())
    batch: Any = SimpleNamespace(
        finished_reasons=[{"type": "stop"}], completion_tokens=[5], reasoning_tokens=[1]
    )
    delattr(batch if broken == "finished_reasons" else state, broken)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            collected(None, books.manager, state, batch, 0)
        taken_from_the_queue(books.manager, SimpleNamespace())
    assert caplog.text.count("could not be counted") == 1


def test_an_embedding_and_a_manager_that_nobody_counts_at() -> None:
    books = Books()
    state = SimpleNamespace(finished=True, time_stats=Stats(0.1, 1.0), obj=SimpleNamespace())
    collected(None, books.manager, state, SimpleNamespace(finished_reasons=[{"type": "stop"}]), 0)
    assert books.outcomes()["stop"] == 0
    bare = SimpleNamespace(rid_to_state={})
    collected(None, bare, state, SimpleNamespace(), 0)
    taken_from_the_queue(bare, SimpleNamespace(rid="a"))
