"""Numbers of drafts that were both measured, at batches of a similar size: the measurement decides."""

from __future__ import annotations

from collections.abc import Mapping

from enginetop.fleet.frozen import frozen
from enginetop.fleet.snapshot import Advice
from tuners.case import Case, once
from tuners.draft_memory import LIKE_BATCH_RATIO, Speed, speed_of
from tuners.knob_values import DRAFTS
from tuners.words import percent, row, too_short

WORTH_RATIO = 0.05
"""A change must be worth so much of the speed."""


@frozen
class Compared:
    """The present speed, and how much faster each other number of drafts was (-.2: a fifth slower)."""

    now: Speed
    gains: Mapping[int, float]

    @property
    def best(self) -> int | None:
        """The number of drafts that was clearly faster; None: none was."""
        worth = [drafts for drafts, gain in self.gains.items() if gain >= WORTH_RATIO]
        return max(worth, key=lambda drafts: self.gains[drafts], default=None)

    def was_slower(self, drafts: int) -> bool:
        """Whether this number was tried and brought less."""
        return self.gains.get(drafts, 0.0) < 0


@once
def compared(case: Case) -> Compared | None:
    """The comparison, None where there is nothing to compare."""
    if not case.drafted.speeds:
        return None
    now = speed_of(case.recent, case.engines)
    if now is None or now.tokens_per_second <= 0:
        return None
    each = now.tokens_per_second / now.running if now.running > 0 else 0.0
    gains = {
        drafts: speed.tokens_per_second / speed.running / each - 1.0
        for drafts, speed in case.drafted.speeds.items()
        if drafts != case.knobs.drafts and now.is_like(speed)
    }
    return Compared(now, gains) if gains else None


def direction(drafts: int, to: int) -> str:
    """The word for going from `drafts` to `to`."""
    return "raise" if to > drafts else "lower" if to else "disable"


def measured_change(case: Case, found: Compared, to: int) -> Advice:
    """The row that goes to the faster number of drafts."""
    drafts, gain = case.knobs.drafts, found.gains[to]
    then = case.drafted.speeds[to]
    said = (
        f"measured: {then.tokens_per_second:.1f} tokens/s with {to} drafts at {then.running:.0f} running, "
        f"{found.now.tokens_per_second:.1f} with {drafts} at {found.now.running:.0f}"
    )
    if (short := too_short(case)) is not None:
        return row(DRAFTS, "withheld", short, drafts, said)
    action = direction(drafts, to)
    because = (
        said,
        f"{percent(gain)} faster for each request at a like batch (within a factor of {LIKE_BATCH_RATIO:g})",
        "wrong if the batch grows or shrinks much, or the acceptance has changed since",
    )
    apply, via = case.knobs.way(DRAFTS, to)
    expected = {"tokens_per_second_change_ratio": gain}
    return Advice(DRAFTS, action, because, drafts, to, "decode", expected, "high", apply, via)
