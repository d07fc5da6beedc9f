"""The columns of the fleet grid: one table from which widths, cells, sorting, filters and help come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from enginetop.fleet.model import Quality
from enginetop.fleet.snapshot import Distribution, GpuDevice, ReplicaSnapshot, Scalar
from enginetop.fleet.throttle import ALARMING_THROTTLE_WORDS
from themes.loader import Ink
from tui.view import charts, numbers
from tui.view.cells import UNKNOWN, Line, Span, cut_end, cut_middle, plain
from tui.view.condition import GLYPH_OF, INK_OF, KV_PRESSURE_RATIO, Condition, Severity
from tui.view.engines import engine_text

Value = float | str | None

TREND_STEP_SECONDS = 10.0
"""Time that one cell of a trend column stands for."""


@dataclass(frozen=True, slots=True)
class Row:
    """What a cell is drawn from: `name` as shown, `old` numbers or not, `tops` the plot scales by signal."""

    replica: ReplicaSnapshot
    condition: Condition
    name: str
    at: float
    old: bool
    tops: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    `priority`: columns with a larger number go first when the terminal is narrow. `read` is the value to sort
    and filter by, in base units (None sorts last). `descending`: the direction that an operator wants first.
    `relevant` None: always; else the column exists only when some replica passes.
    """

    key: str
    title: str
    width: int
    priority: int
    meaning: str
    draw: Callable[[Row, int], Line]
    read: Callable[[ReplicaSnapshot], Value]
    right: bool = True
    descending: bool = True
    sortable: bool = True
    flat_only: bool = False
    relevant: Callable[[ReplicaSnapshot], bool] | None = None


def is_old(replica: ReplicaSnapshot, at: float, interval_seconds: float) -> bool:
    """Whether the numbers are older than two of the target's own intervals."""
    seen = replica.scraped_at
    spacing = max(interval_seconds, replica.spacing_seconds or 0.0)
    return seen is not None and at - seen > 2 * spacing


def _stale_ink(row: Row, quality: Quality, ink: Ink) -> Ink:
    return "dim" if quality is Quality.STALE or row.old else ink


Judge = Callable[[ReplicaSnapshot, float], Ink]


def _plain_ink(_replica: ReplicaSnapshot, _number: float) -> Ink:
    return "text"


def _scalar(
    key: str,
    title: str,
    width: int,
    priority: int,
    signal: str,
    meaning: str,
    *,
    text: Callable[[float | None], str] = numbers.count,
    judge: Judge = _plain_ink,
    relevant: Callable[[ReplicaSnapshot], bool] | None = None,
) -> Column:
    def read(replica: ReplicaSnapshot) -> Value:
        return numbers.scalar_number(replica.signals.get(signal))

    def draw(row: Row, _width: int) -> Line:
        value = row.replica.signals.get(signal)
        number = numbers.scalar_number(value)
        if number is None or not isinstance(value, Scalar):
            return plain(UNKNOWN, "dim")
        ink = _stale_ink(row, value.quality, judge(row.replica, number))
        return plain(numbers.marked(text(number), value.quality), ink)

    return Column(key, title, width, priority, meaning, draw, read, relevant=relevant)


def _quantile(
    key: str,
    title: str,
    width: int,
    priority: int,
    signal: str,
    quantile: str,
    meaning: str,
    judge: Judge = _plain_ink,
    *,
    write: Callable[[float | None], str] = numbers.milliseconds,
    relevant: Callable[[ReplicaSnapshot], bool] | None = None,
) -> Column:
    def read(replica: ReplicaSnapshot) -> Value:
        return numbers.quantile_number(numbers.quantile_of(replica.signals.get(signal), quantile))

    def draw(row: Row, _width: int) -> Line:
        value = row.replica.signals.get(signal)
        found = numbers.quantile_of(value, quantile)
        number = numbers.quantile_number(found)
        if number is None or not isinstance(value, Distribution):
            return plain(UNKNOWN, "dim")
        text = (numbers.CENSORED if found.censored else "") + write(number)
        ink = _stale_ink(row, value.quality, judge(row.replica, number))
        return plain(numbers.marked(text, value.quality), ink)

    return Column(key, title, width, priority, meaning, draw, read, relevant=relevant)


def _text(
    key: str,
    title: str,
    width: int,
    priority: int,
    meaning: str,
    read: Callable[[ReplicaSnapshot], str | None],
    *,
    flat_only: bool = False,
) -> Column:
    def draw(row: Row, width: int) -> Line:
        text = read(row.replica)
        return plain(cut_middle(text, width)) if text else plain(UNKNOWN, "dim")

    return Column(
        key, title, width, priority, meaning, draw, read, right=False, descending=False, flat_only=flat_only
    )


def _trend(key: str, title: str, width: int, priority: int, signal: str, meaning: str) -> Column:
    def draw(row: Row, width: int) -> Line:
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
        lambda _replica: None,
        right=False,
        sortable=False,
        relevant=lambda replica: signal in replica.trends,
    )


GpuReader = Callable[[GpuDevice], float | None]


def gpu_number(
    replica: ReplicaSnapshot, read: GpuReader, merge: Callable[[list[float]], float]
) -> float | None:
    """One number over a replica's GPUs; None when none of them knows it."""
    known = [value for gpu in replica.gpus if (value := read(gpu)) is not None]
    return merge(known) if known else None


def _gpu(
    key: str,
    title: str,
    width: int,
    meaning: str,
    read_gpu: GpuReader,
    merge: Callable[[list[float]], float],
    text: Callable[[float | None], str],
) -> Column:
    def read(replica: ReplicaSnapshot) -> Value:
        return gpu_number(replica, read_gpu, merge)

    def draw(row: Row, _width: int) -> Line:
        shown = text(gpu_number(row.replica, read_gpu, merge))
        return plain(shown, "dim" if shown == UNKNOWN else "text")

    return Column(key, title, width, 42, meaning, draw, read, relevant=_has_gpus)


def _has_gpus(replica: ReplicaSnapshot) -> bool:
    return bool(replica.gpus)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _draw_name(row: Row, width: int) -> Line:
    return plain(
        cut_middle(row.name, width), INK_OF[row.condition.severity] if row.condition.needs_you else "text"
    )


def _draw_state(row: Row, width: int) -> Line:
    condition = row.condition
    ink: Ink = "text" if condition.severity is Severity.OK else INK_OF[condition.severity]
    return plain(cut_end(f"{GLYPH_OF[condition.severity]} {condition.word}", width), ink)


def _draw_kv(row: Row, width: int) -> Line:
    value = row.replica.signals.get("kv_usage_ratio")
    ratio = numbers.scalar_number(value)
    if ratio is None or not isinstance(value, Scalar):
        return plain(UNKNOWN, "dim")
    text = numbers.marked(numbers.percent(ratio), value.quality)
    bar_width = width - 4
    ink: Ink = _stale_ink(row, value.quality, "warn" if ratio >= KV_PRESSURE_RATIO else "text")
    if bar_width <= 0:
        return plain(text, ink)
    bar_ink: Ink = "bar" if ink == "text" else ink
    return (Span(charts.bar(ratio, bar_width), bar_ink), Span(text.rjust(4), ink))


def _draw_age(row: Row, _width: int) -> Line:
    seen = row.replica.scraped_at
    if seen is None:
        return plain(UNKNOWN, "dim")
    return plain(numbers.age(row.at - seen), "warn") if row.old else ()


def _read_age(replica: ReplicaSnapshot) -> Value:
    return None if replica.scraped_at is None else -replica.scraped_at


def throttle_reasons(replica: ReplicaSnapshot) -> tuple[str, ...]:
    """What holds the replica's GPUs back, each reason once, in order of first mention."""
    return tuple(dict.fromkeys(reason for gpu in replica.gpus for reason in gpu.throttle_reasons))


def _draw_throttle(row: Row, width: int) -> Line:
    lost = [gpu for gpu in row.replica.gpus if gpu.state != "ok"]
    if lost:
        return plain(cut_end(f"gpu {lost[0].state}", width), "crit")
    reasons = throttle_reasons(row.replica)
    alarming = not ALARMING_THROTTLE_WORDS.isdisjoint(reasons)
    return plain(cut_end(",".join(reasons), width), "warn" if alarming else "dim")


def _counts_reasoning(replica: ReplicaSnapshot) -> bool:
    value = replica.signals.get("reasoning_tokens")
    return isinstance(value, Distribution) and value.count is not None


def _supports(signal: str) -> Callable[[ReplicaSnapshot], bool]:
    def relevant(replica: ReplicaSnapshot) -> bool:
        return numbers.scalar_number(replica.signals.get(signal)) is not None

    return relevant


def _warn_above(limit: Callable[[ReplicaSnapshot], float]) -> Judge:
    return lambda replica, number: "warn" if number > limit(replica) else "text"


_UTILIZATION: GpuReader = attrgetter("utilization_ratio")
_WATTS: GpuReader = attrgetter("power_watts")
_CELSIUS: GpuReader = attrgetter("temperature_celsius")

COLUMNS: tuple[Column, ...] = (
    Column(
        "name", "replica", 8, 0, "name of the target; what all names share is left out when room is short",
        _draw_name, lambda replica: replica.target.name, right=False, descending=False,
    ),
    Column(
        "state", "state", 11, 0, "glyph and word of the leading condition", _draw_state,
        lambda replica: str(replica.state), right=False, descending=False, sortable=False,
    ),
    _text("model", "model", 14, 5, "model served", lambda replica: replica.model, flat_only=True),
    _scalar("run", "run", 4, 3, "requests_running", "requests in the running batch now"),
    _scalar("wait", "wait", 4, 2, "requests_waiting", "requests queued in the engine now"),
    Column(
        "kv", "KV %", 8, 1, "KV cache in use, fullest rank; yellow from 95 %", _draw_kv,
        lambda replica: numbers.scalar_number(replica.signals.get("kv_usage_ratio")),
    ),
    _trend("kv_trend", "KV trend", 12, 40, "kv_usage_ratio", "KV use of the last two minutes, 0 to 100 %"),
    _scalar(
        "preempt", "pre/s", 5, 12, "preemptions_per_second", "preemptions per second (SGLang: retractions)",
        text=numbers.rate, judge=_warn_above(lambda _replica: 0.0),
    ),
    _scalar("tok", "tok/s", 5, 8, "generation_tokens_per_second", "generated tokens per second"),
    _trend(
        "tok_trend", "tok/s trend", 12, 41, "generation_tokens_per_second",
        "tokens per second of the last two minutes, all rows on one scale",
    ),
    _scalar("prompt", "in tok/s", 8, 52, "prompt_tokens_per_second", "prompt tokens per second, cached too"),
    _scalar(
        "req", "req/s", 5, 30, "requests_finished_per_second", "requests finished per second, all reasons",
        text=numbers.rate,
    ),
    _quantile("ttft50", "TTFT50ms", 8, 32, "ttft_seconds", "p50", "time to first token, median"),
    _quantile(
        "ttft", "TTFT95ms", 8, 6, "ttft_seconds", "p95", "time to first token, p95; yellow above the SLO",
        _warn_above(lambda replica: replica.slo.ttft_seconds),
    ),
    _quantile(
        "tpot", "TPOT95ms", 8, 7, "tpot_seconds", "p95", "time per output token, p95; yellow above the SLO",
        _warn_above(lambda replica: replica.slo.tpot_seconds),
    ),
    _quantile("itl", "ITL95ms", 7, 33, "itl_seconds", "p95", "time between output events, p95"),
    _quantile("queue", "queue95ms", 9, 51, "queue_seconds", "p95", "time from arrival to scheduling, p95"),
    _scalar(
        "prefix", "hit%", 4, 35, "prefix_hit_ratio", "prefix tokens found in the KV cache",
        text=numbers.percent,
    ),
    _scalar(
        "acc", "acc", 4, 13, "spec_accepted_length", "tokens per draft step of speculation, bonus included",
        text=numbers.one_decimal, relevant=_supports("spec_accepted_length"),
    ),
    _quantile(
        "reason50", "rsn50", 5, 36, "reasoning_tokens", "p50", "reasoning tokens of a request, median",
        write=numbers.count, relevant=_counts_reasoning,
    ),
    _quantile(
        "reason95", "rsn95", 6, 36, "reasoning_tokens", "p95", "reasoning tokens of a request, p95",
        write=numbers.count, relevant=_counts_reasoning,
    ),
    _gpu("gpu", "GPU%", 4, "mean utilization of the replica's GPUs", _UTILIZATION, _mean, numbers.percent),
    _gpu("watts", "W", 5, "power of the replica's GPUs", _WATTS, sum, numbers.count),
    _gpu("celsius", "°C", 3, "hottest of the replica's GPUs", _CELSIUS, max, numbers.count),
    Column(
        "throttle", "throttle", 12, 43, "what holds the GPU back, or a lost GPU", _draw_throttle,
        lambda replica: ",".join(throttle_reasons(replica)) or None,
        right=False, sortable=False, relevant=_has_gpus,
    ),
    _text("role", "role", 10, 70, "part in its pool", lambda replica: str(replica.role), flat_only=True),
    _text("engine", "engine", 14, 50, "engine and version", engine_text),
    Column(
        "age", "age", 4, 9, "age of the last good page, when older than two intervals", _draw_age, _read_age,
        descending=False,
    ),
)  # fmt: skip
"""Every column, in the order of the screen."""

BY_KEY: Mapping[str, Column] = {column.key: column for column in COLUMNS}

MARKER_WIDTH = 1
NAME_MAX_WIDTH = 28


@dataclass(frozen=True, slots=True)
class Placed:
    """A column with the width it got."""

    column: Column
    width: int


def place_columns(
    width: int, replicas: Sequence[ReplicaSnapshot], name_width: int, *, flat: bool, keep: str | None = None
) -> tuple[Placed, ...]:
    """The columns that fit in `width` cells, in screen order.

    The name gets what is left, up to the longest name (`name_width`). `keep`, the sorted column, stays.
    A terminal too narrow for name and state shows what part of them fits.
    """
    tests = {column.relevant for column in COLUMNS if column.relevant is not None}
    relevant = {test for test in tests if any(map(test, replicas))}
    wanted = [
        column
        for column in COLUMNS
        if (flat or not column.flat_only) and (column.relevant is None or column.relevant in relevant)
    ]
    chosen: list[Column] = []
    room = width - MARKER_WIDTH
    ranked = sorted(wanted, key=lambda column: (column.priority > 0, column.key != keep, column.priority))
    reserve = _reserve(width, name_width)
    for column in ranked:
        needed = column.width + (1 if chosen else 0) + (reserve if column.key == "name" else 0)
        if needed > room:
            if column.priority == 0 and not chosen:
                return (Placed(column, max(room, 0)),)
            break
        chosen.append(column)
        room -= needed
    spare = room + reserve
    return tuple(
        Placed(column, column.width + _extra(column, name_width, spare))
        for column in COLUMNS
        if column in chosen
    )


def _reserve(width: int, name_width: int) -> int:
    """Cells beyond its minimum that a long name takes before columns of low priority are placed."""
    minimum = BY_KEY["name"].width
    return max(0, min(name_width, NAME_MAX_WIDTH) - minimum) if width > 100 else 0


def _extra(column: Column, name_width: int, spare: int) -> int:
    if column.key != "name":
        return 0
    return max(0, min(spare, min(name_width, NAME_MAX_WIDTH) - column.width))


def trend_tops(replicas: Iterable[ReplicaSnapshot]) -> dict[str, float]:
    """The scale of each trend, common to all rows so that rows can be compared."""
    tokens = "generation_tokens_per_second"
    # A cell is a mean over its step, so every fourth sample is scale enough for a thousand rows.
    recent = slice(-int(BY_KEY["tok_trend"].width * TREND_STEP_SECONDS), None, 4)
    top = max((charts.scale_of(replica.trends.get(tokens, ())[recent]) for replica in replicas), default=0.0)
    return {"kv_usage_ratio": 1.0, tokens: top}
