"""Thoughts of a pool: replicas that take the same traffic in turn tell a share together, and sooner.

Counted together are replicas of one model, role and thinking budget: what a lower budget cuts elsewhere was
not seen whole.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

from enginetop.fleet.frozen import frozen
from tuners.thoughts import Thoughts, together


@frozen
class Counted:
    """What one replica counted (None: nothing), and whom it is counted together with: equal `group`s."""

    group: Hashable
    thoughts: Thoughts | None


NOTHING_COUNTED = Counted(None, None)


class PoolThoughts:
    """The thoughts of each group of one snapshot, added up when they are first asked for."""

    def __init__(self, counted: Iterable[Counted]) -> None:
        self._counted = counted
        self._members: dict[Hashable, list[Thoughts]] | None = None
        self._sums: dict[Hashable, Thoughts] = {}

    def of(self, one: Counted) -> Thoughts | None:
        """The thoughts of the group of this member, those with other buckets left out."""
        if one.thoughts is None:
            return None
        key = _key(one.group, one.thoughts)
        members = self._grouped().get(key, ())
        if len(members) < 2:
            return one.thoughts
        if key not in self._sums:
            self._sums[key] = together(members)
        return self._sums[key]

    def _grouped(self) -> Mapping[Hashable, Sequence[Thoughts]]:
        if self._members is None:
            self._members = {}
            for one in self._counted:
                if one.thoughts is not None:
                    self._members.setdefault(_key(one.group, one.thoughts), []).append(one.thoughts)
        return self._members


def _key(group: Hashable, thoughts: Thoughts) -> Hashable:
    return group, tuple(thoughts.at_most)
