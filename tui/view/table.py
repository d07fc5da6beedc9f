"""The fleet grid as lines: titles, groups, rows, reasons. A line is built when it is asked for."""

from __future__ import annotations

from collections.abc import Sequence

from enginetop.fleet.model import Quality, Role
from enginetop.fleet.snapshot import FleetSnapshot, ReplicaSnapshot
from themes.loader import Ink
from tui.view import numbers
from tui.view.arrange import Group, Sort, arrange
from tui.view.cells import Line, Span, clip, cut_end, cut_middle, line_width, merge, pad, plain, width_of
from tui.view.column import TREND_STEP_SECONDS, GridRow, is_old
from tui.view.condition import Conditions
from tui.view.grid_memory import TOKENS, GridMemory, Stamp, restart_mark
from tui.view.mixed import DIFFERS
from tui.view.placing import MARKER_WIDTH, Placed
from tui.view.query import Query
from tui.view.severity import Condition

_RULE_END = 100
"""Up to this column a group's header is drawn out: further on it would be bytes without a word."""

_GOODPUT_WIDTH = 100
"""From this width on, a group's header tells the goodput of its model."""


class FleetTable:
    """The grid of one picture for one width. `line` draws one line; nothing is drawn in advance.

    `choice`: the user's own columns, all of the table when empty. With the `memory` of the table before, what
    did not change is not worked out again.
    """

    def __init__(
        self,
        snapshot: FleetSnapshot,
        conditions: Conditions,
        *,
        width: int,
        sort: Sort,
        query: Query,
        choice: Sequence[str] = (),
        memory: GridMemory | None = None,
    ) -> None:
        memory = memory or GridMemory()
        everyone = replicas = snapshot.replicas
        if query.terms:
            replicas = tuple(
                replica for replica in replicas if query.matches(replica, conditions[replica.target.url])
            )
        self.shown = len(replicas)
        self._snapshot = snapshot
        self._conditions = conditions
        self._width = width
        self._sort = sort
        self._memory = memory
        self._items = arrange(replicas, conditions, sort)
        self._mixed = memory.mixed(everyone)
        room_for_marks = len(DIFFERS) if self._mixed.settings else 0
        self._placed = memory.placed(
            width,
            memory.relevant(everyone),
            memory.room_of_names(everyone, width) + room_for_marks,
            flat=sort.flat,
            keep=sort.column,
            choice=tuple(choice),
        )
        widths = {placed.column.key: placed.width for placed in self._placed}
        self._names = memory.names(everyone, widths.get("name", 0))
        self._top = memory.token_top(everyone, snapshot.at) if "tok_trend" in widths else 0.0
        self._step = snapshot.at // TREND_STEP_SECONDS if "tok_trend" in widths or "kv_trend" in widths else 0
        self._tells_held = "since" in widths
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

    def placed_keys(self) -> tuple[str, ...]:
        """Keys of the columns on screen."""
        return tuple(placed.column.key for placed in self._placed)

    def column_at(self, cell: int) -> str | None:
        """Key of the column whose title stands at a cell of the header, if rows can be sorted by it."""
        begin = MARKER_WIDTH
        for placed in self._placed:
            if begin <= cell < begin + placed.width:
                return placed.column.key if placed.column.sortable else None
            begin += placed.width + 1
        return None

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
            said = f"{condition.because} · {condition.handled}" if condition.handled else condition.because
            return clip(plain(f"    {said}", condition.ink), self._width)
        return self._row_line(item.replica, condition, selected=selected)

    def _row_line(self, replica: ReplicaSnapshot, condition: Condition, *, selected: bool) -> Line:
        at, url = self._snapshot.at, replica.target.url
        old = is_old(replica, at, self._snapshot.interval_seconds * self._snapshot.turns)
        marks = DIFFERS if url in self._mixed.settings else ""
        if replica.events:
            marks = restart_mark(replica, at) + marks
        stamp = Stamp(
            replica,
            condition,
            self._names[url],
            marks,
            numbers.age(at - (replica.scraped_at or 0.0)) if old else "",
            numbers.age(at - replica.since) if self._tells_held else "",
            self._step,
            self._top,
            self._placed,
            selected,
        )
        line = self._memory.line(stamp)
        if line is None:
            row = GridRow(
                replica, condition, stamp.name, at, old, {"kv_usage_ratio": 1.0, TOKENS: self._top}, marks
            )
            line = draw_row(row, self._placed, selected=selected)
            self._memory.keep(stamp, line)
        return line

    def _group_line(self, group: Group) -> Line:
        engine = f" · {group.engine}" if group.engine else ""
        count = f"{engine} · {group.role} ×{group.count}"
        need = "needs" if group.trouble == 1 else "need"
        trouble = f" · {group.trouble} {need} you" if group.trouble else ""
        good = self._goodput_of(group)
        room = self._width - width_of(count) - width_of(trouble) - width_of(good) - 2
        known = max(room, 8)
        name = cut_middle(group.model, known) if group.model else cut_end("model not known", known)
        line = [Span(f" {name}{count}", "group"), Span(trouble, "warn"), Span(good, "dim"), Span(" ")]
        rule = self._width - line_width(line)
        differs = self._mixed.words_of(group.first)
        if differs and rule >= 12:
            line[-1:] = [Span(cut_end(f" · {DIFFERS} {differs}", rule), "info"), Span(" ")]
            rule = self._width - line_width(line)
        if group.marks and rule >= width_of(group.marks) + 3:
            line[-1:] = [Span(f" · {group.marks}", "dim"), Span(" ")]
            rule = self._width - line_width(line)
        rule -= max(self._width - _RULE_END, 0)
        return clip(merge([*line, Span("─" * max(rule, 0), "dim")]), self._width)

    def _goodput_of(self, group: Group) -> str:
        """The model's requests within its objective, where there is room; prefill alone ends no request."""
        if self._width < _GOODPUT_WIDTH or group.role is Role.PREFILL:
            return ""
        found = next((one for one in self._snapshot.fleet.models if one.model == group.model), None)
        if found is None:
            return ""
        goodput = found.goodput
        good, quality = goodput.good_per_second, goodput.quality
        if good is None:
            good, quality = goodput.within_per_second.independent, Quality.ESTIMATED
        if good is None or goodput.offered_per_second is None:
            return ""
        shown = numbers.marked(numbers.rate(good), quality)
        return f" · {shown} of {numbers.rate(goodput.offered_per_second)} req/s good"


def draw_row(row: GridRow, placed: Sequence[Placed], *, selected: bool) -> Line:
    """The cells of one row, each in exactly its width, neighbours of one ink joined.

    Spaces take the ink of what precedes them, which costs no picture and saves bytes.
    """
    joined: list[Span] = []
    texts = ["▸" if selected else " "]
    current: Ink = "title" if selected else "text"
    for number, place in enumerate(placed):
        if number:
            texts.append(" ")
        width = place.width
        drawn = place.column.draw(row, width)
        space = width - line_width(drawn)
        if space < 0:
            drawn = clip(drawn, width)
            space = width - line_width(drawn)
        if space and place.column.right:
            texts.append(" " * space)
        for text, ink in drawn:
            if ink != current and not (ink == "text" and text.isspace()):
                joined.append(Span("".join(texts), current))
                texts, current = [], ink
            texts.append(text)
        if space and not place.column.right:
            texts.append(" " * space)
    joined.append(Span("".join(texts), current))
    return tuple(joined)
