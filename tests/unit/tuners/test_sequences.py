"""The rule for the number of sequences, on replicas made by hand; figures worked out in the comments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from enginetop.fleet.model import EngineKind, Quality, ReplicaState
from enginetop.fleet.snapshot import Advice, Quantile, RankSnapshot, ReplicaSnapshot, Scalar, SignalValue
from tests.tui.snapshots import distribution, no_distribution
from tests.unit.tuners import test_thinking
from tests.unit.tuners.test_token_budget import slow
from tuners import thinking
from tuners.case import Case
from tuners.knob_values import Knobs
from tuners.moments import Minute, Moment
from tuners.sequences import advise, calls
from tuners.thoughts import Thoughts

KNOBS = Knobs(8192, 64, bounds={"max_num_seqs": (1, 64)}, source="knob API")


PAST = Quantile(None, 20_000, None, censored=True)


def pressed(
    changes: dict[str, float | SignalValue | None] | None = None, state: ReplicaState = ReplicaState.OK
) -> ReplicaSnapshot:
    """190 640 KV tokens, p90 of 2000 in and 2000 out, 50 running, preemptions: .4 a second."""
    return slow(
        {
            "kv_usage_ratio": 0.97,
            "kv_capacity_tokens": 190_640,
            "requests_running": 50,
            "requests_waiting": 6,
            "preemptions": 24.0,
            "preemptions_per_second": 0.4,
            "prompt_tokens": distribution(2000, 2000),
            "output_tokens": distribution(2000, 2000),
            **(changes or {}),
        },
        state=state,
    )


def roomy(changes: dict[str, float | SignalValue | None] | None = None) -> ReplicaSnapshot:
    """All seats taken, six waiting, KV two fifths full."""
    quiet: dict[str, float | SignalValue | None] = {
        "kv_usage_ratio": 0.40,
        "requests_running": 32,
        "preemptions": 0.0,
        "preemptions_per_second": 0.0,
        "tpot_seconds": distribution(0.02, 0.03),
    }
    return pressed({**quiet, **(changes or {})})


MINUTES = [Minute(60.0 * minute, 60.0, 1.0, 24.0) for minute in range(10)]
""".4 preemptions a second beside a request a second: .4 x 3000 of 5200 tokens, 23 %, are computed twice."""


def advice(
    one: ReplicaSnapshot,
    knobs: Knobs = KNOBS,
    held: float = 60.0,
    recent: Sequence[Moment] = (),
    minutes: Sequence[Minute] = MINUTES,
) -> Advice:
    return advise(Case(one, knobs, recent=recent, held_seconds=held, minutes=minutes))


def test_what_fits_is_suggested_under_preemption() -> None:
    # p90 resident: 2000 + 2000 / 2 = 3000; .9 x 190640 / 3000 = 57.19
    found = advice(pressed())
    assert (found.action, found.current, found.proposed, found.bound_by) == ("lower", 64, 57, "kv")
    assert (found.apply, found.via) == ("live", "knob_api")
    assert found.because[:2] == (
        "0.40 preemptions a second at KV 97 %: 11 % of the work is done again",
        "3.0k KV tokens a sequence (p90) fit 57 times into 90 % of the cache",
    )
    assert found.because[2].startswith(
        "else, in this order: gpu_memory_utilization in steps of .02 up to .95"
    )


def test_never_below_what_runs() -> None:
    found = advice(pressed({"requests_running": 60}))
    assert (found.action, found.proposed) == ("lower", 60)
    assert "not below the 60 that ran at once in the last 10 min: those did fit" in found.because
    # the most of the last pages: the cache did hold them
    recent = [Moment(10.0 * i, running) for i, running in enumerate((58, 62, 59, 61, 20))]
    assert advice(pressed(), recent=recent).proposed == 62
    # or of half an hour
    earlier = [*MINUTES, replace(MINUTES[-1], most_running=63.0)]
    assert advice(pressed(), recent=recent, minutes=earlier).proposed == 63
    assert advice(pressed(), minutes=MINUTES[:9]).because[-1].endswith("10 minutes, 9 were seen")


def test_a_cap_that_does_not_bind_leaves_the_other_remedies() -> None:
    found = advice(pressed(), Knobs(8192, 50))
    assert (found.action, found.proposed, found.bound_by) == ("hold", None, "kv")
    assert found.because[-1] == "50 ran at once, 57 would fit: a cap of 57 would not bind"


@pytest.mark.parametrize(
    ("per_second", "called"),
    # each preemption computes 2000 + 2000 / 2 tokens again, beside 7200 + 2310: .353 x 3000 = 1059 of 10569
    [(0.353, "lower"), (0.352, None), (0.1, None)],
)
def test_a_tenth_of_the_work_done_again_is_too_much(per_second: float, called: str | None) -> None:
    one = pressed({"preemptions_per_second": per_second})
    assert calls(Case(one, KNOBS, minutes=MINUTES)) == called


def test_a_few_preemptions_cost_less_than_a_queue() -> None:
    # .1 x 3000 = 300 of 9810
    found = advice(pressed({"preemptions_per_second": 0.1}))
    assert (found.action, found.bound_by) == ("hold", "kv")
    assert found.because[-1] == (
        "0.10 preemptions a second at KV 97 %: 3 % of the work is done again: "
        "less than a queue for fewer seats would cost"
    )


def test_a_quarter_more_where_the_cache_is_half_empty() -> None:
    found = advice(roomy(), Knobs(8192, 32))
    assert (found.action, found.proposed, found.apply, found.bound_by) == (
        "raise",
        40,
        "restart",
        "sequences",
    )
    assert found.because[0] == "6 wait: all 32 seats are taken while KV is 40 % full"
    # never more than fit: 57 of 50 x 1.25 = 62.5
    assert advice(roomy({"requests_running": 50}), Knobs(8192, 50)).proposed == 57


def test_a_long_queue_is_worth_more_than_a_quarter() -> None:
    # 32 + 24 wait for a seat: 56; 50 more would be 82, and no raise is more than twofold
    assert advice(roomy({"requests_waiting": 24}), Knobs(8192, 32)).proposed == 56
    short = roomy({"requests_waiting": 50, "kv_capacity_tokens": 500_000})
    assert advice(short, Knobs(8192, 32)).proposed == 64


def test_no_more_seats_than_a_step_has_tokens() -> None:
    # three drafts each: 144 / 4 = 36 seats; 128 / 4 are the 32 that there are
    assert advice(roomy(), Knobs(144, 32, 3)).proposed == 36
    found = advice(roomy(), Knobs(128, 32, 3))
    assert (found.action, found.bound_by) == ("hold", "token_budget")


def test_seats_that_tpot_has_no_room_for_are_not_added() -> None:
    found = advice(roomy({"tpot_seconds": distribution(0.02, 0.046)}), Knobs(8192, 32))
    assert (found.action, found.bound_by) == ("hold", "capacity")
    assert found.because[-1] == "TPOT p95 46 ms leaves no room: each step would serve more requests"


@pytest.mark.parametrize(
    "one",
    [
        roomy({"requests_waiting": 0}),
        roomy({"requests_running": 20}),
        roomy({"kv_usage_ratio": 0.6}),
        roomy({"preemptions": 1.0}),
        roomy({"tpot_seconds": distribution(0.02, 0.046)}),  # 92 % of the 50 ms objective
    ],
)
def test_no_raise_without_each_of_its_conditions(one: ReplicaSnapshot) -> None:
    assert calls(Case(one, Knobs(8192, 32))) is None


def test_two_ranks_are_two_engines() -> None:
    # half of everything each: 25 running, 95 320 KV tokens: 28.6 fit
    one = pressed()
    two = replace(one, ranks=tuple(RankSnapshot({"engine": str(i)}, one.signals) for i in (0, 1)))
    assert advice(two).proposed == 28


@pytest.mark.parametrize(
    ("one", "knobs", "words"),
    [
        (pressed(state=ReplicaState.STALE), KNOBS, "no fresh numbers: the replica is stale"),
        (pressed(state=ReplicaState.NO_PROGRESS), KNOBS, "no progress"),
        (pressed({"kv_usage_ratio": None}), KNOBS, "kv_usage_ratio is unknown"),
        (pressed({"requests_waiting": None}), KNOBS, "requests_waiting is unknown"),
        (pressed({"kv_capacity_tokens": None}), KNOBS, "kv_capacity_tokens is not known"),
        (
            pressed({"prompt_tokens": no_distribution(Quality.UNSUPPORTED)}),
            KNOBS,
            "prompt_tokens is unsupported",
        ),
        (
            pressed({"output_tokens": distribution(PAST, PAST)}),
            KNOBS,
            "the lengths pass the last bucket",
        ),
        (pressed({"kv_usage_ratio": Scalar(-0.2, "ratio", Quality.OK)}), KNOBS, "not to be believed"),
        (pressed({"requests_running": Scalar(float("nan"), "requests", Quality.OK)}), KNOBS, "not to be"),
        (pressed(), Knobs(8192), "max_num_seqs is not known"),
        (pressed(), Knobs(8192, 64, problem="mixed configuration: 1 of 2"), "mixed configuration"),
    ],
)
def test_what_is_missing_is_named(one: ReplicaSnapshot, knobs: Knobs, words: str) -> None:
    found = advice(one, knobs)
    assert (found.action, found.proposed) == ("withheld", None)
    assert words in found.because[-1]


@pytest.mark.parametrize("name", ["prompt_tokens", "output_tokens"])
@pytest.mark.parametrize(("seen", "enough"), [(0, False), (1, False), (59, False), (60, True)])
def test_how_many_lengths_are_known_is_told_and_what_helps(name: str, seen: int, enough: bool) -> None:
    found = advice(pressed({name: replace(distribution(2000, 2000), count=seen)}), KNOBS)
    said = found.because[-1]
    assert (found.action == "lower") is enough
    if not enough:
        assert f"lengths of 60 requests are needed, {seen} are in the window" in said
        assert "a longer --window" in said


def test_it_has_to_hold_for_a_minute() -> None:
    assert advice(pressed(), held=59.0).because[-1] == "seen for 59 s, a suggestion needs 60 s"


def test_a_cache_that_fills_up_is_foretold() -> None:
    # .5 to .54 in 40 s: .46 / .001 = 460 s
    recent = [Moment(10.0 * i, 20.0, 0.0, 0.50 + 0.01 * i) for i in range(5)]
    found = advice(roomy({"requests_waiting": 0, "kv_usage_ratio": 0.54}), recent=recent)
    assert (found.action, found.bound_by) == ("hold", "kv")
    assert found.because[-1] == "KV is 54 % full and will be full in 8 min at this pace"


def few(requests: float) -> dict[str, float | SignalValue | None]:
    lengths = distribution(1000, 1000, count=requests)
    return {"prompt_tokens": lengths, "output_tokens": lengths, "preemptions_per_second": 1.0}


def test_few_requests_a_window_are_made_up_for_by_minutes() -> None:
    # 20 requests in each of three minutes: 2000 in and 2000 out, then 1000 and 1400, and one that says
    # nothing. (20 x 2000 + 40 x 1000) / 60 = 1333.3, (20 x 2000 + 40 x 1400) / 60 = 1600: 2133.3 resident,
    # .9 x 190640 / 2133.3 = 80.4; of 100 seats
    minutes = [
        Minute(60.0, 20.0, 1.0, 0.0, 2000.0, 2000.0),
        Minute(120.0, 40.0, 1.0, 0.0, 1000.0, 1400.0),
        Minute(180.0, 40.0, 1.0, 0.0, None, 9000.0),
        *(Minute(180.0 + 60.0 * minute, 10.0, 1.0, 100.0) for minute in range(1, 8)),
    ]
    case = Case(pressed(few(20)), Knobs(8192, 100), held_seconds=60.0, minutes=minutes)
    found = advise(case)
    assert (found.action, found.proposed) == ("lower", 80)
    short = advise(replace(case, minutes=[minutes[0], *minutes[2:], minutes[-1]]))
    assert (short.action, short.proposed) == ("withheld", None)
    assert short.because[-1].startswith(
        "prompt and output lengths of 60 requests are needed, 20 are in the window and 20 in the last minutes"
    )
    # 60 in the window: 1000 + 1000 / 2 = 1500 each, 114 fit, more than there are seats
    assert advise(replace(case, replica=pressed(few(60)))).action == "hold"


@pytest.mark.parametrize(
    ("preemptions", "called"),
    # .4 a second are 11 % now. Of 600 requests 90 preempted redo .15 x 3000 = 450 tokens for 4000 that count,
    # 10.1 %; 88 redo 440, 9.9 %
    [(9.0, "lower"), (8.8, None)],
)
def test_preemptions_are_counted_over_minutes_too(preemptions: float, called: str | None) -> None:
    minutes = [Minute(60.0 * i, 60.0, 1.0, preemptions) for i in range(10)]
    case = Case(pressed(), KNOBS, held_seconds=60.0, minutes=minutes)
    assert calls(case) == called
    assert advise(replace(case, minutes=minutes[:9])).action == "withheld"
    if called is None:
        assert "11 % of the work is done again, 10 % over the last minutes: less" in advise(case).because[-1]


def test_a_cap_on_thoughts_comes_before_fewer_seats() -> None:
    # both are called for: thoughts are four fifths of the output, and .4 preemptions a second redo work
    both = {"preemptions_per_second": 0.4, "requests_running": 50.0, "kv_capacity_tokens": 190_640.0}
    both |= {"prompt_tokens": distribution(2000, 2000), "output_tokens": distribution(2000, 2000)}  # type: ignore[dict-item]
    knobs = replace(test_thinking.KNOBS, engine=EngineKind.VLLM)
    case = Case(test_thinking.pressed(dict(both)), knobs, held_seconds=60.0, thoughts=test_thinking.LONG_TAIL)
    case = replace(case, minutes=MINUTES)
    found = advise(case)
    assert thinking.advise(case).action == "withheld"  # more requests will tell
    assert (found.action, found.bound_by) == ("hold", "kv")
    assert found.because[-1].startswith("thinking_token_budget comes first")
    # 299 thoughts are one too few to call for a cap, which may be called for a moment later
    few_yet = Thoughts({bound: 0.1495 * n for bound, n in test_thinking.LONG_TAIL.at_most.items()}, 600.0)
    waits = replace(case, thoughts=few_yet)
    assert (thinking.calls(waits), advise(waits).action) == (None, "hold")
    # a budget that is as low as it may be, thoughts that nobody counts, no way to set one: seats it is
    lowest = replace(case, knobs=replace(knobs, thinking=4096))
    assert thinking.advise(lowest).action == "hold"
    for other in (lowest, replace(case, thoughts=None), replace(case, knobs=Knobs(2048, 64, thinking=-1))):
        assert advise(other).action == "lower"
