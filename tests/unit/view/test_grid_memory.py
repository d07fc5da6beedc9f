"""How much is worked out anew from one picture to the next: counts, not times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from bench.screen_fleet import Churn
from enginetop.fleet.model import ReplicaState
from enginetop.fleet.snapshot import FleetSnapshot, ReplicaSnapshot
from tests.tui.snapshots import AT, alert, down_replica, event, fleet, replica
from tui.view import condition, condition_memory, grid_memory
from tui.view import table as table_module
from tui.view.arrange import Sort
from tui.view.cells import Line
from tui.view.charts import round_up
from tui.view.column import GridRow
from tui.view.condition import conditions_of
from tui.view.condition_memory import ConditionMemory
from tui.view.grid_memory import GridMemory
from tui.view.placing import Placed
from tui.view.query import Query
from tui.view.severity import Condition
from tui.view.table import FleetTable

HEIGHT = 44


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts rows drawn and conditions judged."""
    counted: Counter[str] = Counter()
    draw, judge = table_module.draw_row, condition.condition_of

    def draw_row(row: GridRow, placed: Sequence[Placed], *, selected: bool) -> Line:
        counted["drawn"] += 1
        return draw(row, placed, selected=selected)

    def condition_of(one: ReplicaSnapshot, *args: object) -> Condition:
        counted["judged"] += 1
        return judge(one, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(table_module, "draw_row", draw_row)
    monkeypatch.setattr(condition_memory, "condition_of", condition_of)
    return counted


class Screen:
    """Paints the first lines of every snapshot, as the fleet screen does."""

    def __init__(self) -> None:
        self.conditions, self.grid = ConditionMemory(), GridMemory()

    def paint(self, snapshot: FleetSnapshot, top: int = 0) -> list[Line]:
        table = FleetTable(
            snapshot,
            self.conditions.conditions_of(snapshot),
            width=200,
            sort=Sort(),
            query=Query(),
            memory=self.grid,
        )
        return [table.line(index) for index in range(top, min(top + HEIGHT, len(table)))]


def thousand() -> list[ReplicaSnapshot]:
    return [replica(f"n{number:04}") for number in range(1000)]


def test_only_rows_in_sight_are_drawn(work: Counter[str]) -> None:
    Screen().paint(fleet(thousand()))
    assert work == {"drawn": HEIGHT - 1, "judged": 1000}  # the first line is the group's


def test_columns_that_nobody_needs_are_asked_of_other_pictures_only(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def has_failed(one: ReplicaSnapshot) -> bool:
        asked.append(one.target.name)
        return one.state is ReplicaState.DOWN

    monkeypatch.setattr(grid_memory, "RELEVANCE", (has_failed,))
    memory, members = GridMemory(), thousand()
    assert memory.relevant(list(members)) == frozenset()
    assert len(asked) == 1000
    asked.clear()
    members[3] = replica("n0003")
    assert memory.relevant(list(members)) == frozenset()
    assert asked == ["n0003"]
    members[5] = down_replica("n0005")
    assert memory.relevant(list(members)) == {has_failed}
    asked.clear()
    assert memory.relevant(list(members)) == {has_failed}
    assert asked == ["n0005"], "who passed is asked first"
    asked.clear()
    members[5] = replica("n0005")
    assert memory.relevant(list(members)) == frozenset()
    assert len(asked) > 1000, "and everybody when it passes no longer"


def test_of_many_other_pictures_some_are_asked_each_time_and_none_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def has_failed(one: ReplicaSnapshot) -> bool:
        asked.append(one.target.name)
        return one.state is ReplicaState.DOWN

    monkeypatch.setattr(grid_memory, "RELEVANCE", (has_failed,))
    memory, members = GridMemory(), thousand()
    memory.relevant(list(members))
    for first in (0, 200, 400, 600):
        asked.clear()
        for place in range(first, first + 200):
            members[place] = replica(f"n{place:04}")
        assert memory.relevant(list(members)) == frozenset()
        assert len(asked) == 100
    members[799] = down_replica("n0799")
    asked.clear()
    rounds = [memory.relevant(list(members)) for _ in range(5)]
    assert rounds == [frozenset()] * 3 + [{has_failed}] * 2
    assert asked[:400] == [f"n{place:04}" for place in range(400, 800)]


def test_nothing_changed_nothing_is_worked_out(work: Counter[str]) -> None:
    screen, members = Screen(), thousand()
    screen.paint(fleet(members))
    work.clear()
    screen.paint(fleet(members, sequence=2, at=AT + 1))
    assert work == {}


def test_one_replica_changed_one_row_is_drawn(work: Counter[str]) -> None:
    screen, members = Screen(), thousand()
    screen.paint(fleet(members))
    work.clear()
    members[3] = replace(members[3], bad_lines=1)
    screen.paint(fleet(members, sequence=2))
    assert work == {"drawn": 1, "judged": 1}
    work.clear()
    members[900] = replace(members[900], bad_lines=1)
    screen.paint(fleet(members, sequence=3))
    assert work == {"judged": 1}  # it is not in sight


def test_a_step_down_draws_the_line_that_comes_into_sight(work: Counter[str]) -> None:
    screen, members = Screen(), thousand()
    snapshot = fleet(members)
    screen.paint(snapshot)
    work.clear()
    screen.paint(snapshot, top=1)
    assert work == {"drawn": 1}


def test_of_a_fleet_in_trouble_only_the_troubled_are_judged_again(work: Counter[str]) -> None:
    """Of 1000 in the bench 20 are down, 20 have an alert and 20 restarted: their words hold ages."""
    source, screen = Churn(1000, 0.0), Screen()
    source.prepare()
    first = source.latest()
    assert first is not None
    screen.paint(first)
    work.clear()
    screen.paint(replace(first, sequence=2))
    assert work == {"judged": 60}


def test_rows_with_an_age_are_drawn_anew_when_it_changes() -> None:
    screen = Screen()
    members = [replica("a1", scraped_at=AT - 9)]
    first = screen.paint(fleet(members))
    assert screen.paint(fleet(members, at=AT + 0.4)) == first
    assert screen.paint(fleet(members, at=AT + 1)) != first


FLEETS = [
    fleet([replica("a1"), down_replica("c0"), replica("b1", ReplicaState.IDLE)]),
    fleet([replica("a1"), down_replica("c0", 90)], at=AT + 18),
    fleet([replica("a1", events=(event("restarted", 30),))]),
    fleet([replica("a1", events=(event("restarted", 30),))], at=AT + 100),
    fleet([replica("a1")], alerts=[alert("KvPressure", "http://a1.example:8000")]),
    fleet([replica("a1")]),
]


def test_what_is_remembered_is_what_would_be_judged() -> None:
    memory = ConditionMemory()
    shared = FLEETS[0].replicas[0]
    for snapshot in (*FLEETS, *FLEETS):
        same = replace(snapshot, replicas=(shared, *snapshot.replicas[1:]))
        for shown in (snapshot, same):
            assert memory.conditions_of(shown) == conditions_of(shown)


@pytest.mark.parametrize(
    ("top", "rounded"),
    [(0.0, 0.0), (1.0, 1.0), (1.01, 1.5), (1.6, 2.0), (2500, 3000.0), (31, 50.0), (0.06, 0.07), (71, 100.0)],
)
def test_scales_stand_still_between_steps(top: float, rounded: float) -> None:
    assert round_up(top) == pytest.approx(rounded)


def test_the_scale_grows_at_once_and_shrinks_later() -> None:
    def one(tokens: float, at: float) -> list[ReplicaSnapshot]:
        trends = {"generation_tokens_per_second": (tokens,) * 60}
        return [replica("a1", trends=trends, trend_times=tuple(at - 2 * step for step in range(60, 0, -1)))]

    memory = GridMemory()
    assert memory.token_top(one(1900, AT), AT) == 2000
    assert memory.token_top(one(2900, AT + 2), AT + 2) == 3000
    assert memory.token_top(one(1900, AT + 4), AT + 4) == 3000
    assert memory.token_top(one(1900, AT + 70), AT + 70) == 2000
