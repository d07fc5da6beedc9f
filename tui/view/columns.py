"""The columns of the fleet grid: one table from which widths, cells, sorting, filters and help come."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter

from enginetop.fleet.bound_by import KV_FULL_RATIO
from enginetop.fleet.model import Quality
from enginetop.fleet.snapshot import ReplicaSnapshot, Scalar
from themes.loader import Ink
from tui.view import charts, numbers
from tui.view.cells import UNKNOWN, Line, Span, cut_end, cut_middle, line_text, plain
from tui.view.column import Column, GridRow, Value, figure, no_value, stale_ink
from tui.view.column_kinds import (
    GpuReader,
    counts,
    gpu_figure,
    happens,
    has_gpus,
    quantile,
    scalar,
    supports,
    trend,
    warn_above,
    words,
)
from tui.view.condition import says_why
from tui.view.engines import engine_text
from tui.view.gpu_words import is_held_back
from tui.view.severity import GLYPH_OF, Severity

_BOUND_WORDS = {"token_budget": "budget", "sequences": "seqs"}


def _draw_name(row: GridRow, width: int) -> Line:
    ink: Ink = row.condition.ink if row.condition.needs_you else "text"
    if not row.marks:
        return plain(cut_middle(row.name, width), ink)
    name = cut_middle(row.name, max(width - len(row.marks), 0))
    gap = " " * (width - len(row.marks) - len(name)) if name.isascii() else ""
    return (Span(name, ink), Span((gap + row.marks)[-width:] if width else "", "info"))


def _draw_state(row: GridRow, width: int) -> Line:
    condition = row.condition
    ink: Ink = "text" if condition.severity is Severity.OK else condition.ink
    return plain(cut_end(f"{GLYPH_OF[condition.severity]} {condition.word}", width), ink)


def _draw_kv(row: GridRow, width: int) -> Line:
    value = row.replica.signals.get("kv_usage_ratio")
    ratio = numbers.scalar_number(value)
    if ratio is None or not isinstance(value, Scalar):
        return plain(UNKNOWN, "dim")
    ink: Ink = stale_ink(row, value.quality, "warn" if ratio >= KV_FULL_RATIO else "text")
    shown = figure(
        row, "kv_usage_ratio", numbers.marked(numbers.percent(ratio), value.quality), min(width, 4), ink
    )
    bar_width = width - 4
    if bar_width <= 0:
        return shown
    bar_ink: Ink = "bar" if ink == "text" else ink
    gap = " " * (4 - len(line_text(shown)))
    return (Span(charts.bar(ratio, bar_width), bar_ink), Span(gap), *shown)


def _draw_age(row: GridRow, _width: int) -> Line:
    seen = row.replica.scraped_at
    if seen is None:
        return plain(UNKNOWN, "dim")
    return plain(numbers.age(row.at - seen), "warn") if row.old else ()


def _read_age(replica: ReplicaSnapshot) -> Value:
    return None if replica.scraped_at is None else -replica.scraped_at


def _draw_since(row: GridRow, _width: int) -> Line:
    return plain(numbers.age(row.at - row.replica.since), "dim")


def _read_share(replica: ReplicaSnapshot) -> float | None:
    """Share of completed requests within the objective: counted, else between the bounds."""
    goodput = replica.goodput
    return goodput.exact if goodput.exact is not None else goodput.joint.independent


def _draw_share(row: GridRow, _width: int) -> Line:
    share = _read_share(row.replica)
    if share is None:
        return plain(UNKNOWN, "dim")
    goodput = row.replica.goodput
    quality = goodput.quality if goodput.exact is not None else Quality.ESTIMATED
    text = numbers.marked(numbers.percent(share), quality)
    missed: Ink = "warn" if share < row.replica.slo.target else "text"
    return plain(text, stale_ink(row, goodput.quality, missed))


def _draw_bound(row: GridRow, width: int) -> Line:
    limit, share = max(row.replica.bound_by.items(), key=lambda entry: entry[1], default=("unknown", 0.0))
    if limit == "unknown":
        return plain(UNKNOWN, "dim")
    if limit == "none":
        return plain("none", "dim")
    said = f"{_BOUND_WORDS.get(limit, limit)} {numbers.percent(share)}%"
    return plain(cut_end(said, width), stale_ink(row, Quality.OK, "text"))


def throttle_reasons(replica: ReplicaSnapshot) -> tuple[str, ...]:
    """What holds the replica's GPUs back, each reason once, in order of first mention."""
    return tuple(dict.fromkeys(reason for gpu in replica.gpus for reason in gpu.throttle_reasons))


def _draw_throttle(row: GridRow, width: int) -> Line:
    lost = [gpu for gpu in row.replica.gpus if gpu.state != "ok"]
    if lost:
        return plain(cut_end(f"gpu {lost[0].state}", width), "crit")
    held_back = any(map(is_held_back, row.replica.gpus))
    return plain(cut_end(",".join(throttle_reasons(row.replica)), width), "warn" if held_back else "dim")


def _draw_why(row: GridRow, width: int) -> Line:
    """The reason of the condition, unless the row's second line has it."""
    if says_why(row.replica):
        return ()
    return plain(cut_end(row.condition.because, width), row.condition.ink)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


_UTILIZATION: GpuReader = attrgetter("utilization_ratio")
_WATTS: GpuReader = attrgetter("power_watts")
_CELSIUS: GpuReader = attrgetter("temperature_celsius")

COLUMNS: tuple[Column, ...] = (
    Column(
        "name", "replica", 8, 0, "name of the target; what all names share is left out when room is short",
        _draw_name, lambda replica: replica.target.name, right=False, descending=False, most=28,
    ),
    Column(
        "state", "state", 11, 0, "glyph and word of the leading condition", _draw_state,
        lambda replica: str(replica.state), right=False, descending=False, sortable=False,
    ),
    words("model", "model", 14, 5, "model served", lambda replica: replica.model, flat_only=True),
    scalar("run", "run", 4, 3, "requests_running", "requests in the running batch now"),
    scalar("wait", "wait", 4, 2, "requests_waiting", "requests queued in the engine now"),
    Column(
        "kv", "KV %", 8, 1, "KV cache in use, fullest rank; yellow from 95 %", _draw_kv,
        lambda replica: numbers.scalar_number(replica.signals.get("kv_usage_ratio")),
    ),
    trend(
        "kv_trend", "KV trend", 12, 40, "kv_usage_ratio", "KV use, 0 to 100 %, ten seconds a cell"
    ),
    scalar(
        "preempt", "pre/s", 5, 12, "preemptions_per_second", "preemptions per second (SGLang: retractions)",
        text=numbers.rate, judge=warn_above(lambda _replica: 0.0),
    ),
    scalar("tok", "tok/s", 5, 8, "generation_tokens_per_second", "generated tokens per second"),
    trend(
        "tok_trend", "tok/s trend", 12, 41, "generation_tokens_per_second",
        "tokens per second, ten seconds a cell, all rows on one scale",
    ),
    scalar("prompt", "in tok/s", 8, 52, "prompt_tokens_per_second", "prompt tokens per second, cached too"),
    scalar(
        "req", "req/s", 5, 30, "requests_finished_per_second", "requests finished per second, all reasons",
        text=numbers.rate,
    ),
    scalar(
        "err", "err/s", 5, 11, "requests_errored_per_second", "requests that end in an error, per second",
        text=numbers.rate, judge=warn_above(lambda _replica: 0.0),
        relevant=happens("requests_errored_per_second"),
    ),
    Column(
        "good", "good%", 5, 29, "completed requests within the SLO; yellow below its target", _draw_share,
        _read_share, descending=False, relevant=lambda replica: _read_share(replica) is not None,
    ),
    quantile("ttft50", "TTFT50ms", 8, 32, "ttft_seconds", "p50", "time to first token, median"),
    quantile(
        "ttft", "TTFT95ms", 8, 6, "ttft_seconds", "p95", "time to first token, p95; yellow above the SLO",
        warn_above(lambda replica: replica.slo.ttft_seconds),
    ),
    quantile(
        "tpot", "TPOT95ms", 8, 7, "tpot_seconds", "p95", "time per output token, p95; yellow above the SLO",
        warn_above(lambda replica: replica.slo.tpot_seconds),
    ),
    quantile("itl", "ITL95ms", 7, 33, "itl_seconds", "p95", "time between output events, p95"),
    quantile("e2e", "E2E95ms", 7, 55, "e2e_seconds", "p95", "arrival to the last token, p95"),
    quantile("queue", "queue95ms", 9, 51, "queue_seconds", "p95", "time from arrival to scheduling, p95"),
    scalar(
        "prefix", "hit%", 4, 35, "prefix_hit_ratio", "prefix tokens found in the KV cache",
        text=numbers.percent,
    ),
    scalar(
        "acc", "acc", 4, 13, "spec_accepted_length", "tokens per draft step of speculation, bonus included",
        text=numbers.one_decimal, relevant=supports("spec_accepted_length"),
    ),
    quantile(
        "reason50", "rsn50", 5, 36, "reasoning_tokens", "p50", "reasoning tokens of a request, median",
        write=numbers.count, relevant=counts("reasoning_tokens"),
    ),
    quantile(
        "reason95", "rsn95", 6, 36, "reasoning_tokens", "p95", "reasoning tokens of a request, p95",
        write=numbers.count, relevant=counts("reasoning_tokens"),
    ),
    Column(
        "bound", "bound by", 11, 38, "what limits the replica most, with its share of the window",
        _draw_bound, no_value, right=False, sortable=False,
        relevant=lambda replica: "unknown" not in replica.bound_by or len(replica.bound_by) > 1,
    ),
    gpu_figure("gpu", "GPU%", 4, "mean utilization of its GPUs", _UTILIZATION, _mean, numbers.percent),
    gpu_figure("watts", "W", 5, "power of the replica's GPUs", _WATTS, sum, numbers.count),
    gpu_figure("celsius", "°C", 3, "hottest of the replica's GPUs", _CELSIUS, max, numbers.count),
    scalar(
        "joules", "J/tok", 5, 61, "energy_joules_per_token", "GPU energy per generated token",
        text=numbers.rate, relevant=supports("energy_joules_per_token"),
    ),
    Column(
        "throttle", "throttle", 12, 43, "what holds the GPU back, or a lost GPU", _draw_throttle,
        lambda replica: ",".join(throttle_reasons(replica)) or None,
        right=False, sortable=False, relevant=has_gpus,
    ),
    words("role", "role", 10, 70, "part in its pool", lambda replica: str(replica.role), flat_only=True),
    words("engine", "engine", 14, 50, "engine and version", engine_text),
    Column(
        "since", "for", 4, 54, "how long it has been in its state", _draw_since,
        lambda replica: -replica.since, descending=False,
    ),
    Column(
        "age", "age", 4, 9, "age of the last good page, when older than two intervals", _draw_age, _read_age,
        descending=False,
    ),
    Column(
        "why", "why", 16, 53, "the reason of its state, in words", _draw_why, no_value,
        right=False, sortable=False, most=60,
    ),
)  # fmt: skip
"""Every column, in the order of the screen."""

BY_KEY: Mapping[str, Column] = {column.key: column for column in COLUMNS}

RELEVANCE = frozenset(column.relevant for column in COLUMNS if column.relevant is not None)
"""The tests of columns that exist only when some replica passes."""
