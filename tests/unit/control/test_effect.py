"""What an engine's counters say of a value in force, knob by knob. Figures are worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import cast

import pytest

from enginetop.fleet.model import Quality
from enginetop.fleet.plan import PlannedChange
from enginetop.fleet.snapshot import Distribution, Quantile, ReplicaSnapshot, Scalar, SignalValue
from tuners.control.effect import Effect, EffectFinding, find_effect
from tuners.control.trace import NO_TRACE, Trace, trace_of

BUDGET, SEATS, DRAFTS, THINKING = (
    "max_num_batched_tokens",
    "max_num_seqs",
    "num_speculative_tokens",
    "thinking_token_budget",
)


def _replica(
    signals: Mapping[str, SignalValue | None],
    totals: Mapping[str, float] | None = None,
    *,
    at: float = 0.0,
    ranks: int = 1,
) -> ReplicaSnapshot:
    found = SimpleNamespace(signals=signals, totals=totals or {}, scraped_at=at, ranks=(None,) * ranks)
    return cast("ReplicaSnapshot", found)


def _find(
    replica: ReplicaSnapshot,
    knob: str,
    old: int | None,
    new: int,
    before: Trace = NO_TRACE,
    settled: Trace | None = None,
) -> EffectFinding:
    return find_effect(replica, PlannedChange("http://r1", "i", knob, old, new), before, settled)


def _scalar(value: float) -> Scalar:
    return Scalar(value, "", Quality.OK)


def _steps(
    count: float | None,
    mean: float | None,
    p99: Quantile,
    running: float = 3.0,
    itl: Distribution | None = None,
) -> ReplicaSnapshot:
    steps = Distribution(count, None, Quantile(mean), {"p99": p99}, "tokens", Quality.OK)
    return _replica({"iteration_tokens": steps, "itl_seconds": itl, "requests_running": _scalar(running)})


@pytest.mark.parametrize(
    ("count", "mean", "p99", "effect"),
    [
        (3000.0, 100.0, Quantile(120.0, 64.0, 128.0), Effect.SEEN),
        # A prompt of 7 600 tokens in ten chunks counts whole in its last step: large steps prove nothing ...
        (3757.0, 385.0, Quantile(9000.0, 8192.0, 16384.0), Effect.UNKNOWN),
        (3757.0, 385.0, Quantile(None, 16384.0, None, censored=True), Effect.UNKNOWN),
        # ... but all tokens of all steps cannot be more than the budget a step.
        (3757.0, 4000.0, Quantile(9000.0, 8192.0, 16384.0), Effect.CONTRADICTED),
        (0.0, None, Quantile(), Effect.UNKNOWN),
        (None, None, Quantile(), Effect.UNKNOWN),
    ],
)
def test_a_token_budget(count: float | None, mean: float | None, p99: Quantile, effect: Effect) -> None:
    assert _find(_steps(count, mean, p99), BUDGET, 8192, 768).effect is effect


@pytest.mark.parametrize(
    ("before", "effect"),
    [(480.0, Effect.SEEN), (453.0, Effect.SEEN), (452.0, Effect.UNKNOWN), (385.0, Effect.UNKNOWN)],
)
def test_prompts_cut_into_more_chunks_make_steps_smaller(before: float, effect: Effect) -> None:
    """385 tokens a step are 85 % of 452.9."""
    replica = _steps(3757.0, 385.0, Quantile(9000.0, 8192.0, 16384.0))
    finding = _find(replica, BUDGET, 8192, 768, Trace(mean_tokens=before))
    assert finding.effect is effect
    assert f"tokens {before:.0f} -> 385 in the mean" in finding.words


def test_a_lone_request_has_steps_that_are_not_counted() -> None:
    """Chunks without an output are left out, so the mean of those counted may be above the budget."""
    alone = _steps(40.0, 1500.0, Quantile(1900.0, 1024.0, 2048.0), running=1.0)
    assert _find(alone, BUDGET, 8192, 768).effect is Effect.UNKNOWN


@pytest.mark.parametrize(
    ("before", "after", "effect"),
    [(0.160, 0.024, Effect.SEEN), (0.100, 0.085, Effect.SEEN), (0.100, 0.086, Effect.UNKNOWN)],
)
def test_the_longest_steps_become_shorter(before: float, after: float, effect: Effect) -> None:
    """The mean stays, since the same prompts count in the same number of steps with an output."""
    gaps = Distribution(9000, None, Quantile(0.02), {"p99": Quantile(after)}, "seconds", Quality.OK)
    replica = _steps(3757.0, 385.0, Quantile(9000.0, 8192.0, 16384.0), itl=gaps)
    finding = _find(replica, BUDGET, 8192, 768, Trace(mean_tokens=385.0, itl_p99_seconds=before))
    assert finding.effect is effect
    assert f"ITL p99 {before * 1000:.0f} -> {after * 1000:.0f} ms" in finding.words


@pytest.mark.parametrize(
    ("before", "effect"), [(327.0, Effect.SEEN), (328.0, Effect.UNKNOWN), (None, Effect.UNKNOWN)]
)
def test_a_raised_budget_is_seen_when_steps_grow(before: float | None, effect: Effect) -> None:
    """327 are 84.9 % of 385; that steps stay below a larger budget proves nothing."""
    replica = _steps(3757.0, 385.0, Quantile(600.0, 512.0, 1024.0))
    assert _find(replica, BUDGET, 768, 2048, Trace(mean_tokens=before)).effect is effect


def _seats(running: float, waiting: float, ended: float, ranks: int = 1) -> ReplicaSnapshot:
    signals = {"requests_running": _scalar(running), "requests_waiting": _scalar(waiting)}
    # aborted ones may never have run: 7 of those that finished
    return _replica(signals, {"requests_finished": ended + 7.0, "requests_aborted": 7.0}, ranks=ranks)


def _prefills(steps: float, tokens: float) -> ReplicaSnapshot:
    return _replica({}, {"prefill_steps": steps, "prefill_step_tokens": tokens})


@pytest.mark.parametrize(
    ("new", "steps", "tokens", "effect"),
    [
        # Before: 100 steps of 180 tokens. Since the page of the read-back, with 110 steps and 19 800 tokens:
        (64, 150.0, 22_200.0, Effect.SEEN),  # 40 steps of 60
        (64, 129.0, 20_940.0, Effect.UNKNOWN),  # 19 steps are too few
        (64, 150.0, 22_744.0, Effect.SEEN),  # 38 steps of 64 and two late ones of 256: 2 944 tokens
        (64, 150.0, 22_745.0, Effect.CONTRADICTED),  # one more
        (192, 150.0, 26_800.0, Effect.UNKNOWN),  # 40 steps of 175, as long as before: 192 does not bind
        (192, 150.0, 25_920.0, Effect.SEEN),  # 40 steps of 153, at most 0.85 of 180
        (192, 150.0, 25_921.0, Effect.UNKNOWN),
        (512, 150.0, 30_041.0, Effect.SEEN),  # more than 256 a step, which was the most before
        (512, 150.0, 27_000.0, Effect.UNKNOWN),  # as before
    ],
)
def test_a_budget_of_prompt_tokens_where_steps_with_prompts_are_counted(
    new: int, steps: float, tokens: float, effect: Effect
) -> None:
    before = Trace(prefill_steps=100.0, prefill_tokens=18_000.0)
    settled = Trace(prefill_steps=110.0, prefill_tokens=19_800.0)
    assert _find(_prefills(steps, tokens), BUDGET, 256, new, before, settled).effect is effect


def test_no_page_since_the_change_tells_nothing_of_prefill_steps() -> None:
    assert _find(_prefills(500.0, 9000.0), BUDGET, 256, 64).effect is Effect.UNKNOWN
    started = trace_of(_replica({}))  # no prompt had been computed when the value was read back
    finding = _find(_prefills(50.0, 3000.0), BUDGET, 256, 64, started, started)
    assert (finding.effect, finding.words) == (
        Effect.UNKNOWN,
        "60 tokens a prefill step over 50 steps (before ?): the size of a step does not bind",
    )


@pytest.mark.parametrize(
    ("running", "waiting", "ended", "effect"),
    [
        (8.0, 5.0, 160.0, Effect.SEEN),
        (3.0, 0.0, 160.0, Effect.SEEN),  # there were 30, and 8 are allowed
        (18.0, 90.0, 112.0, Effect.UNKNOWN),  # 30 - 12: those above it have not ended yet
        (20.0, 90.0, 112.0, Effect.UNKNOWN),  # gauge and counter may be two apart
        (21.0, 90.0, 112.0, Effect.CONTRADICTED),  # three were admitted above the cap
        (30.0, 0.0, 160.0, Effect.CONTRADICTED),
    ],
)
def test_fewer_seats(running: float, waiting: float, ended: float, effect: Effect) -> None:
    before = trace_of(_seats(30.0, 0.0, 95.0))
    settled = trace_of(_seats(30.0, 0.0, 100.0))
    assert _find(_seats(running, waiting, ended), SEATS, 64, 8, before, settled).effect is effect


def test_seats_of_several_ranks_add_up() -> None:
    before = trace_of(_seats(30.0, 0.0, 95.0, ranks=2))
    finding = _find(_seats(16.0, 4.0, 160.0, ranks=2), SEATS, 64, 8, before, before)
    assert (finding.effect, finding.words) == (Effect.SEEN, "16 running, 16 allowed")


@pytest.mark.parametrize(
    ("running", "waiting", "before_running", "effect"),
    [(3.0, 0.0, 3.0, Effect.UNKNOWN), (8.0, 0.0, 8.0, Effect.UNKNOWN), (9.0, 0.0, 7.0, Effect.CONTRADICTED)],
)
def test_seats_that_nobody_needs(
    running: float, waiting: float, before_running: float, effect: Effect
) -> None:
    before = trace_of(_seats(before_running, 0.0, 100.0))
    replica = _seats(running, waiting, 130.0)
    assert _find(replica, SEATS, 64, 8, before, before).effect is effect


def test_seats_are_not_judged_before_a_page_from_after_the_change() -> None:
    assert _find(_seats(30.0, 0.0, 160.0), SEATS, 64, 8).effect is Effect.UNKNOWN


@pytest.mark.parametrize(
    ("running", "effect"), [(65.0, Effect.SEEN), (64.0, Effect.UNKNOWN), (3.0, Effect.UNKNOWN)]
)
def test_more_seats_are_seen_when_they_are_taken(running: float, effect: Effect) -> None:
    assert _find(_seats(running, 0.0, 9.0), SEATS, 64, 128).effect is effect


def _drafting(steps: float, tokens: float, generated: float, former: float | None = None) -> ReplicaSnapshot:
    """`former` drafts a step in the window: 60 % of them accepted, and a bonus token a step."""
    signals: dict[str, SignalValue | None] = {}
    if former is not None:
        signals = {"spec_accepted_length": _scalar(1 + 0.6 * former), "spec_acceptance_ratio": _scalar(0.6)}
    totals = {"spec_drafts": steps, "spec_draft_tokens": tokens, "generation_tokens": generated}
    return _replica(signals, totals)


@pytest.mark.parametrize(
    ("new", "steps", "tokens", "generated", "effect"),
    [
        (1, 500.0, 500.0, 900.0, Effect.SEEN),
        (1, 500.0, 2000.0, 900.0, Effect.CONTRADICTED),
        (1, 99.0, 99.0, 900.0, Effect.UNKNOWN),
        (3, 500.0, 1500.0, 900.0, Effect.SEEN),
        (0, 0.0, 0.0, 900.0, Effect.SEEN),
        (0, 1.0, 4.0, 900.0, Effect.CONTRADICTED),
        (0, 0.0, 0.0, 99.0, Effect.UNKNOWN),
        (6, 500.0, 3000.0, 900.0, Effect.SEEN),
        (6, 500.0, 2000.0, 900.0, Effect.CONTRADICTED),
        (6, 500.0, 3500.0, 900.0, Effect.CONTRADICTED),
    ],
)
def test_drafts_a_step(new: int, steps: float, tokens: float, generated: float, effect: Effect) -> None:
    """Of 4; counted from the first page after the change on, whatever was drafted before."""
    before = trace_of(_drafting(9000.0, 36000.0, 50000.0, former=4.0))
    settled = trace_of(_drafting(10000.0, 40000.0, 60000.0, former=4.0))
    replica = _drafting(10000.0 + steps, 40000.0 + tokens, 60000.0 + generated)
    assert _find(replica, DRAFTS, 4, new, before, settled).effect is effect


def test_a_drafter_that_finds_less_than_it_may_proves_nothing() -> None:
    """Lookup of n-grams drafts what it finds: 1.5 of 4 a step before, 1.5 of 2 after."""
    before = trace_of(_drafting(10000.0, 15000.0, 60000.0, former=1.5))
    replica = _drafting(10500.0, 15750.0, 60900.0)
    assert _find(replica, DRAFTS, 4, 2, before, before).effect is Effect.UNKNOWN
    assert _find(replica, DRAFTS, 4, 8, before, before).effect is Effect.UNKNOWN


def _thoughts(count: float, p50: Quantile, p95: Quantile, p99: Quantile, at: float = 0.0) -> ReplicaSnapshot:
    quantiles = {"p50": p50, "p90": p50, "p95": p95, "p99": p99}
    found = Distribution(count, None, Quantile(), quantiles, "tokens", Quality.OK)
    whole = Distribution(count, None, Quantile(), {"p99": Quantile(70.0, 60.0, 120.0)}, "seconds", Quality.OK)
    return _replica({"reasoning_tokens": found, "e2e_seconds": whole}, at=at)


SHORT_ONES, LONG_ONES, ENDLESS = (
    Quantile(700, 512, 768),
    Quantile(5000, 4096, 6144),
    Quantile(None, 8192, None),
)
AT_BUDGET = Quantile(2049, 2048, 3072)


@pytest.mark.parametrize(
    ("now", "effect"),
    [
        (_thoughts(200, SHORT_ONES, SHORT_ONES, SHORT_ONES, 500.0), Effect.SEEN),
        (_thoughts(200, SHORT_ONES, SHORT_ONES, AT_BUDGET, 500.0), Effect.SEEN),
        (_thoughts(200, SHORT_ONES, LONG_ONES, ENDLESS, 500.0), Effect.CONTRADICTED),
        (_thoughts(200, SHORT_ONES, SHORT_ONES, ENDLESS, 500.0), Effect.UNKNOWN),  # fewer, but who?
        (_thoughts(99, SHORT_ONES, LONG_ONES, ENDLESS, 500.0), Effect.UNKNOWN),
        (_thoughts(200, SHORT_ONES, LONG_ONES, ENDLESS, 219.0), Effect.UNKNOWN),  # older ones end
    ],
)
def test_thoughts_beyond_a_budget(now: ReplicaSnapshot, effect: Effect) -> None:
    """One in twenty was longer than 2048 + 32; the longest requests take 120 s, and the change was at 100."""
    before = trace_of(_thoughts(200, SHORT_ONES, LONG_ONES, ENDLESS))
    settled = trace_of(_thoughts(200, SHORT_ONES, LONG_ONES, ENDLESS, 100.0))
    assert _find(now, THINKING, -1, 2048, before, settled).effect is effect


@pytest.mark.parametrize("new", [8192, -1])
def test_a_budget_that_is_lifted_is_seen_by_longer_thoughts(new: int) -> None:
    settled = Trace(at=100.0)
    longer = _thoughts(200, SHORT_ONES, SHORT_ONES, LONG_ONES, 500.0)
    assert _find(longer, THINKING, 2048, new, NO_TRACE, settled).effect is Effect.SEEN
    as_before = _thoughts(200, SHORT_ONES, SHORT_ONES, AT_BUDGET, 500.0)
    assert _find(as_before, THINKING, 2048, new, NO_TRACE, settled).effect is Effect.UNKNOWN


@pytest.mark.parametrize("knob", [BUDGET, SEATS, DRAFTS, THINKING])
def test_a_page_that_says_nothing_decides_nothing(knob: str) -> None:
    assert _find(_replica({}), knob, 64, 8, NO_TRACE, NO_TRACE).effect is Effect.UNKNOWN


def test_a_knob_without_a_trace() -> None:
    finding = _find(_steps(9.0, 1.0, Quantile()), "new_token_ratio", 9, 8)
    assert (finding.effect, finding.words) == (
        Effect.UNKNOWN,
        "new_token_ratio leaves no trace that is looked for",
    )
