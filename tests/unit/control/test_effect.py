"""What step sizes say of a token budget in force."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from enginetop.fleet.model import Quality
from enginetop.fleet.snapshot import Distribution, Quantile, ReplicaSnapshot, Scalar
from tuners.control.effect import Effect, StepTrace, find_effect


def _replica(
    count: float | None,
    mean: float | None,
    p99: Quantile,
    running: float = 3.0,
    itl: Distribution | None = None,
) -> ReplicaSnapshot:
    steps = Distribution(count, None, Quantile(mean), {"p99": p99}, "tokens", Quality.OK)
    signals = {
        "iteration_tokens": steps,
        "itl_seconds": itl,
        "requests_running": Scalar(running, "requests", Quality.OK),
    }
    return cast("ReplicaSnapshot", SimpleNamespace(signals=signals))


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
    assert (
        find_effect(_replica(count, mean, p99), "max_num_batched_tokens", 768, StepTrace()).effect is effect
    )


@pytest.mark.parametrize(
    ("before", "effect"),
    [(480.0, Effect.SEEN), (453.0, Effect.SEEN), (452.0, Effect.UNKNOWN), (385.0, Effect.UNKNOWN)],
)
def test_prompts_cut_into_more_chunks_make_steps_smaller(before: float, effect: Effect) -> None:
    """385 tokens a step are 85 % of 452.9."""
    replica = _replica(3757.0, 385.0, Quantile(9000.0, 8192.0, 16384.0))
    finding = find_effect(replica, "max_num_batched_tokens", 768, StepTrace(before))
    assert finding.effect is effect
    assert f"tokens {before:.0f} -> 385 in the mean" in finding.words


def test_a_lone_request_has_steps_that_are_not_counted() -> None:
    """Chunks without an output are left out, so the mean of those counted may be above the budget."""
    alone = _replica(40.0, 1500.0, Quantile(1900.0, 1024.0, 2048.0), running=1.0)
    assert find_effect(alone, "max_num_batched_tokens", 768, StepTrace()).effect is Effect.UNKNOWN


@pytest.mark.parametrize(
    ("before", "after", "effect"),
    [(0.160, 0.024, Effect.SEEN), (0.100, 0.085, Effect.SEEN), (0.100, 0.086, Effect.UNKNOWN)],
)
def test_the_longest_steps_become_shorter(before: float, after: float, effect: Effect) -> None:
    """The mean stays, since the same prompts count in the same number of steps with an output."""
    gaps = Distribution(9000, None, Quantile(0.02), {"p99": Quantile(after)}, "seconds", Quality.OK)
    replica = _replica(3757.0, 385.0, Quantile(9000.0, 8192.0, 16384.0), itl=gaps)
    finding = find_effect(replica, "max_num_batched_tokens", 768, StepTrace(385.0, before))
    assert finding.effect is effect
    assert f"ITL p99 {before * 1000:.0f} -> {after * 1000:.0f} ms" in finding.words


def test_a_knob_without_a_trace() -> None:
    assert (
        find_effect(_replica(9.0, 1.0, Quantile()), "max_num_seqs", 8, StepTrace()).effect is Effect.UNKNOWN
    )
