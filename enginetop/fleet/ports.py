"""What the core asks of the outside, and what front ends may ask of the engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from enginetop.fleet.change import AuditRow, ChangeView, Proposal
from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import Target
from enginetop.fleet.snapshot import FleetSnapshot, GpuReport


class FleetSource(Protocol):
    """Where a front end gets its snapshots: the live engine, a replay, or a fake in a test."""

    def start(self) -> None:
        """Begin; returns at once."""

    def stop(self) -> None:
        """End and release everything; returns when all is closed."""

    def latest(self) -> FleetSnapshot | None:
        """The newest snapshot, or None before the first tick."""

    def subscribe(self, on_snapshot: Callable[[], None]) -> Callable[[], None]:
        """Call `on_snapshot` from the engine's own thread after each tick; returns the call that ends it."""

    def finished(self) -> bool:
        """Whether no snapshot will ever follow the newest one (a replay at its end)."""

    def request_refresh(self) -> None:
        """Scrape every target as soon as possible instead of at its next turn."""


@frozen
class PlaybackState:
    """How a recording is played: the instant reached, its ends (Unix seconds of the recording), the pace."""

    at: float
    first_at: float
    last_at: float
    speed: float
    paused: bool


class Playback(FleetSource, Protocol):
    """A source that plays a recording. The calls return at once; what comes of them is the next snapshot."""

    def playback(self) -> PlaybackState:
        """How it is played just now."""

    def set_speed(self, speed: float) -> None:
        """Play at so many times the recording's own pace."""

    def set_paused(self, paused: bool) -> None:
        """Stand still, or go on."""

    def seek(self, at: float) -> None:
        """Go to an instant of the recording, forward or back, as fast as possible."""


@frozen
class RawPage:
    """One page as it was served: `said` tells status, size and time taken, or what went wrong.

    Nothing in `lines` is a secret or anything that a terminal would obey; of JSON they hold the fields that
    are used.
    """

    path: str
    said: str
    lines: tuple[str, ...]


@frozen(eq=False)
class RawScrape:
    """The pages of one scrape of the target `url`, complete at `at` (Unix seconds)."""

    url: str
    at: float
    pages: tuple[RawPage, ...]


class RawPages(Protocol):
    """The pages behind the numbers, of one target at a time and only while somebody looks at them."""

    def watch(self, url: str | None) -> None:
        """Keep the pages of this target from its next scrape on; None: keep nothing."""

    def latest(self) -> RawScrape | None:
        """The last scrape of the watched target; None before one. A large page takes a moment."""


class ChangeControl(Protocol):
    """What a front end may ask of the controller of changes.

    `propose`, `start`, `roll_back` and `audit` may take as long as a request to an engine, so a screen calls
    them from a thread of its own; EnginetopError says in one line what went wrong. `latest` and `subscribe`
    return at once.
    """

    def propose(self, target_url: str, knob: str) -> Proposal:
        """Work out the change that the present advice for this knob asks for, with `target_url` as canary.

        Reads the engines' knobs and writes nothing. Why it cannot be done is in `Proposal.refusals`.
        """

    def start(self, proposal_id: str, approved_by: str) -> None:
        """Begin a proposed change; its id is the proposal's.

        EnginetopError: it is refused (unknown, expired, another one runs).
        """

    def roll_back(self, change_id: str) -> None:
        """Ask for a change to be undone; how it goes is seen in `latest`. EnginetopError: not possible."""

    def latest(self) -> tuple[ChangeView, ...]:
        """The changes in flight and those that ended since the start, newest first."""

    def subscribe(self, on_change: Callable[[], None]) -> Callable[[], None]:
        """Call `on_change` from the controller's thread at news in `latest`; the call returned ends it."""

    def stop(self) -> None:
        """Undo what is under way and end; returns when that is over."""

    def audit(self) -> Sequence[AuditRow]:
        """Every line of the audit, oldest first. EnginetopError: unreadable, or its chain is broken."""

    def at_work(self) -> str:
        """Who carries changes out now, here or in another process; empty: nobody. EnginetopError as above."""


class GpuSource(Protocol):
    """Where GPU figures come from: NVML, the simulator, a fake. Used from one thread of its own."""

    def open(self, targets: Sequence[Target]) -> None:
        """Prepare for these targets (to join processes with replicas). Never raises for a missing library."""

    def read(self, now: float) -> Sequence[GpuReport]:
        """The GPUs now, at most one report a host; what fails is data in the report."""

    def close(self) -> None:
        """Release the library."""
