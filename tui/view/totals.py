"""The fleet in one line: goodput with its bounds, the burn of the error budget, sums and merges."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from enginetop.fleet.model import Quality
from enginetop.fleet.snapshot import BurnRow, Distribution, Goodput, Scalar, Slo
from themes.loader import Ink
from tui.view import numbers
from tui.view.attainment import has_several_objectives, span_text
from tui.view.cells import UNKNOWN, Line, Span, clip, join_while_fitting, merge, plain
from tui.view.picture import Picture


def totals_line(picture: Picture, width: int) -> Line:
    """Sums and merges over the replicas that are up, with the objective they are held against."""
    snapshot = picture.snapshot
    if snapshot is None:
        return ()
    fleet = snapshot.fleet
    signals = fleet.signals
    ended = signals.get("requests_finished_per_second")
    several = has_several_objectives(fleet)
    items: list[Line] = [
        *(
            _goodput_items(fleet.goodput, fleet.slo, _quality(ended))
            or [_total("req/s", _number(ended, numbers.rate))]
        ),
        _total("tok/s", _number(signals.get("generation_tokens_per_second"))),
        _total("run", _number(signals.get("requests_running"))),
        _total("wait", _number(signals.get("requests_waiting"))),
        _kv_total(signals.get("kv_usage_ratio")),
        _latency_total("TTFT p95", signals.get("ttft_seconds"), None if several else fleet.slo.ttft_seconds),
        _latency_total("TPOT p95", signals.get("tpot_seconds"), None if several else fleet.slo.tpot_seconds),
        plain("SLO of each model") if several else _slo_total(fleet.slo),
    ]
    if snapshot.gpu_problem:
        items.append(plain(f"GPU: {snapshot.gpu_problem}", "dim"))
    return clip(merge((Span(" "), *join_while_fitting(items, width - 1))), width)


def _number(signal: object, text: Callable[[float | None], str] = numbers.count) -> str:
    return numbers.marked(text(numbers.scalar_number(signal)), _quality(signal))


def _quality(signal: object) -> Quality:
    return signal.quality if isinstance(signal, Scalar) else Quality.UNKNOWN


def _total(label: str, shown: str) -> Line:
    return (Span(f"{label} ", "dim"), Span(shown, "dim" if shown == UNKNOWN else "text"))


def _goodput_items(goodput: Goodput, slo: Slo, ended: Quality) -> list[Line]:
    """Requests within the objective of those that ended, their share, and what is left of the budget.

    The rate is counted where somebody counts requests, else it lies between hard bounds; the share is that of
    the two rates, for an aborted request is no good one. Empty where neither is known. `ended` is the quality
    of the rate at which requests ended.
    """
    offered, counted = goodput.offered_per_second, goodput.good_per_second
    if not offered:
        return []
    if counted is not None and goodput.exact is not None:
        low = high = counted
        mark = goodput.quality
        share = f"{numbers.marked(numbers.fine_percent(counted / offered), goodput.quality)} %"
    elif goodput.within_per_second.low is not None and goodput.within_per_second.high is not None:
        low, high = goodput.within_per_second.low, goodput.within_per_second.high
        mark = Quality.OK  # hard bounds
        shares = [numbers.percent(min(rate / offered, 1.0)) for rate in (low, high)]
        share = f"{numbers.between(*shares)} %"
    else:
        return []
    missed: Ink = "warn" if high / offered < slo.target else "text"
    rates = numbers.marked(numbers.between(numbers.rate(low), numbers.rate(high)), mark)
    items: list[Line] = [
        (Span("goodput ", "dim"), Span(f"{rates} of {numbers.marked(numbers.rate(offered), ended)} req/s")),
        (Span(f"SLO {numbers.target_percent(slo.target)} %: ", "dim"), Span(share, missed)),
    ]
    return items + ([burn] if (burn := _burn(goodput.burn, goodput.exact is None)) else [])


def _burn(rows: Sequence[BurnRow], estimated: bool) -> Line:
    """The row that fires, else the first that reaches far enough back; 1 uses the budget up in its period."""
    known = [row for row in rows if row.long is not None or row.short is not None]
    row = next((row for row in known if row.firing), known[0] if known else None)
    if row is None:
        return ()
    quality = Quality.ESTIMATED if estimated else Quality.OK
    ink: Ink = "warn" if row.firing else "text"
    spans = [Span("burn", "dim")]
    for seconds, burn in ((row.long_seconds, row.long), (row.short_seconds, row.short)):
        shown = UNKNOWN if burn is None else numbers.marked(f"{numbers.one_decimal(burn)}×", quality)
        spans += (Span(f" {span_text(seconds)} ", "dim"), Span(shown, ink))
    return tuple(spans)


def _kv_total(kv: object) -> Line:
    number = numbers.scalar_number(kv)
    if not isinstance(kv, Scalar) or number is None:
        return _total("KV", UNKNOWN)
    most, mean = (numbers.marked(numbers.percent(one), kv.quality) for one in (number, kv.mean))
    return (Span("KV ", "dim"), Span(f"max {most}{f' mean {mean}' if kv.mean is not None else ''} %"))


def _latency_total(label: str, value: object, limit: float | None) -> Line:
    quantile = numbers.quantile_of(value, "p95")
    number = numbers.quantile_number(quantile)
    if number is None or not isinstance(value, Distribution):
        return _total(label, UNKNOWN)
    text = numbers.marked(numbers.bounded(quantile, numbers.seconds_text), value.quality)
    return (Span(f"{label} ", "dim"), Span(text, "warn" if limit is not None and number > limit else "text"))


def _slo_total(slo: Slo) -> Line:
    text = (
        f"TTFT≤{numbers.seconds_text(slo.ttft_seconds)} TPOT≤{numbers.seconds_text(slo.tpot_seconds)}"
        f" for {numbers.target_percent(slo.target)} %"
    )
    return (Span("SLO ", "dim"), Span(text, "dim" if slo.source == "default" else "text"))
