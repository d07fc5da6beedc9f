"""The ring of pictures: bounded, in time order, and where one gets in it."""

from __future__ import annotations

import gc
import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.memory import Fleet
from bench.page_server import MovingPage
from enginetop.fleet.document import snapshot_document
from enginetop.fleet.kept import KeptSnapshot
from enginetop.fleet.model import Quality
from enginetop.fleet.snapshot import Distribution, FleetSnapshot, Quantile, Scalar
from tests.property.test_view_properties import fleets, signal_maps
from tests.tui.snapshots import alert, censored, distribution, fleet, replica
from tui.time_travel import TimeTravel
from tui.timeline import Timeline, _packed

ONE = [replica("a1")]


def at(seconds: float, **fields: object) -> FleetSnapshot:
    return fleet(ONE, at=seconds, **fields)  # type: ignore[arg-type]


def timeline(*seconds: float, kept: float = 900.0, most: int = 1000) -> Timeline:
    made = Timeline(kept, most)
    for second in seconds:
        made.add(at(second))
    return made


def test_pictures_older_than_is_kept_are_gone() -> None:
    line = timeline(0, 100, 899, 901, 1000)
    assert line.times == [100, 899, 901, 1000]


def test_a_large_fleet_is_thinned_out() -> None:
    line = Timeline(900.0, 40)  # ten pictures of four replicas: one in 90 s, a tenth of it early
    four = [replica(name) for name in ("a1", "a2", "a3", "a4")]
    for second in range(0, 401, 2):
        line.add(fleet(four, at=float(second)))
    assert line.times == [0, 82, 164, 246, 328]
    assert line.replica_pictures == 20


def test_a_picture_in_which_an_alert_begins_is_kept_though_not_due() -> None:
    line = Timeline(900.0, 10)
    fires = [alert("KvPressure", "u", since=0.0)]
    for second, alerts in ((0, []), (2, fires), (4, fires), (6, []), (8, fires)):
        line.add(at(float(second), alerts=alerts))
    assert line.times == [0, 2, 8]
    assert [begin.at for begin in line.begins] == [2, 8]
    assert line.begin_of(fires[0]) == 8


def test_the_newest_pictures_stay_as_they_came_and_few_of_the_others_are_packed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line, packed = Timeline(most_fresh=8), []
    two, fires = [replica("a1"), replica("a2")], [alert("KvPressure", "u", since=0.0)]

    class Counting(KeptSnapshot):
        def __init__(self, snapshot: FleetSnapshot) -> None:
            packed.append(snapshot.at)
            super().__init__(snapshot)

    monkeypatch.setattr("tui.timeline.KeptSnapshot", Counting)
    for second in range(21):
        line.add(
            replace(fleet(two, at=float(second), alerts=fires if second == 7 else []), interval_seconds=1.0)
        )
    assert line.times == [0, 5, 7, 12, 17, 18, 19, 20]
    assert packed == [0, 5, 7, 12]  # an alert begins in 7
    assert line.replica_pictures == 16
    assert line.at(19.0) is not None


def test_what_fires_from_the_first_picture_on_began_before_it() -> None:
    line = Timeline()
    line.add(at(10, alerts=[alert("KvPressure", "u", since=3.0)]))
    assert list(line.begins) == []
    assert line.begin_of(alert("KvPressure", "u", since=3.0)) == 3.0


def test_a_clock_set_back_drops_what_is_later() -> None:
    line = timeline(0, 10, 20, 30, 15)
    assert line.times == [0, 10, 15]


def test_beside() -> None:
    line = timeline(0, 10, 20)
    found = [
        line.beside(second, step) for second, step in ((20, -1), (25, -1), (20, -2), (0, -1), (0, 1), (20, 1))
    ]
    assert [None if one is None else one.at for one in found] == [10, 20, 0, 0, 10, None]
    assert timeline().beside(3, -1) is None
    assert timeline().at(3) is None
    assert [(line.at(second) or at(-1)).at for second in (-5, 0, 9, 10, 99)] == [0, 0, 0, 10, 20]


def shown_at(travel: TimeTravel) -> float | None:
    return None if travel.shown is None else travel.shown.at


def test_a_minute_back_and_on() -> None:
    travel = TimeTravel(timeline(0, 30, 60, 90, 120))
    live = at(130)
    travel.far(live, -1)
    assert shown_at(travel) == 60
    travel.far(live, -1)
    assert shown_at(travel) == 0
    travel.far(live, -1)
    assert shown_at(travel) == 0
    travel.far(live, 1)
    assert shown_at(travel) == 60
    travel.far(live, 1)
    assert shown_at(travel) == 120
    travel.far(live, 1)
    assert travel.shown is None


def test_a_minute_moves_by_a_picture_where_they_are_rare() -> None:
    travel = TimeTravel(timeline(0, 500))
    travel.far(at(520), -1)
    assert shown_at(travel) == 500
    travel.far(at(520), -1)
    assert shown_at(travel) == 0


def test_to_an_instant_and_to_now() -> None:
    travel = TimeTravel(timeline(0, 30, 60))
    travel.to(at(60), 45)
    assert shown_at(travel) == 30
    travel.to(at(60), 61)
    assert travel.shown is None


def test_bookmarks_go_a_b_a() -> None:
    travel = TimeTravel(timeline())
    assert travel.bookmark(None) == ""
    assert travel.pair(at(5)) is None
    assert travel.bookmark(at(1)) == "A"
    assert [one.at for one in travel.pair(at(5)) or ()] == [1, 5]
    assert travel.bookmark(at(2)) == "B"
    assert [one.at for one in travel.pair(at(5)) or ()] == [1, 2]
    assert travel.bookmark(at(3)) == "A"
    assert [one.at for one in travel.bookmarks] == [3]


steps = st.lists(
    st.tuples(st.floats(-5, 400, allow_nan=False), st.booleans(), st.integers(0, 6)), max_size=60
)


@settings(max_examples=60, deadline=None)
@given(steps, st.integers(1, 30))
def test_the_ring_is_bounded_and_in_order(moves: list[tuple[float, bool, int]], most: int) -> None:
    line = Timeline(900.0, most)
    travel = TimeTravel(line)
    now, largest = 1000.0, 0
    for forward, fires, members in moves:
        now, largest = now + forward, max(largest, members)
        alerts = [alert("KvPressure", "u", since=now)] if fires else []
        newest = fleet([replica(f"a{number}") for number in range(members)], at=now, alerts=alerts)
        line.add(newest)
        times = list(line.times)
        assert times == sorted(set(times))
        assert all(now - 900 <= time <= now for time in times)
        assert line.replica_pictures <= max(most, largest)
        travel.step(newest, -1)
        assert travel.shown is None or travel.shown.at < now
        travel.alert_event(newest, -1)
        assert travel.shown is None or travel.shown.at <= now
        for _ in range(len(times) + 2):
            travel.step(newest, 1)
        assert travel.shown is None


@settings(max_examples=60, deadline=None)
@given(signal_maps)
def test_kept_signals_say_the_same(signals: dict[str, Scalar | Distribution]) -> None:
    one = replace(replica("a1"), signals=signals)
    kept = KeptSnapshot(fleet([one])).open().replicas[0].signals
    assert list(kept) == list(signals)
    assert repr(dict(kept)) == repr(signals)  # NaN is not equal to itself


@settings(max_examples=20, deadline=None)
@given(fleets)
def test_a_kept_snapshot_says_the_same(members: tuple[object, ...]) -> None:
    snapshot = fleet(members)  # type: ignore[arg-type]
    kept = KeptSnapshot(snapshot)
    for opened in (kept.open(), kept.open()):
        assert (kept.at, kept.members) == (opened.at, len(opened.replicas))
        assert repr(opened) == repr(snapshot)


def test_a_kept_snapshot_of_a_tracked_fleet_says_the_same() -> None:
    """Mappings that are worked out when they are asked for, trends and what a knob would do are there."""
    pages, watched = MovingPage(), Fleet(2, 2.0)
    for second in range(0, 20, 2):
        watched.look(float(second), pages.at(second))
    assert watched.latest is not None
    opened = KeptSnapshot(watched.latest).open()
    assert snapshot_document(opened) == snapshot_document(watched.latest)
    for before, after in zip(watched.latest.replicas, opened.replicas, strict=True):
        for series, same in ((after.trends, before.trends), (after.load, before.load)):
            assert {name: list(values) for name, values in series.items()} == {
                name: list(values) for name, values in same.items()
            }
        assert list(after.trend_times) == list(before.trend_times)
        assert after.what_if is not None
        assert before.what_if is not None
        assert after.what_if("max_num_seqs", 64) == before.what_if("max_num_seqs", 64)


def test_lists_worst_ranks_and_censored_quantiles_come_back() -> None:
    signals: dict[str, Scalar | Distribution] = {
        "kv": Scalar(0.5, "ratio", Quality.OK, "note", 0.25, {"engine": "1"}),
        "list": Scalar((0.5, 0.25), "ratio", Quality.ESTIMATED),
        "nothing": Scalar(None, "", Quality.UNSUPPORTED, "why"),
        "ttft": distribution(censored(2.5), Quantile(1.0, None, 2.0)),
    }
    kept = KeptSnapshot(fleet([replace(replica("a1"), signals=signals)])).open()
    assert kept.replicas[0].signals == signals


def test_a_kept_picture_takes_what_it_is_said_to_take() -> None:
    """Real pages of vLLM that move, read by the real tracker: 1 to 2 kB a replica."""
    pages, watched = MovingPage(), Fleet(8, 2.0)
    for second in range(0, 40, 2):
        watched.look(float(second), pages.at(second))
    line = Timeline(most_fresh=0)
    gc.collect()
    tracemalloc.start()
    try:
        for second in range(40, 100, 2):
            watched.look(float(second), pages.at(second))
            assert watched.latest is not None
            if second % 6 == 4:
                line.add(watched.latest)
        pictures = line.replica_pictures
        gc.collect()
        full = tracemalloc.get_traced_memory()[0]
        del line
        gc.collect()
        taken = full - tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert pictures == 80
    assert 300 < taken / pictures < 2_500


@pytest.mark.parametrize("looks", [True, False])
def test_to_pack_a_picture_nobody_looks_for_cycles(looks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[bool]()

    def pack(_picture: FleetSnapshot) -> KeptSnapshot:
        seen.append(gc.isenabled())
        raise ValueError("it breaks")

    monkeypatch.setattr("tui.timeline.KeptSnapshot", pack)
    before = gc.isenabled()
    (gc.enable if looks else gc.disable)()
    try:
        with pytest.raises(ValueError, match="breaks"):
            _packed(fleet([replica("a")]))
        assert (seen, gc.isenabled()) == ([False], looks)
    finally:
        (gc.enable if before else gc.disable)()
