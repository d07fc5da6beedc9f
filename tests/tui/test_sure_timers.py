"""A call after a delay is made, however late the app is when it comes to count the turns of its timer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from itertools import chain, repeat

import pytest
from textual.app import App
from textual.screen import Screen

from tui.linked_app import LinkedApp
from tui.screens.whole import WholeScreen
from tui.sure_timers import SureTimers

_PATIENCE_SECONDS = 20.0


class _App(SureTimers, App[None]):
    """An app without anything on it."""


class _Screen(SureTimers, Screen[None]):
    """A screen without anything on it."""


def _a_minute_between_looks() -> Callable[[], float]:
    """A clock as one sees it who is kept from the CPU for a minute after each of the first two looks."""
    minutes = chain((0, 1), repeat(2))
    return lambda: time.monotonic() + 60.0 * next(minutes)


@pytest.mark.parametrize("of_screen", [False, True], ids=["app", "screen"])
@pytest.mark.parametrize("delay", [0.0, 0.001, 0.1, 10.0])
def test_a_late_timer_goes_off(delay: float, of_screen: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        app = _App()
        async with app.run_test():
            screen = _Screen()
            await app.push_screen(screen)
            called = asyncio.Event()
            monkeypatch.setattr("textual.timer._time.get_time", _a_minute_between_looks())
            (screen if of_screen else app).set_timer(delay, called.set)
            await asyncio.wait_for(called.wait(), _PATIENCE_SECONDS)

    asyncio.run(story())


def test_ours_are_such() -> None:
    assert issubclass(LinkedApp, SureTimers)
    assert issubclass(WholeScreen, SureTimers)
    for kind in (LinkedApp, WholeScreen):
        assert kind.set_timer is SureTimers.set_timer
