"""Whether a change is to be seen in what the engine does, not only in what it says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from enginetop.fleet.snapshot import Distribution, ReplicaSnapshot, Scalar

_ITERATION_TOKENS = "iteration_tokens"
_ITL = "itl_seconds"
_SEVERAL_RUNNING = 2
_SMALLER = 0.85
"""Steps at or below this share of their former size, or length, are clearly smaller, or shorter."""


class Effect(StrEnum):
    """What the engine's own counters say of a value in force."""

    SEEN = "seen"
    CONTRADICTED = "contradicted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class EffectFinding:
    """A finding and its figures in words."""

    effect: Effect
    words: str


@dataclass(frozen=True, slots=True)
class StepTrace:
    """What the engine's own counters say of its steps over a window; None where it is not known.

    `mean_tokens` a counted step, and the 99th percentile of the time between two outputs of a request, which
    is the length of the longest steps.
    """

    mean_tokens: float | None = None
    itl_p99_seconds: float | None = None


NO_TRACE = StepTrace()


def step_trace(replica: ReplicaSnapshot | None) -> StepTrace:
    """The trace in the snapshot's window."""
    if replica is None:
        return StepTrace()
    steps, gaps = (_distribution(replica, name) for name in (_ITERATION_TOKENS, _ITL))
    return StepTrace(steps.mean.value if steps else None, gaps.quantiles["p99"].value if gaps else None)


def find_effect(replica: ReplicaSnapshot, knob: str, value: int, before: StepTrace) -> EffectFinding:
    """Whether the window (which must lie wholly after the change) shows `value` in force.

    vLLM counts a prompt that was computed in chunks whole, in the step of its last chunk, and leaves out
    steps without an output. So a lower token budget is seen in force when steps stay below it, when they
    carry clearly fewer tokens in the mean than before, or when the longest ones became clearly shorter. A
    mean above the budget speaks against it only while several requests run, when every step has an output.
    Other knobs have no such trace yet.
    """
    if knob != "max_num_batched_tokens":
        return EffectFinding(Effect.UNKNOWN, f"{knob} leaves no trace that is looked for")
    steps = _distribution(replica, _ITERATION_TOKENS)
    if steps is None or not steps.count:
        return EffectFinding(Effect.UNKNOWN, "no steps in the window, or none counted")
    after = step_trace(replica)
    p99 = steps.quantiles["p99"]
    high = "above" if p99.high is None else f"at most {p99.high:g}"
    tokens = _pair(before.mean_tokens, after.mean_tokens, 1)
    gaps = _pair(before.itl_p99_seconds, after.itl_p99_seconds, 1000)
    words = f"{steps.count:.0f} steps, tokens {tokens} in the mean, p99 {high}; ITL p99 {gaps} ms"
    running = replica.signals.get("requests_running")
    busy = isinstance(running, Scalar) and (running.number or 0) >= _SEVERAL_RUNNING
    if busy and after.mean_tokens is not None and after.mean_tokens > value:
        return EffectFinding(Effect.CONTRADICTED, f"{words}: more than {value}")
    below = p99.low is not None and p99.low < value
    smaller = _fell(before.mean_tokens, after.mean_tokens)
    shorter = _fell(before.itl_p99_seconds, after.itl_p99_seconds)
    if below or smaller or shorter:
        return EffectFinding(Effect.SEEN, words)
    return EffectFinding(Effect.UNKNOWN, f"{words}: prompts in chunks count in their last step")


def _distribution(replica: ReplicaSnapshot, name: str) -> Distribution | None:
    value = replica.signals.get(name)
    return value if isinstance(value, Distribution) else None


def _fell(before: float | None, after: float | None) -> bool:
    return before is not None and after is not None and after <= _SMALLER * before


def _pair(before: float | None, after: float | None, scale: float) -> str:
    shown = ("?" if value is None else f"{value * scale:.0f}" for value in (before, after))
    return " -> ".join(shown)
