"""How a change is told of in few words: its state, its verdict, the two values, and the time that is left."""

from __future__ import annotations

from collections.abc import Mapping

from enginetop.fleet.change import FINAL_STATES, ChangeState, ChangeView, Verdict
from enginetop.fleet.durations import countdown
from themes.loader import Ink
from tui.view import numbers

STATE_INK: Mapping[ChangeState, Ink] = {
    **dict.fromkeys(ChangeState, "info"),
    ChangeState.DONE: "ok",
    ChangeState.HELD: "warn",
    ChangeState.ROLLED_BACK: "warn",
    ChangeState.ROLLBACK_FAILED: "crit",
    ChangeState.REFUSED: "warn",
}
"""How loud a state is: a value that could not be brought back outranks all else."""

VERDICT_INK: Mapping[Verdict, Ink] = {
    Verdict.IMPROVED: "ok",
    Verdict.NOT_WORSE: "ok",
    Verdict.WORSE: "crit",
    Verdict.INCONCLUSIVE: "warn",
}

_WORDS: Mapping[ChangeState, str] = {
    **{state: str(state).replace("_", " ") for state in ChangeState},
    ChangeState.HELD: "HELD, undone",
}
"""A change that is held has been taken back: a person decides, and nothing of it is in force meanwhile."""


def state_words(state: ChangeState) -> str:
    """The state in words."""
    return _WORDS[state]


def state_text(change: ChangeView) -> str:
    """The state in words, with the block while the canary is observed."""
    blocks = f" {change.block} of {change.blocks}" if change.state is ChangeState.OBSERVE else ""
    return state_words(change.state) + blocks


def verdict_text(verdict: Verdict) -> str:
    """The verdict in words."""
    return str(verdict).replace("_", " ")


def diff_text(before: int | None, after: int | None) -> str:
    """A change of a knob; None: the engine sets no value."""
    return f"{numbers.knob(before, 'unset')} → {numbers.knob(after, 'unset')}"


def time_left(change: ChangeView, age_seconds: float) -> str:
    """How long the observation goes on, rounded up: nothing once it is over."""
    if change.eta_seconds is None or change.state in FINAL_STATES:
        return ""
    left = max(change.eta_seconds - age_seconds, 0.0)
    return f"about {left // 60 + 1:.0f} min left" if left >= 60 else f"{countdown(left)} left"


def soak_text(change: ChangeView, age_seconds: float) -> str:
    """What a promotion waits for between two waves; nothing when it does not."""
    if change.soak_seconds is None or change.state in FINAL_STATES:
        return ""
    have = f"{len(change.written)} of {1 + len(change.together) + len(change.promote_targets)} have it"
    then = f"the next {len(change.next_wave)} get it" if change.next_wave else "its effect is looked for"
    left = countdown(max(change.soak_seconds - age_seconds, 0.0))
    return f"{have} and are watched: {then} in {left} unless a guard trips"


def expiry_text(change: ChangeView, age_seconds: float) -> str:
    """When the engine goes back by itself; nothing when no value is on trial."""
    if change.expires_in_seconds is None or change.state in FINAL_STATES:
        return ""
    left = change.expires_in_seconds - age_seconds
    if left <= 0:
        return "not renewed in time: the engine has gone back by itself"
    return f"goes back by itself in {countdown(left)} unless renewed"
