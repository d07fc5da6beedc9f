"""Every view of the screen as text and picture, from one fixed recording.

    python -m bench.gallery docs/screens

The recording is made anew each time, from the simulator in virtual time: twelve replicas of three models, of
which one is dead, one slow (its GPUs throttle), one short of KV cache; four have too large a token budget.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from textual.pilot import Pilot

from bench.recording import record
from enginetop.cli import wiring
from enginetop.cli.alerting import alert_book
from enginetop.cli.settings import Settings
from enginetop.fleet.snapshot import FleetSnapshot, Slo
from enginetop.simulator.builtin import SCENARIOS
from enginetop.simulator.scenario import Pool, Scenario
from tui.actions import Place
from tui.app import FleetApp
from tui.export import svg_text

SIZES: tuple[tuple[int, int], ...] = ((80, 24), (200, 50))
PICTURED = (200, 50)
"""The size of which there is a picture too."""

KEYS: Mapping[Place, Sequence[str]] = {
    Place.FLEET: (),
    Place.REPLICA: ("j", "2"),
    Place.BESIDE: ("j", "2", "v"),
    Place.LATENCY: ("3",),
    Place.SPECULATION: ("4",),
    Place.REASONING: ("5",),
    Place.GPU: ("6",),
    Place.ALERTS: ("7",),
    Place.WHY: ("7", "G", "k", "k", "w"),
    Place.HISTORY: ("7", "h"),
    Place.TUNERS: ("8",),
    Place.QUIET: ("8", "enter"),
    Place.SUGGESTION: ("8", "j", "j", "j", "enter"),
    Place.EVENTS: ("9",),
    Place.COMPARE: ("b", "left_curly_bracket", "b", "B"),
    Place.PALETTE: ("ctrl+p",),
    Place.HELP: ("question_mark",),
}
"""What is pressed to come from the fleet to each view."""

WITHOUT_A_RECORDING: Mapping[Place, str] = {
    Place.ANYWHERE: "no view",
    Place.CHANGE: "needs a change under way",
    Place.PAST: "needs an audit",
    Place.CONFIRM: "asks before something is changed",
    Place.WHAT_IF: "answers what is typed",
    Place.RAW: "needs the pages themselves",
    Place.COLUMNS: "chooses the columns of the fleet",
}
"""Places that have no file, and why."""

_INDEX = "README.md"
_SECONDS = 698.0
_PICTURES, _PICTURE_SECONDS = 6, 20.0
_FRAME_SECONDS = 0.15
"""Longer than Textual takes for a frame."""

_SLO = Slo(1.0, 0.08, 0.95, "config")
_LONG_PROMPTS = SCENARIOS["budget-too-large"]
_LONG_PROMPTS_MODEL = "Mistral-Small-24B"
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)


class _Still:
    """A source that tells some pictures at once, and stays with the last one."""

    def __init__(self, snapshots: Sequence[FleetSnapshot]) -> None:
        self._snapshots = snapshots
        self._shown: FleetSnapshot | None = None
        self._listeners: list[Callable[[], None]] = []

    def start(self) -> None:
        """Tell them."""
        for snapshot in self._snapshots:
            self._shown = snapshot
            for listener in self._listeners:
                listener()

    def stop(self) -> None:
        """Nothing runs."""

    def latest(self) -> FleetSnapshot | None:
        """The last one told."""
        return self._shown

    def subscribe(self, on_snapshot: Callable[[], None]) -> Callable[[], None]:
        """Remember a listener."""
        self._listeners.append(on_snapshot)
        return lambda: self._listeners.remove(on_snapshot)

    def finished(self) -> bool:
        """As of a live fleet there would be more."""
        return False

    def request_refresh(self) -> None:
        """There is nothing to ask."""


def _scenario() -> Scenario:
    """Three models: the troubles of the demo, and a pool whose token budget is too large."""
    a, b = (pool.members for pool in SCENARIOS["demo"].pools)
    (too_large,) = _LONG_PROMPTS.pools[0].members
    return Scenario(
        "screens",
        "what the screens are shown with",
        (
            Pool("a", (a[0], a[2], a[4], a[1])),
            Pool("b", (b[0], b[2], b[3], b[5])),
            Pool("c", (too_large.with_engine(model=_LONG_PROMPTS_MODEL),)),
        ),
        _SLO,
    )


def recorded_fleet() -> list[FleetSnapshot]:
    """The end of the fixed recording: a picture now and then of its last minutes, oldest first."""
    slos = ((_LONG_PROMPTS_MODEL, replace(_LONG_PROMPTS.slo, source="config")), ("*", _SLO))
    settings = Settings((), {}, 2.0, 1.8, 60.0, slos)
    book = alert_book(settings)
    kept: list[FleetSnapshot] = []

    def keep(snapshot: FleetSnapshot) -> FleetSnapshot:
        told = book(snapshot)
        if not kept or told.at - kept[-1].at >= _PICTURE_SECONDS:
            kept.append(told)
        return told

    with TemporaryDirectory(prefix="enginetop-screens-") as folder:
        path = Path(folder) / "fleet.jsonl"
        record(path, _scenario(), seconds=_SECONDS)
        last = wiring.replay_to_end(settings, path, keep)
    return [*(one for one in kept[-_PICTURES:] if one.at < last.at), last]


def name_of(place: Place, size: tuple[int, int], ending: str) -> str:
    """The file of a view: `fleet-80x24.txt`."""
    return f"{place.value.replace(' ', '-')}-{size[0]}x{size[1]}.{ending}"


def expected_files() -> set[str]:
    """The names of all files of a complete set."""
    texts = {name_of(place, size, "txt") for place in KEYS for size in SIZES}
    return texts | {name_of(place, PICTURED, "svg") for place in KEYS} | {_INDEX}


def _index() -> str:
    """A page that shows all pictures."""
    parts = [
        "# Screens\n",
        "Written by `make screens` from a recorded simulated fleet; 80x24 as text only.\n",
    ]
    for place in KEYS:
        texts = " · ".join(
            f"[{width}x{height}]({name_of(place, (width, height), 'txt')})" for width, height in SIZES
        )
        parts.append(f"## {place.value.capitalize()}\n\n{texts}\n\n![]({name_of(place, PICTURED, 'svg')})\n")
    return "\n".join(parts)


def write_screens(folder: Path, snapshots: Sequence[FleetSnapshot]) -> None:
    """Write the whole set into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _INDEX).write_text(_index(), encoding="utf-8")
    for place, keys in KEYS.items():
        for size in SIZES:
            text, picture = asyncio.run(_shot(snapshots, keys, size))
            (folder / name_of(place, size, "txt")).write_text(text, encoding="utf-8")
            if size == PICTURED:
                (folder / name_of(place, size, "svg")).write_text(picture, encoding="utf-8")


async def _shot(
    snapshots: Sequence[FleetSnapshot], keys: Sequence[str], size: tuple[int, int]
) -> tuple[str, str]:
    """The screen after these keys, as text and as SVG."""
    app = FleetApp(_Still(snapshots), title="prod-eu", theme="dark", clock=lambda: 100.0)
    async with app.run_test(size=size) as pilot:
        text = await _settled(app, pilot)
        for key in keys:
            await pilot.press(key)
            text = await _settled(app, pilot)
        svg = app.export_screenshot(title="enginetop", simplify=True)
    if app.failures:
        raise SystemExit("\n".join(app.failures))
    return text, _lean(svg)


async def _settled(app: FleetApp, pilot: Pilot[None]) -> str:
    """The text on the screen once it stands still."""
    before, text = "", ""
    while not text.strip() or text != before:
        await pilot.pause(_FRAME_SECONDS)
        before = text
        strips = app.screen._compositor.render_strips()[: app.size.height]
        text = "".join(f"{strip.text.rstrip()}\n" for strip in strips)
    return text


def _lean(svg: str) -> str:
    """Without fonts from elsewhere, and with the same names in every run."""
    svg = _COMMENT.sub("", svg_text(svg))
    svg = re.sub(r"terminal-\d+", "t", svg).replace("Fira Code", "monospace")
    return "".join(f"{line.rstrip()}\n" for line in svg.splitlines() if line.strip())


def main() -> None:
    """Run the command."""
    os.environ["TZ"] = "UTC"
    time.tzset()
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/screens")
    write_screens(folder, recorded_fleet())
    unexpected = {path.name for path in folder.iterdir()} - expected_files()
    for name in sorted(unexpected):
        (folder / name).unlink()


if __name__ == "__main__":
    main()
