"""Whether a change is to be seen in what the engine does, not only in what it says."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from enum import StrEnum

from enginetop.fleet.frozen import frozen
from enginetop.fleet.plan import PlannedChange
from enginetop.fleet.snapshot import Distribution, ReplicaSnapshot
from enginetop.fleet.thinking import SLACK_TOKENS
from tuners.control.trace import Trace, trace_of

_SEVERAL_RUNNING = 2
_SMALLER = 0.85
"""Steps at or below this share of their former size, or length, are clearly smaller, or shorter."""
_FEWEST_PREFILL_STEPS = 20
_LATE_STEPS = 2
"""Steps that were under way when a value was read back, and are counted after it."""
_FEWEST_DRAFT_STEPS = 100
_DRAFT_SLACK = 0.05
"""Drafted tokens a step so far apart are not the same number."""
_FEWEST_GENERATED = 100
_SEATS_SLACK = 2
"""Admissions that a page may count on either side of its gauges."""
FEWEST_THOUGHTS = 100
_UNKNOWN_LONGEST_SECONDS = 600.0
_QUANTILES = (("p50", 0.5), ("p90", 0.1), ("p95", 0.05), ("p99", 0.01))


class Effect(StrEnum):
    """What the engine's own counters say of a value in force."""

    SEEN = "seen"
    CONTRADICTED = "contradicted"
    UNKNOWN = "unknown"


@frozen
class EffectFinding:
    """A finding and its figures in words."""

    effect: Effect
    words: str


@frozen
class Look:
    """What a witness sees: the trace before the write, the first one after the value was read back (None: not
    yet), and the present one, whose window must lie wholly after the change.
    """

    change: PlannedChange
    before: Trace
    settled: Trace | None
    now: Trace
    steps: Distribution | None
    """The distribution of tokens a step in the present window."""

    @property
    def lowers(self) -> bool:
        """Whether the new value is the smaller one."""
        old = self.change.before
        return old is None or self.change.after < old


def find_effect(
    replica: ReplicaSnapshot, change: PlannedChange, before: Trace, settled: Trace | None
) -> EffectFinding:
    """Whether the window (which must lie wholly after the change) shows the new value in force."""
    witness = _WITNESSES.get(change.knob)
    if witness is None:
        return _unknown(f"{change.knob} leaves no trace that is looked for")
    steps = replica.signals.get("iteration_tokens")
    return witness(
        Look(change, before, settled, trace_of(replica), steps if isinstance(steps, Distribution) else None)
    )


def _token_budget(look: Look) -> EffectFinding:
    """vLLM counts a prompt that was computed in chunks whole, in the step of its last chunk, and leaves out
    steps without an output. So a lower token budget is seen in force when steps stay below it, when they
    carry clearly fewer tokens in the mean than before, or when the longest ones became clearly shorter; a
    higher one when they became clearly larger, or longer. A mean above the budget speaks against it only
    while several requests run, when every step has an output.
    """
    steps, before, now, value = look.steps, look.before, look.now, look.change.after
    if now.prefill_steps is not None:
        return _prefill_steps(look)
    if steps is None or not steps.count:
        return _unknown("no steps in the window, or none counted")
    p99 = steps.quantiles["p99"]
    high = "above" if p99.high is None else f"at most {p99.high:g}"
    tokens = _pair(before.mean_tokens, now.mean_tokens, 1)
    gaps = _pair(before.itl_p99_seconds, now.itl_p99_seconds, 1000)
    words = f"{steps.count:.0f} steps, tokens {tokens} in the mean, p99 {high}; ITL p99 {gaps} ms"
    busy = (now.running or 0) >= _SEVERAL_RUNNING
    if busy and now.mean_tokens is not None and now.mean_tokens > value:
        return EffectFinding(Effect.CONTRADICTED, f"{words}: more than {value}")
    pairs = ((before.mean_tokens, now.mean_tokens), (before.itl_p99_seconds, now.itl_p99_seconds))
    if look.lowers:
        seen = (p99.low is not None and p99.low < value) or any(_fell(*pair) for pair in pairs)
    else:
        seen = any(_fell(later, earlier) for earlier, later in pairs)
    if seen:
        return EffectFinding(Effect.SEEN, words)
    return _unknown(f"{words}: prompts in chunks count in their last step")


def _prefill_steps(look: Look) -> EffectFinding:
    """SGLang's budget is of the prompt tokens of a step, and it counts steps with prompts and their tokens by
    themselves: since the value was read back, no step has more than it in the mean.
    """
    settled, before, now, value = look.settled, look.before, look.now, look.change.after
    if settled is None:
        return _unknown("no page since the change")
    steps = _grown(settled.prefill_steps or 0.0, now.prefill_steps) or 0.0
    tokens = _grown(settled.prefill_tokens or 0.0, now.prefill_tokens) or 0.0
    if steps < _FEWEST_PREFILL_STEPS:
        return _unknown(f"{steps:.0f} prefill steps since the change, {_FEWEST_PREFILL_STEPS} are needed")
    each = tokens / steps
    former = (
        before.prefill_tokens / before.prefill_steps
        if before.prefill_steps and before.prefill_tokens
        else None
    )
    words = f"{each:.0f} tokens a prefill step over {steps:.0f} steps (before {_shown(former, 0)})"
    old = max(value, look.change.before or 0)
    if tokens > value * (steps - _LATE_STEPS) + old * _LATE_STEPS:
        return EffectFinding(Effect.CONTRADICTED, f"{words}: more than {value}")
    if look.lowers:
        seen = (former is not None and former > value) or _fell(former, each)
    else:
        seen = each > (look.change.before or 0) or _fell(each, former)
    return (
        EffectFinding(Effect.SEEN, words) if seen else _unknown(f"{words}: the size of a step does not bind")
    )


def _sequences(look: Look) -> EffectFinding:
    """Who ran above a lower cap runs on; nobody is admitted until enough of them have ended. So as long as
    more run than the cap allows, those who ended since and those who run now are no more than ran then.
    """
    now, settled, ranks = look.now, look.settled, look.now.ranks
    if now.running is None:
        return _unknown("requests running are not known")
    most = look.change.after * ranks
    words = f"{now.running:.0f} running, {most} allowed"
    if now.running > most:
        if settled is None or None in (settled.running, settled.ended, now.ended):
            return _unknown(f"{words}: when they began is not known")
        admitted = now.running + (now.ended or 0) - (settled.ended or 0) - (settled.running or 0)
        if admitted > _SEATS_SLACK:
            return EffectFinding(Effect.CONTRADICTED, f"{words}, and {admitted:.0f} were admitted since")
        return _unknown(f"{words}: those above it have not ended yet")
    if look.lowers:
        bound = (now.waiting or 0) > 0 and now.running >= most - _SEATS_SLACK
        seen = bound or (look.before.running is not None and look.before.running > most)
    else:
        seen = look.change.before is not None and now.running > look.change.before * ranks
    return EffectFinding(Effect.SEEN, words) if seen else _unknown(f"{words}: the cap does not bind")


def _drafts(look: Look) -> EffectFinding:
    """Drafted tokens over draft steps, both counted since the value was read back."""
    settled, now, value = look.settled, look.now, look.change.after
    if settled is None:
        return _unknown("no page since the change")
    steps = _grown(settled.draft_steps, now.draft_steps)
    tokens = _grown(settled.drafted_tokens, now.drafted_tokens)
    generated = _grown(settled.generated_tokens, now.generated_tokens)
    if value == 0:
        if not generated or generated < _FEWEST_GENERATED:
            return _unknown("too few tokens were generated since the change")
        words = f"{steps or 0:.0f} draft steps while {generated:.0f} tokens were generated"
        return EffectFinding(Effect.CONTRADICTED if steps else Effect.SEEN, words)
    if not steps or tokens is None or steps < _FEWEST_DRAFT_STEPS:
        return _unknown(f"{steps or 0:.0f} draft steps since the change, {_FEWEST_DRAFT_STEPS} are needed")
    each, old = tokens / steps, look.change.before or 0
    former = look.before.drafts_per_step
    words = f"{each:.2f} drafts a step over {steps:.0f} steps (before {_shown(former)})"
    if each > value + _DRAFT_SLACK:
        return EffectFinding(Effect.CONTRADICTED, f"{words}: more than {value}")
    if look.lowers:
        fell = each < (old if former is None else former) - _DRAFT_SLACK
        return EffectFinding(Effect.SEEN, words) if fell else _unknown(f"{words}: as few as before")
    if each > old + _DRAFT_SLACK:
        return EffectFinding(Effect.SEEN, words)
    always_full = former is not None and abs(former - old) <= _DRAFT_SLACK and each >= old - _DRAFT_SLACK
    if always_full:
        return EffectFinding(Effect.CONTRADICTED, f"{words}: still {old} in every step")
    return _unknown(f"{words}: no more than {old}")


def _thinking(look: Look) -> EffectFinding:
    """Thoughts longer than the budget, as a share of those that ended in the window.

    Whoever ran at the change keeps the budget that it began with, so that the longest of these have to end
    first. Requests may name larger budgets of their own: some thoughts beyond the budget prove nothing, as
    many as before do.
    """
    settled, now, before = look.settled, look.now, look.before.thoughts
    thoughts = now.thoughts
    count = thoughts.count if thoughts is not None else None
    if thoughts is None or not count or count < FEWEST_THOUGHTS:
        return _unknown(f"{count or 0:.0f} thoughts ended in the window, {FEWEST_THOUGHTS} are needed")
    former_budget, budget = _as_budget(look.change.before), _as_budget(look.change.after)
    if budget > former_budget:
        least, _ = _share_above(thoughts, former_budget + SLACK_TOKENS)
        words = (
            f"at least {100 * least:.0f} % of {count:.0f} thoughts are longer than "
            f"{former_budget + SLACK_TOKENS:.0f} tokens"
        )
        return EffectFinding(Effect.SEEN, words) if least > 0 else _unknown(words)
    limit = look.change.after + SLACK_TOKENS
    least, most = _share_above(thoughts, limit)
    words = f"{100 * least:.0f} to {100 * most:.0f} % of {count:.0f} thoughts are longer than {limit} tokens"
    if before is None or not before.count or before.count < FEWEST_THOUGHTS:
        return _unknown(f"{words}; before the change too few ended to compare with")
    former, _ = _share_above(before, limit)
    words = f"{words}, before at least {100 * former:.0f} %"
    now_high, former_low = thoughts.quantiles["p99"].high, before.quantiles["p99"].low
    shorter = now_high is not None and former_low is not None and now_high <= former_low
    if former > 0 and (most <= _QUANTILES[-1][1] or shorter):
        return EffectFinding(Effect.SEEN, words)
    longest = look.before.longest_seconds or _UNKNOWN_LONGEST_SECONDS
    if settled is None or now.at - settled.at < longest:
        return _unknown(f"{words}; requests from before the change may take {longest:.0f} s to end")
    if 0 < former <= least:
        return EffectFinding(
            Effect.CONTRADICTED, f"{words}: not in force, or these requests name budgets of their own"
        )
    return _unknown(words)


_WITNESSES: Mapping[str, Callable[[Look], EffectFinding]] = {
    "max_num_batched_tokens": _token_budget,
    "max_num_seqs": _sequences,
    "num_speculative_tokens": _drafts,
    "thinking_token_budget": _thinking,
}


def _share_above(distribution: Distribution, limit: float) -> tuple[float, float]:
    """The share above `limit`, at least and at most, as far as the quantiles tell."""
    least, most = 0.0, 1.0
    for name, share in _QUANTILES:
        quantile = distribution.quantiles[name]
        if quantile.low is not None and quantile.low >= limit:
            least = max(least, share)
        if quantile.high is not None and quantile.high <= limit:
            most = min(most, share)
    return least, most


def _as_budget(value: int | None) -> float:
    """Engines write -1, or nothing, for no budget."""
    return math.inf if value is None or value < 0 else value


def _unknown(words: str) -> EffectFinding:
    return EffectFinding(Effect.UNKNOWN, words)


def _grown(earlier: float | None, later: float | None) -> float | None:
    return None if earlier is None or later is None else later - earlier


def _fell(before: float | None, after: float | None) -> bool:
    return before is not None and after is not None and after <= _SMALLER * before


def _shown(value: float | None, digits: int = 2) -> str:
    return "?" if value is None else f"{value:.{digits}f}"


def _pair(before: float | None, after: float | None, scale: float) -> str:
    shown = ("?" if value is None else f"{value * scale:.0f}" for value in (before, after))
    return " -> ".join(shown)
