"""The objective and what of it is met: shares with their hard bounds, goodput, and the burn of the budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from enginetop.fleet.model import Quality
from enginetop.fleet.snapshot import BurnRow, FleetSummary, Goodput, Quantile, Slo
from enginetop.fleet.snapshot import Span as Bounds
from themes.loader import Ink
from tui.view import numbers
from tui.view.cells import UNKNOWN, Line, Span
from tui.view.figures import Lines, row

_WINDOW_WIDTH, _BURN_WIDTH = 7, 9


def objective_line(slo: Slo) -> Line:
    """Which times, for which share of the requests, and who has said so."""
    times = f"TTFT {numbers.seconds_text(slo.ttft_seconds)} · TPOT {numbers.seconds_text(slo.tpot_seconds)}"
    target = f" · for {numbers.target_percent(slo.target)} % of requests ({slo.source})"
    return row("SLO", Span(times + target, "dim"))


def has_several_objectives(fleet: FleetSummary) -> bool:
    """Whether its models are held against different ones, so that none is that of the fleet."""
    limits = {model.slo.limits for model in fleet.models}
    return len(limits) > 1


def span_text(seconds: float) -> str:
    """A window of the burn: `5m`, `1h`, `3d`."""
    whole = round(seconds)
    if whole > 86400 and whole % 86400 == 0:
        return f"{whole // 86400}d"
    return f"{whole // 3600}h" if whole % 3600 == 0 else f"{whole // 60}m"


def goodput_lines(goodput: Goodput, slo: Slo) -> Lines:
    """Requests within the objective: the shares of both halves, then what is known of the two together.

    Nothing where nothing is known.
    """
    within = list(_halves(goodput))
    if within:
        yield row("within SLO", *within)
    together = list(_together(goodput, slo))
    if together:
        yield row("goodput", *together, *_note(goodput))


def bounds_text(low: float | None, high: float | None) -> str:
    """A share between its bounds, in percent: `81.0–88.5`; `–` where neither is known."""
    if low is None or high is None:
        return (
            UNKNOWN if low is None and high is None else f"{numbers.CENSORED}{numbers.fine_percent(low or 0)}"
        )
    return numbers.between(numbers.fine_percent(low), numbers.fine_percent(high))


def _halves(goodput: Goodput) -> Iterator[Span]:
    for number, (title, share) in enumerate((("TTFT", goodput.ttft), ("TPOT", goodput.tpot))):
        text = _share_text(share)
        if text is None:
            return
        yield Span(f"{' · ' if number else ''}{title} ", "dim")
        yield Span(f"{text} %")
    if _known(goodput.joint):
        yield Span(" · both ", "dim")
        yield Span(f"{bounds_text(goodput.joint.low, goodput.joint.high)} %")
        if goodput.joint.independent is not None:
            yield Span(f", {numbers.fine_percent(goodput.joint.independent)}? if independent", "dim")


def _share_text(share: Quantile) -> str | None:
    if share.low is not None and share.high is not None and share.low != share.high:
        return bounds_text(share.low, share.high)
    return None if share.value is None else numbers.fine_percent(share.value)


def _known(bounds: Bounds) -> bool:
    return bounds.low is not None or bounds.high is not None


def _together(goodput: Goodput, slo: Slo) -> Iterator[Span]:
    offered = goodput.offered_per_second
    of = f" of {numbers.rate(offered)}" if offered is not None else ""
    if goodput.exact is not None:
        ink: Ink = "warn" if goodput.exact < slo.target else "text"
        yield Span(f"{numbers.fine_percent(goodput.exact)} %", ink)
        yield Span(" of completed requests within it")
        if goodput.good_per_second is not None:
            yield Span(f" · {numbers.rate(goodput.good_per_second)}{of} req/s")
        return
    rates = goodput.within_per_second
    if rates.low is not None and rates.high is not None:
        shown = numbers.between(numbers.rate(rates.low), numbers.rate(rates.high))
        yield Span(f"{shown}{of} req/s")
        sure = goodput.joint.high is not None and goodput.joint.high < slo.target
        yield Span("  the objective is missed for certain" if sure else "", "warn")


def _note(goodput: Goodput) -> Iterator[Span]:
    if goodput.note:
        yield Span(f"  {goodput.note}", "dim")
    if goodput.quality is Quality.STALE:
        yield Span("  old", "dim")


def burn_lines(burn: Sequence[BurnRow], slo: Slo) -> Lines:
    """A row for each pair of windows: how fast the error budget burns, and where somebody is woken."""
    if not burn:
        return
    budget = f"{numbers.fine_percent(1.0 - slo.target)} % may miss"
    head = (
        f"{'long':>{_WINDOW_WIDTH}}{'burn':>{_BURN_WIDTH}}{'short':>{_WINDOW_WIDTH}}{'burn':>{_BURN_WIDTH}}"
    )
    yield row("burn", Span(f"{head}{'fires':>10}  ", "head"), Span(budget, "dim"))
    for one in burn:
        if one.long is not None or one.short is not None:
            yield _burn_line(one)
    unknown = [span_text(one.long_seconds) for one in burn if one.long is None]
    if unknown:
        yield row(
            "", Span(f" not known of {', '.join(unknown)}: the history does not reach so far back", "dim")
        )


def _burn_line(one: BurnRow) -> Line:
    ink: Ink = "crit" if one.firing else "text"
    state = "fires" if one.firing else "" if one.reachable else "cannot be reached at this target"
    return row(
        "",
        Span(f"{span_text(one.long_seconds):>{_WINDOW_WIDTH}}", "dim"),
        Span(f"{_times(one.long):>{_BURN_WIDTH}}", ink),
        Span(f"{span_text(one.short_seconds):>{_WINDOW_WIDTH}}", "dim"),
        Span(f"{_times(one.short):>{_BURN_WIDTH}}", ink),
        Span(f"{'> ' + _times(one.threshold):>10}", "dim"),
        Span(f"  {state}", "crit" if one.firing else "dim"),
    )


def _times(burn: float | None) -> str:
    return UNKNOWN if burn is None else f"{numbers.rate(burn)}×"
