"""Negative, NaN and contradictory evidence: no rule suggests anything by it, and none fails."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginetop.fleet.model import Quality
from enginetop.fleet.signals import KNOBS
from enginetop.fleet.snapshot import Distribution, Quantile, ReplicaSnapshot, Scalar
from tests.unit.tuners import test_sequences, test_speculation, test_thinking
from tests.unit.tuners.test_token_budget import line, slow
from tuners.advice import RULES
from tuners.case import Case
from tuners.knob_values import Knobs
from tuners.step_time import StepWindow
from tuners.thoughts import Thoughts
from tuners.what_if import what_if

BUDGET, DRAFTS, THINKING, SEQUENCES = KNOBS
SEEN = Thoughts(test_thinking.LONG_TAIL.at_most, 4000.0)
ROOMY = test_sequences.roomy()
DRAFTING = test_speculation.drafting()
FULL = test_sequences.pressed()
CASES: Mapping[str, tuple[Case, str, tuple[str, ...]]] = {
    # a case with advice, its knob, and the signals that the advice rests on
    "lower budget": (
        Case(slow(), Knobs(8192, 256), line(), held_seconds=60.0),
        BUDGET,
        (
            "tpot_seconds",
            "ttft_seconds",
            "iteration_tokens",
            "requests_running",
            "requests_waiting",
            "kv_usage_ratio",
            "preemptions",
            "prompt_tokens_per_second",
        ),
    ),
    "fewer drafts": (
        Case(
            test_speculation.drafting(), test_speculation.KNOBS, test_speculation.steps(), held_seconds=60.0
        ),
        DRAFTS,
        ("tpot_seconds", "ttft_seconds", "generation_tokens_per_second", "prompt_tokens_per_second"),
    ),
    "cap on thoughts": (
        Case(test_thinking.pressed(), test_thinking.KNOBS, held_seconds=60.0, thoughts=SEEN),
        THINKING,
        (
            "reasoning_tokens",
            "reasoning_share_ratio",
            "preemptions",
            "kv_usage_ratio",
            "requests_waiting",
            "prompt_tokens",
            "output_tokens",
        ),
    ),
    "fewer seats": (
        Case(
            FULL,
            test_sequences.KNOBS,
            held_seconds=60.0,
            minutes=test_sequences.MINUTES,
        ),
        SEQUENCES,
        ("preemptions_per_second", "kv_usage_ratio", "prompt_tokens", "output_tokens", "requests_running"),
    ),
    "more seats": (
        Case(ROOMY, Knobs(8192, 32), held_seconds=60.0),
        SEQUENCES,
        ("requests_waiting", "requests_running", "kv_usage_ratio", "prompt_tokens", "output_tokens"),
    ),
}

BAD = st.one_of(st.just(math.nan), st.just(math.inf), st.just(-math.inf), st.floats(-1e12, -1e-9))
WHERE = st.sampled_from(("count", "p50", "p90", "p95", "p99", "all"))


def spoilt(one: ReplicaSnapshot, name: str, value: float, where: str) -> ReplicaSnapshot:
    """The replica with a figure of a signal replaced."""
    signal = one.signals[name]
    if isinstance(signal, Scalar):
        bad: Scalar | Distribution = replace(signal, value=value, mean=None)
    elif where == "count":
        bad = replace(signal, count=value)
    else:
        keys = tuple(signal.quantiles) if where == "all" else (where,)
        bad = replace(
            signal,
            quantiles={**signal.quantiles, **{key: Quantile(value, value, value) for key in keys}},
        )
    return replace(one, signals={**one.signals, name: bad})


@pytest.mark.parametrize("name", CASES)
def test_good_evidence_gives_advice(name: str) -> None:
    case, knob, _ = CASES[name]
    assert RULES[knob].advise(case).proposed is not None


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_figure_that_cannot_be(name: str, data: st.DataObject) -> None:
    case, knob, signals = CASES[name]
    signal, value, where = data.draw(st.sampled_from(signals)), data.draw(BAD), data.draw(WHERE)
    bad = replace(case, replica=spoilt(case.replica, signal, value, where))
    for rule in RULES.values():
        found = rule.advise(bad)
        assert math.isfinite(found.proposed or 0.0)
    found = RULES[knob].advise(bad)
    assert found.proposed is None, (signal, value, where, found)
    for one in KNOBS:
        outlook = what_if(bad, one, 100)
        assert all(map(math.isfinite, outlook.expected.values()))


@pytest.mark.parametrize("signal", ["tpot_seconds", "ttft_seconds", "iteration_tokens"])
def test_percentiles_that_fall(signal: str) -> None:
    case, knob, _ = CASES["lower budget"]
    p99 = case.replica.distribution(signal).quantiles["p99"].value or 0.0
    bad = replace(case, replica=spoilt(case.replica, signal, 2.0 * p99, "p50"))
    found = RULES[knob].advise(bad)
    assert (found.action, found.proposed) == ("withheld", None)
    assert found.because[-1] == f"{signal} has percentiles that fall: not to be believed"


@pytest.mark.parametrize(
    "at_most",
    [
        {1024.0: 1200.0, 4096.0: 900.0, math.inf: 2000.0},
        {1024.0: -5.0, 4096.0: 1900.0, math.inf: 2000.0},
        {1024.0: 1200.0, 4096.0: math.nan, math.inf: 2000.0},
        {1024.0: 1200.0, 4096.0: 1900.0, math.inf: math.inf},
    ],
)
def test_thoughts_that_contradict_each_other(at_most: Mapping[float, float]) -> None:
    case, knob, _ = CASES["cap on thoughts"]
    found = RULES[knob].advise(replace(case, thoughts=Thoughts(at_most, 4000.0)))
    assert (found.action, found.proposed) == ("withheld", None)


@pytest.mark.parametrize("positions", [(0.4, -0.1), (1.4, 0.2), (math.nan, 0.2), (0.2, 0.4)])
def test_acceptance_that_cannot_be(positions: tuple[float, ...]) -> None:
    case, knob, _ = CASES["fewer drafts"]
    told = Scalar(positions, "ratio", Quality.OK)
    one = replace(case.replica, signals={**case.replica.signals, "spec_acceptance_per_position": told})
    found = RULES[knob].advise(replace(case, replica=one))
    assert (found.action, found.proposed) == ("withheld", None)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 33), BAD, st.booleans())
def test_windows_that_cannot_be(place: int, value: float, in_time: bool) -> None:
    case, knob, _ = CASES["lower budget"]
    windows = list(case.windows)
    one = windows[place]
    windows[place] = StepWindow(one.tokens, value) if in_time else StepWindow(value, one.seconds)
    found = RULES[knob].advise(replace(case, windows=windows))
    assert found.proposed is None
