"""Why an alert is there, and the alerts that began."""

from __future__ import annotations

from dataclasses import replace

from enginetop.alerts.configured import RuleTable, configured_rules
from enginetop.fleet.snapshot import Alert, FleetSnapshot
from tests.tui.snapshots import AT, alert, down_replica, fleet, replica
from tui.timeline import AlertBegin
from tui.view.alert_history import history_rows
from tui.view.alerts import alert_key
from tui.view.cells import line_text, line_width
from tui.view.picture import Picture
from tui.view.why import why_lines, why_title

A, C = "http://a1.example:8000", "http://c0.example:8000"
SLOW = replace(alert("TtftSlo", A, summary="TTFT p95 1.4 s", since=AT - 300), value=1.4, threshold=0.6)
DOWN = replace(alert("TargetDown", C, "critical", "connection refused"), since=AT - 72)
HIDDEN = replace(alert("QueueGrowing", C), inhibited_by="TargetDown", labels={"model": "m"})
TIMES = tuple(AT - 2 * step for step in range(149, -1, -1))


def snapshot(*alerts: Alert) -> FleetSnapshot:
    busy = replica("a1", trends={"ttft_seconds.p95": (1.2,) * 150}, trend_times=TIMES)
    return fleet([busy, down_replica("c0")], alerts=alerts)


def texts(one: Alert, *others: Alert, width: int = 80) -> list[str]:
    picture = Picture(snapshot(one, *others))
    return [line_text(line).rstrip() for line in why_lines(picture, alert_key(one), width)]


def test_rule_value_and_threshold_of_a_built_in_rule() -> None:
    lines = texts(SLOW)
    assert lines[0] == " state       ▲ warning firing · true for 5 min, since 19:55:00"
    assert lines[1] == " because     TTFT p95 1.4 s"
    assert lines[2] == " value       1.4 s against a threshold of 600 ms"
    assert lines[3] == " rule        TtftSlo: TTFT misses the objective"
    assert lines[4] == "             fires after 2 min of it, stays 60 s after the last"


def test_a_rule_is_told_as_the_config_file_has_it() -> None:
    tables = (
        RuleTable("TtftSlo", for_seconds=600.0),
        RuleTable("Mine", when="ttft_seconds.p95 > 0.6", severity="warning"),
    )
    rules = configured_rules(tables, 60.0)
    for one, told, hold in (
        (SLOW, "TtftSlo: TTFT misses the objective", "fires after 10 min of it, stays 60 s after the last"),
        (replace(SLOW, rule="Mine"), "Mine: ttft_seconds.p95 > 0.6", "fires at once"),
    ):
        picture = Picture(snapshot(one), rules=rules)
        lines = [line_text(line).rstrip() for line in why_lines(picture, alert_key(one), 80)]
        place = lines.index(f" rule        {told}")
        assert lines[place + 1] == f"             {hold}"


def test_of_a_rule_without_a_threshold_no_value_is_held_against_one() -> None:
    assert not any("threshold of" in line for line in texts(replace(DOWN, value=83.22)))
    assert " value       – against a threshold of 2" in texts(replace(DOWN, rule="MyRule", threshold=2.0))


def test_the_value_over_time_has_a_line_at_the_threshold() -> None:
    lines = texts(SLOW)
    caption = next(number for number, line in enumerate(lines) if "TTFT p95 ms (threshold 600)" in line)
    plot = lines[caption + 1 : caption + 5]
    assert all(line.startswith(" ") for line in lines[caption : caption + 5])
    assert plot[0].split()[0] == "1200"
    assert all(line.endswith("█" * 20) for line in plot)  # twice the threshold, all the time
    assert any("─" in line for line in plot)


def test_what_keeps_an_alert_quiet_and_what_it_keeps_quiet() -> None:
    assert " quiet       not told: TargetDown fires at the same target and explains it" in texts(HIDDEN, DOWN)
    lines = texts(DOWN, HIDDEN)
    assert " keeps quiet QueueGrowing" in lines
    assert " explains    everything else at its target" in lines
    assert " labels      model=m" in texts(HIDDEN, DOWN)
    looked_after = replace(SLOW, acknowledged_by="kim", silenced_by="maintenance")
    assert " taken by    kim, until it is over" in texts(looked_after)
    assert " silenced    maintenance" in texts(looked_after)
    day = 86_400.0
    until = [texts(replace(looked_after, silenced_until=SLOW.since + later)) for later in (1800.0, 2 * day)]
    assert " silenced    until 20:25: maintenance" in until[0]
    assert " silenced    until 2025-12-01 19:55: maintenance" in until[1]


def test_a_threshold_on_another_figure_is_no_line_in_the_plot() -> None:
    """25 points above the mean of its like is not a KV use of 25 %."""
    uneven = replace(alert("ReplicaImbalance", A), value=0.505, threshold=0.25)
    busy = replica("a1", trends={"kv_usage_ratio": (0.9,) * 150}, trend_times=TIMES)
    picture = Picture(fleet([busy], alerts=[uneven]))
    lines = [line_text(line) for line in why_lines(picture, alert_key(uneven), 80)]
    assert " value       0.505 against a threshold of 0.25" in lines
    assert any(line.startswith(" KV %, last") for line in lines)
    assert not any("─" in line for line in lines)


def test_a_rule_of_the_user_and_one_without_a_trend() -> None:
    own = replace(alert("MyRule", A, summary="odd"), value=3.0, threshold=2.0)
    lines = texts(own)
    assert " rule        MyRule  of the config file" in lines
    assert " value       3 against a threshold of 2" in lines
    assert lines[-1].startswith(" its value over time is not kept")


def test_an_alert_that_is_over_says_so() -> None:
    picture = Picture(snapshot(DOWN))
    assert line_text(why_lines(picture, alert_key(SLOW), 80)[0]) == " this alert is over"
    assert line_text(why_title(picture, None, 80)).startswith(" why ")


def test_hostile_words_are_cut_and_nothing_is_interpreted() -> None:
    hostile = replace(alert("R\x1b[31m", A, summary="\u202ex" * 500), labels={"a\x07": "\x1b]0;t\x07" * 40})
    for width in (20, 50, 80, 300):
        for line in why_lines(Picture(snapshot(hostile)), alert_key(hostile), width):
            assert line_width(line) <= width
            assert line_text(line).isprintable()


def test_history_newest_first_with_what_is_over() -> None:
    picture = Picture(snapshot(DOWN))
    begins = [AlertBegin(AT - 300, SLOW), AlertBegin(AT - 42, DOWN), AlertBegin(AT + 5, SLOW)]
    rows = history_rows(picture, begins, 80)
    lines = [line_text(rows.line(index)).rstrip() for index in range(len(rows))]
    assert lines == [
        " 19:59:18  42s ✖ TargetDown         c0           still fires  connection refused",
        " 19:55:00   5m ▲ TtftSlo            a1           over         TTFT p95 1.4 s",
    ]
    assert rows.about(rows.key(0) or "") == C
    empty = history_rows(picture, [], 80)
    assert line_text(empty.line(0)).startswith(" no alert began to fire since enginetop looks on")
