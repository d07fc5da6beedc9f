"""What a step takes without drafts, and what each draft adds: assumed as a range, or measured.

One number of drafts tells only the sum. Two of them tell the cost of a draft: the time of a token is that of
the hardware and the same for both, so that both steps are compared with one slope.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from enginetop.fleet.frozen import frozen
from tuners.draft_maths import StepCost
from tuners.step_time import StepFit

DRAFT_COST_RATIO = (0.03, 0.10, 0.20)
"""Cost of a draft over that of an empty step: least, likely, most. Heuristic, for heads and small models."""


@frozen
class DraftCosts:
    """By the cheapest, the likely and the dearest draft. `measured`: the ends are those of an interval."""

    cheapest: StepCost
    likely: StepCost
    dearest: StepCost
    measured: bool = False

    @property
    def ends(self) -> tuple[StepCost, StepCost]:
        """The cheapest and the dearest."""
        return self.cheapest, self.dearest


def costs_of(fit: StepFit, drafts: int, others: Mapping[int, StepFit]) -> DraftCosts:
    """The step of `drafts` drafts split into engine and drafts, by the surest comparison with one of `others`
    (fits by number of drafts), else by what is assumed.
    """
    found = [_measured(fit, drafts, known, other) for other, known in others.items() if other != drafts]
    each, margin = min((one for one in found if one[0] > 0), key=lambda one: one[1], default=(0.0, math.inf))
    measured = margin < each
    likely = [each - margin, each, each + margin] if measured else _assumed(fit, drafts)
    cheapest, middle, dearest = (_split(fit, drafts, one) for one in likely)
    return DraftCosts(cheapest, middle, dearest, measured)


def _assumed(fit: StepFit, drafts: int) -> list[float]:
    return [ratio * fit.base_seconds / (1.0 + ratio * drafts) for ratio in DRAFT_COST_RATIO]


def _split(fit: StepFit, drafts: int, draft_seconds: float) -> StepCost:
    base = max(0.0, fit.base_seconds - draft_seconds * drafts)
    return StepCost(base, fit.per_token_seconds, draft_seconds)


def _measured(fit: StepFit, drafts: int, known: StepFit, other: int) -> tuple[float, float]:
    """Seconds a draft, and half the width of their interval: the slope is that of the surer fit, and its
    uncertainty counts over the tokens that lie between the two.
    """
    surer = min((fit, known), key=lambda one: one.per_token_margin_seconds)
    apart = fit.mean_tokens - known.mean_tokens
    longer = fit.seconds(fit.mean_tokens) - known.seconds(known.mean_tokens)
    margins = (
        surer.per_token_margin_seconds * apart,
        fit.margin_seconds(fit.mean_tokens),
        known.margin_seconds(known.mean_tokens),
    )
    each = (longer - surer.per_token_seconds * apart) / (drafts - other)
    return each, math.hypot(*margins) / abs(drafts - other)
