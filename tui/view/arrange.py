"""The order of the fleet grid: groups, rows, and the reasons below those that fail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import EngineKind, Role
from enginetop.fleet.snapshot import ReplicaSnapshot
from tui.view.column import Column
from tui.view.columns import BY_KEY
from tui.view.condition import Conditions, says_why
from tui.view.detail_marks import mark_words
from tui.view.engines import engine_name


@frozen
class Sort:
    """The order of rows. `column` None: trouble first, in groups by model, role and engine; else one list."""

    column: str | None = None
    reverse: bool = False

    @property
    def flat(self) -> bool:
        """Whether the rows are one list without group headers."""
        return self.column is not None


@frozen
class Group:
    """The header of a group, with its `first` member.

    `engine` and `marks` (what can be read and changed of its members) are empty in a fleet of one engine.
    """

    first: ReplicaSnapshot
    model: str | None
    role: Role
    engine: str
    count: int
    trouble: int
    marks: str


class Item(NamedTuple):
    """One line of the grid: a group's header, a replica, or (`reason`) why that replica fails."""

    replica: ReplicaSnapshot | None = None
    group: Group | None = None
    reason: bool = False


def arrange(replicas: Sequence[ReplicaSnapshot], conditions: Conditions, sort: Sort) -> list[Item]:
    """The lines in order.

    Trouble first: groups by their gravest member, members by gravity, else in the order of the configuration.
    Only what needs somebody moves a row, so a quiet grid stands still.
    """
    items: list[Item] = []
    if sort.column is not None:
        for replica in _sorted(replicas, BY_KEY[sort.column], reverse=sort.reverse):
            items += _replica_items(replica)
        return items
    mixed = len({replica.engine for replica in replicas} - {EngineKind.UNKNOWN}) > 1
    groups: dict[tuple[str | None, Role, str], list[ReplicaSnapshot]] = {}
    for replica in replicas:
        engine = engine_name(replica) if mixed and replica.engine is not EngineKind.UNKNOWN else ""
        groups.setdefault((replica.model, replica.role, engine), []).append(replica)

    # sort() keeps the order of equals; `reverse` would keep it too, so the sign decides the direction.
    sign = 1 if sort.reverse else -1
    ordered = []
    for (model, role, engine), members in groups.items():
        found = [conditions[member.target.url] for member in members]
        graded = [
            (condition.severity if condition.needs_you else 0, member)
            for condition, member in zip(found, members, strict=True)
        ]
        trouble = sum(grade > 0 for grade, _ in graded)
        if trouble:
            graded.sort(key=lambda entry: sign * entry[0])
        worst = max(grade for grade, _ in graded)
        marks = next(filter(None, map(mark_words, members)), "") if mixed else ""
        ordered.append((worst, Group(members[0], model, role, engine, len(members), trouble, marks), graded))
    for _, group, graded in sorted(ordered, key=lambda entry: sign * entry[0]):
        items.append(Item(group=group))
        for _, replica in graded:
            items += _replica_items(replica)
    return items


def _replica_items(replica: ReplicaSnapshot) -> list[Item]:
    items = [Item(replica)]
    if says_why(replica):
        items.append(Item(replica, reason=True))
    return items


def _sorted(replicas: Sequence[ReplicaSnapshot], column: Column, *, reverse: bool) -> list[ReplicaSnapshot]:
    known: list[tuple[float, str, ReplicaSnapshot]] = []
    unknown: list[ReplicaSnapshot] = []
    for replica in replicas:
        value = column.read(replica)
        if value is None:
            unknown.append(replica)
        elif isinstance(value, str):
            known.append((0.0, value.casefold(), replica))
        else:
            known.append((value, "", replica))
    descending = column.descending != reverse
    known.sort(key=lambda entry: entry[:2], reverse=descending)
    return [entry[2] for entry in known] + unknown
