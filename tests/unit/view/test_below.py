"""What stands under a short grid."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from enginetop.fleet import figure_block
from enginetop.fleet.snapshot import FleetSnapshot, ReplicaSnapshot
from enginetop.fleet.trends import TREND_NAMES, Trends
from tests.tui.snapshots import AT, alert, event, fleet, replica
from tui.view.arrange import Sort
from tui.view.below import LoadMemory, WithBelow, below_lines
from tui.view.cells import line_text, line_width
from tui.view.picture import Picture
from tui.view.query import Query
from tui.view.table import FleetTable

TIMES = tuple(AT - 600 + 2 * step for step in range(300))


def texts(snapshot: FleetSnapshot, width: int, height: int) -> list[str]:
    lines = below_lines(Picture(snapshot), LoadMemory(), width, height)
    assert all(line_width(line) <= width for line in lines)
    assert len(lines) <= max(height - 1, 0)
    return [line_text(line).rstrip() for line in lines]


def busy(name: str, tokens: float) -> ReplicaSnapshot:
    trends = {"generation_tokens_per_second": (tokens,) * 300, "kv_usage_ratio": (0.5,) * 300}
    return replica(name, trends=trends, trend_times=TIMES)


def test_load_of_the_fleet_is_the_sum_of_its_replicas() -> None:
    members = [busy("a", 400.0), busy("b", 600.0)]
    found = texts(fleet(members), 160, 7)
    assert found[0].startswith(" load, 10 min ──────")
    assert found[0].endswith("─")
    assert "  events ────" in found[0]
    # 400 + 600 is the top of its scale; half of the cache is half of its own; nothing is known of requests.
    assert found[1][:78] == " tok/s    " + "█" * 60 + "   2310" + " "
    assert found[4] == " KV max % " + "▄" * 60 + "     64"
    assert found[2].split() == ["running", "44"]


def test_events_stand_newest_first_one_a_line() -> None:
    members = [
        replica("a3", events=(event("preemptions_began", 60),)),
        replica("b2", events=(event("restarted", 30, "0.32.0 -> 0.33.0"), event("appeared", 10))),
    ]
    assert texts(fleet(members), 80, 6) == [
        " events " + "─" * 72,
        " 19:59:30 b2               restarted 0.32.0 → 0.33.0",
        " 19:59:00 a3               preemptions began",
    ]


def test_alerts_that_lead_stand_gravest_first() -> None:
    one = replica("a1")
    alerts = [
        alert("KvPressure", one.target.url, summary="KV at 97 %", since=AT - 300),
        alert("GpuXid", one.target.url, "critical", "Xid 79", since=AT - 5),
        replace(alert("TpotSlo", one.target.url), acknowledged_by="ana"),
        replace(alert("TtftSlo", one.target.url), state="pending"),
    ]
    assert texts(fleet([one], alerts=alerts), 80, 9)[:3] == [
        " 2 alerts " + "─" * 70,
        " ✖   5s a1               GpuXid: Xid 79",
        " ▲   5m a1               KvPressure: KV at 97 %",
    ]


@pytest.mark.parametrize("height", range(-3, 4))
def test_little_room_stays_blank(height: int) -> None:
    assert texts(fleet([replica("a1")]), 200, height) == []


def test_load_is_worked_out_once_a_step() -> None:
    memory = LoadMemory()
    first = fleet([busy("a", 400.0)], at=AT + 1)
    later = fleet([busy("a", 900.0)], at=AT + 9)
    next_step = fleet([busy("a", 900.0)], at=AT + 11)
    assert memory.plot(first, "requests_running", 2) is memory.plot(later, "requests_running", 2)
    assert memory.plot(first, "requests_running", 2) is not memory.plot(next_step, "requests_running", 2)


def test_what_is_packed_of_a_trend_is_opened_once_for_all_plots() -> None:
    """By hand, of each replica: the ten minutes up to AT are points 299 to 898 of 900, which begin in block 4
    of 64 each. Blocks 0 to 13 are full, of which the newest four are not packed: six packed ones are read.
    """
    members = []
    for place in range(20):
        trends, random = Trends(1.0), Random(place)
        for second in range(900):
            numbers = {name: float(random.randrange(9)) for name in TREND_NAMES}
            trends.add(AT - 899 + second, numbers)
        members.append(replica(f"r{place}", trends=trends.values, trend_times=trends.times))
    figure_block._unpacked.cache_clear()
    texts(fleet(members), 160, 7)
    assert figure_block._unpacked.cache_info().misses == 20 * 6


def test_the_lines_are_at_the_foot_and_no_rows() -> None:
    snapshot = fleet([replica("a1"), replica("a2")])
    picture = Picture(snapshot)
    table = FleetTable(snapshot, picture.conditions, width=80, sort=Sort(), query=Query())
    below = below_lines(picture, LoadMemory(), 80, 7)
    whole = WithBelow(table, below, 10)
    assert len(whole) == 10
    assert [line_text(whole.line(index))[:7] for index in range(10)] == [
        " Llama-", " a1    ", " a2    ", *[""] * 5, " events", " none y",
    ]  # fmt: skip
    assert [whole.is_row(index) for index in range(10)] == [False, True, True, *[False] * 7]
    assert [whole.key(index) is not None for index in range(10)] == [False, True, True, *[False] * 7]
