"""All that is known about one replica, as lines, in the order of the questions."""

from __future__ import annotations

import shlex

from enginetop.fleet.durations import duration_text
from enginetop.fleet.events import is_lull
from enginetop.fleet.model import Target
from enginetop.fleet.snapshot import Outlier, ReplicaSnapshot
from tui.view import numbers
from tui.view.cells import EMPTY_LINE, UNKNOWN, Line, Span, clip, plain, spread
from tui.view.condition import STATES, outlier_text
from tui.view.detail_beyond import beyond_lines
from tui.view.detail_gpu import gpu_lines
from tui.view.detail_latency import latency_lines, rank_lines
from tui.view.detail_load import load_lines
from tui.view.detail_marks import mark_lines
from tui.view.detail_plots import further_plots
from tui.view.detail_tokens import speculation_lines, token_lines
from tui.view.engines import engine_text
from tui.view.events import event_text
from tui.view.figures import Lines, lead_paragraph, paragraphs, row
from tui.view.load_curve import replica_curve
from tui.view.picture import Picture
from tui.view.severity import GLYPH_OF, INK_OF, Condition


def detail_lines(picture: Picture, url: str, width: int) -> list[Line]:
    """The lines of the replica with this target URL, none wider than `width`."""
    replica = picture.replica(url)
    if picture.snapshot is None or replica is None:
        return [clip(plain(" this replica is no longer in the fleet", "warn"), width)]
    at = picture.snapshot.at
    condition = picture.conditions[url]
    lines: list[Line] = []
    for section in (
        _identity(replica, at, width),
        _trouble(replica, condition, at, width),
        load_lines(replica, at, width),
        latency_lines(replica, width),
        replica_curve(replica),
        token_lines(replica, width),
        speculation_lines(replica),
        further_plots(replica, at, width),
        beyond_lines(replica),
        rank_lines(replica),
        gpu_lines(replica, at, width),
        mark_lines(replica, width),
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


def beside_its_like(outlier: Outlier) -> str:
    """How far a figure stands out: `TTFT p95 900 ms, median of 5: 200 ms (4.5×)`."""
    times = f" ({numbers.rate(outlier.value / outlier.median)}×)" if outlier.median > 0 else ""
    return outlier_text(outlier) + times


def _identity(replica: ReplicaSnapshot, at: float, width: int) -> Lines:
    page = f" · page {replica.target.metrics_path}" if replica.target.metrics_path else ""
    yield row("target", Span(replica.target.url), Span(page, "dim"))
    yield from _runs_as(replica.target, width)
    reasons = "; ".join(replica.reasons)
    held = f": {reasons}" if reasons else f" for {duration_text(at - replica.since)}"
    ink = INK_OF[STATES[replica.state][0]]
    yield from lead_paragraph("state", Span(str(replica.state).replace("_", " "), ink), held, width)
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
    yield row("last page", seen, Span(took, "dim"), Span(bad, "warn"))


def _runs_as(target: Target, width: int) -> Lines:
    """The pod, or the process of this machine, where one is known."""
    if target.pod:
        inside = f" · container {target.container}" if target.container else ""
        yield row("pod", Span(target.pod), Span(inside, "dim"))
    if target.inference_pool:
        yield row("pool", Span(target.inference_pool), Span(" · inference pool of the Gateway API", "dim"))
    process = target.process
    if process is not None:
        places = (("unit", process.unit), ("container", process.container))
        held_by = "".join(f" · {what} {name}" for what, name in places if name)
        yield row("process", Span(f"pid {process.pid}"), Span(held_by))
        yield from paragraphs("", (shlex.join(process.argv),), width, "dim")


def _trouble(replica: ReplicaSnapshot, condition: Condition, at: float, width: int) -> Lines:
    if condition.needs_you and condition.because not in ("; ".join(replica.reasons), ""):
        yield from paragraphs("needs you", (condition.because,), width, INK_OF[condition.severity])
    for number, outlier in enumerate(replica.outliers):
        yield row("" if number else "outlier", Span(beside_its_like(outlier), "info"))
    failure = replica.last_failure
    if failure is not None:
        text = failure.detail or str(failure.kind).replace("_", " ")
        said = f"{text} · {numbers.seconds_text(at - failure.at)} ago"
        yield from paragraphs("last error", (said,), width)
    yield EMPTY_LINE


def _config(replica: ReplicaSnapshot) -> Lines:
    if not replica.config:
        yield row("config", Span("not exported", "dim"))
    key_width = max((len(key) for key in replica.config), default=0)
    for number, (key, setting) in enumerate(sorted(replica.config.items())):
        value = UNKNOWN if setting.value is None else str(setting.value)
        yield row(
            "" if number else "config",
            Span(f"{key:<{key_width}}  {value}"),
            Span(f"  {setting.source}", "dim"),
        )
    yield EMPTY_LINE


def _events(replica: ReplicaSnapshot) -> Lines:
    news = [event for event in replica.events if not is_lull(event)]
    if not news:
        yield row("events", Span("none yet", "dim"))
    newest_first = sorted(news, key=lambda event: -event.at)
    for number, event in enumerate(newest_first):
        time = Span(f"{numbers.time_of_day(event.at)} ", "dim")
        yield row("" if number else "events", time, Span(event_text(event)))
