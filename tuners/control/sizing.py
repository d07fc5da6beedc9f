"""What an observation can show: the difference that it would see, and what a verdict takes. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable

from enginetop.fleet.durations import tenths
from enginetop.fleet.frozen import frozen
from enginetop.fleet.snapshot import ReplicaSnapshot, number_of
from tuners.control.judge import POWER, required_requests
from tuners.control.observe import JUDGED, WITHIN
from tuners.control.probability import normal_quantile
from tuners.control.settings import ControlSettings

ASSUMED_DESIGN_EFFECT = 2.0
"""Before any block is seen; requests that share a batch are not independent (2 to 10 in the field)."""
_ENOUGH_JUDGED = 200


@frozen
class Sizing:
    """What an observation can show, from the present rate and attainment.

    `canary_per_second` are its finished requests. `attainment` is that of canary and baselines so far, or the
    objective's target while too few are `attainment_seen`. `visible` is the difference (a ratio) that the
    configured blocks show with power 0.8, `needed_seconds` the time to show `not_worse` within the margin,
    `needed_requests` those of each arm if both had the same traffic; None: not known, or no traffic.
    """

    canary_per_second: float
    attainment: float
    attainment_seen: bool
    design_effect: float
    visible: float | None
    needed_requests: int | None
    needed_seconds: float | None
    observation_seconds: float

    @property
    def words(self) -> str:
        """The sizing as one line for people."""
        shown = f"observation takes {tenths(self.observation_seconds / 60)} min"
        if self.visible is None or self.needed_requests is None:
            return f"{shown}; no request was seen to end just now: without traffic there is no verdict"
        so_far = " so far," if self.attainment_seen else " and"
        line = (
            f"{shown} at {self.canary_per_second:.1f} req/s and shows differences from "
            f"{100 * self.visible:.1f} points (attainment {100 * self.attainment:.1f} %{so_far} "
            f"design effect {self.design_effect:g} assumed)"
        )
        if self.needed_seconds is None or self.needed_seconds <= self.observation_seconds:
            return line
        return (
            f"{line}; not_worse within the margin needs about {tenths(self.needed_seconds / 60)} min "
            f"({self.needed_requests} requests an arm if both had as many): expect `inconclusive` unless the "
            f"difference is plain"
        )


def size(
    canary: ReplicaSnapshot,
    baselines: Iterable[ReplicaSnapshot],
    settings: ControlSettings,
) -> Sizing:
    """What an observation at the present rates can show."""
    others = tuple(baselines)
    own_rate = _rate(canary)
    rate = sum(map(_rate, others))
    judged = sum(replica.totals.get(JUDGED, 0.0) for replica in (canary, *others))
    within = sum(replica.totals.get(WITHIN, 0.0) for replica in (canary, *others))
    # what is judged counts since we look; a handful of requests tells less than the objective does
    seen = judged >= _ENOUGH_JUDGED
    attainment = within / judged if seen else canary.slo.target
    seconds = settings.blocks * settings.block_seconds
    visible = needed = needed_seconds = None
    if own_rate > 0 and rate > 0:
        # an attainment of exactly 1 so far is no proof that none will miss
        spread = max(attainment * (1 - attainment), 1 / (max(judged, _ENOUGH_JUDGED) + 2))
        z = normal_quantile(1 - settings.alpha) + normal_quantile(POWER)
        per_request = ASSUMED_DESIGN_EFFECT * spread * (1 / own_rate + 1 / rate)
        visible = z * math.sqrt(per_request / seconds)
        level = (1 + math.sqrt(max(0.0, 1 - 4 * spread))) / 2
        needed = required_requests(
            level, settings.margin, settings.alpha, design_effect=ASSUMED_DESIGN_EFFECT
        )
        needed_seconds = settings.warmup_seconds + z * z * per_request / settings.margin**2
    return Sizing(
        canary_per_second=own_rate,
        attainment=attainment,
        attainment_seen=seen,
        design_effect=ASSUMED_DESIGN_EFFECT,
        visible=visible,
        needed_requests=needed,
        needed_seconds=needed_seconds,
        observation_seconds=settings.observation_seconds,
    )


def _rate(replica: ReplicaSnapshot) -> float:
    return number_of(replica.signals, "requests_finished_per_second") or 0.0
