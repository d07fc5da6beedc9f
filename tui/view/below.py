"""What stands under a grid that leaves room: load of the last minutes, alerts, events.

Nothing here is news: all of it is in the grid, in the verdict or a key away. It fills what would be blank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from enginetop.fleet.snapshot import FleetSnapshot, ReplicaSnapshot
from tui.view import charts, numbers
from tui.view.alert_condition import alert_condition, leads
from tui.view.cells import EMPTY_LINE, Line, Span, clip, line_width, merge, plain
from tui.view.column import TREND_STEP_SECONDS
from tui.view.events import event_text, recent_events
from tui.view.picture import Picture
from tui.view.severity import GLYPH_OF
from tui.view.table import FleetTable

LEAST_HEIGHT = 4
"""Fewer free lines stay blank."""

_TWO_COLUMNS_WIDTH = 140
_MOST_HEIGHT = 22
_MOST_PLOT_HEIGHT = 3
_CELLS = 60
_LABEL_WIDTH = 9
_VALUE_WIDTH = 7
_NAME_WIDTH = 16

_LOAD: tuple[tuple[str, str, Callable[[list[float]], float]], ...] = (
    ("tok/s", "generation_tokens_per_second", sum),
    ("running", "requests_running", sum),
    ("waiting", "requests_waiting", sum),
    ("KV max %", "kv_usage_ratio", max),
)
"""Label, signal, and how the replicas of one moment become one value."""


class LoadMemory:
    """The fleet's load over time. Finished steps do not change, so it is worked out once a step."""

    def __init__(self) -> None:
        self._key: tuple[object, ...] = ()
        self._series: dict[str, list[float | None]] = {}
        self._plots: dict[tuple[str, int], list[str]] = {}

    def plot(self, snapshot: FleetSnapshot, signal: str, rows: int) -> list[str]:
        """The last finished steps of one signal of `_LOAD` as an area of so many rows, top row first."""
        series = self._steps(snapshot)[signal]
        plot = self._plots.get((signal, rows))
        if plot is None:
            top = 1.0 if signal == "kv_usage_ratio" else charts.round_up(charts.scale_of(series))
            plot = self._plots[signal, rows] = charts.area(series, _CELLS, rows, top)
        return plot

    def _steps(self, snapshot: FleetSnapshot) -> dict[str, list[float | None]]:
        step = snapshot.at // TREND_STEP_SECONDS
        key = (step, len(snapshot.replicas))
        if key != self._key:
            self._key = key
            self._plots = {}
            end = (step - 1) * TREND_STEP_SECONDS  # a moment in the last step that is over
            self._series = _merged(snapshot.replicas, end)
        return self._series


def _merged(replicas: Iterable[ReplicaSnapshot], at: float) -> dict[str, list[float | None]]:
    """The signals of `_LOAD` by name, step by step. Those of one replica are read one after the other: they
    lie together, and what is packed of them is opened for the next one too (`figure_block`).
    """
    columns: dict[str, list[list[float]]] = {name: [[] for _ in range(_CELLS)] for _, name, _ in _LOAD}
    for replica in replicas:
        for name, found in columns.items():
            values = replica.trends.get(name, ())
            means = charts.resample(values, replica.trend_times, at, TREND_STEP_SECONDS, _CELLS)
            for column, mean in zip(found, means, strict=True):
                if mean is not None:
                    column.append(mean)
    return {name: [whole(column) if column else None for column in columns[name]] for _, name, whole in _LOAD}


class WithBelow:
    """A grid with lines under it, at the foot of `height` lines; the cursor never leaves the grid."""

    def __init__(self, table: FleetTable, below: Sequence[Line], height: int) -> None:
        self._table = table
        self._below = below
        self._start = height - len(below)
        self._height = height

    def __len__(self) -> int:
        return self._height

    def line(self, index: int, *, selected: bool = False) -> Line:
        """A line of the grid, of what is below, or the space between."""
        if index < len(self._table):
            return self._table.line(index, selected=selected)
        return self._below[index - self._start] if index >= self._start else EMPTY_LINE

    def key(self, index: int) -> str | None:
        """As the grid's."""
        return self._table.key(index) if index < len(self._table) else None

    def position(self, key: str) -> int | None:
        """As the grid's."""
        return self._table.position(key)

    def is_row(self, index: int) -> bool:
        """As the grid's; what is below is no row."""
        return index < len(self._table) and self._table.is_row(index)


def below_lines(picture: Picture, memory: LoadMemory, width: int, height: int) -> list[Line]:
    """What fits into `height` lines under the grid, none wider than `width`; nothing where they are few."""
    height = min(height - 1, _MOST_HEIGHT)
    snapshot = picture.snapshot
    if snapshot is None or height < LEAST_HEIGHT - 1:
        return []
    if width < _TWO_COLUMNS_WIDTH:
        return _stacked((_alerts(picture, snapshot, height // 2), _events(picture, height)), width, height)
    left_width = _LABEL_WIDTH + _CELLS + _VALUE_WIDTH + 3
    reserved = min(sum(map(leads, snapshot.alerts)) + 1, height // 2)
    load = _load(snapshot, memory, height - reserved)
    alerts = _alerts(picture, snapshot, height - len(load))
    left = _stacked((load, alerts), left_width, height)
    right = _stacked((_events(picture, height),), width - left_width - 2, height)
    lines = []
    for number in range(max(len(left), len(right))):
        one = left[number] if number < len(left) else EMPTY_LINE
        other = right[number] if number < len(right) else EMPTY_LINE
        lines.append(merge((*one, Span(" " * (left_width + 2 - line_width(one))), *other)))
    return lines


def _stacked(sections: Iterable[list[Line]], width: int, height: int) -> list[Line]:
    """Sections one under the other, each with a rule after its title."""
    lines: list[Line] = []
    for section in sections:
        if not section or height - len(lines) < 2:
            continue
        title, *rest = section
        rule = Span(" " + "─" * max(width - line_width(title) - 1, 0), "dim")
        lines += [clip((*title, rule), width), *(clip(line, width) for line in rest)]
    return lines[:height]


def _load(snapshot: FleetSnapshot, memory: LoadMemory, height: int) -> list[Line]:
    """A plot for each signal, as high as there is room, with the present value beside its top."""
    if not any(replica.trends for replica in snapshot.replicas):
        return []
    rows = max(1, min(_MOST_PLOT_HEIGHT, (height - 1) // len(_LOAD)))
    lines = [plain(f" load, {_CELLS * TREND_STEP_SECONDS / 60:.0f} min", "group")]
    for label, signal, _ in _LOAD:
        number = numbers.scalar_number(snapshot.fleet.signals.get(signal))
        share = signal == "kv_usage_ratio"
        value = (numbers.percent(number) if share else numbers.count(number)).rjust(_VALUE_WIDTH)
        for number_of_row, plot in enumerate(memory.plot(snapshot, signal, rows)):
            name, shown = (label, value) if not number_of_row else ("", "")
            lines.append((Span(f" {name:<{_LABEL_WIDTH}}", "dim"), Span(plot, "spark"), Span(shown)))
    return lines


def _alerts(picture: Picture, snapshot: FleetSnapshot, height: int) -> list[Line]:
    firing = [alert for alert in snapshot.alerts if leads(alert)]
    if not firing or height < 2:
        return []
    lines = [plain(f" {numbers.many(len(firing), 'alert')}", "group")]
    ranked = sorted(
        ((alert_condition(alert, snapshot.at), alert) for alert in firing),
        key=lambda entry: (-entry[0].severity, entry[1].since),
    )
    for condition, alert in ranked[: height - 1]:
        name = picture.name_cell(alert.target, _NAME_WIDTH)
        lines.append(
            (
                Span(f" {GLYPH_OF[condition.severity]} ", condition.ink),
                Span(f"{numbers.age(snapshot.at - alert.since):>4} ", "dim"),
                Span(f"{name} {alert.rule}: {condition.because}"),
            )
        )
    return lines


def _events(picture: Picture, height: int) -> list[Line]:
    lines = [plain(" events", "group")]
    for at, url, event in recent_events(picture, height - 1):
        name = picture.name_cell(url, _NAME_WIDTH)
        lines.append((Span(f" {numbers.time_of_day(at)} ", "dim"), Span(f"{name} {event_text(event)}")))
    return lines if len(lines) > 1 else [*lines, plain(" none yet", "dim")]
