"""Checks of the states of replicas: what the state machine of the core says, with its own clock."""

from __future__ import annotations

from collections.abc import Callable

from enginetop.alerts.rule import Finding, untold
from enginetop.alerts.seen import newest, number, recent
from enginetop.alerts.standing import EachReplica
from enginetop.fleet.durations import duration_text
from enginetop.fleet.model import ReplicaState, Role
from enginetop.fleet.snapshot import FleetSnapshot, ReplicaSnapshot

SILENT_SECONDS = 120.0
"""Without one output token for so long, with a queue, an engine is busy with something that never ends."""


def in_state(state: ReplicaState, words: str) -> EachReplica:
    """In breach while a replica is in `state`; value: seconds since its cause began."""
    return _check(lambda replica: replica.state is state, words)


def stalled(live_progress: bool) -> EachReplica:
    """No progress, of engines with (or without) a series that moves during a request."""

    def applies(replica: ReplicaSnapshot) -> bool:
        return replica.state is ReplicaState.NO_PROGRESS and replica.live_progress is live_progress

    return _check(applies, "no progress")


def slow_or_silent() -> EachReplica:
    """No progress that may be a long request, or work without one output token while others wait.

    The latter moves counters (an engine that computes a prompt again and again), so that it is no state.
    """
    slow = stalled(live_progress=False).judge
    return EachReplica(
        lambda replica, snapshot: slow(replica, snapshot) or _silent(replica, snapshot.at), by_clock=True
    )


def _silent(replica: ReplicaSnapshot, at: float) -> Finding | None:
    waiting, running = number(replica, "requests_waiting"), number(replica, "requests_running")
    if not waiting or not running or not replica.live_progress or replica.role is Role.PREFILL:
        return None
    if (newest(replica, "generation_tokens_per_second") or 0.0) > 0:
        return None
    points = recent(replica, "generation_tokens_per_second", at - 2 * SILENT_SECONDS)
    began: float | None = None
    for time, rate in points:
        began = None if rate > 0 else (time if began is None else began)
    if began is None or at - began < SILENT_SECONDS:
        return None
    span = duration_text(at - began)
    return Finding(
        replica.target.url,
        True,
        at - began,
        SILENT_SECONDS,
        f"no output token for {span} while {running:.0f} run and {waiting:.0f} wait",
        began,
    )


def late() -> EachReplica:
    """The metrics page is old, fails, or takes longer than the time between two pages."""
    return EachReplica(_late, by_clock=True)


def _late(replica: ReplicaSnapshot, snapshot: FleetSnapshot) -> Finding | None:
    if replica.state is ReplicaState.STALE:
        return _state_finding(replica, snapshot.at, "stale")
    if replica.state is ReplicaState.UNKNOWN:
        return untold(replica.target.url)
    took, spacing = replica.scrape_seconds, replica.spacing_seconds
    if took is None or spacing is None or took <= spacing:
        return None
    summary = f"a page takes {took:.1f} s, one is due every {spacing:g} s"
    return Finding(replica.target.url, True, took, spacing, summary)


def _check(applies: Callable[[ReplicaSnapshot], bool], words: str) -> EachReplica:
    def judge(replica: ReplicaSnapshot, snapshot: FleetSnapshot) -> Finding | None:
        if applies(replica):
            return _state_finding(replica, snapshot.at, words)
        return untold(replica.target.url) if replica.state is ReplicaState.UNKNOWN else None

    return EachReplica(judge, by_clock=True)


def _state_finding(replica: ReplicaSnapshot, at: float, words: str) -> Finding:
    summary = "; ".join(replica.reasons) or f"{words} for {duration_text(at - replica.since)}"
    return Finding(replica.target.url, True, max(at - replica.since, 0.0), None, summary, replica.since)
