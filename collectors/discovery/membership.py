"""The members of a fleet as they come and go: sources watched, differences handed to whoever scrapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from collectors.discovery.roster import Changes, Roster
from collectors.discovery.watcher import Look, SourceWatcher
from collectors.fetch import NO_CREDENTIALS, Credentials
from enginetop.fleet.model import Target


class ChangingTracker(Protocol):
    """A tracker whose targets come and go: `enginetop.fleet.FleetTracker`."""

    def follow(self, target: Target, at: float) -> None:
        """A target joins."""

    def move(self, moves: Mapping[str, Target], at: float) -> None:
        """Replicas have other addresses, by their former URLs."""

    def lose(self, url: str, at: float) -> None:
        """A target is listed no more."""

    def drop(self, url: str) -> None:
        """Forget a target."""


class Membership:
    """Sources and what they list. `begin` first; then `take` and `expire`, from one thread.

    `credentials` are those of the targets, by URL: given ones, and those with which a source's targets are
    reached; they are there before a target is told of.
    """

    def __init__(
        self,
        watcher: SourceWatcher,
        fixed: Sequence[Target],
        credentials: Mapping[str, Credentials],
        of_source: Mapping[str, Credentials],
    ) -> None:
        """`of_source` has the credentials for the targets of a source, by its title."""
        self._watcher = watcher
        self._roster = Roster(fixed)
        self._of_source = of_source
        self._problems: dict[str, str] = {}
        self._given = frozenset(credentials)
        self.credentials = dict(credentials)

    @property
    def targets(self) -> tuple[Target, ...]:
        """The members now."""
        return self._roster.targets

    @property
    def problem(self) -> str:
        """What is wrong with the sources, in one line; empty when nothing is."""
        return "; ".join(filter(None, self._problems.values()))

    def begin(self, now: float) -> tuple[Target, ...]:
        """Take the first lists; the members then. Returns after a few seconds at the latest."""
        for look in self._watcher.first_looks():
            self.take(look, now)
        return self.targets

    def watch(self, on_look: Callable[[Look], None]) -> None:
        """Call `on_look` for every further look, from other threads."""
        self._watcher.start(on_look)

    def stop(self) -> None:
        """End watching."""
        self._watcher.stop()

    def take(self, look: Look, now: float) -> Changes:
        """Take what a look brought. Without a list nothing changes but the problem that is told."""
        self._problems[look.source] = look.problem
        if look.listed is None:
            return Changes()
        changes = self._roster.take(look.source, look.listed, now)
        usual = self._of_source.get(look.source, NO_CREDENTIALS)
        own = {one.target.url: one.credentials for one in look.listed if one.credentials is not None}
        self._forget_credentials((*changes.dropped, *(former for former, _ in changes.moved)))
        for target in (*changes.joined, *(target for _, target in changes.moved)):
            if (how := own.get(target.url, usual)) != NO_CREDENTIALS:
                self.credentials.setdefault(target.url, how)
        return changes

    def expire(self, now: float) -> Changes:
        """Forget members that have been gone for long enough."""
        changes = self._roster.expire(now)
        self._forget_credentials(changes.dropped)
        return changes

    def _forget_credentials(self, urls: Iterable[str]) -> None:
        """Whoever comes to one of these addresses is somebody else, who must not be sent the former's key."""
        for url in urls:
            if url not in self._given:
                self.credentials.pop(url, None)


def apply(changes: Changes, tracker: ChangingTracker, now: float) -> None:
    """Tell a tracker what changed."""
    for url in changes.dropped:
        tracker.drop(url)
    if changes.moved:
        tracker.move(dict(changes.moved), now)
    for url in changes.left:
        tracker.lose(url, now)
    for target in changes.joined:
        tracker.follow(target, now)
