"""What the screens show at one moment: a snapshot and the circumstances of showing it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from enginetop.alerts.rule import Rule
from enginetop.fleet.change import FINAL_STATES, ChangeState, ChangeView
from enginetop.fleet.model import Target
from enginetop.fleet.ports import PlaybackState
from enginetop.fleet.snapshot import FleetSnapshot, ReplicaSnapshot
from tui.actions import ACTIONS, Action
from tui.view.advice import Suggestion, suggestions_of
from tui.view.cells import cut_middle, fit, printable
from tui.view.condition import Conditions
from tui.view.condition_memory import ConditionMemory
from tui.view.names import NameMemory

NOTHING_YET = "waiting for the first scrape"
"""What a screen says while there is no snapshot."""


@dataclass(frozen=True, eq=False)
class Picture:
    """One snapshot (None before the first) with what does not come from it.

    `paused_seconds` is how long the picture has been frozen by the user, None when it runs. `silent_seconds`
    is how long no new snapshot has come. `finished`: none will come (the end of a recording). Both are by the
    screen's own clock: a replay has another one. `notice` is one line about the program itself, such as a
    source that could not start.

    `behind_seconds`: the snapshot is one of the past, so much older than the newest; None when it is not.
    `playback` tells of the recording that is played, `local_at` is Unix time here and now.

    `changes` are those that the controller tells of, newest first, as they stood `changes_age_seconds` ago.
    `actions` is the table of what the user can do, with his own keys. `fault_log` is where faults of views
    are written down, empty for nowhere. `rules` are the alert rules in force, None: the built-in ones as they
    come. `memory` and `names` are what is known from the picture before: of
    conditions, and of the names.
    """

    snapshot: FleetSnapshot | None = None
    targets: tuple[Target, ...] = ()
    title: str = ""
    read_only: bool = True
    simulated: bool = False
    paused_seconds: float | None = None
    silent_seconds: float = 0.0
    finished: bool = False
    notice: str = ""
    changes: tuple[ChangeView, ...] = ()
    changes_age_seconds: float = 0.0
    behind_seconds: float | None = None
    playback: PlaybackState | None = None
    local_at: float | None = None
    actions: tuple[Action, ...] = ACTIONS
    fault_log: str = ""
    rules: tuple[Rule, ...] | None = None
    memory: ConditionMemory = field(default_factory=ConditionMemory, repr=False)
    names: NameMemory = field(default_factory=NameMemory, repr=False)

    @cached_property
    def _by_url(self) -> Mapping[str, ReplicaSnapshot]:
        replicas = () if self.snapshot is None else self.snapshot.replicas
        return {replica.target.url: replica for replica in replicas}

    @cached_property
    def conditions(self) -> Conditions:
        """The leading condition of each replica, by target URL."""
        return {} if self.snapshot is None else self.memory.conditions_of(self.snapshot)

    @cached_property
    def suggestions(self) -> tuple[Suggestion, ...]:
        """What the tuners suggest to change."""
        return suggestions_of(self.snapshot)

    def replica(self, url: str) -> ReplicaSnapshot | None:
        """The replica with this target URL, None if the snapshot has none."""
        return self._by_url.get(url)

    def name_of(self, url: str) -> str:
        """The name of the target with this URL; a URL that the fleet does not know names itself."""
        replica = self._by_url.get(url)
        known = replica.target.name if replica is not None else None
        for target in self.targets:
            if known is None and target.url == url:
                known = target.name
        return known or url.partition("://")[2] or url

    @cached_property
    def _shown_targets(self) -> tuple[Target, ...]:
        replicas = () if self.snapshot is None else self.snapshot.replicas
        return tuple([replica.target for replica in replicas])

    def name_in(self, url: str, width: int) -> str:
        """The name of a target in at most `width` cells: the same part of it wherever it has as much room."""
        known = self.names.shown(self._shown_targets, width).get(url)
        return cut_middle(printable(self.name_of(url)), width) if known is None else known

    def name_cell(self, url: str, width: int) -> str:
        """The same in exactly `width` cells."""
        return fit(self.name_in(url, width), width)

    def change(self, change_id: str) -> ChangeView | None:
        """The change with this id, None if the controller does not tell of one."""
        return next((change for change in self.changes if change.id == change_id), None)

    @property
    def in_flight(self) -> tuple[ChangeView, ...]:
        """The changes that are under way."""
        return tuple(change for change in self.changes if change.state not in FINAL_STATES)

    @property
    def not_undone(self) -> tuple[ChangeView, ...]:
        """The changes that could not be undone: somebody must do it by hand."""
        return tuple(change for change in self.changes if change.state is ChangeState.ROLLBACK_FAILED)
