"""Why an alert is there: its rule, value and threshold, the value over time, what keeps it quiet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from enginetop.alerts.builtin import builtin_rules
from enginetop.alerts.inhibit import CAUSES
from enginetop.alerts.rule import FIRING, Rule
from enginetop.alerts.runbook import runbook_command
from enginetop.fleet.durations import duration_text
from enginetop.fleet.signals import SIGNALS
from enginetop.fleet.snapshot import Alert
from tui.view import numbers
from tui.view.alert_condition import alert_severity
from tui.view.alerts import alert_key, until_words
from tui.view.cells import (
    EMPTY_LINE,
    UNKNOWN,
    Line,
    Span,
    clip,
    plain,
    printable,
)
from tui.view.detail_plots import one_plot
from tui.view.figures import Lines, paragraphs, row
from tui.view.picture import Picture
from tui.view.severity import GLYPH_OF, INK_OF
from tui.view.title import screen_title

WATCHED: Mapping[str, str] = {
    "TtftSlo": "ttft_seconds.p95",
    "TpotSlo": "tpot_seconds.p95",
    "KvPressure": "kv_usage_ratio",
    "ReplicaImbalance": "kv_usage_ratio",
    "Preempting": "preemptions_per_second",
    "QueueGrowing": "requests_waiting",
    "SpeculationUseless": "spec_accepted_length",
    "PrefixCacheDrop": "prefix_hit_ratio",
}
"""The trend behind each rule that judges one."""

_OTHERWISE = frozenset(
    {
        ("ReplicaImbalance", "warning"),  # judges how far it is above its like
        ("Preempting", "critical"),  # judges a rate, or a share of requests
        ("QueueGrowing", "critical"),  # judges how long requests wait
    }
)
"""Rules, with their severity, whose value and threshold are not figures of that trend."""


def why_title(picture: Picture, alert: Alert | None, width: int) -> Line:
    """Which alert."""
    what = "" if alert is None else f" · {printable(alert.rule)} · {printable(picture.name_of(alert.target))}"
    return screen_title(picture, f"why{what}", "", width)


def alert_with(picture: Picture, key: str) -> Alert | None:
    """The alert with this key, None when it is over."""
    alerts = picture.snapshot.alerts if picture.snapshot is not None else ()
    return next((alert for alert in alerts if alert_key(alert) == key), None)


def why_lines(picture: Picture, key: str, width: int) -> list[Line]:
    """All about one alert, none of the lines wider than `width`."""
    alert = alert_with(picture, key)
    if alert is None or picture.snapshot is None:
        return [clip(plain(" this alert is over", "dim"), width)]
    snapshot = picture.snapshot
    rule = _rule(picture, alert, snapshot.window_seconds)
    lines: list[Line] = []
    for section in (
        _what(alert, snapshot.at, width),
        _rule_lines(alert, rule, width),
        _quiet(picture, alert, width),
        _labels(alert),
    ):
        lines += section
    return [clip(line, width) for line in (*lines, *_over_time(picture, alert, width))]


def _what(alert: Alert, at: float, width: int) -> Lines:
    severity = alert_severity(alert)
    held = duration_text(at - alert.since)  # of the condition: it fires later, once its hold is over
    since = f" · true for {held}, since {numbers.time_of_day(alert.since)}"
    yield row(
        "state", Span(f"{GLYPH_OF[severity]} {alert.severity} {alert.state}", INK_OF[severity]), Span(since)
    )
    yield from paragraphs("because", (printable(alert.summary or alert.rule),), width)
    if alert.threshold is not None:  # without one the value is how long it lasts, as said above
        value, threshold = _in_unit(alert, alert.value), _in_unit(alert, alert.threshold)
        yield row("value", Span(value, "title"), Span(" against a threshold of ", "dim"), Span(threshold))


def _rule_lines(alert: Alert, rule: Rule | None, width: int) -> Lines:
    if rule is None:
        yield row("rule", Span(printable(alert.rule)), Span("  of the config file", "dim"))
        return
    yield from paragraphs("rule", (printable(f"{rule.name}: {rule.meaning}"),), width)
    hold = f"fires after {duration_text(rule.hold_seconds)} of it" if rule.hold_seconds else "fires at once"
    keep = f", stays {duration_text(rule.keep_seconds)} after the last" if rule.keep_seconds else ""
    yield row("", Span(hold + keep, "dim"))
    yield row("runbook", Span(runbook_command(rule.name) or "none: a rule of the config file", "key"))


def _quiet(picture: Picture, alert: Alert, width: int) -> Lines:
    if alert.inhibited_by:
        told = f"not told: {alert.inhibited_by} fires at the same target and explains it"
        yield from paragraphs("quiet", (told,), width)
    if alert.silenced_by:
        told = ": ".join(filter(None, (until_words(alert).strip(), printable(alert.silenced_by))))
        yield from paragraphs("silenced", (told,), width)
    if alert.acknowledged_by:
        yield from paragraphs("taken by", (f"{printable(alert.acknowledged_by)}, until it is over",), width)
    alerts = picture.snapshot.alerts if picture.snapshot is not None else ()
    kept = [
        one.rule
        for one in alerts
        if one.inhibited_by == alert.rule and one.target == alert.target and one is not alert
    ]
    if kept and alert.state == FIRING:
        yield from paragraphs("keeps quiet", (", ".join(dict.fromkeys(kept)),), width)
    symptoms = CAUSES.get(alert.rule, frozenset())
    explains = "everything else at its target" if symptoms is None else ", ".join(sorted(symptoms))
    if explains:
        yield from paragraphs("explains", (explains,), width)


def _labels(alert: Alert) -> Lines:
    for number, (name, text) in enumerate(sorted(alert.labels.items())):
        yield row("" if number else "labels", Span(f"{printable(name)}=", "dim"), Span(printable(text)))
    yield EMPTY_LINE


def _over_time(picture: Picture, alert: Alert, width: int) -> Iterable[Line]:
    replica, watched = picture.replica(alert.target), WATCHED.get(alert.rule)
    if replica is None or watched is None or picture.snapshot is None:
        return (plain(" its value over time is not kept: the rule judges no trend", "dim"),)
    limit = alert.threshold if _judges_the_trend(alert) else None
    drawn = one_plot(replica, watched, picture.snapshot.at, min(width, 140) - 1, limit)
    return [(Span(" "), *line) for line in drawn] or (plain(" nothing of it is known over time yet", "dim"),)


def _rule(picture: Picture, alert: Alert, window_seconds: float) -> Rule | None:
    rules = builtin_rules(window_seconds) if picture.rules is None else picture.rules
    return next((rule for rule in rules if rule.id == (alert.rule, alert.severity)), None)


def _judges_the_trend(alert: Alert) -> bool:
    return alert.rule in WATCHED and (alert.rule, alert.severity) not in _OTHERWISE


def _in_unit(alert: Alert, number: float | None) -> str:
    if number is None:
        return UNKNOWN
    watched = WATCHED[alert.rule] if _judges_the_trend(alert) else ""
    signal = SIGNALS.get(watched.partition(".")[0])
    if signal is not None and signal.unit == "seconds":
        return numbers.seconds_text(number)
    return f"{number * 100:.1f} %" if signal is not None and signal.unit == "ratio" else f"{number:.4g}"
