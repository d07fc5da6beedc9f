"""Carrying a change out: each turn of the machine is audited, stored, performed, in that order.

The same loop drives a live fleet and a virtual world; what differs is the `World`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from enginetop.fleet.errors import EnginetopError
from enginetop.fleet.plan import Plan
from enginetop.fleet.snapshot import FleetSnapshot
from tuners.control import machine
from tuners.control.knob_api import KnobClient, KnobReply, ReplyKind, by_path
from tuners.control.progress import READS, Answered, Ask, Progress, Purpose
from tuners.control.settings import ControlSettings
from tuners.control.store import Journal


class ControlError(EnginetopError):
    """A change cannot be begun; the text is one line for the user."""


class World(Protocol):
    """Time, the fleet, and the ways to its knobs."""

    def now(self) -> float:
        """Unix seconds."""

    def snapshot(self) -> FleetSnapshot:
        """The newest picture of the fleet."""

    def advance(self) -> None:
        """Wait for the next tick."""

    def client(self, target: str) -> KnobClient | None:
        """The knobs of a target; None where there is no live path."""


Publish = Callable[[Progress], None]


def run_change(
    plan: Plan,
    world: World,
    *,
    settings: ControlSettings,
    tool_version: str,
    approved_by: str,
    journal: Journal,
    publish: Publish = lambda _: None,
    stop: Callable[[], str] = lambda: "",
) -> Progress:
    """Carry a plan out, to a final state.

    `publish` gets every new progress; `stop` says why everything is to be undone, as long as somebody wants
    that. ControlError when nothing can be stored, before anything was written.
    """
    first = machine.begin(
        plan, now=world.now(), approved_by=approved_by, settings=settings, tool_version=tool_version
    )
    try:
        journal.save(first.progress)
        journal.append(first.rows)
    except OSError as error:
        raise ControlError(_not_stored(error)) from None
    publish(first.progress)
    return drive(first.progress, world, journal=journal, publish=publish, stop=stop)


def drive(
    progress: Progress,
    world: World,
    *,
    journal: Journal,
    publish: Publish = lambda _: None,
    stop: Callable[[], str] = lambda: "",
) -> Progress:
    """Go on with a change until its state is final."""
    answers: tuple[Answered, ...] = ()
    broken = ""
    while not progress.finished:
        wanted = broken or stop() or journal.stop_wanted(progress.plan.id)
        step = machine.step(progress, world.now(), world.snapshot(), answers, wanted)
        try:
            # the audit first: a final state that is stored is looked at no more
            journal.append(step.rows)
            journal.save(step.progress)
        except OSError as error:
            if not broken:
                # what cannot be audited is not done, except for the way back
                broken = _not_stored(error)
                answers = ()
                continue
        moved = step.progress.state is not progress.state or step.progress.ending is not progress.ending
        progress = step.progress
        answers = tuple(Answered(ask, perform(world, progress, ask)) for ask in step.asks)
        publish(progress)
        if not answers and not moved:
            world.advance()
    return progress


def perform(world: World, progress: Progress, ask: Ask) -> KnobReply:
    """Make one request. Whatever goes wrong is a reply."""
    client = world.client(ask.target)
    if client is None:
        return KnobReply(ReplyKind.MISSING, "no live path to its knobs is configured")
    client = by_path(client, progress.change_of(ask.target).via)
    if ask.purpose is Purpose.PREFLIGHT:
        return client.examine()
    if ask.purpose in READS:
        return client.read()
    if ask.value is None:
        return client.reset(ask.knob)
    return client.write(
        ask.knob,
        ask.value,
        if_version=ask.if_version,
        ttl_seconds=ask.ttl_seconds,
        change=progress.plan.id,
        reason=ask.reason,
    )


def _not_stored(error: OSError) -> str:
    return f"the state folder cannot be written ({error.strerror or error})"
