"""The life of one change: its states, its verdict, and what the screens and the audit show of it."""

from __future__ import annotations

from enum import StrEnum

from enginetop.fleet.frozen import frozen


class ChangeState(StrEnum):
    """State of a change. The last five are final."""

    PLANNED = "PLANNED"
    PREFLIGHT = "PREFLIGHT"
    APPROVED = "APPROVED"
    CANARY = "CANARY"
    WARMUP = "WARMUP"
    OBSERVE = "OBSERVE"
    PROMOTE = "PROMOTE"
    VERIFY = "VERIFY"
    DONE = "DONE"
    HELD = "HELD"
    ROLLED_BACK = "ROLLED_BACK"
    ROLLBACK_FAILED = "ROLLBACK_FAILED"
    REFUSED = "REFUSED"


FINAL_STATES: frozenset[ChangeState] = frozenset(
    {
        ChangeState.DONE,
        ChangeState.HELD,
        ChangeState.ROLLED_BACK,
        ChangeState.ROLLBACK_FAILED,
        ChangeState.REFUSED,
    }
)
OUT_OF_FORCE: frozenset[ChangeState] = frozenset(
    {ChangeState.REFUSED, ChangeState.ROLLED_BACK, ChangeState.HELD}
)
"""States in which nothing of a change is in force."""


def value_text(value: int | None) -> str:
    """A knob's value in words; None: the engine sets none."""
    return "unset" if value is None else str(value)


class Verdict(StrEnum):
    """What a canary showed of the SLO attainment."""

    IMPROVED = "improved"
    NOT_WORSE = "not_worse"
    WORSE = "worse"
    INCONCLUSIVE = "inconclusive"


@frozen
class Arm:
    """One side of a canary so far: requests judged and those within the SLO, over the same blocks."""

    targets: tuple[str, ...]
    requests: float
    within_slo: float

    @property
    def attainment_ratio(self) -> float | None:
        """Share within the SLO; None before the first request."""
        return self.within_slo / self.requests if self.requests > 0 else None


@frozen
class Guard:
    """One hard guard: its name, whether it holds, and the figures in words."""

    name: str
    ok: bool
    detail: str


@frozen
class AuditRow:
    """One line of the audit, without its hash: `change` is the change's id.

    `asked`: it was undone because a person asked for it or the program ended, not for what was observed.
    """

    change: str
    at: float
    state: ChangeState
    target: str
    knob: str
    before: int | None
    after: int | None
    verdict: Verdict | None = None
    detail: str = ""
    asked: bool = False


@frozen(eq=False)
class ChangeView:
    """Everything that a screen shows of a change in flight, or of a finished one.

    Targets are URLs; those of `together` change at once with the canary, `promote_targets` after it. While
    a wave is only watched, for `soak_seconds` more (else None), the `written` have the value, and those of
    `next_wave` get it then; without any its effect is looked for.
    """

    id: str
    state: ChangeState
    since: float
    knob: str
    before: int | None
    after: int | None
    canary_target: str
    promote_targets: tuple[str, ...]
    block: int
    blocks: int
    eta_seconds: float | None
    expires_in_seconds: float | None
    canary: Arm | None
    baseline: Arm | None
    verdict: Verdict | None
    guards: tuple[Guard, ...]
    detail: str
    history: tuple[AuditRow, ...]
    together: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    next_wave: tuple[str, ...] = ()
    soak_seconds: float | None = None


@frozen
class Proposal:
    """One change as a controller would make it: worked out and held against the fleet, but not begun.

    Targets are URLs; those of `together` change at once with the canary, `promote_targets` follow it if it
    does well. `observation_seconds` is the time from the start to the verdict (None: there will be none),
    `ttl_seconds` how long a written value lasts unless renewed (None: nobody else counts it). `notes` are
    figures in words (what the observation can show). With `refusals` it cannot be started, for these reasons.
    """

    id: str
    knob: str
    before: int | None
    after: int | None
    canary_target: str
    promote_targets: tuple[str, ...] = ()
    baseline_targets: tuple[str, ...] = ()
    observation_seconds: float | None = None
    ttl_seconds: float | None = None
    notes: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    together: tuple[str, ...] = ()
