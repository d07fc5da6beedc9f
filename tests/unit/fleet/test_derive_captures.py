"""Signals between two captured pages; expected figures worked out by hand from the captures' lines."""

from __future__ import annotations

import pytest

from collectors.feed import TargetFeed
from collectors.layout import LayoutCache
from enginetop.fleet.derive import signals
from enginetop.fleet.history import TargetHistory
from enginetop.fleet.model import Target
from enginetop.fleet.snapshot import Distribution, Quantile, Scalar, Signals
from tests.support.engine_pages import answer, fixture


@pytest.fixture(scope="module")
def found() -> Signals:
    """vLLM 0.32 with two API servers and K=4: idle, then 16 requests of 120 tokens each 10 s later."""
    feed, history = TargetFeed(Target("http://r1:8000", "r1"), LayoutCache()), TargetHistory(60)
    for at, name in ((100.0, "idle"), (110.0, "loaded")):
        page = answer("/metrics", fixture(f"vllm/0.32.0/vllm-0.32.0-spec-2api-{name}.prom"), at=at)
        reading = feed.take([page], at, 0.01).reading
        assert reading is not None
        history.append(reading)
    window = history.window(60)
    assert window is not None
    return signals(window)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("generation_tokens_per_second", 192.0),
        ("prompt_tokens_per_second", 160.0),
        ("requests_finished_per_second", 1.6),
        ("spec_acceptance_ratio", 1488 / 1552),
        ("spec_accepted_length", 1 + 1488 / 416),
        ("kv_capacity_tokens", 1280.0),
        ("requests_running", 0.0),
    ],
)
def test_scalars(found: Signals, name: str, expected: float) -> None:
    value = found[name]
    assert isinstance(value, Scalar)
    assert value.number == pytest.approx(expected)


def test_acceptance_by_position(found: Signals) -> None:
    value = found["spec_acceptance_per_position"]
    assert isinstance(value, Scalar)
    assert value.value == (400 / 416, 368 / 416, 368 / 416, 352 / 416)


def test_time_to_first_token(found: Signals) -> None:
    """Buckets: 2 up to .25, 8 up to .5, 8 up to 2.5, 16 up to 5."""
    ttft = found["ttft_seconds"]
    assert isinstance(ttft, Distribution)
    assert ttft.count == 16
    assert ttft.mean.value == pytest.approx(34.12338638305664 / 16)
    assert ttft.quantiles["p50"] == Quantile(0.5, 0.25, 0.5)
    p95 = ttft.quantiles["p95"]
    assert p95.value == pytest.approx(2.5 + 2.5 * (15.2 - 8) / 8)
    assert (p95.low, p95.high) == (2.5, 5.0)


def test_with_speculation_an_output_event_is_not_a_token(found: Signals) -> None:
    itl = found["itl_seconds"]
    assert isinstance(itl, Distribution)
    assert itl.count == 422  # for 1920 tokens
    assert "several tokens" in itl.note
