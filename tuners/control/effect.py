"""Whether a change is to be seen in what the engine does, not only in what it says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from enginetop.fleet.snapshot import Distribution, ReplicaSnapshot

_ITERATION_TOKENS = "iteration_tokens"


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


def find_effect(replica: ReplicaSnapshot, knob: str, value: int) -> EffectFinding:
    """Whether the window (which must lie wholly after the change) shows `value` in force.

    For the token budget the mean step cannot be above it. A single step can seem to be: vLLM counts a prompt
    that was computed in chunks whole, in the step of its last chunk. So steps that stay below the value show
    it in force, and larger ones show nothing. Other knobs have no such trace yet.
    """
    if knob != "max_num_batched_tokens":
        return EffectFinding(Effect.UNKNOWN, f"{knob} leaves no trace that is looked for")
    steps = replica.signals.get(_ITERATION_TOKENS)
    if not isinstance(steps, Distribution) or not steps.count:
        return EffectFinding(Effect.UNKNOWN, "no steps in the window, or none counted")
    mean, p99 = steps.mean.value, steps.quantiles["p99"]
    high = "above" if p99.high is None else f"at most {p99.high:g}"
    words = f"{steps.count:.0f} steps of {mean or 0:.0f} tokens in the mean, p99 {high}"
    if mean is not None and mean > value:
        return EffectFinding(Effect.CONTRADICTED, f"{words}: more than {value}")
    if p99.low is None or p99.low >= value:
        return EffectFinding(Effect.UNKNOWN, f"{words}: prompts in chunks count in their last step")
    return EffectFinding(Effect.SEEN, words)
