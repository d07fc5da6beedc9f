"""A recording under the hands of somebody: pace, standing still, a step, winding on and back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from collectors.replay import ReplaySource
from enginetop.fleet.snapshot import FleetSnapshot
from tests.replay.test_replay import line
from tests.support.small_fleet import new_feeds, tracker_of, vllm_page


class Listener:
    """Every snapshot that a source told of; a test waits for one."""

    def __init__(self, source: ReplaySource) -> None:
        self.times: list[float] = []
        self._source = source
        self._told = threading.Condition()
        source.subscribe(self._note)

    def _note(self) -> None:
        snapshot = self._source.latest()
        assert snapshot is not None
        with self._told:
            self.times.append(snapshot.at)
            self._told.notify_all()

    def wait(self, holds: Callable[[], bool]) -> None:
        with self._told:
            assert self._told.wait_for(holds, 20), self.times


def recorded(tmp_path: Path, *times: float) -> Path:
    path = tmp_path / "hand.jsonl"
    path.write_text("".join(line(t, vllm_page(1, int(t) * 10)) for t in times))
    return path


def source_of(path: Path, **more: float) -> ReplaySource:
    return ReplaySource(path, new_tracker=tracker_of, new_feed=new_feeds(), **more)  # type: ignore[arg-type]


def at(source: ReplaySource) -> float:
    return source.playback().at


def test_it_tells_where_it_stands(tmp_path: Path) -> None:
    source = source_of(recorded(tmp_path, 0.0, 60.0), speed=2.0)
    state = source.playback()
    assert (state.at, state.first_at, state.last_at, state.speed, state.paused) == (
        0.0,
        0.0,
        60.0,
        2.0,
        False,
    )


def test_standing_still_a_step_and_on(tmp_path: Path) -> None:
    source = source_of(recorded(tmp_path, 0.0, 3600.0, 7200.0, 7201.0))
    listener = Listener(source)
    source.set_paused(True)
    source.set_speed(1e6)
    source.start()
    listener.wait(lambda: listener.times == [0.0])
    source.request_refresh()
    listener.wait(lambda: listener.times[-1] == 3600.0)
    assert at(source) == 3600.0
    source.set_paused(False)
    assert source.ended.wait(20)
    assert at(source) == 7201.0
    source.stop()


def test_winding_on_and_back_and_to_the_end(tmp_path: Path) -> None:
    times = [float(t) for t in range(0, 40, 2)]
    source = source_of(recorded(tmp_path, *times))
    listener = Listener(source)
    source.set_paused(True)
    source.start()
    source.seek(21.0)
    listener.wait(lambda: at(source) == 20.0)
    source.seek(5.0)
    listener.wait(lambda: at(source) == 4.0)
    source.seek(-100.0)
    listener.wait(lambda: at(source) == 0.0)
    source.seek(1e9)
    assert source.ended.wait(20)
    assert at(source) == 38.0
    source.seek(10.0)
    listener.wait(lambda: at(source) == 10.0)
    assert not source.finished()
    source.stop()


def test_only_the_last_quarter_of_an_hour_is_told(tmp_path: Path) -> None:
    source = source_of(recorded(tmp_path, *(600.0 * number for number in range(10))))
    listener = Listener(source)
    source.set_paused(True)
    source.start()
    listener.wait(lambda: bool(listener.times))
    source.seek(4000.0)
    listener.wait(lambda: at(source) == 3600.0 and len(listener.times) >= 2)
    source.stop()
    assert set(listener.times[1:]) == {3600.0}  # 3000 s is more than 900 s before what was wanted


def test_wound_back_it_forgets_the_future(tmp_path: Path) -> None:
    made: list[int] = []

    def new_finish() -> Callable[[FleetSnapshot], FleetSnapshot]:
        made.append(len(made))
        return lambda snapshot: snapshot

    path = recorded(tmp_path, 0.0, 10.0, 20.0, 30.0)
    source = ReplaySource(path, new_tracker=tracker_of, new_feed=new_feeds(), new_finish=new_finish)
    listener = Listener(source)
    source.set_paused(True)
    source.start()
    source.seek(30.0)
    listener.wait(lambda: at(source) == 30.0)
    source.seek(10.0)
    listener.wait(lambda: at(source) == 10.0)
    source.stop()
    snapshot = source.latest()
    assert snapshot is not None
    assert made == [0, 1]
    rate = snapshot.replicas[0].scalar("generation_tokens_per_second").number
    assert rate == pytest.approx(10.0)  # 100 tokens in 10 s: the window begins at 0 s again


def test_stopping_ends_it_wherever_it_is(tmp_path: Path) -> None:
    for prepare in (
        lambda source: None,
        lambda source: source.set_paused(True),
        lambda source: source.seek(1e9),
    ):
        source = source_of(recorded(tmp_path, 0.0, 3600.0, 7200.0))
        prepare(source)
        source.start()
        source.stop()
        assert source.ended.is_set()
