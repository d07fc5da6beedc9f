"""All that is known about one replica, as lines: a section a function, in the order of the questions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from enginetop.fleet.model import EngineKind, Quality
from enginetop.fleet.signals import DISTRIBUTIONS, PERCENTILES, SIGNALS
from enginetop.fleet.snapshot import Distribution, GpuDevice, Quantile, RankSnapshot, ReplicaSnapshot, Scalar
from themes.loader import Ink
from tui.view import charts, numbers
from tui.view.cells import EMPTY_LINE, UNKNOWN, Line, Span, clip, cut_middle, merge, pad, plain, spread
from tui.view.columns import engine_text
from tui.view.condition import GLYPH_OF, INK_OF, Condition
from tui.view.heading import event_text
from tui.view.picture import Picture

LABEL_WIDTH = 12
PLOT_ROWS = 4
WIDE = 120
"""From this width on, plots of two signals stand side by side."""

Lines = Iterator[Line]


def detail_lines(picture: Picture, url: str, width: int) -> list[Line]:
    """The lines of the replica with this target URL, none wider than `width`."""
    replica = picture.replica(url)
    if picture.snapshot is None or replica is None:
        return [clip(plain(" this replica is no longer in the fleet", "warn"), width)]
    at = picture.snapshot.at
    condition = picture.conditions[url]
    lines: list[Line] = []
    for section in (
        _identity(replica, condition, at),
        _trouble(replica, condition, at),
        _load(replica, at, width),
        _latency(replica, width),
        _tokens(replica),
        _speculation(replica),
        _ranks(replica),
        _gpus(replica, width),
        _config(replica),
        _events(replica),
    ):
        lines += section
    while lines and not lines[-1]:
        lines.pop()
    return [clip(line, width) for line in lines]


def detail_title(picture: Picture, url: str, width: int) -> Line:
    """Name, engine, model, role at the left; state at the right."""
    replica = picture.replica(url)
    if replica is None:
        return clip(plain(f" {url}", "title"), width)
    condition = picture.conditions[url]
    left = [Span(f" {replica.target.name}", "title")]
    for text in (engine_text(replica), replica.model or "model not known", str(replica.role)):
        left += (Span(" · ", "dim"), Span(text))
    state = Span(f"{GLYPH_OF[condition.severity]} {condition.word} ", INK_OF[condition.severity])
    return spread(left, (state,), width)


def _label(text: str) -> Span:
    return Span(f" {text:<{LABEL_WIDTH}}", "head")


def _row(label: str, *spans: Span) -> Line:
    return merge((_label(label), *spans))


def _identity(replica: ReplicaSnapshot, condition: Condition, at: float) -> Lines:
    page = f" · page {replica.target.metrics_path}" if replica.target.metrics_path else ""
    yield _row("target", Span(replica.target.url), Span(page, "dim"))
    reasons = "; ".join(replica.reasons)
    held = f": {reasons}" if reasons else f" for {duration_text(at - replica.since)}"
    yield _row("state", Span(str(replica.state).replace("_", " "), STATE_INK[replica.state]), Span(held))
    if replica.scraped_at is None:
        seen = Span("never", "warn")
    else:
        seen = Span(f"{numbers.seconds_text(at - replica.scraped_at)} ago")
    took = (
        f" · took {numbers.seconds_text(replica.scrape_seconds)}"
        if replica.scrape_seconds is not None
        else ""
    )
    bad = f" · {replica.bad_lines} bad lines" if replica.bad_lines else ""
    yield _row("last page", seen, Span(took, "dim"), Span(bad, "warn"))


def _trouble(replica: ReplicaSnapshot, condition: Condition, at: float) -> Lines:
    if condition.needs_you and condition.because not in ("; ".join(replica.reasons), ""):
        yield _row("needs you", Span(condition.because, INK_OF[condition.severity]))
    failure = replica.last_failure
    if failure is not None:
        text = failure.detail or str(failure.kind).replace("_", " ")
        yield _row("last error", Span(text), Span(f" · {numbers.seconds_text(at - failure.at)} ago", "dim"))
    yield EMPTY_LINE


def absence(value: Scalar | Distribution | None, engine: EngineKind) -> str:
    """Why a value is not there, in words; empty when it is."""
    if value is None:
        return "not known"
    if value.quality is Quality.UNSUPPORTED:
        return value.note or f"not exported by {ENGINE_NAMES.get(engine, str(engine))}"
    if isinstance(value, Scalar) and value.value is None:
        return value.note or ("not known yet" if value.quality is Quality.UNKNOWN else str(value.quality))
    if isinstance(value, Distribution) and value.count is None:
        return value.note or "not known yet"
    return ""


ENGINE_NAMES = {
    EngineKind.VLLM: "vLLM",
    EngineKind.SGLANG: "SGLang",
    EngineKind.TRTLLM: "TensorRT-LLM",
    EngineKind.TRITON: "Triton",
    EngineKind.DYNAMO: "Dynamo",
    EngineKind.LLAMACPP: "llama.cpp",
    EngineKind.TGI: "TGI",
    EngineKind.LMDEPLOY: "LMDeploy",
    EngineKind.ROUTER: "this router",
    EngineKind.UNKNOWN: "this server",
}


def _signal(replica: ReplicaSnapshot, name: str) -> Scalar | Distribution | None:
    return replica.signals.get(name)


def _figure(
    replica: ReplicaSnapshot, name: str, text: Callable[[float | None], str], unit: str = ""
) -> tuple[Span, ...]:
    """A number with its unit and mark, or the reason in words why there is none."""
    value = _signal(replica, name)
    number = numbers.scalar_number(value)
    if number is None or not isinstance(value, Scalar):
        return (Span(UNKNOWN, "dim"), Span(f" {absence(value, replica.engine)}", "dim"))
    ink: Ink = "dim" if value.quality is Quality.STALE else "text"
    note = f" ({value.note})" if value.note else ""
    return (Span(numbers.marked(text(number), value.quality) + unit, ink), Span(note, "dim"))


def _short_figure(
    replica: ReplicaSnapshot, name: str, text: Callable[[float | None], str] = numbers.count
) -> Span:
    value = _signal(replica, name)
    number = numbers.scalar_number(value)
    if number is None or not isinstance(value, Scalar):
        return Span(UNKNOWN, "dim")
    ink: Ink = "dim" if value.quality is Quality.STALE else "text"
    return Span(numbers.marked(text(number), value.quality), ink)


def _setting(replica: ReplicaSnapshot, key: str) -> float | None:
    found = replica.config.get(key)
    value = found.value if found is not None else None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _load(replica: ReplicaSnapshot, at: float, width: int) -> Lines:
    kv = _signal(replica, "kv_usage_ratio")
    ratio = numbers.scalar_number(kv)
    if isinstance(kv, Scalar) and ratio is not None:
        shown = numbers.marked(numbers.percent(ratio), kv.quality)
        spans = [Span(f"{shown:>4} % ", "text"), Span(charts.bar(ratio, 20), "bar")]
        if kv.mean is not None and kv.mean != ratio:
            spans.append(Span(f" mean {numbers.percent(kv.mean)} %"))
        if kv.worst:
            spans.append(Span(" fullest " + _labels(kv.worst), "dim"))
        capacity = numbers.scalar_number(_signal(replica, "kv_capacity_tokens"))
        if capacity is not None:
            spans.append(Span(f" of {numbers.count(capacity)} tokens", "dim"))
        yield _row("KV", *spans)
    else:
        yield _row("KV", *_figure(replica, "kv_usage_ratio", numbers.percent))
    seats = _setting(replica, "max_num_seqs")
    of_seats = Span(f" of {seats:.0f} seqs", "dim") if seats else Span("")
    yield _row(
        "requests",
        Span("running ", "dim"), _short_figure(replica, "requests_running"), of_seats,
        Span(" · waiting ", "dim"), _short_figure(replica, "requests_waiting"),
        Span(" · finished/s ", "dim"), _short_figure(replica, "requests_finished_per_second", numbers.rate),
        Span(" · aborted/s ", "dim"), _short_figure(replica, "requests_aborted_per_second", numbers.rate),
    )  # fmt: skip
    yield _row("preempted/s", *_figure(replica, "preemptions_per_second", numbers.rate))
    yield EMPTY_LINE
    yield from _plots(replica, at, width)


_PLOTS = (
    ("kv_usage_ratio", "KV %", 1.0, numbers.percent),
    ("generation_tokens_per_second", "tok/s", None, numbers.count),
    ("requests_running", "running", None, numbers.count),
    ("requests_waiting", "waiting", None, numbers.count),
)


def _plots(replica: ReplicaSnapshot, at: float, width: int) -> Lines:
    columns = 2 if width >= WIDE else 1
    cell = (width - 2) // columns
    plots = [
        _plot(replica, at, signal, title, top, text, cell - 2)
        for signal, title, top, text in _PLOTS
        if signal in replica.trends and replica.trend_times
    ]
    shown = plots if columns == 2 else plots[:2]
    for first in range(0, len(shown), columns):
        for row in zip(*shown[first : first + columns], strict=True):
            yield merge(span for part in row for span in (Span("  "), *part))
        yield EMPTY_LINE


def _plot(
    replica: ReplicaSnapshot,
    at: float,
    signal: str,
    title: str,
    top: float | None,
    text: Callable[[float | None], str],
    width: int,
) -> list[Line]:
    """A plot of exactly `width` cells: scale at the left, newest value at the right edge."""
    scale_width = 8
    room = max(width - scale_width, 1)
    times, values = replica.trend_times, replica.trends[signal]
    step = _plot_step(times, at, room)
    series = charts.resample(values, times, at, step, room)
    limit = top if top is not None else charts.scale_of(series) or 1.0
    rows = charts.area(series, room, PLOT_ROWS, limit)
    scale = [text(limit), *[""] * (PLOT_ROWS - 2), "0"]
    lines = [
        (Span(f"{mark:>{scale_width - 2}} ┊"[:scale_width], "dim"), Span(row, "spark"))
        for mark, row in zip(scale, rows, strict=True)
    ]
    span = numbers.seconds_text(step * room)
    caption = pad(f"{title}, last {span}", width)[: max(width, 0)]
    return [(Span(caption, "head"),), *(merge((*line, Span(" "))) for line in lines)]


def _plot_step(times: tuple[float, ...], at: float, room: int) -> float:
    """Seconds a column, one of few round values, so that all known times fit."""
    span = max(at - times[0], 1.0)
    for step in (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0):
        if span / step <= room - 1:
            return step
    return 1800.0


_LATENCIES = ("ttft_seconds", "tpot_seconds", "itl_seconds", "e2e_seconds", "queue_seconds")
_QUANTILE_WIDTH = 9
_BOUNDS_WIDTH = 20


def _latency(replica: ReplicaSnapshot, width: int) -> Lines:
    wide = width >= WIDE
    heads = [*(name for name, _ in PERCENTILES), "mean", "count"]
    head = "".join(f"{name:>{_QUANTILE_WIDTH}}" for name in heads)
    yield _row("latency ms", Span(head + ("    p95 lies between" if wide else ""), "head"))
    for signal in DISTRIBUTIONS:
        if signal.name in _LATENCIES:
            yield _latency_row(replica, signal.name, signal.title, wide=wide)
    slo = replica.slo
    yield _row(
        "SLO",
        Span(
            f"TTFT {numbers.seconds_text(slo.ttft_seconds)} · TPOT {numbers.seconds_text(slo.tpot_seconds)}"
            f" · for {numbers.percent(slo.target)} % of requests ({slo.source})",
            "dim",
        ),
    )
    yield EMPTY_LINE


def _latency_row(replica: ReplicaSnapshot, name: str, title: str, *, wide: bool) -> Line:
    value = _signal(replica, name)
    missing = absence(value, replica.engine)
    if missing or not isinstance(value, Distribution):
        return _row(title, Span(f"{UNKNOWN:>{_QUANTILE_WIDTH}}  {missing}", "dim"))
    limit = {"ttft_seconds": replica.slo.ttft_seconds, "tpot_seconds": replica.slo.tpot_seconds}.get(name)
    spans = []
    for key in (*(key for key, _ in PERCENTILES), "mean"):
        quantile = numbers.quantile_of(value, key)
        number = numbers.quantile_number(quantile)
        over = limit is not None and number is not None and number > limit and key == "p95"
        ink: Ink = "dim" if number is None or value.quality is Quality.STALE else "warn" if over else "text"
        spans.append(Span(f"{_quantile_text(quantile, value.quality):>{_QUANTILE_WIDTH}}", ink))
    spans.append(Span(f"{numbers.count(value.count):>{_QUANTILE_WIDTH}}", "dim"))
    if wide:
        spans.append(Span(f"    {_bounds_text(numbers.quantile_of(value, 'p95'))}", "dim"))
    if value.note:
        spans.append(Span(f"  {value.note}", "dim"))
    return _row(title, *spans)


def _quantile_text(quantile: Quantile, quality: Quality) -> str:
    number = numbers.quantile_number(quantile)
    text = (numbers.CENSORED if quantile.censored and number is not None else "") + numbers.milliseconds(
        number
    )
    return numbers.marked(text, quality)


def _bounds_text(quantile: Quantile) -> str:
    if quantile.low is None:
        return ""
    high = "∞" if quantile.high is None else numbers.milliseconds(quantile.high)
    return f"{numbers.milliseconds(quantile.low)} and {high}"


def _tokens(replica: ReplicaSnapshot) -> Lines:
    yield _row(
        "tokens/s",
        Span("generated ", "dim"), _short_figure(replica, "generation_tokens_per_second"),
        Span(" · prompt ", "dim"), _short_figure(replica, "prompt_tokens_per_second"),
    )  # fmt: skip
    yield _row("prefix hits", *_figure(replica, "prefix_hit_ratio", numbers.percent, " %"))
    external = _signal(replica, "external_prefix_hit_ratio")
    if numbers.scalar_number(external) is not None:
        yield _row("external", *_figure(replica, "external_prefix_hit_ratio", numbers.percent, " %"))
    for name, label in (("prompt_tokens", "prompt len"), ("output_tokens", "output len")):
        value = _signal(replica, name)
        if isinstance(value, Distribution) and value.count:
            parts = [
                f"{key} {_token_quantile(numbers.quantile_of(value, key))}"
                for key in ("p50", "p95", "p99", "mean")
            ]
            yield _row(label, Span(" · ".join(parts)), Span(" tokens", "dim"))


def _token_quantile(quantile: Quantile) -> str:
    number = numbers.quantile_number(quantile)
    return (numbers.CENSORED if quantile.censored and number is not None else "") + numbers.count(number)


def _speculation(replica: ReplicaSnapshot) -> Lines:
    length = _signal(replica, "spec_accepted_length")
    number = numbers.scalar_number(length)
    if number is None:
        yield _row("speculation", Span(UNKNOWN, "dim"), Span(f" {absence(length, replica.engine)}", "dim"))
        yield EMPTY_LINE
        return
    spans = [Span("length ", "dim"), Span(f"{number:.2f}")]
    ratio = numbers.scalar_number(_signal(replica, "spec_acceptance_ratio"))
    if ratio is not None:
        spans += (Span(" · accepted ", "dim"), Span(f"{numbers.percent(ratio)} %"))
    positions = _signal(replica, "spec_acceptance_per_position")
    if isinstance(positions, Scalar) and isinstance(positions.value, tuple) and positions.value:
        by_position = positions.value
        spans += (
            Span(" · by position ", "dim"),
            Span(charts.spark(by_position, len(by_position), 1.0), "spark"),
            Span(" " + " ".join(f"{value:.2f}" for value in by_position)),
        )
    yield _row("speculation", *spans)
    yield EMPTY_LINE


def _labels(labels: Mapping[str, str]) -> str:
    return " ".join(f"{key}={value}" for key, value in labels.items())


def _ranks(replica: ReplicaSnapshot) -> Lines:
    if len(replica.ranks) < 2:
        return
    yield _row("ranks", Span(f"{'run':>6}{'wait':>6}{'KV %':>6}{'tok/s':>8}{'TTFT95ms':>10}", "head"))
    for rank in replica.ranks:
        yield _rank_row(rank)
    yield EMPTY_LINE


def _rank_row(rank: RankSnapshot) -> Line:
    def shown(name: str, text: Callable[[float | None], str]) -> str:
        return text(numbers.scalar_number(rank.signals.get(name)))

    ttft = numbers.quantile_of(rank.signals.get("ttft_seconds"), "p95")
    label = cut_middle(_labels(rank.labels), LABEL_WIDTH)
    return (
        Span(f" {pad(label, LABEL_WIDTH)}", "head"),
        Span(
            f"{shown('requests_running', numbers.count):>6}{shown('requests_waiting', numbers.count):>6}"
            f"{shown('kv_usage_ratio', numbers.percent):>6}"
            f"{shown('generation_tokens_per_second', numbers.count):>8}"
            f"{_quantile_text(ttft, Quality.OK):>10}"
        ),
    )


def _gpus(replica: ReplicaSnapshot, width: int) -> Lines:
    if not replica.gpus:
        return
    head = f"{'util %':>7}{'mem GiB':>14}{'W':>6}{'of':>6}{'°C':>5}{'MHz':>6}  throttle"
    name_width = 26 if width >= WIDE else 13
    yield (Span(f" {'GPU':<{name_width + 4}}", "head"), Span(head, "head"))
    for gpu in replica.gpus:
        yield _gpu_row(gpu, name_width)
    power = _figure(replica, "power_watts", numbers.count, " W")
    energy = _signal(replica, "energy_joules_per_token")
    if numbers.scalar_number(energy) is not None:
        power = (*power, Span(" · "), *_figure(replica, "energy_joules_per_token", numbers.rate, " J/token"))
    yield _row("power", *power)
    yield EMPTY_LINE


def _gpu_row(gpu: GpuDevice, name_width: int) -> Line:
    name = cut_middle(f"{gpu.name} MIG {gpu.mig}" if gpu.mig else gpu.name, name_width)
    used = numbers.byte_count(gpu.memory_used_bytes)
    total = numbers.byte_count(gpu.memory_total_bytes)
    memory = f"{used}/{total}{' unified' if gpu.unified_memory else ''}"
    figures = (
        f"{numbers.percent(gpu.utilization_ratio):>7}{memory:>14}{numbers.count(gpu.power_watts):>6}"
        f"{numbers.count(gpu.power_limit_watts):>6}{numbers.count(gpu.temperature_celsius):>5}"
        f"{numbers.count(gpu.sm_clock_mhz):>6}"
    )
    spans = [Span(f" {gpu.index:<3} {pad(name, name_width)}"), Span(figures)]
    if gpu.throttle_reasons:
        spans.append(Span(f"  {', '.join(gpu.throttle_reasons)}", "warn"))
    if gpu.last_xid is not None:
        spans.append(Span(f"  Xid {gpu.last_xid}", "crit"))
    if gpu.state != "ok":
        spans.append(Span(f"  {gpu.state}", "crit"))
    if gpu.note:
        spans.append(Span(f"  {gpu.note}", "dim"))
    return merge(spans)


def _config(replica: ReplicaSnapshot) -> Lines:
    if not replica.config:
        yield _row("config", Span("not exported", "dim"))
    key_width = max((len(key) for key in replica.config), default=0)
    for number, (key, setting) in enumerate(sorted(replica.config.items())):
        value = UNKNOWN if setting.value is None else str(setting.value)
        yield _row(
            "" if number else "config",
            Span(f"{key:<{key_width}}  {value}"),
            Span(f"  {setting.source}", "dim"),
        )
    yield EMPTY_LINE


def _events(replica: ReplicaSnapshot) -> Lines:
    if not replica.events:
        yield _row("events", Span("none yet", "dim"))
    newest_first = sorted(replica.events, key=lambda event: -event.at)
    for number, event in enumerate(newest_first):
        time = Span(f"{numbers.time_of_day(event.at)} ", "dim")
        yield _row("" if number else "events", time, Span(event_text(event)))


assert set(_LATENCIES) <= SIGNALS.keys()
