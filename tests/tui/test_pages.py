"""The number keys: every page opens, its rows open replicas, and one that fails leaves the others alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from textual.pilot import Pilot

from enginetop.fleet.reading import ConfigValue
from enginetop.fleet.snapshot import ModelSummary, Slo
from tests.tui.snapshots import OK_SIGNALS, FakeSource, down_replica, event, fleet, gpu, replica, scalar
from tests.tui.test_app import SIZES, play, screen_lines, screen_text
from tui.app import FleetApp
from tui.screens import pages
from tui.screens.detail import DetailScreen
from tui.screens.fleet import FleetScreen
from tui.view.picture import Picture

SLOW = replica(
    "a2",
    changes={"spec_acceptance_per_position": scalar((0.8, 0.4)), "spec_accepted_length": 2.2},
    config={"num_speculative_tokens": ConfigValue(2, "/server_info")},
    gpus=(gpu(0, temperature_celsius=91.0), gpu(1)),
    events=(event("preemptions_began", 20),),
)
CRASHED = down_replica("c0", events=(event("state_changed", 72, "ok -> down: connection refused"),))
_BASE = fleet([replica("a1", events=(event("appeared", 900),)), SLOW, CRASHED])
_MODEL = ModelSummary("Llama-3.3-70B", 2, OK_SIGNALS, Slo())
FLEET = replace(_BASE, fleet=replace(_BASE.fleet, models=(_MODEL,)))

WORDS = {
    "3": ("latency and goodput", "TTFT"),
    "4": ("speculation", ".80 .40"),
    "5": ("reasoning", "no replica tells of reasoning"),
    "6": ("GPUs", "2 GPUs · 94 % busy"),
    "9": ("events", "ok → down"),
}


def page_title_of(app: FleetApp) -> str:
    return screen_lines(app)[0].split(" · ")[0].strip()


@pytest.mark.parametrize("size", [*SIZES, (50, 15)])
@pytest.mark.parametrize("key", list(WORDS))
def test_every_page_opens_from_everywhere_and_esc_leads_back(key: str, size: tuple[int, int]) -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        for before in ("1", "2", key):
            await pilot.press(before, key)
            await pilot.pause()
            title, said = WORDS[key]
            assert page_title_of(app) == title
            assert said in screen_text(app)
        assert len(app.screen_stack) == 2
        await pilot.press("escape")
        assert isinstance(app.screen, FleetScreen)

    assert not play(story, size=size, source=FakeSource(FLEET)).failures


def test_a_row_opens_its_replica_and_n_goes_to_the_next_other_one() -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await pilot.press("9", "j", "enter")
        screen = app.screen
        assert isinstance(screen, DetailScreen)
        assert screen.url == CRASHED.target.url  # second newest event
        await pilot.press("n")
        assert screen.url == FLEET.replicas[0].target.url
        await pilot.press("escape")
        assert page_title_of(app) == "events"

    play(story, source=FakeSource(FLEET))


def test_the_next_replica_of_the_gpu_page_passes_over_its_other_devices() -> None:
    other = replica("a3", gpus=(gpu(2), gpu(3)))

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await pilot.press("6", "enter")
        screen = app.screen
        assert isinstance(screen, DetailScreen)
        assert screen.url == SLOW.target.url
        await pilot.press("n")
        assert screen.url == other.target.url
        await pilot.press("n", "n")  # there is no further one
        assert screen.url == other.target.url

    play(story, source=FakeSource(fleet([SLOW, other])))


def test_events_of_one_kind_after_the_other() -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await pilot.press("9")
        await pilot.pause()
        assert "1–" not in screen_lines(app)[-1]
        assert len([line for line in screen_lines(app) if line[1:3].isdigit() and ":" in line[:5]]) == 3
        await pilot.press("f", "f")
        await pilot.pause()
        assert "ok → down" in screen_text(app)
        assert len([line for line in screen_lines(app) if line[1:3].isdigit() and ":" in line[:5]]) == 1

    play(story, source=FakeSource(FLEET))


def test_a_page_that_fails_says_so_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(picture: Picture, width: int) -> None:
        raise ZeroDivisionError("on purpose")

    monkeypatch.setattr(pages, "gpu_rows", broken)

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await pilot.press("6")
        await pilot.pause()
        assert " failed: ZeroDivisionError: on purpose" in screen_text(app)
        await pilot.press("4")
        await pilot.pause()
        assert ".80 .40" in screen_text(app)

    assert play(story, source=FakeSource(FLEET)).failures == ["gpu: ZeroDivisionError: on purpose"]


def test_the_pages_wait_for_the_first_scrape() -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        for key in WORDS:
            await pilot.press(key)
            await pilot.pause()
            assert "waiting for the first scrape" in screen_text(app)

    play(story)
