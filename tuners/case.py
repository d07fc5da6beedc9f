"""What every rule is asked about: one engine replica, its knobs, and what was seen of it lately."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import wraps
from typing import Any, TypeVar

from enginetop.fleet.frozen import frozen
from enginetop.fleet.snapshot import Advice, ReplicaSnapshot
from tuners.draft_memory import NOTHING_DRAFTED, Drafted
from tuners.knob_values import Knobs
from tuners.moments import Minute, Moment
from tuners.step_time import StepFit, StepWindow, Unfit, fit_step_time
from tuners.thoughts import Thoughts

T = TypeVar("T")


@frozen
class Case:
    """A replica to judge, of `engines` data-parallel ranks with equal knobs.

    `windows` are its step windows, `recent` its pages of the last minutes, `minutes` what it achieved in each
    since the knobs are as they are, all oldest first. `held_seconds`: for how long every page has called for
    what the newest calls for. `drafted_steps`: steps of requests with drafts since the knobs are as they are.
    `drafted`: what other numbers of drafts were measured at. `thoughts`: how long requests thought.
    """

    replica: ReplicaSnapshot
    knobs: Knobs
    windows: Sequence[StepWindow] = ()
    recent: Sequence[Moment] = ()
    held_seconds: float = 0.0
    drafted_steps: float | None = None
    drafted: Drafted = NOTHING_DRAFTED
    minutes: Sequence[Minute] = ()
    thoughts: Thoughts | None = None
    _worked_out: dict[object, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def held_for(self, seconds: float) -> Case:
        """The same case, with a call that has held for so long; what was worked out of it stays."""
        held = replace(self, held_seconds=seconds)
        held._worked_out.update(self._worked_out)
        return held

    @property
    def engines(self) -> int:
        """Schedulers that the figures of the replica are summed over."""
        return max(1, len(self.replica.ranks))

    def fit(self) -> StepFit | Unfit:
        """Step time by tokens, or why there is no such fit."""
        return fit_step_time(self.windows)


def once(work: Callable[[Case], T]) -> Callable[[Case], T]:
    """`work`, done once a case however many rules ask for it. It must not look at `held_seconds`."""

    @wraps(work)
    def done(case: Case) -> T:
        known = case._worked_out
        if work not in known:
            known[work] = work(case)
        result: T = known[work]
        return result

    return done


@frozen
class Rule:
    """The rule of one knob.

    `calls` names what the newest page calls for (`raise`, `lower`, `disable`; None: nothing, or not to be
    told): it has to hold for `SUSTAINED_SECONDS`. `advise` gives the row.
    """

    knob: str
    calls: Callable[[Case], str | None]
    advise: Callable[[Case], Advice]
