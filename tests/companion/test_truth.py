"""What is counted of a request, on vLLM's own bookkeeping calls."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from enginetop_companion.settings import Objective
from enginetop_companion.truth import PrometheusMetrics, RequestTruth
from enginetop_companion_vllm.truth import OUTCOMES, finished, watch_output

LOG = logging.getLogger("tests.companion")
TTFT = "enginetop_ttft_seconds"
TPOT = "enginetop_tpot_seconds"


class Books:
    """A registry and the truth that writes to it."""

    def __init__(self, ttft: float = 0.6, tpot: float = 0.05) -> None:
        self.registry = CollectorRegistry()
        self.truth = RequestTruth(PrometheusMetrics(self.registry), Objective(ttft, tpot), OUTCOMES, LOG)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)

    def outcome(self, outcome: str) -> float | None:
        return self.value("enginetop_requests_total", outcome=outcome)

    def within(self, ttft: float = 0.6, tpot: float = 0.05) -> float | None:
        labels = {"ttft_seconds": str(ttft), "tpot_seconds": str(tpot)}
        return self.value("enginetop_requests_within_slo_total", **labels)


def request(ttft: float = 0.2, first: float = 10.0, last: float = 12.0, tokens: int = 101) -> Any:
    stats = SimpleNamespace(
        first_token_latency=ttft, first_token_ts=first, last_token_ts=last, num_generation_tokens=tokens
    )
    return SimpleNamespace(stats=stats, detokenizer=object())


def test_families_show_before_the_first_request() -> None:
    books = Books()
    assert [books.outcome(one) for one in ("stop", "length", "abort", "error", "repetition")] == [0.0] * 5
    assert books.within() == 0.0
    assert books.value(f"{TTFT}_count") == 0.0


def test_a_request_that_keeps_both_times() -> None:
    books = Books()
    finished(books.truth, request(), "stop")  # (12 - 10) / 100 = 0.02 s a token
    assert (books.outcome("stop"), books.within()) == (1.0, 1.0)
    assert books.value(f"{TTFT}_sum") == pytest.approx(0.2)
    assert books.value(f"{TPOT}_sum") == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("ended", "within"),
    [
        (request(ttft=0.6, last=15.0), 1.0),  # both exactly at the limit: 5 s / 100
        (request(ttft=0.61), 0.0),
        (request(last=15.1), 0.0),
        (request(ttft=0.61, last=15.1), 0.0),
        (request(tokens=1, last=10.0), 1.0),  # one token: there is no time per further token
        (request(tokens=0, last=10.0), 1.0),
    ],
)
def test_both_times_count_together(ended: Any, within: float) -> None:
    books = Books()
    finished(books.truth, ended, "length")
    assert books.within() == within
    assert books.value(f"{TPOT}_count") == (1.0 if ended.stats.num_generation_tokens > 1 else 0.0)


@pytest.mark.parametrize("outcome", ["abort", "error"])
def test_a_request_not_answered_in_full_has_no_latency(outcome: str) -> None:
    books = Books()
    finished(books.truth, request(), outcome)
    assert (books.outcome(outcome), books.within(), books.value(f"{TTFT}_count")) == (1.0, 0.0, 0.0)


def test_pooling_and_unkept_statistics_are_not_counted() -> None:
    books = Books()
    finished(books.truth, SimpleNamespace(stats=None, detokenizer=object()), "stop")
    finished(books.truth, SimpleNamespace(stats=request().stats, detokenizer=None), "stop")
    assert books.outcome("stop") == 0.0


def test_a_new_objective_has_a_counter_of_its_own() -> None:
    books = Books()
    finished(books.truth, request(ttft=0.3), "stop")
    books.truth.set_objective(Objective(0.25, 0.05))
    assert books.within(0.25, 0.05) == 0.0
    finished(books.truth, request(ttft=0.3), "stop")
    finished(books.truth, request(ttft=0.2), "stop")
    assert (books.within(), books.within(0.25, 0.05)) == (1.0, 1.0)


def test_an_outcome_of_a_later_version() -> None:
    books = Books()
    finished(books.truth, request(), "paused")
    assert books.outcome("paused") == 1.0


@pytest.mark.parametrize(
    ("tokens", "text", "counted"),
    [
        (12, True, 1.0),
        (12, False, 1.0),
        (0, False, 1.0),
        (0, True, 0.0),
        (None, True, 0.0),
        (None, False, 0.0),
    ],
)
def test_zero_reasoning_with_text_is_unknown(tokens: int | None, text: bool, counted: float) -> None:
    books = Books()
    books.truth.reasoned(tokens, text_seen=text)
    assert books.value("enginetop_reasoning_tokens_count") == counted


def test_nothing_raises_and_it_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    books = Books()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            finished(books.truth, SimpleNamespace(), "stop")
            books.truth.reasoned("many", text_seen=False)  # type: ignore[arg-type]
    assert caplog.text.count("could not be counted") == 1


class FakeProcessor:
    """vLLM's OutputProcessor: `finish` and `gone` are the ways in which its requests end."""

    log_stats = True

    def __init__(self) -> None:
        self.booked: list[object] = []
        self.known = {"a", "b", "p1", "p2"}
        self.children = {"p": ["p1", "p2"]}

    def finish(self, one: Any, reason: object) -> None:
        self._update_stats_from_finished(one, reason, object())

    def _update_stats_from_finished(self, one: Any, reason: object, iteration: object) -> None:
        self.booked.append(reason)

    def abort_requests(self, request_ids: Iterable[str], internal: bool) -> list[str]:
        gone = []
        for one in request_ids:
            if one in self.known:
                self.known.remove(one)
                gone.append(one)
            elif one in self.children:
                gone.extend(self.abort_requests(self.children.pop(one), internal=True))
        return gone


def test_the_wrapped_processor_still_does_its_own_work() -> None:
    books, processor = Books(), FakeProcessor()
    watch_output(processor, books.truth)
    processor.finish(request(), "length")
    assert processor.booked == ["length"]
    assert books.outcome("length") == 1.0
    assert processor.abort_requests(["a", "unknown"], internal=False) == ["a"]
    assert books.outcome("abort") == 1.0


def test_the_sequences_of_one_request_are_counted_once_each() -> None:
    books, processor = Books(), FakeProcessor()
    watch_output(processor, books.truth)
    assert processor.abort_requests(["p"], True) == ["p1", "p2"]
    assert processor.abort_requests(["p", "p1"], internal=True) == []
    assert books.outcome("abort") == 2.0
