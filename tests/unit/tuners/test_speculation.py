"""The rule for draft tokens, on replicas made by hand; figures worked out in the comments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from enginetop.fleet.model import Quality, ReplicaState
from enginetop.fleet.snapshot import Advice, ReplicaSnapshot, Scalar, SignalValue
from tests.tui.snapshots import distribution
from tests.unit.tuners.test_token_budget import line, slow
from tuners.case import Case
from tuners.draft_memory import Drafted, Speed, speed_of
from tuners.knob_values import Knobs
from tuners.moments import Moment
from tuners.speculation import advise, calls
from tuners.step_time import StepWindow, Unfit, fit_step_time

KNOBS = Knobs(2048, 256, 4, bounds={"num_speculative_tokens": (0, 4)}, source="knob API")
POOR, GOOD = (0.40, 0.16, 0.06, 0.02), (0.85, 0.72, 0.60, 0.50)


def drafting(
    positions: Sequence[float] = POOR,
    generated: float = 2000.0,
    changes: dict[str, float | SignalValue | None] | None = None,
    state: ReplicaState = ReplicaState.OK,
) -> ReplicaSnapshot:
    """A replica that drafts four tokens, with prompts that come from the cache alone."""
    return slow(
        {
            "spec_acceptance_per_position": Scalar(tuple(positions), "ratio", Quality.OK),
            "spec_accepted_length": 1.0 + sum(positions),
            "generation_tokens_per_second": generated,
            "prompt_tokens_per_second": 0.0,
            **(changes or {}),
        },
        state=state,
    )


def steps(base: float = 0.024, per_token: float = 5e-5) -> list[StepWindow]:
    return line(base, per_token, top=600)


def advice(
    one: ReplicaSnapshot | None = None,
    knobs: Knobs = KNOBS,
    windows: Sequence[StepWindow] | None = None,
    more: Mapping[str, Any] | None = None,
) -> Advice:
    found = Case(one or drafting(), knobs, steps() if windows is None else windows, held_seconds=60.0)
    return advise(replace(found, **(more or {})))


def test_poor_drafts_under_load_are_cut_to_one() -> None:
    # 24 ms at 4 drafts: with a tenth of an empty step each, 24 / 1.4 = 17.14 ms and 1.714 ms a draft.
    # 2000 tokens/s at 50 us: k = 0 loads .1: 17.14 / .9 = 19.05 ms; k = 1: AL 1.4, .1 x 2 / 1.4 = .1429:
    # 18.857 / .8571 / 1.4 = 15.71 ms; k = 4: AL 1.64, .1 x 5 / 1.64 = .3049: 24 / .6951 / 1.64 = 21.05 ms.
    found = advice()
    assert (found.action, found.current, found.proposed) == ("lower", 4, 1)
    assert (found.apply, found.via, found.bound_by) == ("live", "knob_api", "decode")
    assert found.because[0] == "accepted by position .40 .16 .06 .02: 1.64 tokens a step"
    assert found.because[1].startswith("mean TPOT by drafts 0: 19.0 ms, 1: 15.7 ms")
    assert "4: 21.1 ms" in found.because[1]
    # the dearest draft: 24 / 1.8 = 13.33 + 2.667 k: k = 1: 16 / .8571 / 1.4 = 13.33 ms; k = 4 as before
    # the cheapest: 24 / 1.12 = 21.43 + .643 k: 22.07 / 1.2 = 18.39 ms: -12.6 %
    assert found.expected["tpot_change_low_ratio"] == pytest.approx(13.333 / 21.053 - 1, abs=1e-3)
    assert found.expected["tpot_change_high_ratio"] == pytest.approx(18.393 / 21.053 - 1, abs=1e-3)


def test_good_drafts_at_a_small_load_stay() -> None:
    found = advice(drafting(GOOD, generated=200.0))
    assert (found.action, found.proposed) == ("hold", None)
    assert found.because[-1] == "no other number of drafts is worth 5 % of TPOT at this traffic"


def test_one_more_is_a_guess_and_said_to_be_one() -> None:
    # k = 2 of a good drafter, .85 .80: the third guessed at .8 x .8 / .85 = .7529. By the dearest draft
    # 24 / 1.4 = 17.14 + 3.43 k, load .01 / AL x (1 + k): k = 2: 24 / 2.65 / .98868 = 9.160 ms;
    # k = 3: 27.43 / 3.403 / .98825 = 8.156 ms: 11 % less
    one = drafting((0.85, 0.80), generated=200.0)
    found = advice(one, replace(KNOBS, drafts=2))
    assert (found.action, found.proposed, found.confidence) == ("raise", 3, "low")
    assert any("position 3 is a guess" in text for text in found.because)


def test_drafts_go_first_when_kv_is_short() -> None:
    one = drafting(GOOD, 200.0, {"kv_usage_ratio": 0.9, "preemptions": 4.0})
    found = advice(one)
    assert (found.action, found.proposed) == ("lower", 2)
    assert any("KV is short" in text for text in found.because)
    assert advice(one, replace(KNOBS, drafts=1)).action == "disable"


def test_a_measured_cost_of_drafts_goes_before_the_assumed_one() -> None:
    # without drafts an empty step took 22 ms: .5 ms a draft, k = 1: 22.5 / .8571 / 1.4 = 18.75 ms
    other = fit_step_time(line(0.022, 5e-5, top=600))
    assert not isinstance(other, Unfit)
    found = advice(more={"drafted": Drafted(fits={0: other})})
    assert "1: 18.8 ms" in found.because[1]
    assert found.expected["tpot_change_low_ratio"] == found.expected["tpot_change_high_ratio"]


def test_drafts_that_bring_nothing_go_once_their_cost_was_measured() -> None:
    """15.9 ms with one draft and 18.4 ms with two: 2.5 ms a draft, 13.4 ms without. At 2500 tokens/s of 50 us
    none loads .125: 15.31 ms; one loads .125 x 2 / 1.35 = .1852: 15.9 / .8148 / 1.35 = 14.45 ms, which stays.
    At 75 us it is .1875 and 16.49 ms, .2778 and 16.31 ms: 1 % more without. But one request of 260 tokens in
    twenty has 1.645 sqrt(.35 x .65 / 260 / 1.35) = 4.2 % less luck with its drafts, so that it is 17.0 ms.
    """
    one = drafting((0.35,), 2500.0, {"output_tokens": distribution(260.0, 600.0)})

    def found(per_token: float, changes: ReplicaSnapshot = one) -> Advice:
        two = fit_step_time(line(0.0184, per_token, top=900))
        assert not isinstance(two, Unfit)
        more = {"drafted": Drafted(fits={2: two})}
        return advice(changes, replace(KNOBS, drafts=1), steps(0.0159, per_token), more)

    assert (found(75e-6).action, found(75e-6).proposed) == ("disable", 0)
    assert "by the luck of drafts one request in twenty is 4 % slower" in found(75e-6).because
    assert found(50e-6).action == "hold"
    # drafts of long answers even out: of 260 000 tokens one in twenty is .13 % slower
    assert (
        found(75e-6, drafting((0.35,), 2500.0, {"output_tokens": distribution(2.6e5, 6e5)})).action == "hold"
    )


@pytest.mark.parametrize(
    ("one", "windows", "more", "words"),
    [
        (drafting(state=ReplicaState.STALE), None, {}, "no fresh numbers"),
        (drafting(state=ReplicaState.NO_PROGRESS), None, {}, "no progress"),
        (drafting((0.4, 0.5)), None, {}, "acceptance rises with the position"),
        (drafting((1.4, 0.5)), None, {}, "outside of 0 to 1"),
        (drafting(), line()[:5], {}, "5 busy windows"),
        (drafting(), None, {"held_seconds": 20.0}, "seen for 20 s"),
        (drafting(), None, {"drafted_steps": 60.0}, "60 drafts are too few"),
        (drafting((0.4, 0.3)), None, {}, "counted for 2 positions, 4 drafts are set"),
        (
            drafting(
                changes={
                    "spec_acceptance_per_position": Scalar(None, "ratio", Quality.UNSUPPORTED, "no drafts")
                }
            ),
            None,
            {},
            "spec_acceptance_per_position is unsupported: no drafts",
        ),
        (drafting(changes={"generation_tokens_per_second": None}), None, {}, "generation_tokens_per_second"),
    ],
)
def test_what_is_missing_is_named(
    one: ReplicaSnapshot, windows: list[StepWindow] | None, more: dict[str, Any], words: str
) -> None:
    found = advice(one, windows=windows, more=more)
    assert (found.action, found.proposed) == ("withheld", None)
    assert words in found.because[-1]


def test_without_drafts_nothing_is_known() -> None:
    assert advice(slow(), replace(KNOBS, drafts=0)).action == "hold"


def moments(running: float, tokens_per_second: float) -> list[Moment]:
    return [Moment(10.0 * i, running, 0.0, 0.5, 10.0 * i * tokens_per_second) for i in range(8)]


class TestMeasured:
    """H13: at 32 requests one draft made 735.0 tokens/s and none 867.8; alone 56.4 against 33.8."""

    @staticmethod
    def advice(running: float, now: float, off: float, of: float | None = None) -> Advice:
        one = drafting((0.83,), now, {"requests_running": running})
        memory = Drafted(speeds={0: Speed(of or running, off)})
        return advice(
            one, replace(KNOBS, drafts=1), more={"recent": moments(running, now), "drafted": memory}
        )

    def test_off_is_faster_at_a_large_batch(self) -> None:
        found = self.advice(32, 735.0, 867.8)
        assert (found.action, found.proposed, found.confidence) == ("disable", 0, "high")
        assert found.expected["tokens_per_second_change_ratio"] == pytest.approx(0.1807, abs=1e-4)
        assert found.because[:2] == (
            "measured: 867.8 tokens/s with 0 drafts at 32 running, 735.0 with 1 at 32",
            "18 % faster for each request at a like batch (within a factor of 1.25)",
        )

    def test_on_is_faster_alone(self) -> None:
        assert pytest.approx(0.669, abs=1e-3) == 56.4 / 33.8 - 1
        assert self.advice(1, 56.4, 33.8).action != "disable"

    def test_unlike_batches_are_not_compared(self) -> None:
        assert self.advice(32, 735.0, 867.8, of=20).confidence != "high"

    def test_it_has_to_hold_too(self) -> None:
        one = drafting((0.83,), 735.0, {"requests_running": 32})
        case = Case(one, replace(KNOBS, drafts=1), steps(), moments(32, 735.0))
        case = replace(case, drafted=Drafted(speeds={0: Speed(32, 867.8)}))
        assert calls(case) == "disable"
        assert advise(case).action == "withheld"


def test_a_speed_needs_a_minute() -> None:
    for engines, running, tokens_per_second in ((1, 32, 735.0), (4, 8, 183.75)):
        found = speed_of(moments(32, 735.0), engines)
        assert found is not None
        assert found.running == running
        assert found.tokens_per_second == pytest.approx(tokens_per_second)
    assert speed_of(moments(32, 735.0)[:6], 1) is None
