"""Prefill and decode on separate workers: what both count of one request is counted once.

A request passes through a prefill and a decode worker, and both count it: as a request, its prompt and its
tokens. Each measure is taken from the stage that sees the whole of it. A stage that is told by nobody else is
never left out: where only prefill workers are watched, their counts are all there is. A request stays within
one stack and one model; a worker whose model is not known may have requests of any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from types import MappingProxyType
from typing import TypeVar

from enginetop.fleet.facts import NO_COUNTS, RATIOS, Facts, WindowFacts
from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import Quality, Role

T = TypeVar("T")

_WHOLE_REQUESTS = (
    "requests_finished",
    "requests_aborted",
    "requests_errored",
    "requests_judged",
    "requests_judged_failed",
    "requests_within_slo",
    "generation_tokens",
    "tpot_seconds",
    "itl_seconds",
    "e2e_seconds",
    "output_tokens",
    "reasoning_tokens",
    "completed_ttft_seconds",
    "completed_tpot_seconds",
)
_PROMPTS = (
    "prompt_tokens_processed",
    "prompt_tokens",
    "ttft_seconds",
    "queue_seconds",
    "prefix_queries",
    "prefix_hits",
    "external_prefix_queries",
    "external_prefix_hits",
)

COUNTED_BY: Mapping[str, Role] = MappingProxyType(
    {**dict.fromkeys(_WHOLE_REQUESTS, Role.DECODE), **dict.fromkeys(_PROMPTS, Role.PREFILL)}
)
"""Which stage counts a measure for the fleet. All other measures are of a worker and not of a request, or of
one stage only, and are taken from both.

The first token and the tokens after it are made by decode, but a prefill worker's e2e ends with its own first
token, and its output has one. A decode worker's prompt came with its KV cache: for it that is a remote hit.
"""


SEEN_WHOLE_BY_DECODE: Mapping[str, frozenset[str]] = MappingProxyType({"sglang": frozenset({"ttft_seconds"})})
"""By stack what decode sees whole after all: SGLang's router hands a request to both workers at once, so that
a decode worker's time to the first token holds prefill and transfer. Elsewhere decode begins after prefill.
"""


def stage_that_counts(measure: str, stack: str) -> Role | None:
    """The stage that a fleet takes a measure from, None for both."""
    whole = measure in SEEN_WHOLE_BY_DECODE.get(stack, ())
    return Role.DECODE if whole else COUNTED_BY.get(measure)


_WHOLE_PROMPTS = frozenset({"prompt_tokens_processed", "prompt_tokens"})
"""What a worker counts of a prompt even where its KV cache came from elsewhere."""

_DYNAMO = "dynamo"
_OTHER: Mapping[Role, Role] = MappingProxyType({Role.PREFILL: Role.DECODE, Role.DECODE: Role.PREFILL})


@frozen
class Flow:
    """What a request stays within: a stack (the engine, where it has none) and a model, None if not known."""

    stack: str
    model: str | None = None

    def shares_with(self, other: Flow) -> bool:
        """Whether requests of the one may be requests of the other."""
        return self.stack == other.stack and (self.model == other.model or None in (self.model, other.model))


@frozen
class StagePart:
    """One replica: its facts, its role, and whose requests it works on."""

    facts: WindowFacts
    role: Role
    flow: Flow

    @property
    def stage(self) -> Role:
        """The stage that it counts as."""
        return stage_of(self.role, self.flow.stack)


def stage_of(role: Role, stack: str) -> Role:
    """The stage that a replica counts as: a Dynamo worker does not call itself a decode worker, and is one
    beside prefill workers.
    """
    return Role.DECODE if role is Role.AGGREGATED and stack == _DYNAMO else role


class StageRule:
    """Leaves out of every replica's facts what another stage of the same flow counts as well.

    Remembers its results: facts that stay the same object yield the same object.
    """

    def __init__(self) -> None:
        self._kept: dict[int, tuple[WindowFacts, frozenset[str], WindowFacts]] = {}

    def counted(self, parts: Sequence[StagePart]) -> list[WindowFacts]:
        """The facts of all replicas of a fleet, each measure of a request from one stage only."""
        if not any(part.role is Role.PREFILL for part in parts):
            self._kept.clear()
            return [part.facts for part in parts]
        told: dict[tuple[Flow, Role], set[str]] = {}
        for part in parts:
            if part.stage in _OTHER:
                told.setdefault((part.flow, part.stage), set()).update(_tells(part.facts.total))
        undecided = _undecided(parts)
        left_out = {
            (flow, role): _left_out(flow, role, told, undecided)
            for flow, role in {(part.flow, part.role) for part in parts}
        }
        self._kept = {
            at: self._filtered(at, part.facts, left_out[part.flow, part.role])
            for at, part in enumerate(parts)
        }
        return [filtered for _, _, filtered in self._kept.values()]

    def _filtered(
        self, at: int, facts: WindowFacts, left_out: frozenset[str]
    ) -> tuple[WindowFacts, frozenset[str], WindowFacts]:
        kept = self._kept.get(at)
        if kept is not None and kept[0] is facts and kept[1] == left_out:
            return kept
        return facts, left_out, _without(facts, left_out) if left_out else facts


def _left_out(
    flow: Flow, role: Role, told: Mapping[tuple[Flow, Role], Set[str]], undecided: Set[Flow]
) -> frozenset[str]:
    """What workers of that flow and role do not count, since another stage tells it."""
    other = _OTHER.get(role)
    elsewhere: set[str] = set()
    for (theirs, stage), names in told.items():
        if stage is other and flow.shares_with(theirs):
            elsewhere |= names
    found = frozenset(name for name in elsewhere if stage_that_counts(name, flow.stack) is other)
    if role is Role.PREFILL and any(flow.shares_with(theirs) for theirs in undecided):
        # Such a worker counts whole prompts, whether it computed them or not: not once more here.
        found |= _WHOLE_PROMPTS & elsewhere
    return found


def _undecided(parts: Sequence[StagePart]) -> Set[Flow]:
    """Flows whose decode workers are only known by the prefill workers beside them."""
    decided = {part.flow for part in parts if part.role is Role.DECODE}
    guessed = {part.flow for part in parts if part.stage is not part.role}
    return {flow for flow in guessed if not any(flow.shares_with(known) for known in decided)}


def _tells(facts: Facts) -> set[str]:
    """What a replica counts, also where the count is not known just now."""
    later = (name for name, gap in facts.gaps.items() if gap.quality is not Quality.UNSUPPORTED)
    return {*facts.gains, *facts.histograms, *later}


def _without(window: WindowFacts, left_out: frozenset[str]) -> WindowFacts:
    """The same window without some measures, and without the ratios that are made of them."""
    facts = window.total
    ratios = {
        name: ratio for name, ratio in facts.ratios.items() if left_out.isdisjoint(RATIOS.get(name, ()))
    }
    total = replace(
        facts,
        gains=_kept(facts.gains, left_out),
        histograms=_kept(facts.histograms, left_out),
        ratios=ratios,
        gaps={
            name: gap
            for name, gap in facts.gaps.items()
            if name not in left_out and left_out.isdisjoint(RATIOS.get(name, ()))
        },
        within_slo=NO_COUNTS if "requests_within_slo" in left_out else facts.within_slo,
    )
    return replace(window, total=total)


def _kept(named: Mapping[str, T], left_out: frozenset[str]) -> dict[str, T]:
    return {name: value for name, value in named.items() if name not in left_out}
