"""The app as a user drives it, on both designed sizes."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable

import pytest
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.pilot import Pilot

from enginetop.fleet.errors import ConfigError, EnginetopError
from enginetop.fleet.model import ReplicaState, Target
from enginetop.fleet.snapshot import FleetSnapshot
from tests.tui.running import running
from tests.tui.snapshots import AT, FakeSource, down_replica, fleet, replica
from tui.app import FleetApp
from tui.screens.detail import DetailScreen
from tui.screens.fleet import FleetScreen
from tui.screens.help import HelpScreen

SIZES = [(80, 24), (200, 50)]

Story = Callable[[FleetApp, "Pilot[None]", FakeSource], Awaitable[None]]


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def play(
    story: Story,
    *,
    size: tuple[int, int] = (80, 24),
    source: FakeSource | None = None,
    clock: Callable[[], float] | None = None,
    targets: tuple[Target, ...] = (),
    ascii_only: bool = False,
) -> FleetApp:
    """Run the app on a terminal of `size` and tell the story."""
    source = source or FakeSource()
    app = FleetApp(source, title="prod-eu", targets=targets, clock=clock or Clock(), ascii_only=ascii_only)

    async def run() -> None:
        async with running(app, size) as pilot:
            await story(app, pilot, source)

    asyncio.run(run())
    return app


def screen_lines(app: FleetApp) -> list[str]:
    """The text on the terminal."""
    width, height = app.size
    strips = app.screen._compositor.render_strips()
    lines = [strip.text for strip in strips[:height]]
    assert all(strip.cell_length <= width for strip in strips)
    return [line.rstrip() for line in lines]


def screen_text(app: FleetApp) -> str:
    return "\n".join(screen_lines(app))


def screen_kind(app: FleetApp) -> type[object]:
    """The class of the screen on top."""
    return type(app.screen)


async def publish(app: FleetApp, pilot: Pilot[None], source: FakeSource, snapshot: FleetSnapshot) -> None:
    """Publish, with the clock so far ahead that the picture may be painted."""
    clock = app.clock
    assert isinstance(clock, Clock)
    clock.now += 1.0
    source.publish(snapshot)
    await pilot.pause()


def row_of_cursor(app: FleetApp) -> str:
    """The line that the cursor marks."""
    marked = [line for line in screen_lines(app) if line.startswith("▸")]
    assert len(marked) == 1
    return marked[0][1:].split()[0]


FLEET = fleet(
    [
        replica("a1", changes={"kv_usage_ratio": 0.3}),
        replica("a2", changes={"kv_usage_ratio": 0.5}),
        replica("a3", changes={"kv_usage_ratio": 0.4}, scraped_at=AT - 30, model="Qwen3-32B"),
        down_replica("c0"),
    ]
)


@pytest.mark.parametrize("size", SIZES)
def test_something_is_painted_before_the_source_starts(size: tuple[int, int]) -> None:
    source = FakeSource()
    seen: list[str] = []

    class Watched(FakeSource):
        def start(self) -> None:
            seen.append(screen_text(app))

    app = FleetApp(Watched(), targets=(Target("http://r1:8000", "r1:8000"),))

    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            while not seen:  # a busy machine takes more than one
                await pilot.pause()

    asyncio.run(run())
    assert "waiting for the first scrape" in seen[0]
    assert "r1:8000" in seen[0]
    assert source.started == 0


@pytest.mark.parametrize("size", SIZES)
def test_one_dead_and_one_slow_replica_do_not_hide_the_others(size: tuple[int, int]) -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await publish(app, pilot, source, FLEET)
        text = screen_text(app)
        assert " ✖ 1 needs you: c0 down 72 s" in text
        assert "connection refused for 72 s, next try in 4 s" in text
        assert next(line for line in screen_lines(app) if line.startswith(" a3")).endswith("30s")
        assert "● ok" in next(line for line in screen_lines(app) if line.startswith(" a2"))
        assert "? help" in text

    assert play(story, size=size).failures == []


def test_the_first_row_is_selected_and_the_cursor_stays_on_its_target() -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await publish(app, pilot, source, FLEET)
        assert row_of_cursor(app) == "c0"
        await pilot.press("j", "j")
        assert row_of_cursor(app) == "a2"
        trouble = fleet([*FLEET.replicas[:1], down_replica("a2", 100), *FLEET.replicas[2:]])
        await publish(app, pilot, source, trouble)
        assert row_of_cursor(app) == "a2"  # it moved to the top of its group
        await pilot.press("s", "s", "s", "s", "s")
        assert row_of_cursor(app) == "a2"

    play(story)


def test_a_vanished_target_leaves_the_cursor_in_its_place() -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await publish(app, pilot, source, FLEET)
        await pilot.press("j", "j")
        await publish(app, pilot, source, fleet([FLEET.replicas[0], *FLEET.replicas[2:]]))
        assert row_of_cursor(app) == "a3"
        await publish(app, pilot, source, fleet([]))
        assert "no replicas" in screen_text(app)
        await publish(app, pilot, source, FLEET)
        assert len([line for line in screen_lines(app) if line.startswith("▸")]) == 1

    play(story)


def test_cursor_keys_move_among_replicas_and_scroll() -> None:
    many = fleet([replica(f"n{number:02}") for number in range(60)])

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await publish(app, pilot, source, many)
        assert row_of_cursor(app) == "n00"
        await pilot.press("G")
        await pilot.pause()
        assert row_of_cursor(app) == "n59"
        await pilot.press("k", "up")
        assert row_of_cursor(app) == "n57"
        await pilot.press("g")
        await pilot.pause()
        assert row_of_cursor(app) == "n00"
        assert "decode ×60" in screen_text(app)  # the group's header comes back into sight
        await pilot.press("pagedown")
        await pilot.pause()
        # 24 lines less title, verdict, totals, column titles and footer are 19: a page is 18 lines
        assert row_of_cursor(app) == "n18"
        await pilot.press("ctrl+u")
        await pilot.pause()
        assert row_of_cursor(app) == "n00"
        await pilot.press("k")
        assert row_of_cursor(app) == "n00"
        assert "1–19 of 61" in screen_text(app)

    play(story)


def test_sorting_goes_through_the_columns_and_back_to_trouble_first() -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await publish(app, pilot, source, FLEET)
        screen = app.screen
        assert isinstance(screen, FleetScreen)
        seen = []
        for _ in range(20):
            await pilot.press("s")
            seen.append(screen.sort.column)
            if screen.sort.column == "kv":
                order = [line.split()[0] for line in screen_lines(app) if "Llama" in line or "Qwen" in line]
                assert [name.lstrip("▸") for name in order] == ["a2", "a3", "a1", "c0"]
            if screen.sort.column is None:
                break
        assert seen[0] == "name"
        assert seen[-1] is None
        await pilot.press("s", "S")
        assert screen.sort.reverse
        await pilot.press("escape")
        assert screen.sort.column is None

    play(story)


def test_filter_while_typing_enter_keeps_it_escape_clears_it() -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await publish(app, pilot, source, FLEET)
        await pilot.press("slash", *"kv>0.3")
        await pilot.pause()
        text = screen_text(app)
        assert "a2 " in text
        assert "\n a1 " not in text
        assert "2 of 4" in text
        await pilot.press("enter")
        await pilot.pause()
        assert "/ kv>0.3" in screen_text(app)
        await pilot.press("j")
        assert row_of_cursor(app) == "a3"
        await pilot.press("escape")
        await pilot.pause()
        assert "a1 " in screen_text(app)
        assert "2 of 4" not in screen_text(app)

    play(story)


def test_keys_typed_right_after_the_slash_belong_to_the_filter() -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await publish(app, pilot, source, FLEET)
        for key, character in [("slash", "/"), ("j", "j"), ("q", "q"), ("slash", "/")]:
            app.post_message(events.Key(key, character))
        await pilot.pause()
        await pilot.pause()
        screen = app.screen
        assert isinstance(screen, FleetScreen)
        assert screen.filter_query.text == "jq/"

    play(story)


def test_a_filter_that_cannot_be_read_says_so_and_keeps_the_rows() -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await publish(app, pilot, source, FLEET)
        await pilot.press("slash", *"kx>1")
        await pilot.pause()
        assert "no number called kx" in screen_text(app)
        await pilot.press("escape")
        await pilot.pause()
        assert "c0 " in screen_text(app)
        await pilot.press("slash", *"zzz", "enter")
        await pilot.pause()
        assert "no replica matches the filter" in screen_text(app)
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, FleetScreen)

    play(story)


@pytest.mark.parametrize("size", SIZES)
def test_enter_opens_the_detail_and_escape_comes_back(size: tuple[int, int]) -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await publish(app, pilot, source, FLEET)
        await pilot.press("enter")
        await pilot.pause()
        assert screen_kind(app) is DetailScreen
        text = screen_text(app)
        assert screen_lines(app)[0].startswith(" c0 · vLLM 0.33.0 · Llama-3.3-70B · decode")
        assert "last error" in text
        await pilot.press("n")
        await pilot.pause()
        assert screen_lines(app)[0].startswith(" a1 ·")
        await publish(app, pilot, source, fleet([down_replica("a1", 4), *FLEET.replicas[1:]]))
        assert "connection refused for 4 s" in screen_text(app)
        await pilot.press("escape")
        await pilot.pause()
        assert screen_kind(app) is FleetScreen
        assert row_of_cursor(app) == "a1"

    play(story, size=size)


def test_the_detail_scrolls_and_survives_the_end_of_its_replica() -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await publish(app, pilot, source, FLEET)
        await pilot.press("j", "enter")
        await pilot.pause()
        await pilot.press("G")
        await pilot.pause()
        assert "events" in screen_text(app)
        await publish(app, pilot, source, fleet([FLEET.replicas[3]]))
        assert "no longer in the fleet" in screen_text(app)

    play(story)


def test_pause_freezes_the_picture_and_not_the_collection() -> None:
    clock = Clock()

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await publish(app, pilot, source, FLEET)
        await pilot.press("space")
        await pilot.pause()
        assert "PAUSED 0s" in screen_text(app)
        clock.now += 12
        await publish(app, pilot, source, fleet([replica("z9")]))
        app._tick()
        await pilot.pause()
        assert "PAUSED 13s" in screen_text(app)
        assert "c0 " in screen_text(app)
        assert source.latest() is not None
        await pilot.press("space")
        await pilot.pause()
        assert "PAUSED" not in screen_text(app)
        assert "z9 " in screen_text(app)

    play(story, clock=clock)


def test_silence_of_the_source_is_told() -> None:
    clock = Clock()

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await publish(app, pilot, source, FLEET)
        clock.now += 9
        app._tick()
        await pilot.pause()
        assert "no new picture for 9.0 s" in screen_text(app)

    play(story, clock=clock)


def test_refresh_help_and_quit() -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await publish(app, pilot, source, FLEET)
        await pilot.press("r", "question_mark")
        await pilot.pause()
        assert source.refreshes == 1
        assert isinstance(app.screen, HelpScreen)
        await pilot.press("question_mark")
        assert len(app.screen_stack) == 2
        await pilot.press("escape", "q")
        await pilot.pause()

    assert play(story).return_code == 0


def test_snapshots_from_another_thread_leave_one_token_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        posted: list[Message] = []
        post = app.post_message

        def count(message: Message) -> bool:
            posted.append(message)
            return post(message)

        monkeypatch.setattr(app, "post_message", count)
        clock = app.clock
        assert isinstance(clock, Clock)
        clock.now += 1
        snapshots = [fleet([replica(f"t{number}")], sequence=number) for number in range(50)]

        def burst() -> None:
            for snapshot in snapshots:
                source.publish(snapshot)

        thread = threading.Thread(target=burst)
        thread.start()
        thread.join()
        ready = [message for message in posted if isinstance(message, FleetApp.Ready)]
        assert len(ready) == 1
        await pilot.pause()
        assert "t49" in screen_text(app)

    play(story)


def test_a_view_that_fails_shows_its_error_and_the_rest_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: object) -> None:
        raise ValueError("half a bucket")

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        monkeypatch.setattr("tui.screens.fleet.totals_line", broken)
        await publish(app, pilot, source, FLEET)
        text = screen_text(app)
        assert "totals failed: ValueError: half a bucket" in text
        assert "c0 down 72 s" in text
        assert "● ok" in text

    assert play(story).failures == ["totals: ValueError: half a bucket"]


def test_a_row_that_fails_shows_its_error_and_the_other_rows_go_on() -> None:
    bad = replica("a2", trends={"kv_usage_ratio": ("x",)}, trend_times=(AT,))

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await publish(app, pilot, source, fleet([replica("a1"), bad, replica("a3")]))
        text = screen_text(app)
        assert "this row failed: TypeError" in text
        assert "a1 " in text
        assert "a3 " in text

    assert len(play(story, size=(200, 50)).failures) == 1


@pytest.mark.parametrize("error", [EnginetopError("no such fleet"), RuntimeError("threads")])
def test_a_source_that_cannot_start_is_told(error: Exception) -> None:
    class Broken(FakeSource):
        def start(self) -> None:
            raise error

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        assert str(error) in screen_text(app)

    assert len(play(story, source=Broken()).failures) == 1


@pytest.mark.parametrize("size", [(20, 5), (10, 1), (3, 3), (40, 10), (300, 100)])
def test_odd_terminals(size: tuple[int, int]) -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await publish(app, pilot, source, FLEET)
        assert screen_lines(app)
        await pilot.press("j", "pagedown", "s", "enter")
        await pilot.pause()
        assert screen_lines(app)
        await pilot.press("escape", "question_mark")
        await pilot.pause()
        assert screen_lines(app)

    assert play(story, size=size).failures == []


def test_a_former_size_that_is_told_late_is_not_laid_out_for() -> None:
    """At the start a terminal may get another size before the screen has heard of the first one."""

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        former = Size(50, 15)
        app.screen.post_message(events.Resize(former, former))
        await pilot.pause()
        assert app.top.part("#title").size.width == 80
        assert screen_lines(app)[23].startswith(" enter detail")

    play(story, source=FakeSource(FLEET))


def test_resizing_draws_for_the_new_size() -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await publish(app, pilot, source, FLEET)
        assert "ITL95ms" not in screen_text(app)
        await pilot.resize_terminal(200, 50)
        await pilot.pause()
        assert "ITL95ms" in screen_text(app)
        await pilot.resize_terminal(60, 20)
        await pilot.pause()
        assert "ITL95ms" not in screen_text(app)

    play(story)


def test_ascii_only_sends_nothing_else() -> None:
    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await publish(app, pilot, source, FLEET)
        assert screen_text(app).isascii()
        assert "X down" in screen_text(app)
        await pilot.press("enter")
        await pilot.pause()
        assert screen_text(app).isascii()

    play(story, size=(200, 50), ascii_only=True)


def test_what_is_said_has_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of an earlier line took the later one away."""

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await publish(app, pilot, source, FLEET)
        monkeypatch.setattr("tui.screens.base.SAID_SECONDS", 0.01)
        app.top.say("first")
        time.sleep(0.02)  # the first line's time is over before the loop turns again
        monkeypatch.setattr("tui.screens.base.SAID_SECONDS", 60.0)
        app.top.say("second")
        await pilot.pause(0.1)
        assert "second" in screen_text(app)
        monkeypatch.setattr("tui.screens.base.SAID_SECONDS", 0.01)
        app.top.say("third")
        await pilot.pause(0.1)
        assert "third" not in screen_text(app)

    assert play(story).failures == []


def test_no_markup_comes_from_data() -> None:
    hostile = replica(
        "[red]x[/red]", model="org/model[/base]", state=ReplicaState.NO_PROGRESS, reasons=("[/b]",)
    )

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await publish(app, pilot, source, fleet([hostile]))
        assert "org/model[/base]" in screen_text(app)
        await pilot.press("enter")
        await pilot.pause()
        assert "[red]x[/red]" in screen_text(app)

    assert play(story, size=(200, 50)).failures == []


def test_an_unknown_theme_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="theme 'mauve' is not known"):
        FleetApp(FakeSource(), theme="mauve")
