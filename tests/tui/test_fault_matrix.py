"""What breaks other monitors, on this one's screen: recorded faults through the real feeds and trackers.

| fault | asserted here | elsewhere |
| --- | --- | --- |
| port refuses, drops | named with the reason; the others go on | unit/collectors/test_http.py, test_loop.py |
| one replica takes 5 s | only its own row is old | unit/collectors/test_schedule.py, test_loop.py |
| never answers | timed out, named; never a zero | unit/collectors/test_scrape.py, test_schedule.py |
| broken line in the body | the rest of the page is read | unit/collectors/test_exposition*.py |
| NaN gauges | unknown, the rest fine, nobody needs you | property/test_exposition_properties.py |
| HTML page with status 200 | said to be no engine, never healthy | unit/collectors/test_feed.py |
| counter reset | no negative rate, the restart is told | unit/fleet/test_increase.py, replay/test_replay.py |
| 80x24, 1 replica | everything in sight | |
| 80x24, 64 replicas | names told apart, the cursor stays in sight | unit/view/test_names.py |
| 50x15 | verdict, row and keys | test_app.py::test_odd_terminals |
| TERM=dumb | no screen: the commands print a table instead | unit/cli/test_ui.py |
| NO_COLOR | | test_themes_and_terminal.py |
| resize 200x50, 80x24, back | the same picture again | test_link.py (storms) |
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from collectors.replay import run_replay
from enginetop.cli.output import has_terminal
from enginetop.fleet.snapshot import FleetSnapshot
from tests.support.small_fleet import new_feeds, tracker_of, vllm_page
from tests.tui.snapshots import FakeSource, fleet, replica
from tests.tui.test_app import SIZES, play, publish, row_of_cursor, screen_lines
from tui.app import FleetApp

GOOD, BAD = "http://good:8000", "http://bad:8000"

Answer = Mapping[str, Any]
Script = Callable[[int], Answer]


def body(text: bytes, status: int = 200, content_type: str = "text/plain; version=0.0.4") -> Answer:
    return {"status": status, "headers": {"content-type": content_type}, "body": text.decode()}


def healthy(second: int) -> Answer:
    return body(vllm_page(3, 100 * second))


def refused(_second: int) -> Answer:
    return {"error": "refused"}


def silent(_second: int) -> Answer:
    return {"error": "timeout"}


def html(_second: int) -> Answer:
    return body(b"<html><body>Sign in</body></html>", content_type="text/html")


def broken_line(second: int) -> Answer:
    return body(vllm_page(4, 100 * second) + b'vllm:half_a{line="\n')


def not_a_number(second: int) -> Answer:
    page = vllm_page(5, 100 * second)
    return body(page + b'vllm:kv_cache_usage_perc{engine="0",model_name="m"} NaN\n')


def restarting(second: int) -> Answer:
    return body(vllm_page(6, 100 * second if second < 30 else 100 * (second - 30)))


def late(after: int, script: Script) -> Script:
    """Healthy first, then the fault."""
    return lambda second: healthy(second) if second < after else script(second)


def seen(tmp_path: Path, script: Script, *, every: int = 2, seconds: int = 40) -> FleetSnapshot:
    """The fleet after `seconds` of one healthy replica and one that follows the script."""
    records = []
    for second in range(0, seconds + 1, 2):
        records.append({"t": second, "target": GOOD, "path": "/metrics", **healthy(second)})
        if second % every == 0:
            records.append({"t": second, "target": BAD, "path": "/metrics", **script(second)})
    path = tmp_path / "fault.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return run_replay(path, new_tracker=tracker_of, new_feed=new_feeds())


def on_screen(snapshot: FleetSnapshot, size: tuple[int, int]) -> list[str]:
    """The lines that the snapshot makes on a terminal of this size."""
    found: list[str] = []

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await publish(app, pilot, source, snapshot)
        found.extend(screen_lines(app))

    assert play(story, size=size).failures == []
    return found


def row(lines: list[str], name: str) -> str:
    return next(line for line in lines[3:] if line.lstrip("▸ ").startswith(name))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("script", "state", "why"),
    [
        (refused, "down", "refused"),
        (late(20, refused), "down", "refused"),
        (silent, "down", "timed out|no answer|timeout"),
        (late(20, silent), "down", "timed out|no answer|timeout"),
        (html, "no metric", "HTML|html|engine"),
    ],
)
def test_who_does_not_serve_is_named_with_the_reason_and_the_other_goes_on(
    tmp_path: Path, size: tuple[int, int], script: Script, state: str, why: str
) -> None:
    lines = on_screen(seen(tmp_path, script), size)
    assert "1 needs you: bad" in lines[1]
    bad = row(lines, "bad:8000")
    assert any(word in bad for word in state.split("|")), bad
    text = "\n".join(lines)
    assert any(word in text for word in why.split("|"))
    good = row(lines, "good:8000")
    assert "● ok" in good
    assert " 100 " in good
    fields = bad.split()
    assert "0" not in fields  # what is not known is not 0


@pytest.mark.parametrize("size", SIZES)
def test_a_slow_replica_ages_alone(tmp_path: Path, size: tuple[int, int]) -> None:
    snapshot = seen(tmp_path, healthy, every=6)
    ages = {one.target.url: snapshot.at - (one.scraped_at or 0.0) for one in snapshot.replicas}
    assert ages == {GOOD: 0.0, BAD: 4.0}
    lines = on_screen(snapshot, size)
    for name in ("good:8000", "bad:8000"):
        assert "● ok" in row(lines, name)
        assert " 100 " in row(lines, name)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("script", "running"), [(broken_line, "4"), (not_a_number, "5")])
def test_what_can_be_read_is_read(
    tmp_path: Path, size: tuple[int, int], script: Script, running: str
) -> None:
    lines = on_screen(seen(tmp_path, script), size)
    bad = row(lines, "bad:8000")
    assert "● ok" in bad
    assert running in bad.split()
    assert " 100 " in bad
    assert "needs you" not in lines[1]
    assert "nan" not in "\n".join(lines).lower().replace("tenant", "")


@pytest.mark.parametrize("size", SIZES)
def test_a_counter_that_starts_again_makes_no_negative_rate(tmp_path: Path, size: tuple[int, int]) -> None:
    snapshot = seen(tmp_path, restarting)
    lines = on_screen(snapshot, size)
    assert "restarted" in row(lines, "bad:8000")
    bad = next(one for one in snapshot.replicas if one.target.url == BAD)
    # 2800 tokens up to 28 s, the step over the reset lost but for what came after, 1000 by 40 s
    assert bad.scalar("generation_tokens_per_second").number == pytest.approx(3800 / 40)
    total = snapshot.fleet.signals["generation_tokens_per_second"]
    assert total.number == pytest.approx(100 + 3800 / 40)  # type: ignore[union-attr]


def test_one_replica_on_a_small_terminal_is_all_in_sight(tmp_path: Path) -> None:
    lines = on_screen(fleet([replica("a1")]), (80, 24))
    assert len(lines) == 24
    assert "all 1 ok" in lines[1]
    assert "● ok" in row(lines, "a1")
    assert "? help" in lines[-1]


def test_a_large_fleet_on_a_small_terminal_has_names_and_a_cursor_in_sight() -> None:
    members = [replica(f"cluster-eu-west-1-node-{number:02}.internal:8000") for number in range(64)]

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await publish(app, pilot, source, fleet(members))
        names = [line.split()[0].lstrip("▸") for line in screen_lines(app) if "● ok" in line]
        assert len(names) > 10
        assert len(set(names)) == len(names)
        for keys in (["j"] * 40, ["G"], ["pageup"], ["g"]):
            await pilot.press(*keys)
            await pilot.pause()
            assert row_of_cursor(app)

    assert play(story).failures == []


def test_a_dumb_terminal_gets_no_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, Terminal())
    monkeypatch.setenv("TERM", "xterm")
    assert has_terminal()
    monkeypatch.setenv("TERM", "dumb")
    assert not has_terminal()


def test_fifty_by_fifteen_is_usable(tmp_path: Path) -> None:
    lines = on_screen(seen(tmp_path, refused), (50, 15))
    assert "bad" in lines[1]
    assert "down" in row(lines, "bad:8000")
    assert "● ok" in row(lines, "good:8000")


def test_to_another_size_and_back_is_the_same_picture() -> None:
    members = [replica(f"n{number:02}") for number in range(30)]

    async def story(app: FleetApp, pilot: Pilot[None], source: FakeSource) -> None:
        await publish(app, pilot, source, fleet(members))
        for _ in range(4):
            await pilot.pause()
        before = [line for line in screen_lines(app) if line]
        for size in ((80, 24), (20, 5), (200, 50)):
            await pilot.resize_terminal(*size)
            for _ in range(4):  # what stands under the grid takes its room, then it is painted
                await pilot.pause()
        assert [line for line in screen_lines(app) if line] == before

    assert play(story, size=(200, 50)).failures == []
