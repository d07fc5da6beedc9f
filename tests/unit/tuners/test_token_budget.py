"""The rule for the token budget, on replicas made by hand; figures worked out in the comments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginetop.fleet.model import Quality, ReplicaState
from enginetop.fleet.snapshot import Advice, Distribution, Quantile, ReplicaSnapshot, SignalValue, Slo
from tests.tui.snapshots import distribution, exact, no_distribution, replica, scalar
from tuners.case import Case
from tuners.knob_values import Knobs
from tuners.step_time import StepWindow
from tuners.token_budget import advise, calls

SLO = Slo(ttft_seconds=0.6, tpot_seconds=0.05)
HELD = 60.0
KNOBS = Knobs(8192, 256, 0, bounds={"max_num_batched_tokens": (256, 8192)}, source="knob API")


def steps(p99: float) -> Distribution:
    return distribution(p99, p99, count=900)


def _median(usual: float, p95: float | Quantile) -> float:
    """The usual median, or the p95 where that is less."""
    highest = p95 if isinstance(p95, float) else p95.value
    return usual if highest is None else min(usual, highest)


def slow(
    changes: dict[str, float | SignalValue | None] | None = None,
    *,
    tpot: float | Quantile = 0.061,
    ttft: float | Quantile = 0.25,
    tokens: float = 7900,
    state: ReplicaState = ReplicaState.OK,
    **fields: Any,
) -> ReplicaSnapshot:
    """A replica whose full steps break TPOT while TTFT has slack."""
    values: dict[str, float | SignalValue | None] = {
        "tpot_seconds": distribution(_median(0.03, tpot), tpot),
        "ttft_seconds": distribution(_median(0.1, ttft), ttft),
        "iteration_tokens": steps(tokens),
        "prompt_tokens": distribution(1200, 7000),
        "prompt_tokens_per_second": 7200,
        "prefix_hit_ratio": 0.0,
        "requests_running": 64,
        "preemptions": 0,
        **(changes or {}),
    }
    return replica("b1", state, changes=values, slo=SLO, **fields)


def line(base: float = 0.0118, per_token: float = 6.1e-6, top: float = 8000.0) -> list[StepWindow]:
    """34 windows from an eighth of `top` to `top`."""
    tokens = [top * (1 / 8 + 7 / 8 * i / 33) for i in range(34)]
    return [StepWindow(n, base + per_token * n) for n in tokens]


def advice(
    one: ReplicaSnapshot | None = None,
    knobs: Knobs = KNOBS,
    windows: Sequence[StepWindow] | None = None,
    held: float = HELD,
) -> Advice:
    return advise(Case(one or slow(), knobs, line() if windows is None else windows, held_seconds=held))


def test_the_suggestion_of_the_screens() -> None:
    # (50 - 11.8) / 0.0061 = 6262 tokens, 24 x 256 = 6144: 11.8 + 0.0061 x 6144 = 49.28 ms
    found = advice()
    assert (found.knob, found.action, found.current, found.proposed) == (
        "max_num_batched_tokens",
        "lower",
        8192,
        6144,
    )
    assert (found.bound_by, found.apply, found.via) == ("token_budget", "live", "knob_api")
    assert found.because == (
        "TPOT p95 61 ms breaks the 50 ms SLO; TTFT p95 250 ms has 58 % slack",
        "steps carry 7900 of 8192 tokens at p99",
        "step time 11.8 ms + 6.1 µs/token (R² 1.00, 34 windows): 49.3 at 6144",
        "a prompt of 7.0k (p95) takes 2 steps instead of 1",  # room 8128 and 6080 beside 64 decoding
        "wrong if prompts pass 16.5k tokens on average (now 1.2k)",
    )


def test_the_effect_worked_out_by_hand() -> None:
    # A full step takes 11.8 + 0.0061 x 6144 = 49.278 ms, without any scatter in the windows.
    # Prefill: 6080 tokens in 49.278 ms against 8128 in 61.771 ms: 1.06647 times as long for each token. Its
    # use goes from 7200 / 131582 = 5.472 % to 5.836 %: wait x 0.94528 / 0.94164 = 1.00386; 1.07059 in all.
    expected = advice().expected
    assert expected["tpot_p95_seconds_from"] == 0.061
    assert expected["tpot_p95_seconds_low"] == pytest.approx(0.049278, abs=2e-6)
    assert expected["tpot_p95_seconds_high"] == pytest.approx(0.049278, abs=2e-6)
    assert expected["ttft_p95_change_low_ratio"] == pytest.approx(0.06647, abs=2e-5)
    assert expected["ttft_p95_change_high_ratio"] == pytest.approx(0.07059, abs=2e-5)


def test_scatter_widens_the_effect() -> None:
    noisy = [
        StepWindow(one.tokens, one.seconds + (0.002 if i % 2 else -0.002)) for i, one in enumerate(line())
    ]
    calm, wide = advice().expected, advice(windows=noisy).expected
    for low, high in (
        ("tpot_p95_seconds_low", "tpot_p95_seconds_high"),
        ("ttft_p95_change_low_ratio", "ttft_p95_change_high_ratio"),
    ):
        assert wide[high] - wide[low] > calm[high] - calm[low]
    assert wide["tpot_p95_seconds_high"] <= 0.061


def test_the_guides_engine_is_told_6144() -> None:
    # t0 = 12 ms, 6 us a token, SLO 50 ms: 6333, 6144 in multiples of 256
    assert advice(windows=line(0.012, 6e-6)).proposed == 6144


@pytest.mark.parametrize(
    ("one", "knobs", "windows", "held", "action", "words", "bound_by"),
    [
        (slow(tpot=0.04), KNOBS, None, HELD, "hold", "TPOT p95 40 ms is within the 50 ms SLO", "unknown"),
        (
            slow(ttft=0.9),
            KNOBS,
            None,
            HELD,
            "hold",
            "TPOT p95 61 ms breaks the 50 ms SLO; so does TTFT p95 900 ms the 600 ms SLO: capacity, not the",
            "capacity",
        ),
        (slow(tpot=0.04, ttft=0.9), KNOBS, None, HELD, "hold", "steps carry 6833 of 8192 tokens on", ""),
        (slow(ttft=0.45), KNOBS, None, HELD, "hold", "TTFT needs 75 % of its SLO, at most 70 %", "capacity"),
        (slow(tokens=7000), KNOBS, None, HELD, "hold", "7000 of 8192 tokens at p99: the budget", "unknown"),
        (slow(), KNOBS, None, 22.0, "withheld", "seen for 22 s, a suggestion needs 60 s", "unknown"),
        (slow(), KNOBS, line()[:5], HELD, "withheld", "5 busy windows", "unknown"),
        (
            slow(),
            KNOBS,
            line(top=4000),
            HELD,
            "withheld",
            "reaches 333 to 6000 tokens a step, the fit asks for 6144",
            "",
        ),
        (slow(tpot=0.07), KNOBS, None, HELD, "hold", "a full step explains 62 ms of it: something else", ""),
        (
            slow(tpot=0.06),
            KNOBS,
            line(0.055, 1e-6),
            HELD,
            "hold",
            "even an empty step takes 55 ms",
            "capacity",
        ),
        (slow(), KNOBS, line(0.0464, 6e-6), HELD, "withheld", "the fit asks for 512", "unknown"),
        (
            slow(tpot=0.0505),
            KNOBS,
            line(0.008, 5e-6),
            HELD,
            "hold",
            "by the fit a full step meets the SLO: 49 ms",
            "unknown",
        ),
        (slow(), replace(KNOBS, budget=None), None, HELD, "withheld", "is not known", "unknown"),
        (slow(), replace(KNOBS, problem="mixed configuration: 1 of 2"), None, HELD, "withheld", "mixed", ""),
        (slow(), Knobs(8192), None, HELD, "withheld", "max_num_seqs is not known", "unknown"),
        (
            slow({"spec_accepted_length": 1.0}),
            replace(KNOBS, sequences=1024, drafts=7),
            None,
            HELD,
            "hold",
            "the budget is at its floor: max_num_seqs x (1 + k) = 8192",
            "unknown",
        ),
        (
            # 6080 tokens in 49.28 ms are 123381/s, of which 80 % is 98705
            slow({"prompt_tokens_per_second": 110_000}),
            KNOBS,
            None,
            HELD,
            "hold",
            "prompts need 110000 tokens/s, 89 % of what steps of 6144 take in (at most 80 %)",
            "prefill",
        ),
        (
            # 4000 decode: 49.278 ms for 2144 prompt tokens instead of 61.771 for 4192, 1.56 times as long
            slow({"requests_running": 4000, "prompt_tokens_per_second": 100}, ttft=0.41),
            KNOBS,
            None,
            HELD,
            "hold",
            "steps of 6144 would take TTFT p95 to 640 ms, past its 600 ms SLO",
            "capacity",
        ),
        (slow({"requests_running": 6200}), KNOBS, None, HELD, "hold", "leave no room for prefill", "prefill"),
    ],
)
def test_no_change_and_why(
    one: ReplicaSnapshot,
    knobs: Knobs,
    windows: Sequence[StepWindow] | None,
    held: float,
    action: str,
    words: str,
    bound_by: str,
) -> None:
    found = advice(one, knobs, windows, held)
    assert (found.action, found.proposed, found.apply) == (action, None, "none")
    assert words in found.because[-1]
    assert not bound_by or found.bound_by == bound_by
    assert found.expected == {}


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (slow(state=ReplicaState.NO_PROGRESS), "no progress"),
        (slow(state=ReplicaState.STALE), "the replica is stale"),
        (slow(state=ReplicaState.DOWN), "the replica is down"),
        (
            slow({"tpot_seconds": no_distribution(Quality.UNSUPPORTED, "since 0.11")}),
            "tpot_seconds is unsupported: since 0.11",
        ),
        (slow({"ttft_seconds": distribution(0.1, 0.2, count=59)}), "ttft_seconds has 59 observations"),
        (slow({"tpot_seconds": distribution(0.1, 0.2, count=0)}), "tpot_seconds has 0 observations"),
        (slow({"iteration_tokens": no_distribution(Quality.SUSPECT)}), "iteration_tokens is suspect"),
    ],
)
def test_evidence_that_is_not_good_enough_withholds(one: ReplicaSnapshot, words: str) -> None:
    found = advice(one)
    assert found.action == "withheld"
    assert words in found.because[0]


def test_never_below_the_floor() -> None:
    # 256 sequences with 4 drafts: 1280; 1408 with a companion that wants more
    # by the fit (50 - 43.8) / 0.006 = 1033 tokens
    knobs = replace(KNOBS, budget=1536, sequences=256, drafts=4)
    one = slow({"requests_running": 100, "spec_accepted_length": 1.0}, tokens=1500, tpot=0.0525)
    found = advice(one, knobs, line(0.0438, 6.0e-6, top=1500))
    assert (found.action, found.proposed) == ("lower", 1280)
    assert "no lower than 1280: every sequence must fit into a step" in found.because
    found = advice(
        one, replace(knobs, bounds={"max_num_batched_tokens": (1408, 8192)}), line(0.0438, 6.0e-6, top=1500)
    )
    assert found.proposed == 1408


def test_a_floor_that_helps_nobody() -> None:
    # a full step of 1280 takes 43.8 + 0.006 x 1280 = 51.5 ms, and TPOT is 51 ms already
    knobs = replace(KNOBS, budget=1536, sequences=256, drafts=4)
    one = slow({"requests_running": 100, "spec_accepted_length": 1.0}, tokens=1500, tpot=0.051)
    found = advice(one, knobs, line(0.0438, 6.0e-6, top=1500))
    assert (found.action, found.because[-1]) == ("hold", "at the floor of 1280 a full step takes 51 ms")


def test_speculation_gives_a_step_more_time() -> None:
    # 2 tokens a step: steps of 100 ms meet 50 ms a token; (100 - 11.8) / 0.0122 = 7229 -> 7168
    knobs = replace(KNOBS, drafts=3, sequences=128)
    one = slow({"spec_accepted_length": scalar(2.0), "requests_running": 32}, tpot=0.055)
    found = advice(one, knobs, line(0.0118, 12.2e-6))
    assert (found.action, found.proposed) == ("lower", 7168)
    # (11.8 + 0.0122 x 7168) / 2 = 49.62 ms a token at most
    assert found.expected["tpot_p95_seconds_high"] == pytest.approx(0.04962, abs=1e-5)


def test_without_a_knob_api_it_takes_a_restart() -> None:
    found = advice(knobs=Knobs(8192, 256, source="/server_info"))
    assert (found.action, found.apply, found.via) == ("lower", "restart", "")


@pytest.mark.parametrize(
    ("tpot", "changes", "confidence"),
    [
        (exact(0.061), {}, "high"),
        (Quantile(0.061, 0.05, 0.075), {}, "high"),
        (Quantile(0.061, 0.025, 0.075), {}, "medium"),  # the bucket does not tell that 50 ms is broken
        (exact(0.061), {"preemptions": 3.0}, "low"),
    ],
)
def test_confidence(tpot: Quantile, changes: dict[str, float], confidence: str) -> None:
    found = advice(slow({**changes}, tpot=tpot))
    assert (found.action, found.confidence) == ("lower", confidence)
    assert ("preempted" in " ".join(found.because)) == bool(changes)


def test_hits_that_prefill_lives_on_are_named() -> None:
    # 300000 tokens/s with 70 % of them cached: 90000 to prefill. 98705 at most: hits from
    # 1 - 98705 / 300000 = 67 %, or prompts of 1200 x 98705 / 90000 = 1316
    one = slow({"prompt_tokens_per_second": 300_000, "prefix_hit_ratio": 0.7})
    assert advice(one).because[-1] == (
        "wrong if prompts pass 1.3k tokens on average (now 1.2k) or prefix hits fall below 67 %"
    )


def test_a_tpot_past_the_last_bucket_breaks_at_least() -> None:
    assert calls(Case(slow(tpot=Quantile(None, 0.08, None, censored=True)), KNOBS)) == "lower"
    found = advice(slow(tpot=Quantile(None, 0.08, None, censored=True)))
    assert found.because[0].startswith("TPOT p95 over 80 ms breaks")


@settings(max_examples=60, deadline=None)
@given(
    tpot=st.floats(0.001, 0.2),
    ttft=st.floats(0.01, 2.0),
    tokens=st.floats(1, 20_000),
    running=st.floats(0, 4000),
    arriving=st.one_of(st.none(), st.floats(0, 200_000)),
    budget=st.integers(1, 16_384),
    sequences=st.one_of(st.none(), st.integers(1, 1024)),
    drafts=st.integers(0, 7),
    base=st.floats(0.0, 0.08),
    per_token=st.floats(1e-9, 1e-4),
    top=st.floats(10, 16_384),
)
def test_a_suggestion_is_in_bounds_and_explained(
    tpot: float,
    ttft: float,
    tokens: float,
    running: float,
    arriving: float | None,
    budget: int,
    sequences: int | None,
    drafts: int,
    base: float,
    per_token: float,
    top: float,
) -> None:
    one = slow(
        {"requests_running": running, "prompt_tokens_per_second": arriving},
        tpot=tpot,
        ttft=ttft,
        tokens=tokens,
    )
    knobs = Knobs(budget, sequences, drafts)
    found = advice(one, knobs, line(base, per_token, top))
    assert found.because
    if found.action == "raise":
        assert found.proposed is not None
        assert budget < found.proposed <= 2 * budget
        assert ttft > 0.6
        assert tpot <= 0.7 * 0.05
        return
    if found.action != "lower":
        assert found.proposed is None
        return
    assert found.proposed is not None
    assert knobs.floor is not None
    assert knobs.floor <= found.proposed < budget
    assert tpot > 0.05
    assert ttft <= 0.7 * 0.6
    assert found.expected["tpot_p95_seconds_low"] <= found.expected["tpot_p95_seconds_high"] <= tpot
    assert found.expected["ttft_p95_change_low_ratio"] <= found.expected["ttft_p95_change_high_ratio"]
