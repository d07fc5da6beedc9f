"""What a knob would do at another value, on replicas made by hand; figures worked out in the comments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginetop.fleet.model import ReplicaState
from enginetop.fleet.signals import KNOBS
from enginetop.fleet.snapshot import FleetSnapshot, Outlook
from tests.tui.snapshots import AT, fleet, no_distribution
from tests.unit.tuners import test_sequences, test_speculation, test_thinking
from tests.unit.tuners.test_token_budget import line, slow
from tuners.advice import Advisor
from tuners.case import Case
from tuners.draft_memory import Drafted, Speed
from tuners.knob_values import Knobs
from tuners.moments import Moment
from tuners.what_if import NO_CLAIM, what_if

BUDGET, DRAFTS, THINKING, SEQUENCES = KNOBS
SLOW = Case(slow(), Knobs(8192, 256), line())
"""Full steps of 8192 tokens break TPOT; a step takes 11.8 ms + 6.1 us a token."""
DRAFTING = Case(test_speculation.drafting(), test_speculation.KNOBS, test_speculation.steps())
THINKERS = Case(test_thinking.pressed(), test_thinking.KNOBS, thoughts=test_thinking.LONG_TAIL)
FULL = Case(test_sequences.roomy(), Knobs(8192, 32), line())
"""All 32 seats are taken, p90 of 3000 KV tokens each of 190 640."""


def said(found: Outlook) -> str:
    return " | ".join((found.action, *found.because, *found.limits))


def near(found: Outlook, expected: Mapping[str, float]) -> None:
    assert found.action == "predicted"
    assert dict(found.expected) == pytest.approx(dict(expected), rel=2e-3)


def test_a_smaller_token_budget() -> None:
    # as the suggestion of 6144 tells it: 11.8 + .0061 x 6144 = 49.278 ms a full step, and prefill takes
    # 1.06647 times as long, with the wait of a busier one 1.07059 times
    near(
        what_if(SLOW, BUDGET, 6144),
        {
            "tpot_p95_seconds_from": 0.061,
            "tpot_p95_seconds_low": 0.049278,
            "tpot_p95_seconds_high": 0.049278,
            "ttft_p95_change_low_ratio": 0.06647,
            "ttft_p95_change_high_ratio": 0.07059,
        },
    )
    assert "step time 11.8 ms + 6.1 µs/token (R² 1.00, 34 windows)" in what_if(SLOW, BUDGET, 6144).limits


def test_a_larger_token_budget_buys_ttft_and_may_cost_tpot() -> None:
    # Windows carry 6833 tokens, more than 85 % of 4096. At 8192 a full step takes 61.77 ms instead of 36.79;
    # prefill takes in 8128 / 61.771 = 131.58 tokens a ms instead of 4032 / 36.786 = 109.61: .8330 of the time
    quick = Case(slow(tpot=0.020, tokens=4096), Knobs(4096, 256), line())
    near(
        what_if(quick, BUDGET, 8192),
        {
            "tpot_p95_seconds_from": 0.020,
            "tpot_p95_seconds_low": 0.020,
            "tpot_p95_seconds_high": 0.06177,
            "ttft_p95_change_low_ratio": -0.1670,
            "ttft_p95_change_high_ratio": 0.0,
        },
    )


def test_a_budget_that_does_not_bind_changes_nothing() -> None:
    light = replace(SLOW, replica=slow(tokens=3000))
    assert what_if(light, BUDGET, 4096).because == (
        "steps carry at most 3000 tokens at p99: 4096 would not bind",
    )
    # the last twelve windows carry 8000 x (.125 + .875 x 27.5 / 33) = 6833 tokens, less than 6963
    assert what_if(SLOW, BUDGET, 9000).because == (
        "steps carry 6833 of 8192 tokens on average: the budget does not bind",
    )
    assert not what_if(SLOW, BUDGET, 9000).expected


def test_prefill_that_would_not_keep_up_has_no_figures() -> None:
    # 64 decode: 704 tokens in 11.8 + .0061 x 768 = 16.485 ms are 42706 a second; 60000 are asked for: 140 %
    busy = replace(SLOW, replica=slow({"prompt_tokens_per_second": 60_000}), knobs=Knobs(8192, 64))
    found = what_if(busy, BUDGET, 768)
    assert (found.action, dict(found.expected)) == ("predicted", {})
    assert found.because[-1].startswith("prompts need 60000 tokens/s, 140 % of what steps of 768 take in")


def test_drafts() -> None:
    # with four: 21.05 ms. With one: 13.33 ms by the dearest draft, 18.39 by the cheapest
    found = what_if(DRAFTING, DRAFTS, 1)
    near(found, {"tpot_change_low_ratio": 13.333 / 21.053 - 1, "tpot_change_high_ratio": 18.393 / 21.053 - 1})
    assert "a draft's cost is assumed, from 3 to 20 % of an empty step" in found.limits
    assert "1.40 tokens a step at 1" in found.because
    assert "is a guess" in said(what_if(DRAFTING, DRAFTS, 5))
    assert said(what_if(DRAFTING, DRAFTS, 6)) == "withheld | only 4 positions were observed"


def test_drafts_that_were_measured() -> None:
    # ten running at 500 tokens/s now, 600 without drafts: a fifth more
    recent = [Moment(AT + 10.0 * i, 10.0, 0.0, 0.5, 5000.0 * i) for i in range(7)]
    measured = replace(DRAFTING, recent=recent, drafted=Drafted(speeds={0: Speed(10.0, 600.0)}))
    near(what_if(measured, DRAFTS, 0), {"tokens_per_second_change_ratio": 0.2})


def test_thinking_budgets() -> None:
    # 6144 cuts 4 %, twice sqrt(.04 x .96 / 2000) = .876 points; what it frees is that of the suggestion
    found = what_if(THINKERS, THINKING, 6144)
    near(
        found,
        {
            "truncated_low_ratio": 0.03124,
            "truncated_high_ratio": 0.04876,
            "freed_tokens_per_request": 230.4,
            "kv_token_steps_change_ratio": -0.3834,
        },
    )
    assert NO_CLAIM in found.limits
    assert "4.0 to 4.0 % by the buckets alone" in found.limits
    # normal scores .25335 at 1024 and 1.28155 at 4096: half way, at 2048, .76745, above which lie 22.1 %
    risky = what_if(THINKERS, THINKING, 2048)
    assert risky.because[:2] == (
        "22.1 % of 2.0k requests thought longer",
        "below the p90 of thoughts: accuracy is at risk",
    )
    assert "10.0 to 40.0 % by the buckets alone" in risky.limits
    assert "it would not be suggested" in said(what_if(THINKERS, THINKING, 5376))


def test_more_and_fewer_seats() -> None:
    # 48 x 3000 of 190640 tokens are 75.5 %; 16 tokens more in a step of 6.1 us each: 20 ms and 98 us
    near(
        what_if(FULL, SEQUENCES, 48),
        {
            "running_from": 32.0,
            "running_high": 48.0,
            "kv_usage_high_ratio": 0.7553,
            "tpot_mean_seconds_from": 0.02,
            "tpot_mean_seconds_low": 0.020098,
            "tpot_mean_seconds_high": 0.020098,
        },
    )
    assert "8 of the 32 that ran at once would queue for a seat" in what_if(FULL, SEQUENCES, 24).because
    assert "more than fit: requests would be preempted" in what_if(FULL, SEQUENCES, 60).because
    unfit = what_if(replace(FULL, windows=()), SEQUENCES, 48)
    assert "tpot_mean_seconds_low" not in unfit.expected
    assert unfit.limits[0].startswith("nothing on TPOT: 0 busy windows")
    idle = what_if(replace(FULL, knobs=Knobs(8192, 64)), SEQUENCES, 48)
    assert idle.because == ("32 ran at once in the last minutes, of 64 seats: 48 would not bind",)


DOWN = slow(state=ReplicaState.DOWN)
LONE = Case(slow(), Knobs(), line())


@pytest.mark.parametrize(
    ("case", "knob", "value", "why"),
    [
        (SLOW, BUDGET, 0, "0 is no value of max_num_batched_tokens"),
        (SLOW, BUDGET, 200, "below its floor: max_num_seqs x (1 + k) = 256"),
        (SLOW, BUDGET, 512, "the fit reaches 667 to 12000 tokens a step, not 512"),
        (replace(SLOW, windows=()), BUDGET, 4096, "0 busy windows, a fit of the step time needs 8"),
        (replace(SLOW, replica=DOWN), BUDGET, 4096, "no fresh numbers: the replica is down"),
        (LONE, BUDGET, 4096, "max_num_batched_tokens is not known: neither the pages nor a knob API tell it"),
        (LONE, SEQUENCES, 64, "max_num_seqs is not known: neither the pages nor a knob API tell it"),
        (replace(SLOW, knobs=replace(SLOW.knobs, problem="mixed")), SEQUENCES, 64, "mixed"),
        (SLOW, DRAFTS, 2, "no drafts are made"),
        (DRAFTING, DRAFTS, -1, "-1 is no value of num_speculative_tokens"),
        (THINKERS, THINKING, 20_000, "20000 lies past 16.4k, the longest that is seen whole"),
        (replace(THINKERS, thoughts=None), THINKING, 4096, "reasoning_tokens of 0 requests so far"),
        (
            replace(THINKERS, knobs=Knobs(2048, 64, thinking=4096)),
            THINKING,
            8192,
            "what the budget of 4096 cuts was not seen whole",
        ),
        (
            replace(THINKERS, knobs=Knobs(2048, 64, thinking=4096)),
            THINKING,
            -1,
            "what the budget of 4096 cuts was not seen whole",
        ),
        (FULL, SEQUENCES, 9000, "every sequence must fit into a step of 8192 tokens"),
        (
            replace(FULL, replica=test_sequences.roomy({"output_tokens": no_distribution()})),
            SEQUENCES,
            48,
            "output_tokens is unknown",
        ),
    ],
)
def test_what_is_missing_is_named(case: Case, knob: str, value: int, why: str) -> None:
    found = what_if(case, knob, value)
    assert (found.action, found.value, dict(found.expected)) == ("withheld", value, {})
    assert found.because[0].startswith(why)


@pytest.mark.parametrize(("case", "knob"), [(SLOW, BUDGET), (DRAFTING, DRAFTS), (FULL, SEQUENCES)])
def test_the_value_that_it_has(case: Case, knob: str) -> None:
    now = {BUDGET: case.knobs.budget, DRAFTS: case.knobs.drafts, SEQUENCES: case.knobs.sequences}[knob]
    found = what_if(case, knob, now or 0)
    assert (found.action, found.because, dict(found.expected)) == ("predicted", ("it is as it is",), {})


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([SLOW, DRAFTING, THINKERS, FULL]), st.sampled_from(KNOBS), st.integers(-10, 100_000))
def test_ends_are_in_order_whatever_is_asked(case: Case, knob: str, value: int) -> None:
    found = what_if(case, knob, value)
    assert found.because
    assert found.action in ("predicted", "withheld")
    for name, low in found.expected.items():
        high = found.expected.get(name.replace("_low", "_high"), low)
        assert low <= high + 1e-12, found


def seen(at: float) -> FleetSnapshot:
    busy = slow(scraped_at=at)
    return fleet([busy], at=at)


def test_a_picture_of_the_past_is_not_told_of_the_present() -> None:
    advisor = Advisor()
    first, second = (advisor(seen(AT + after)).replicas[0] for after in (0.0, 30.0))
    assert first.what_if is not None
    assert second.what_if is not None
    assert "not known" in first.what_if(BUDGET, 4096).because[0]
    advisor(seen(AT + 61.0))
    assert first.what_if(BUDGET, 4096).because == ("the evidence of a picture of the past is not kept",)
    assert "not known" in second.what_if(BUDGET, 4096).because[0]
