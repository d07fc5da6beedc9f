"""The rule for the thinking budget, on replicas made by hand; figures worked out in the comments."""

from __future__ import annotations

import pytest

from enginetop.fleet.model import EngineKind, Quality, ReplicaState
from enginetop.fleet.snapshot import Advice, Distribution, Quantile, ReplicaSnapshot, SignalValue
from tests.tui.snapshots import no_distribution
from tests.unit.tuners.test_token_budget import slow
from tuners.case import Case
from tuners.knob_values import Knobs
from tuners.thinking import advise, calls

KNOBS = Knobs(2048, 64, thinking=-1, bounds={"thinking_token_budget": (-1, 32768)}, source="knob API")


BETWEEN_5000_AND_6000 = Quantile(5300, 5000, 6000)


def thoughts(
    p50: float = 700,
    p95: Quantile | float = BETWEEN_5000_AND_6000,
    p99: float = 14_000,
    count: float = 120,
) -> Distribution:
    """Distribution of reasoning tokens; a plain number is known exactly."""
    p95 = p95 if isinstance(p95, Quantile) else Quantile(p95, p95, p95)
    quantiles = {
        "p50": Quantile(p50, p50, p50),
        "p90": Quantile(2500, 2500, 2500),
        "p95": p95,
        "p99": Quantile(p99, p99, p99),
    }
    return Distribution(count, None, Quantile(1500), quantiles, "tokens", Quality.OK)


def pressed(
    changes: dict[str, float | SignalValue | None] | None = None, state: ReplicaState = ReplicaState.OK
) -> ReplicaSnapshot:
    """Preemptions, and a long tail of thoughts that make most of the output."""
    return slow(
        {
            "reasoning_tokens": thoughts(),
            "reasoning_share_ratio": 0.8,
            "preemptions": 12.0,
            "kv_usage_ratio": 0.98,
            "requests_waiting": 5,
            **(changes or {}),
        },
        state=state,
    )


def advice(one: ReplicaSnapshot, knobs: Knobs = KNOBS, held: float = 60.0) -> Advice:
    return advise(Case(one, knobs, held_seconds=held))


def test_the_upper_edge_of_the_p95_in_multiples_of_256() -> None:
    # p95 at most 6000: 23.4 x 256, so 6144; one in a hundred passes 14000: (14000 - 6144) / 100 = 78.6 tokens
    found = advice(pressed())
    assert (found.action, found.current, found.proposed, found.bound_by) == ("lower", -1, 6144, "kv")
    assert (found.apply, found.via) == ("live", "knob_api")
    assert found.expected["truncated_ratio_high"] == 0.05
    assert found.expected["freed_tokens_per_request_low"] == pytest.approx(78.56)
    assert "6144 cuts at most 5 % of requests, and frees 79 tokens a request or more" in found.because
    assert "accuracy is not measured here: try it on an evaluation of your own first" in found.because


def test_stock_engines_take_it_per_request() -> None:
    found = advice(pressed(), Knobs(2048, 64, engine=EngineKind.VLLM))
    assert (found.proposed, found.apply) == (6144, "per_request")
    assert found.via.startswith("thinking_token_budget")


@pytest.mark.parametrize(
    "one",
    [
        pressed({"preemptions": 0.0, "kv_usage_ratio": 0.5}),
        pressed({"preemptions": 0.0, "requests_waiting": 0}),
        pressed({"reasoning_share_ratio": 0.2}),
        pressed({"reasoning_tokens": thoughts(p99=8000)}),
    ],
)
def test_never_without_kv_pressure_and_a_tail_that_matters(one: ReplicaSnapshot) -> None:
    found = advice(one)
    assert (found.action, found.proposed) == ("hold", None)


def test_slow_answers_alone_are_no_reason() -> None:
    # TPOT breaks its objective here: a budget would "help", and is not suggested
    one = pressed({"preemptions": 0.0, "kv_usage_ratio": 0.4, "requests_waiting": 0})
    assert one.distribution("tpot_seconds").quantiles["p95"].value == 0.061
    found = advice(one)
    assert (found.action, found.because[-1]) == ("hold", "KV is not short: nothing is gained by a cap")


def test_a_budget_that_already_cuts_one_in_twenty_is_left() -> None:
    found = advice(pressed(), Knobs(2048, 64, thinking=6144))
    assert (found.action, found.proposed) == ("hold", None)
    assert found.because[-1] == "6144 already cuts one in twenty"


def test_a_budget_that_cuts_more_is_raised_when_there_is_room() -> None:
    capped = Knobs(2048, 64, thinking=1024)
    roomy: dict[str, float | SignalValue | None] = {"preemptions": 0.0, "kv_usage_ratio": 0.5}
    reached, not_reached = thoughts(p95=1000, p99=1010), thoughts(p95=990, p99=1010)
    found = advice(pressed({**roomy, "reasoning_tokens": reached}), capped)
    assert (found.action, found.proposed, found.confidence) == ("raise", 2048, "low")
    # 1000 is within the 32 tokens that closing a thought may take; 990 is not
    assert calls(Case(pressed({**roomy, "reasoning_tokens": not_reached}), capped)) is None
    short = advice(pressed({"reasoning_tokens": reached}), capped)
    assert (short.action, short.bound_by) == ("hold", "kv")


UNSUPPORTED = no_distribution(Quality.UNSUPPORTED)


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (pressed(state=ReplicaState.DOWN), "no fresh numbers"),
        (
            pressed({"reasoning_tokens": no_distribution(Quality.UNSUPPORTED)}),
            "reasoning_tokens is unsupported",
        ),
        (pressed({"reasoning_tokens": thoughts(count=59)}), "of 59 requests in the window, a p95 needs 60"),
        (pressed({"reasoning_tokens": thoughts(0, 0, 0)}), "nothing is thought"),
        (pressed({"reasoning_share_ratio": None}), "the share of reasoning is not known"),
        (
            pressed({"reasoning_tokens": thoughts(p95=Quantile(None, 6000, None, censored=True))}),
            "past the last bucket",
        ),
    ],
)
def test_what_is_missing_is_named(one: ReplicaSnapshot, words: str) -> None:
    found = advice(one)
    assert (found.action, found.proposed) == ("withheld", None)
    assert any(words in text for text in found.because)
