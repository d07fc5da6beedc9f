"""The kinds of columns: scalars, quantiles, texts, trends and figures of GPUs; and when a column is there."""

from __future__ import annotations

from collections.abc import Callable

from enginetop.fleet.snapshot import Distribution, GpuDevice, ReplicaSnapshot, Scalar, SignalValue
from themes.loader import Ink
from tui.view import charts, numbers
from tui.view.cells import UNKNOWN, Line, cut_middle, plain
from tui.view.column import TREND_STEP_SECONDS, Column, GridRow, Relevant, Value, figure, no_value, stale_ink

Judge = Callable[[ReplicaSnapshot, float], Ink]
GpuReader = Callable[[GpuDevice], float | None]


def plain_ink(_replica: ReplicaSnapshot, _number: float) -> Ink:
    """A number that is never trouble by itself."""
    return "text"


def warn_above(limit: Callable[[ReplicaSnapshot], float]) -> Judge:
    """Yellow above a limit that may be the replica's own."""
    return lambda replica, number: "warn" if number > limit(replica) else "text"


def _told(replica: ReplicaSnapshot, signal: str) -> SignalValue | None:
    """A signal of the core, or one that only some engines export."""
    value = replica.signals.get(signal)
    return replica.beyond.get(signal) if value is None else value


def scalar(
    key: str,
    title: str,
    width: int,
    priority: int,
    signal: str,
    meaning: str,
    *,
    text: Callable[[float | None], str] = numbers.count,
    judge: Judge = plain_ink,
    relevant: Relevant | None = None,
) -> Column:
    """A scalar signal."""

    def read(replica: ReplicaSnapshot) -> Value:
        return numbers.scalar_number(_told(replica, signal))

    def draw(row: GridRow, width: int) -> Line:
        value = _told(row.replica, signal)
        number = numbers.scalar_number(value)
        if number is None or not isinstance(value, Scalar):
            return plain(UNKNOWN, "dim")
        ink = stale_ink(row, value.quality, judge(row.replica, number))
        return figure(row, signal, numbers.marked(text(number), value.quality), width, ink)

    return Column(key, title, width, priority, meaning, draw, read, relevant=relevant)


def quantile(
    key: str,
    title: str,
    width: int,
    priority: int,
    signal: str,
    which: str,
    meaning: str,
    judge: Judge = plain_ink,
    *,
    write: Callable[[float | None], str] = numbers.milliseconds,
    relevant: Relevant | None = None,
) -> Column:
    """A quantile of a distribution; one past the last bucket has `≥` before it."""
    name = f"{signal}.{which}"

    def read(replica: ReplicaSnapshot) -> Value:
        return numbers.quantile_number(numbers.quantile_of(replica.signals.get(signal), which))

    def draw(row: GridRow, width: int) -> Line:
        value = row.replica.signals.get(signal)
        found = numbers.quantile_of(value, which)
        number = numbers.quantile_number(found)
        if number is None or not isinstance(value, Distribution):
            return plain(UNKNOWN, "dim")
        text = numbers.bounded(found, write)
        ink = stale_ink(row, value.quality, judge(row.replica, number))
        return figure(row, name, numbers.marked(text, value.quality), width, ink)

    return Column(key, title, width, priority, meaning, draw, read, relevant=relevant)


def words(
    key: str,
    title: str,
    width: int,
    priority: int,
    meaning: str,
    read: Callable[[ReplicaSnapshot], str | None],
    *,
    flat_only: bool = False,
) -> Column:
    """A text, cut in its middle."""

    def draw(row: GridRow, width: int) -> Line:
        text = read(row.replica)
        return plain(cut_middle(text, width)) if text else plain(UNKNOWN, "dim")

    return Column(
        key, title, width, priority, meaning, draw, read, right=False, descending=False, flat_only=flat_only
    )


def trend(key: str, title: str, width: int, priority: int, signal: str, meaning: str) -> Column:
    """The newest values of a trend as a sparkline, a cell a step."""

    def draw(row: GridRow, width: int) -> Line:
        replica = row.replica
        values = charts.resample(
            replica.trends.get(signal, ()), replica.trend_times, row.at, TREND_STEP_SECONDS, width
        )
        return plain(charts.spark(values, width, row.tops.get(signal, 1.0)), "spark")

    return Column(
        key,
        title,
        width,
        priority,
        meaning,
        draw,
        no_value,
        right=False,
        sortable=False,
        relevant=lambda replica: signal in replica.trends,
    )


def gpu_figure(
    key: str,
    title: str,
    width: int,
    meaning: str,
    read_gpu: GpuReader,
    merge: Callable[[list[float]], float],
    text: Callable[[float | None], str],
) -> Column:
    """One number over a replica's GPUs; unknown when none of them knows it."""

    def known(replica: ReplicaSnapshot) -> float | None:
        values = [value for gpu in replica.gpus if (value := read_gpu(gpu)) is not None]
        return merge(values) if values else None

    def draw(row: GridRow, _width: int) -> Line:
        shown = text(known(row.replica))
        return plain(shown, "dim" if shown == UNKNOWN else "text")

    return Column(key, title, width, 42, meaning, draw, known, relevant=has_gpus)


def has_gpus(replica: ReplicaSnapshot) -> bool:
    """Whether anything is known of its GPUs."""
    return bool(replica.gpus)


def supports(signal: str) -> Relevant:
    """Whether a scalar signal has a number."""
    return lambda replica: numbers.scalar_number(replica.signals.get(signal)) is not None


def happens(signal: str) -> Relevant:
    """Whether a scalar signal, which may be one that only some engines export, is above 0."""
    return lambda replica: (numbers.scalar_number(_told(replica, signal)) or 0.0) > 0


def counts(signal: str) -> Relevant:
    """Whether a distribution is counted at all."""

    def relevant(replica: ReplicaSnapshot) -> bool:
        value = replica.signals.get(signal)
        return isinstance(value, Distribution) and value.count is not None

    return relevant
