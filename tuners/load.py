"""What a replica bears now: the windowed figures that rules look at, or why there are none to trust."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import BELIEVED
from enginetop.fleet.snapshot import Distribution, Quantile
from tuners.case import Case, once
from tuners.limits import FEWEST_FOR_P95
from tuners.words import LONGER_WINDOW, at_least, contradiction, lacking, missing, not_fresh

NEEDED: Mapping[str, int] = MappingProxyType(
    {"tpot_seconds": FEWEST_FOR_P95, "ttft_seconds": FEWEST_FOR_P95, "iteration_tokens": 1}
)
"""Distributions without which nothing is judged, and the fewest observations in the window."""


_NEEDED_SCALARS = (
    "requests_running",
    "requests_waiting",
    "kv_usage_ratio",
    "preemptions",
    "prompt_tokens_per_second",
)


@frozen
class Load:
    """p95 of TPOT and TTFT, p99 of the tokens in a step, and the objectives.

    `accepted` are tokens that a request gets in a step (1 without speculation). Of one engine: `decoding` the
    running requests, `demand` the prompt tokens per second that are not in the cache. `prompt` is the mean
    prompt and `long_prompt` its p95.
    """

    tpot: Quantile
    ttft: Quantile
    step_tokens: float
    tpot_slo: float
    ttft_slo: float
    accepted: float
    decoding: float
    demand: float
    prompt: float | None
    long_prompt: float | None
    hit_ratio: float
    preemptions: float

    @property
    def tpot_seconds(self) -> float:
        """TPOT p95, or what it is at least."""
        return at_least(self.tpot)

    @property
    def ttft_seconds(self) -> float:
        """TTFT p95, or what it is at least."""
        return at_least(self.ttft)

    @property
    def step_limit(self) -> float:
        """The longest step that meets the TPOT objective."""
        return self.tpot_slo * self.accepted


@once
def load_of(case: Case) -> Load | str:
    """The load of a replica; words when its pages do not suffice to judge it."""
    replica, engines = case.replica, case.engines
    if (why := not_fresh(case)) is not None:
        return why
    if (lack := lacking(case, _NEEDED_SCALARS)) is not None:
        return lack
    for name, fewest in NEEDED.items():
        if (lack := _lack(name, replica.distribution(name), fewest)) is not None:
            return lack
    tpot, ttft, steps = map(replica.distribution, NEEDED)
    hits = replica.scalar("prefix_hit_ratio").number or 0.0
    arriving = replica.scalar("prompt_tokens_per_second").number or 0.0
    prompts = replica.distribution("prompt_tokens")
    accepted = replica.scalar("spec_accepted_length").number if case.knobs.drafts else None
    return Load(
        tpot=tpot.quantiles["p95"],
        ttft=ttft.quantiles["p95"],
        step_tokens=at_least(steps.quantiles["p99"]),
        tpot_slo=replica.slo.tpot_seconds,
        ttft_slo=replica.slo.ttft_seconds,
        accepted=accepted or 1.0,
        decoding=(replica.scalar("requests_running").number or 0.0) / engines,
        demand=arriving * (1.0 - hits) / engines,
        prompt=prompts.mean.value,
        long_prompt=prompts.quantiles["p95"].value if prompts.count else None,
        hit_ratio=hits,
        preemptions=replica.scalar("preemptions").number or 0.0,
    )


def _lack(name: str, distribution: Distribution, fewest: int) -> str | None:
    """What a distribution lacks to be relied on; None: nothing."""
    if distribution.quality not in BELIEVED or distribution.count is None:
        return missing(name, distribution)
    if (why := contradiction(distribution)) is not None:
        return f"{name} {why}"
    if distribution.count < fewest:
        seen = f"{distribution.count:.0f} observations in the window"
        return f"{name} has {seen}, at least {fewest} are needed; {LONGER_WINDOW}"
    return None
