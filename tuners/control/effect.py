"""Whether a change is to be seen in what the engine does, not only in what it says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from enginetop.fleet.snapshot import Distribution, ReplicaSnapshot, Scalar

_ITERATION_TOKENS = "iteration_tokens"
_SEVERAL_RUNNING = 2
_SMALLER = 0.85
"""Steps at or below this share of their former mean size are clearly smaller."""


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


def mean_step_tokens(replica: ReplicaSnapshot | None) -> float | None:
    """The mean number of tokens in a step over the snapshot's window; None when it is not known."""
    steps = replica.signals.get(_ITERATION_TOKENS) if replica is not None else None
    return steps.mean.value if isinstance(steps, Distribution) else None


def find_effect(replica: ReplicaSnapshot, knob: str, value: int, mean_before: float | None) -> EffectFinding:
    """Whether the window (which must lie wholly after the change) shows `value` in force.

    vLLM counts a prompt that was computed in chunks whole, in the step of its last chunk, and leaves out
    steps without an output. So a token budget is seen in force when steps stay below it, or when they carry
    clearly fewer tokens in the mean than `mean_before`, as the same prompts do when they are cut into more
    chunks. A mean above it speaks against it only while several requests run, when every step has an output.
    Other knobs have no such trace yet.
    """
    if knob != "max_num_batched_tokens":
        return EffectFinding(Effect.UNKNOWN, f"{knob} leaves no trace that is looked for")
    steps = replica.signals.get(_ITERATION_TOKENS)
    if not isinstance(steps, Distribution) or not steps.count:
        return EffectFinding(Effect.UNKNOWN, "no steps in the window, or none counted")
    mean, p99 = steps.mean.value, steps.quantiles["p99"]
    high = "above" if p99.high is None else f"at most {p99.high:g}"
    before = "" if mean_before is None else f", {mean_before:.0f} before"
    words = f"{steps.count:.0f} steps of {mean or 0:.0f} tokens in the mean{before}, p99 {high}"
    running = replica.signals.get("requests_running")
    busy = isinstance(running, Scalar) and (running.number or 0) >= _SEVERAL_RUNNING
    if busy and mean is not None and mean > value:
        return EffectFinding(Effect.CONTRADICTED, f"{words}: more than {value}")
    below = p99.low is not None and p99.low < value
    smaller = mean is not None and mean_before is not None and mean <= _SMALLER * mean_before
    if below or smaller:
        return EffectFinding(Effect.SEEN, words)
    return EffectFinding(Effect.UNKNOWN, f"{words}: prompts in chunks count in their last step")
