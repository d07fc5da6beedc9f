"""What the screen does for a picture, counted: what did not change or is out of sight is not worked out."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import ModuleType

import pytest
from textual.pilot import Pilot

from bench.screen_fleet import Churn
from enginetop.fleet.model import Target
from enginetop.fleet.snapshot import FleetSnapshot
from tests.tui.changes import OBSERVED, FakeControl
from tests.tui.running import running
from tests.tui.snapshots import FakeSource, down_replica, fleet, replica
from tests.tui.test_app import Clock
from tui.app import FleetApp
from tui.screens.base import PictureScreen
from tui.screens.fleet import FleetScreen
from tui.view import charts, grid_memory, table

Counted = Counter[str]


def count_calls(counted: Counted, monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str) -> None:
    """Count the calls of a function of a module from now on."""
    work = getattr(module, name)

    def counting(*args: object, **options: object) -> object:
        counted[name] += 1
        return work(*args, **options)

    monkeypatch.setattr(module, name, counting)


def work_of(
    first: FleetSnapshot, second: FleetSnapshot, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> Counted:
    """What the second picture took once the first was drawn."""
    counted: Counted = Counter()

    async def run() -> None:
        source, clock = FakeSource(), Clock()
        app = FleetApp(source, clock=clock)
        async with running(app, size) as pilot:
            for snapshot in (first, first):  # twice: what stands under the grid has taken its room
                clock.now += 1.0
                source.publish(snapshot)
                await pilot.pause()
            with monkeypatch.context() as patch:
                count_calls(counted, patch, table, "draw_row")
                count_calls(counted, patch, grid_memory, "place_columns")
                count_calls(counted, patch, charts, "area")
                clock.now += 1.0
                source.publish(second)
                await pilot.pause()

    asyncio.run(run())
    return counted


def next_of(source: Churn) -> FleetSnapshot:
    source.step()
    snapshot = source.latest()
    assert snapshot is not None
    return snapshot


@pytest.mark.parametrize(("count", "size"), [(8, (200, 50)), (300, (200, 50)), (300, (80, 24))])
def test_a_picture_draws_the_rows_in_sight_that_changed(
    count: int, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Churn(count, 1.0)
    counted = work_of(next_of(source), next_of(source), monkeypatch, size)
    assert 5 <= counted.pop("draw_row") <= min(count, size[1])
    assert not counted  # the same columns, and steps of the load that are over


def test_a_picture_of_which_one_row_changed_draws_one(monkeypatch: pytest.MonkeyPatch) -> None:
    first = next_of(Churn(8, 0.0))
    changed = replace(first.replicas[3], scraped_at=first.at + 1)
    second = replace(first, sequence=9, replicas=(*first.replicas[:3], changed, *first.replicas[4:]))
    assert work_of(first, second, monkeypatch, (200, 50)) == {"draw_row": 1}


Story = Callable[[FleetApp, "Pilot[None]", FakeSource, Clock], Awaitable[None]]


@pytest.fixture
def second_hand_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """The app's own goes by the machine's clock."""
    monkeypatch.setattr("tui.app._TICK_SECONDS", 3600.0)


def paintings(story: Story, control: FakeControl | None = None) -> int:
    """Pictures that the screen was given in a story, after its beginning."""
    shown = 0

    async def run() -> None:
        nonlocal shown
        source, clock = FakeSource(), Clock()
        app = FleetApp(source, clock=clock, control=control)
        async with running(app) as pilot:
            clock.now += 1.0
            source.publish(fleet([replica("a1")]))  # every 2 s
            await pilot.pause()
            screen = app.screen
            assert isinstance(screen, FleetScreen)

            def count(_picture: object) -> None:
                nonlocal shown
                shown += 1

            screen.show = count  # type: ignore[method-assign, assignment]
            await story(app, pilot, source, clock)

    asyncio.run(run())
    return shown


@pytest.mark.usefixtures("second_hand_by_hand")
@pytest.mark.parametrize(("late", "paints"), [(1.0, 0), (2.5, 0), (5.9, 0), (6.1, 1)])
def test_the_second_hand_paints_nothing_until_silence_is_told(late: float, paints: int) -> None:
    async def story(app: FleetApp, _pilot: Pilot[None], _source: FakeSource, clock: Clock) -> None:
        clock.now += late
        app._tick()

    assert paintings(story) == paints


@pytest.mark.usefixtures("second_hand_by_hand")
@pytest.mark.parametrize(("later", "paints"), [(0.3, 1), (1.0, 2)])
def test_a_countdown_is_painted_once_a_second(later: float, paints: int) -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource, clock: Clock) -> None:
        clock.now += 1.0
        source.publish(fleet([replica("a1")]))
        await pilot.pause()
        clock.now += later
        app._tick()

    assert paintings(story, FakeControl(changes=(OBSERVED,))) == paints


Frames = list[list[str]]


def frames(story: Callable[[FleetApp, Pilot[None], Frames], Awaitable[None]]) -> Frames:
    """What was sent to the terminal, each frame as the lines of the whole screen at that moment."""
    sent: Frames = []

    async def run() -> None:
        source = FakeSource()
        app = FleetApp(source, clock=Clock(), targets=(Target("http://r1:8000", "r1:8000"),))

        def display(screen: PictureScreen, update: object) -> None:
            if update is not None:
                sent.append([strip.text.rstrip() for strip in screen._compositor.render_strips()])

        app._display = display  # type: ignore[method-assign, assignment]
        async with running(app, (100, 30)) as pilot:
            source.publish(fleet([replica("a1"), down_replica("c0")]))
            for _ in range(3):
                await pilot.pause()
            await story(app, pilot, sent)

    asyncio.run(run())
    return sent


def sent_once(look: Callable[[], tuple[Frames, ...]]) -> list[list[str]]:
    """The frame of each part of a story, of which nothing half done was ever sent.

    A machine that is too busy for 60 frames a second may send the same one again; not each time.
    """
    for _ in range(20):
        parts = look()
        assert all(frames and frames == frames[:1] * len(frames) for frames in parts)
        if all(len(frames) == 1 for frames in parts):
            return [frames[0] for frames in parts]
    raise AssertionError("it is always sent more than once")


def test_nothing_blank_is_sent_at_the_start() -> None:
    async def story(_app: FleetApp, _pilot: Pilot[None], _sent: Frames) -> None:
        pass

    first, *others = frames(story)
    assert "waiting for the first scrape" in first[1]
    assert 1 <= len(others) <= 2
    assert all("c0 down" in other[1] for other in others)


@pytest.mark.parametrize("size", [(60, 30), (120, 9), (30, 5), (200, 50)])
def test_another_size_is_sent_once_and_as_it_is_to_be(size: tuple[int, int]) -> None:
    async def story(_app: FleetApp, pilot: Pilot[None], sent: Frames) -> None:
        sent.clear()
        await pilot.resize_terminal(*size)
        for _ in range(3):
            await pilot.pause()

    (sent,) = sent_once(lambda: (frames(story),))
    assert len(sent) == size[1]
    assert all(len(line) <= size[0] for line in sent)
    assert any("c0" in line for line in sent)


@pytest.mark.parametrize(("key", "told"), [("enter", "c0"), ("question_mark", "quit"), ("7", "alerts")])
def test_a_screen_that_opens_is_sent_once_and_so_is_the_way_back(key: str, told: str) -> None:
    opened: Frames = []

    async def story(_app: FleetApp, pilot: Pilot[None], sent: Frames) -> None:
        sent.clear()
        await pilot.press(key)
        for _ in range(3):
            await pilot.pause()
        opened[:] = sent
        sent.clear()
        await pilot.press("escape")
        for _ in range(3):
            await pilot.pause()

    back, there = sent_once(lambda: (frames(story), opened))
    assert any(told in line for line in there)
    assert "c0 down" in back[1]
