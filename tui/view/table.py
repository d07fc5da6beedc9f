"""The fleet grid as lines: order, groups, rows, reasons. A line is built when it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from enginetop.fleet.model import EngineKind, ReplicaState, Role
from enginetop.fleet.snapshot import FleetSnapshot, ReplicaSnapshot
from themes.loader import Ink
from tui.view import numbers
from tui.view.cells import Line, Span, clip, cut_end, cut_middle, line_width, merge, pad, plain, width_of
from tui.view.columns import BY_KEY, MARKER_WIDTH, Column, Placed, Row, is_old, place_columns, trend_tops
from tui.view.condition import Condition, Conditions, Severity
from tui.view.detail_marks import mark_words
from tui.view.engines import engine_name
from tui.view.names import shown_names
from tui.view.query import Query

_GOODPUT_WIDTH = 100
"""From this width on, a group's header tells the goodput of its model."""

_REASON_STATES = frozenset(
    {
        ReplicaState.DOWN,
        ReplicaState.UNAUTHORIZED,
        ReplicaState.NO_ENGINE_METRICS,
        ReplicaState.STALE,
        ReplicaState.NO_PROGRESS,
    }
)
"""Failing states: their rows say why on a second line."""


@dataclass(frozen=True, slots=True)
class Sort:
    """The order of rows. `column` None: trouble first, in groups by model, role and engine; else one list."""

    column: str | None = None
    reverse: bool = False

    @property
    def flat(self) -> bool:
        """Whether the rows are one list without group headers."""
        return self.column is not None


@dataclass(frozen=True, slots=True)
class Group:
    """The header of a group.

    `engine` and `marks` (what can be read and changed of its members) are empty in a fleet of one engine.
    """

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

    def gravity(replica: ReplicaSnapshot) -> int:
        severity = conditions[replica.target.url].severity
        return severity if severity >= Severity.WARN else 0

    # sort() keeps the order of equals; `reverse` would keep it too, so the sign decides the direction.
    sign = 1 if sort.reverse else -1
    ordered = []
    for (model, role, engine), members in groups.items():
        graded = [(gravity(member), member) for member in members]
        trouble = sum(grade > 0 for grade, _ in graded)
        if trouble:
            graded.sort(key=lambda entry: sign * entry[0])
        worst = max(grade for grade, _ in graded)
        marks = next(filter(None, map(mark_words, members)), "") if mixed else ""
        ordered.append((worst, Group(model, role, engine, len(members), trouble, marks), graded))
    for _, group, graded in sorted(ordered, key=lambda entry: sign * entry[0]):
        items.append(Item(group=group))
        for _, replica in graded:
            items += _replica_items(replica)
    return items


def _replica_items(replica: ReplicaSnapshot) -> list[Item]:
    items = [Item(replica)]
    if replica.state in _REASON_STATES:
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


class FleetTable:
    """The grid of one picture for one width. `line` draws one line; nothing is drawn in advance."""

    def __init__(
        self, snapshot: FleetSnapshot, conditions: Conditions, *, width: int, sort: Sort, query: Query
    ) -> None:
        replicas = snapshot.replicas
        if query.terms:
            replicas = tuple(
                replica for replica in replicas if query.matches(replica, conditions[replica.target.url])
            )
        self.shown = len(replicas)
        self._snapshot = snapshot
        self._conditions = conditions
        self._width = width
        self._sort = sort
        self._items = arrange(replicas, conditions, sort)
        names = [replica.target.name for replica in snapshot.replicas]
        longest = max(map(width_of, names), default=0)
        self._placed = place_columns(width, snapshot.replicas, longest, flat=sort.flat, keep=sort.column)
        name_width = next((placed.width for placed in self._placed if placed.column.key == "name"), 0)
        self._names = {
            replica.target.url: name
            for replica, name in zip(snapshot.replicas, shown_names(names, name_width), strict=True)
        }
        has_trends = any(placed.column.key == "tok_trend" for placed in self._placed)
        self._tops = trend_tops(snapshot.replicas) if has_trends else {}
        self._positions = {
            item.replica.target.url: position
            for position, item in enumerate(self._items)
            if item.replica is not None and not item.reason
        }

    def __len__(self) -> int:
        return len(self._items)

    def key(self, index: int) -> str | None:
        """Target URL of the replica that the line belongs to; None for a group's header."""
        replica = self._items[index].replica
        return None if replica is None else replica.target.url

    def position(self, key: str) -> int | None:
        """Line of the replica with this target URL."""
        return self._positions.get(key)

    def is_row(self, index: int) -> bool:
        """Whether the cursor may stand on the line."""
        item = self._items[index]
        return item.replica is not None and not item.reason

    def sortable(self) -> tuple[str, ...]:
        """Keys of the columns on screen that rows can be sorted by."""
        return tuple(placed.column.key for placed in self._placed if placed.column.sortable)

    def header(self) -> Line:
        """The line of column titles, with an arrow at the sorted column."""
        spans: list[Span] = [Span(" " * MARKER_WIDTH, "head")]
        for number, placed in enumerate(self._placed):
            column = placed.column
            ink: Ink = "head"
            title = column.title
            if column.key == self._sort.column:
                ink = "title"
                arrow = "↓" if column.descending != self._sort.reverse else "↑"
                title = cut_end(title, placed.width - 1) + arrow
            if number:
                spans.append(Span(" ", "head"))
            spans.append(Span(pad(cut_end(title, placed.width), placed.width, right=column.right), ink))
        return clip(merge(spans), self._width)

    def line(self, index: int, *, selected: bool = False) -> Line:
        """The line at `index`, at most as wide as the table."""
        item = self._items[index]
        if item.group is not None:
            return self._group_line(item.group)
        assert item.replica is not None
        condition = self._conditions[item.replica.target.url]
        if item.reason:
            return clip(plain(f"    {condition.because}", _reason_ink(condition)), self._width)
        return self._row_line(item.replica, condition, selected=selected)

    def _row_line(self, replica: ReplicaSnapshot, condition: Condition, *, selected: bool) -> Line:
        row = Row(
            replica,
            condition,
            self._names[replica.target.url],
            self._snapshot.at,
            is_old(replica, self._snapshot.at, self._snapshot.interval_seconds),
            self._tops,
        )
        cells = [Span("▸", "title") if selected else Span(" ")]
        for number, placed in enumerate(self._placed):
            if number:
                cells.append(Span(" "))
            _add_cell(cells, placed, row)
        return _join_cells(cells)

    def _group_line(self, group: Group) -> Line:
        engine = f" · {group.engine}" if group.engine else ""
        count = f"{engine} · {group.role} ×{group.count}"
        trouble = f" · {group.trouble} need you" if group.trouble else ""
        good = self._goodput_of(group)
        room = self._width - width_of(count) - width_of(trouble) - width_of(good) - 2
        name = cut_middle(group.model or "model not known", max(room, 8))
        line = [Span(f" {name}{count}", "group"), Span(trouble, "warn"), Span(good, "dim"), Span(" ")]
        rule = self._width - line_width(line)
        if group.marks and rule >= width_of(group.marks) + 3:
            line[-1:] = [Span(f" · {group.marks}", "dim"), Span(" ")]
            rule = self._width - line_width(line)
        return clip(merge([*line, Span("─" * max(rule, 0), "dim")]), self._width)

    def _goodput_of(self, group: Group) -> str:
        """The model's requests within its objective, where there is room; prefill alone ends no request."""
        if self._width < _GOODPUT_WIDTH or group.role is Role.PREFILL:
            return ""
        found = next((one for one in self._snapshot.fleet.models if one.model == group.model), None)
        if found is None:
            return ""
        goodput = found.goodput
        good, mark = goodput.good_per_second, ""
        if good is None:
            good, mark = goodput.within_per_second.independent, numbers.ESTIMATED
        if good is None or goodput.offered_per_second is None:
            return ""
        return f" · {numbers.rate(good)}{mark} of {numbers.rate(goodput.offered_per_second)} req/s good"


def _add_cell(cells: list[Span], placed: Placed, row: Row) -> None:
    """Append a column's text in exactly its width."""
    drawn, width = placed.column.draw(row, placed.width), placed.width
    space = width - line_width(drawn)
    if space < 0:
        drawn = clip(drawn, width)
        space = width - line_width(drawn)
    if space and placed.column.right:
        cells.append(Span(" " * space))
    cells += drawn
    if space and not placed.column.right:
        cells.append(Span(" " * space))


def _join_cells(cells: Sequence[Span]) -> Line:
    """Join neighbours of one ink. Spaces take the ink of what precedes them, which costs no picture."""
    joined: list[Span] = []
    texts: list[str] = []
    current: Ink = "text"
    for text, ink in cells:
        if ink != current and not (ink == "text" and text.isspace()):
            if texts:
                joined.append(Span("".join(texts), current))
                texts = []
            current = ink
        texts.append(text)
    if texts:
        joined.append(Span("".join(texts), current))
    return tuple(joined)


def _reason_ink(condition: Condition) -> Ink:
    return "crit" if condition.severity is Severity.CRIT else "warn"
