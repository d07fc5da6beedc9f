"""Title, verdict, totals, events and footer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from enginetop.fleet.model import Quality, ReplicaState, Target
from enginetop.fleet.snapshot import BurnRow, CollectorHealth, FleetSnapshot, Goodput, Outlier, Slo
from enginetop.fleet.snapshot import Span as Bounds
from tests.tui.snapshots import OK_SIGNALS, alert, distribution, down_replica, event, fleet, replica, scalar
from tui.actions import TYPING, Place
from tui.view.cells import line_text, line_width
from tui.view.detail import detail_lines
from tui.view.events import events_line
from tui.view.footer import KeyHint, footer_hints, footer_line
from tui.view.grid_notes import waiting_lines
from tui.view.help import help_lines
from tui.view.picture import Picture
from tui.view.title import screen_title, title_line
from tui.view.totals import totals_line
from tui.view.verdict import verdict_line


def picture(snapshot: FleetSnapshot | None, **fields: object) -> Picture:
    return Picture(snapshot, title="prod-eu", **fields)  # type: ignore[arg-type]


TROUBLE = fleet(
    [
        replica("a1"),
        replica("a3", changes={"preemptions_per_second": 2.1, "kv_usage_ratio": 0.97}),
        replica("a7", ReplicaState.NO_PROGRESS, since=1_764_446_400 - 45),
        down_replica("c0"),
    ]
)


def test_title_by_hand() -> None:
    assert line_text(title_line(picture(TROUBLE), 80)) == (
        " enginetop  prod-eu · 3/4 up · 20:00:00 · every 2.0 s (2.0)" + 11 * " " + "READ-ONLY "
    )


def test_title_tells_that_the_collector_is_late() -> None:
    late = fleet([replica("a1")], collector=CollectorHealth(6.0, 4.0))
    line = title_line(picture(late), 80)
    assert "every 2.0 s (3.0)" in line_text(line)
    assert [span.ink for span in line if "(3.0)" in span.text] == ["warn"]
    stopped = fleet([replica("a1")], collector=CollectorHealth(6.0, 0.0))
    assert "(none achieved)" in line_text(title_line(picture(stopped), 80))


def test_badges_are_brief_where_they_would_cut_what_is_shown() -> None:
    past = picture(TROUBLE, behind_seconds=10.0, simulated=True)
    aside = " · A 18:11:45 · B 18:11:39"
    assert line_text(screen_title(past, "compare fleet", aside, 80)) == (
        " compare fleet · A 18:11:45 · B 18:11:39           10s ago  SIMULATED READ-ONLY "
    )
    assert "10s ago, live goes on" in line_text(screen_title(past, "compare fleet", aside, 100))


def test_badges() -> None:
    line = line_text(title_line(picture(TROUBLE, paused_seconds=12.0, simulated=True), 120))
    assert line.endswith(" PAUSED 12s  SIMULATED READ-ONLY ")
    assert "READ-ONLY" not in line_text(title_line(picture(TROUBLE, read_only=False), 120))


def test_what_does_not_fit_beside_the_badges_is_left_out_whole() -> None:
    line = line_text(title_line(picture(TROUBLE, simulated=True), 64))
    assert line == " enginetop  prod-eu · 3/4 up · 20:00:00" + 5 * " " + "SIMULATED READ-ONLY "


def test_verdict_by_hand() -> None:
    assert line_text(verdict_line(picture(TROUBLE), 80)) == (
        " ✖ 3 need you: c0 down 72 s · a7 no progress 45 s · a3 preempting at KV 97 %"
    )
    assert (
        line_text(verdict_line(picture(TROUBLE), 60))
        == " ✖ 3 need you: c0 down 72 s · a7 no progress 45 s · +1 more"
    )


def test_a_thousand_in_trouble_are_counted_and_few_of_them_named() -> None:
    class Names(Picture):
        asked = 0

        def name_in(self, url: str, width: int) -> str:
            Names.asked += 1
            return super().name_in(url, width)

    whole = Names(fleet([down_replica(f"n{number:03}") for number in range(1000)]))
    said = line_text(verdict_line(whole, 80))
    assert said == " ✖ 1000 need you: n000 down 72 s · n001 down 72 s · n002 down 72 s · +997 more"
    assert Names.asked <= 21  # of four cells and more each


def test_verdict_is_quiet_when_all_is_well() -> None:
    assert line_text(verdict_line(picture(fleet([replica("a"), replica("b")])), 80)) == " ● all 2 ok"
    mixed = fleet([replica("a"), replica("b", ReplicaState.IDLE), replica("c", ReplicaState.LOADING)])
    assert line_text(verdict_line(picture(mixed), 80)) == " ● nothing needs you · 1 ok · 1 idle · 1 loading"
    assert line_text(verdict_line(picture(fleet([])), 80)) == " no replicas"


def test_one_replica_needs_you() -> None:
    assert line_text(verdict_line(picture(fleet([down_replica("c0")])), 80)) == " ✖ 1 needs you: c0 down 72 s"


def test_who_is_slower_than_its_like_has_the_rest_of_the_line() -> None:
    slow = replica("r5", outliers=(Outlier("tpot_seconds.p95", 0.049, 0.024, 7),))
    quiet = picture(fleet([slow, replica("r6")]))
    assert line_text(verdict_line(quiet, 120)) == (
        " ● nothing needs you · 1 slow · 1 ok · r5 slow: TPOT p95 49 ms, median of 7: 24 ms"
    )
    assert line_text(verdict_line(quiet, 60)) == " ● nothing needs you · 1 slow · 1 ok"
    loud = picture(fleet([slow, down_replica("c0")]))
    assert line_text(verdict_line(loud, 120)) == (
        " ✖ 1 needs you: c0 down 72 s · r5 slow: TPOT p95 49 ms, median of 7: 24 ms"
    )
    assert line_text(verdict_line(loud, 60)) == " ✖ 1 needs you: c0 down 72 s"


def test_who_does_not_answer_is_named_before_who_is_slow() -> None:
    slow = replica("r5", outliers=(Outlier("tpot_seconds.p95", 0.049, 0.024, 7),))
    lost = replica("r6", failed_looks=1, reasons=("connection refused once, 1 s ago",))
    assert line_text(verdict_line(picture(fleet([slow, lost])), 100)) == (
        " ● nothing needs you · 1 slow · 1 no answer · r6 no answer: connection refused once, 1 s ago"
    )


def test_faults_of_the_program_itself_outrank_the_fleet() -> None:
    assert "no GPU thread" in line_text(verdict_line(picture(TROUBLE, notice="no GPU thread"), 80))
    unread = fleet([replica("a")], collector=CollectorHealth(record_problem="r.jsonl: line 3: not JSON"))
    assert line_text(verdict_line(picture(unread), 80)) == " ● all 1 ok · records: r.jsonl: line 3: not JSON"
    broken = fleet([replica("a")], collector=CollectorHealth(problem="stopped: out of files"))
    assert line_text(verdict_line(picture(broken), 80)) == " ✖ collector: stopped: out of files"
    assert "no new picture for 7.0 s" in line_text(verdict_line(picture(TROUBLE, silent_seconds=7.0), 80))
    assert "need you" in line_text(verdict_line(picture(TROUBLE, silent_seconds=6.0), 80))
    assert "need you" in line_text(
        verdict_line(picture(TROUBLE, silent_seconds=99.0, paused_seconds=99.0), 80)
    )


def test_the_end_of_a_recording_is_no_silence() -> None:
    ended = picture(TROUBLE, silent_seconds=7.0, finished=True)
    assert "no new picture" not in line_text(verdict_line(ended, 80))
    assert " END " in line_text(title_line(ended, 80))


def test_before_the_first_scrape() -> None:
    targets = (Target("http://r1:8000", "r1:8000"), Target("https://10.0.0.7", "a1"))
    waiting = picture(None, targets=targets)
    assert line_text(verdict_line(waiting, 80)) == " waiting for the first scrape"
    assert "2 targets" in line_text(title_line(waiting, 80))
    assert totals_line(waiting, 80) == ()
    assert [line_text(line) for line in waiting_lines(waiting, 80)] == ["  r1:8000", "  a1  https://10.0.0.7"]


def test_totals_by_hand() -> None:
    totals = {**OK_SIGNALS, "kv_usage_ratio": scalar(0.97, mean=0.61), "ttft_seconds": distribution(0.2, 1.4)}
    snapshot = fleet([replica("a1")], totals=totals)
    line = totals_line(picture(snapshot), 160)
    assert line_text(line) == (
        " req/s 4.20 · tok/s 2310 · run 44 · wait 0 · KV max 97 mean 61 % · TTFT p95 1.4 s · TPOT p95 38 ms"
        " · SLO TTFT≤1.0 s TPOT≤100 ms for 95 %"
    )
    assert [span.ink for span in line if "1.4 s" in span.text] == ["warn"]


def test_totals_that_are_estimates_are_marked_as_in_the_rows() -> None:
    """A rate that is in part an average over an outage stood there as if it were one of now."""
    estimated = {
        name: replace(value, quality=Quality.ESTIMATED)
        for name, value in {**OK_SIGNALS, "kv_usage_ratio": scalar(0.97, mean=0.61)}.items()
    }
    snapshot = fleet([replica("a1")], totals=estimated)
    assert line_text(totals_line(picture(snapshot), 110)) == (
        " req/s 4.20? · tok/s 2310? · run 44? · wait 0? · KV max 97? mean 61? %"
        " · TTFT p95 310 ms? · TPOT p95 38 ms?"
    )
    counted = Goodput(offered_per_second=50.0, good_per_second=40.0, exact=1.0, quality=Quality.ESTIMATED)
    told = replace(snapshot, fleet=replace(snapshot.fleet, goodput=counted))
    assert line_text(totals_line(picture(told), 110)).startswith(
        " goodput 40.0? of 50.0? req/s · SLO 95 %: 80.0? %"
    )


def test_an_objective_is_told_as_it_was_set() -> None:
    strict = Slo(target=0.999)
    snapshot = fleet([replica("a1", slo=strict)])
    told = line_text(totals_line(picture(replace(snapshot, fleet=replace(snapshot.fleet, slo=strict))), 160))
    assert told.endswith(" for 99.9 %")
    detail = [
        line_text(line) for line in detail_lines(picture(snapshot), snapshot.replicas[0].target.url, 120)
    ]
    assert " SLO         TTFT 1.0 s · TPOT 100 ms · for 99.9 % of requests (default)" in detail


def totals_with(goodput: Goodput, width: int = 80) -> str:
    snapshot = fleet([replica("a1")])
    return line_text(
        totals_line(Picture(replace(snapshot, fleet=replace(snapshot.fleet, goodput=goodput))), width)
    )


def test_the_share_is_that_of_the_two_rates_beside_it() -> None:
    """Of 50 requests a second 10 were aborted; of the 40 others all were within the objective."""
    counted = Goodput(offered_per_second=50.0, good_per_second=40.0, exact=1.0)
    assert totals_with(counted).startswith(" goodput 40.0 of 50.0 req/s · SLO 95 %: 80.0 % · tok/s 2310")


def test_goodput_that_is_not_counted_lies_between_bounds() -> None:
    """40.8 / 47.1 = 86.6 %, 43.0 / 47.1 = 91.3 %."""
    burn = (
        BurnRow(3600, 300, 2.1, 3.4, 14.4),
        BurnRow(21600, 1800, None, None, 6.0),
    )
    bounds = Goodput(47.1, within_per_second=Bounds(40.8, 43.0, 42.0), burn=burn)
    assert totals_with(bounds) == (
        " goodput 40.8–43.0 of 47.1 req/s · SLO 95 %: 87–91 % · burn 1h 2.1×? 5m 3.4×?"
    )
    assert totals_with(replace(bounds, within_per_second=Bounds(47.1, 47.1), burn=())).startswith(
        " goodput 47.1 of 47.1 req/s · SLO 95 %: 100 % · tok/s"
    )


def test_a_share_that_surely_misses_the_target_is_yellow() -> None:
    snapshot = fleet([replica("a1")])

    def ink_of_share(high: float) -> str:
        goodput = Goodput(100.0, within_per_second=Bounds(80.0, high))
        line = totals_line(Picture(replace(snapshot, fleet=replace(snapshot.fleet, goodput=goodput))), 80)
        return next(span.ink for span in line if span.text.startswith("80–"))

    assert ink_of_share(94.9) == "warn"
    assert ink_of_share(95.0) == "text"


def test_the_burn_that_fires_is_the_one_that_is_told() -> None:
    rows = (BurnRow(3600, 300, 2.0, 1.0, 14.4), BurnRow(21600, 1800, 6.5, 7.0, 6.0, firing=True))
    counted = Goodput(10.0, 5.0, 0.5, burn=rows)
    assert " · burn 6h 6.5× 30m 7.0× ·" in totals_with(counted, 120)
    short = replace(counted, burn=(BurnRow(3600, 300, None, 1.0, 14.4),))
    assert " · burn 1h – 5m 1.0× ·" in totals_with(short, 120)
    assert "burn" not in totals_with(replace(counted, burn=(BurnRow(3600, 300, None, None, 14.4),)), 120)


def test_without_any_goodput_the_requests_are_told() -> None:
    assert totals_with(Goodput(47.1)).startswith(" req/s 4.20 · tok/s 2310")
    assert totals_with(Goodput(None, 3.0, 0.9)).startswith(" req/s 4.20 · tok/s 2310")
    assert totals_with(Goodput(0.0, within_per_second=Bounds(0.0, 0.0))).startswith(" req/s 4.20")


def test_trouble_that_is_looked_after_leads_nothing() -> None:
    down, slow = down_replica("c0"), replica("a3", changes={"tpot_seconds": distribution(0.05, 0.16)})
    known = replace(alert("TargetDown", down.target.url, "critical"), acknowledged_by="ana")
    quiet = replace(alert("TpotSlo", slow.target.url), silenced_by="canary")
    both = picture(fleet([replica("a1"), down, slow], alerts=[known, quiet]))
    assert line_text(verdict_line(both, 120)) == (
        " ● nothing else needs you · c0 down 72 s, acknowledged by ana · a3 TPOT p95 160 ms, silenced"
    )
    one = picture(fleet([replica("a1"), down, slow], alerts=[known]))
    assert line_text(verdict_line(one, 120)) == " ▲ 1 needs you: a3 TPOT p95 160 ms"


def test_a_known_trouble_does_not_hide_another_one_of_the_same_replica() -> None:
    both = replica("a3", changes={"preemptions_per_second": 2.1, "tpot_seconds": distribution(0.05, 0.16)})
    known = replace(alert("Preempting", both.target.url), acknowledged_by="ana")
    assert line_text(verdict_line(picture(fleet([both], alerts=[known])), 120)) == (
        " ▲ 1 needs you: a3 TPOT p95 160 ms"
    )


def test_an_alert_of_the_whole_fleet_leads_too() -> None:
    burn = alert("BudgetBurn", "fleet", "critical")
    assert line_text(verdict_line(picture(fleet([replica("a1")], alerts=[burn])), 80)) == (
        " ✖ 1 needs you: fleet burn 60 s"
    )
    known = replace(burn, acknowledged_by="ana")
    assert line_text(verdict_line(picture(fleet([replica("a1")], alerts=[known])), 80)) == " ● all 1 ok"


def test_unknown_totals_are_dashes() -> None:
    assert line_text(totals_line(picture(fleet([], totals={})), 80)).startswith(
        " req/s – · tok/s – · run – · wait – · KV – · TTFT p95 – · TPOT p95 –"
    )


@pytest.mark.parametrize("width", range(66, 140))
@pytest.mark.parametrize("seconds", [8.0, 100.0, 5000.0])
def test_the_time_of_a_picture_of_the_past_is_told_before_that_live_goes_on(
    width: int, seconds: float
) -> None:
    line = line_text(title_line(picture(TROUBLE, behind_seconds=seconds, read_only=True), width))
    assert "20:00:00" in line
    assert " ago" in line
    assert "live goes on" in line or width < 90


def test_lulls_are_no_news_of_the_fleet_and_hide_none() -> None:
    lulls = tuple(
        event("state_changed", second, ("ok -> idle", "idle -> ok")[second % 2])
        for second in range(24, 0, -1)
    )
    fell = event("state_changed", 60, "ok -> down: connection refused")
    snapshot = fleet([replica("a4", events=(fell, *lulls))])
    assert line_text(events_line(picture(snapshot), 100)) == (" 19:59:00 a4 ok → down: connection refused")


def test_events_newest_first_over_the_fleet() -> None:
    snapshot = fleet(
        [
            replica("a3", events=(event("appeared", 900), event("preemptions_began", 60))),
            replica("b2", events=(event("restarted", 30, "0.32.0 -> 0.33.0"),)),
        ]
    )
    assert line_text(events_line(picture(snapshot), 100)) == (
        " 19:59:30 b2 restarted 0.32.0 → 0.33.0 · 19:59:00 a3 preemptions began"
    )


def test_footer_keeps_whole_hints() -> None:
    hints = [KeyHint("a", "first"), KeyHint("b", "second")]
    assert line_text(footer_line(hints, "1 of 9", 30)) == " a first  b second     1 of 9 "
    assert line_text(footer_line(hints, "1 of 9", 20)) == " a first     1 of 9 "


def test_the_key_that_every_runbook_begins_with_is_in_the_footer_of_80_columns() -> None:
    hints = footer_hints(Place.ALERTS, offers=lambda action: action.name != "alerts")
    assert "w why" in line_text(footer_line(hints, "", 80))


@pytest.mark.parametrize("place", [place for place in Place if place not in TYPING])
def test_help_and_quit_are_in_every_footer_of_80_columns(place: Place) -> None:
    line = footer_line(footer_hints(place), "1–17 of 64", 80)
    assert "? help" in line_text(line)
    assert "q quit" in line_text(line)
    assert line_width(line) == 80


def test_help_explains_every_action_and_column() -> None:
    text = "\n".join(line_text(line) for line in help_lines(120))
    for expected in ("enter", "Home", "pre/s", "preemptions per second", "state:down", "never 0"):
        assert expected in text


@pytest.mark.parametrize("width", [60, 80])
def test_help_that_is_too_long_for_its_line_goes_on_in_the_next(width: int) -> None:
    """At 80 columns the numbers that a filter knows ended in `req, er…`."""
    lines = [line_text(line) for line in help_lines(width)]
    assert not [line for line in lines if line.endswith("…")]
    words = " ".join(" ".join(lines).split())
    assert "reason50, reason95, gpu, watts, celsius, joules ttft>500ms" in words


def test_help_has_no_dangerous_key_while_all_is_read_only() -> None:
    closed = [line_text(line).strip() for line in help_lines(120)]
    opened = [line_text(line).strip() for line in help_lines(120, read_only=False)]
    assert [line for line in opened if line not in closed] == [
        "K            undo the change that is under way, now",
        "suggestion",
        "A            try the change on the canary, after you have typed its name",
    ]
    assert "change" not in opened  # its keys are those of the tuners
