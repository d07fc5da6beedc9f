"""The raw page's screen: kept while it is open, searched, left again."""

from __future__ import annotations

import asyncio

from textual.pilot import Pilot

from enginetop.fleet.ports import RawPage, RawScrape
from tests.tui.running import running
from tests.tui.snapshots import AT, FakeSource, fleet, replica
from tests.tui.test_app import Clock, play, publish, screen_lines, screen_text
from tui.app import FleetApp
from tui.screens.detail import DetailScreen
from tui.screens.raw_page import RawPageScreen

FLEET = fleet([replica("a1")])
URL = FLEET.replicas[0].target.url
LINES = tuple(f"family_{number}_total {number}.0" for number in range(100))


class Pages:
    """Raw pages that a test serves."""

    def __init__(self, broken: bool = False) -> None:
        self.watched: list[str | None] = []
        self.scrape: RawScrape | None = None
        self._broken = broken

    def watch(self, url: str | None) -> None:
        self.watched.append(url)

    def latest(self) -> RawScrape | None:
        if self._broken:
            raise ZeroDivisionError("on purpose")
        return self.scrape


def run(app: FleetApp, story: object) -> FleetApp:
    async def go() -> None:
        async with running(app) as pilot:
            await story(app, pilot)  # type: ignore[operator]

    asyncio.run(go())
    return app


async def shows(pilot: Pilot[None], app: FleetApp, text: str) -> bool:
    """Whether the text comes to the screen; errands take a turn of another thread."""
    for _ in range(200):
        await pilot.pause()
        if text in screen_text(app):
            return True
        await asyncio.sleep(0.01)
    return False


def test_it_is_kept_while_open_searched_and_let_go() -> None:
    source, pages = FakeSource(FLEET), Pages()
    app = FleetApp(source, clock=Clock(), pages=pages)

    async def story(app: FleetApp, pilot: Pilot[None]) -> None:
        await pilot.press("enter", "w")
        assert await shows(pilot, app, "waiting for the next page")
        assert pages.watched == [URL]
        pages.scrape = RawScrape(URL, AT, (RawPage("/metrics", "200, 9 bytes, 1 ms", LINES),))
        await publish(app, pilot, source, fleet([replica("a1")], sequence=2))
        assert await shows(pilot, app, "family_3_total 3.0")
        await pilot.press("slash", *"y_7 tot")
        assert await shows(pilot, app, "family_77_total")
        assert await shows(pilot, app, "11 of 100 lines")
        await pilot.press("enter")
        assert "family_3_total" not in screen_text(app)
        await pilot.press("escape")
        assert await shows(pilot, app, "family_3_total")
        assert isinstance(app.screen, RawPageScreen)
        await pilot.press("escape")
        await pilot.pause()
        assert isinstance(app.screen, DetailScreen)
        assert pages.watched == [URL, None]

    assert not run(app, story).failures


def test_digits_and_other_keys_are_characters_while_one_searches() -> None:
    pages = Pages()
    pages.scrape = RawScrape(URL, AT, (RawPage("/metrics", "200", LINES),))
    app = FleetApp(FakeSource(FLEET), clock=Clock(), pages=pages)

    async def story(app: FleetApp, pilot: Pilot[None]) -> None:
        await pilot.press("enter", "w", "slash", *"42/q")
        await pilot.pause()
        screen = app.screen
        assert isinstance(screen, RawPageScreen)
        assert screen.words == "42/q"

    run(app, story)


def test_pages_that_cannot_be_had_are_told_in_words() -> None:
    async def none(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await pilot.press("enter", "w")
        await pilot.pause()
        assert "pages are not kept here" in screen_lines(app)[-1]

    play(none, source=FakeSource(FLEET))

    async def broken(app: FleetApp, pilot: Pilot[None]) -> None:
        await pilot.press("enter", "w")
        assert await shows(pilot, app, "waiting for the next page")
        for _ in range(200):
            if app.failures:
                break
            await asyncio.sleep(0.01)

    app = run(FleetApp(FakeSource(FLEET), clock=Clock(), pages=Pages(broken=True)), broken)
    assert app.failures == ["raw page: ZeroDivisionError: on purpose"]
