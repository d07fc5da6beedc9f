"""What every rule is asked about: one engine replica, its knobs, and what was seen of it lately."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from enginetop.fleet.snapshot import Advice, ReplicaSnapshot
from tuners.knob_values import Knobs
from tuners.step_time import StepFit, StepWindow, Unfit, fit_step_time

SUSTAINED_SECONDS = 60.0
"""For so long every page must call for the same change before it is suggested."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Gauges of one page, all ranks together: requests running, waiting, mean KV usage. None: not known."""

    at: float
    running: float | None
    waiting: float | None
    kv_usage_ratio: float | None


@dataclass(frozen=True, slots=True)
class Case:
    """A replica to judge, of `engines` data-parallel ranks with equal knobs.

    `windows` are its step windows, `recent` its pages of the last minutes, both oldest first. `held_seconds`:
    for how long every page has called for what the newest calls for. `drafted_steps`: steps of requests with
    drafts since the knobs are as they are. `fits`: of the same engine and model by number of drafts.
    """

    replica: ReplicaSnapshot
    knobs: Knobs
    windows: Sequence[StepWindow] = ()
    recent: Sequence[Moment] = ()
    held_seconds: float = 0.0
    drafted_steps: float | None = None
    fits: Mapping[int, StepFit] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def engines(self) -> int:
        """Schedulers that the figures of the replica are summed over."""
        return max(1, len(self.replica.ranks))

    def fit(self) -> StepFit | Unfit:
        """Step time by tokens, or why there is no such fit."""
        return fit_step_time(self.windows)


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule of one knob.

    `calls` names what the newest page calls for (`raise`, `lower`, `disable`; None: nothing, or not to be
    told): it has to hold for `SUSTAINED_SECONDS`. `advise` gives the row.
    """

    knob: str
    calls: Callable[[Case], str | None]
    advise: Callable[[Case], Advice]
