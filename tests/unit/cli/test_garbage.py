"""Python looks for cycles so seldom that no tick of a fleet brings it about by itself."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from bench.memory import Fleet
from bench.page_server import MovingPage
from enginetop.cli import garbage
from enginetop.cli.garbage import FEWEST_OBJECTS, OBJECTS_A_REPLICA, FreeMemory, pace_garbage, trim


@pytest.fixture(autouse=True)
def _usual_pace() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.enable()
    gc.set_threshold(*before)


def test_the_pace_is_that_of_the_fleet() -> None:
    pace_garbage()
    assert gc.get_threshold()[0] == FEWEST_OBJECTS
    pace_garbage(40)
    assert gc.get_threshold()[0] == FEWEST_OBJECTS + 40 * OBJECTS_A_REPLICA


def test_a_tick_makes_fewer_objects_than_bring_about_a_look() -> None:
    replicas, page = 16, MovingPage()
    fleet = Fleet(replicas, 1.0)
    for tick in range(2):
        fleet.look(1_764_446_400.0 + tick, page.at(tick))
    body = page.at(2)
    gc.disable()
    gc.collect()
    kept = fleet.latest  # as a screen does until it paints the next one
    fleet.look(1_764_446_402.0, body)
    made = gc.get_count()[0]
    assert kept is not fleet.latest
    assert 0 < made < replicas * OBJECTS_A_REPLICA


def test_free_memory_goes_back_every_ten_seconds() -> None:
    now, given = [1000.0], list[float]()
    free_memory = FreeMemory(lambda: now[0], lambda: given.append(now[0]))
    for _ in range(25):
        free_memory()
        now[0] += 1.0
    assert given == [1010.0, 1020.0]


def test_where_the_c_library_cannot_give_back_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[object]()
    monkeypatch.setattr("ctypes.CDLL", lambda name: asked.append(name))
    garbage._malloc_trim.cache_clear()
    trim()
    assert asked == [None]
    monkeypatch.undo()
    garbage._malloc_trim.cache_clear()
    trim()


def test_to_give_back_leaves_no_cycles() -> None:
    """Another ctypes.CDLL for each time would be one: it holds a class that holds it."""
    trim()
    gc.collect()
    trim()
    assert gc.collect() == 0
