"""What drawing costs: `python -m bench.screen [--json] [--check]`.

CPU of one paint (a new snapshot, laid out and rendered) at 64, 256 and 1000 replicas with every row changed;
and, through a pseudo-terminal of 200x50: CPU and time up to the first picture, bytes of a full frame, bytes a
second at 0, 10 and 100 % changed rows, and the time from a key to its paint. `--check` holds them against the
budgets of `BUDGETS`.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import sys
import time

from bench.figures import spread, tell
from bench.screen_fleet import Churn
from bench.screen_terminal import HEIGHT, WIDTH, Terminal

BUDGETS = {
    "paint_1000_rows_cpu_ms_min": 20.0,
    "key_to_paint_ms_p99": 50.0,
    "full_frame_bytes": 16_000.0,
    "resize_bytes": 17_000.0,
    "churn_0_percent_bytes_per_second": 0.0,
    "churn_10_percent_bytes_per_second": 5_000.0,
}
"""The most that each figure may be. Of CPU the least of all rounds counts: other programs are not ours."""

_SETTLE_SECONDS = 4.0
_LOST_SECONDS = 2.0


def paint_cpu_ms(count: int, rounds: int = 25) -> tuple[float, float]:
    """Least and median CPU milliseconds from a new snapshot of `count` replicas to the bytes of its frame.

    Every row is changed. Textual's test driver writes nothing, so the frame is turned into bytes here.
    """
    from textual._compositor import CompositorUpdate
    from textual.screen import Screen

    from tui.app import FleetApp

    source = Churn(count, 1.0)
    now = began = 0.0
    app = FleetApp(source, clock=lambda: now)
    costs: list[float] = []
    frame: list[float] = []

    def display(_screen: Screen[object], update: object) -> None:
        if isinstance(update, CompositorUpdate):
            update.render_segments(app.console)
            frame.append((time.process_time() - began) * 1000)

    async def run() -> None:
        nonlocal now, began
        async with app.run_test(size=(WIDTH, HEIGHT)) as pilot:
            await pilot.pause()
            setattr(app, "_display", display)  # noqa: B010 - Textual's own method, for this bench only
            for _ in range(rounds):
                now += 1.0
                former = source.latest()
                source.prepare()
                gc.collect()
                frame.clear()
                began = time.process_time()
                app.post_message(app.Ready())
                while not frame:
                    await pilot.pause()
                costs.append(frame[-1])
                del former  # held so long, for giving back a thousand replicas is not drawing

    asyncio.run(run())
    return min(costs), statistics.median(costs)


def _child(count: int, share: float, hertz: float) -> None:
    """The process on the far side of the pseudo-terminal."""
    import threading

    from tui.run import run_app

    source = Churn(count, share)

    def tick() -> None:
        while True:
            time.sleep(1 / hertz)
            source.step()

    if hertz:
        threading.Thread(target=tick, daemon=True).start()
    run_app(source, mouse=False)


def _command(count: int, share: float, hertz: float) -> list[str]:
    return [sys.executable, "-m", "bench.screen", "--child", str(count), str(share), str(hertz)]


def churn_bytes_per_second(percent: int, seconds: float) -> float:
    """Bytes a second for 256 replicas of which `percent` change once a second."""
    with Terminal(_command(256, percent / 100, 1.0)) as terminal:
        terminal.wait_for(b"need you")
        terminal.read_for(_SETTLE_SECONDS)
        return terminal.read_for(seconds) / seconds


def first_paint() -> tuple[float, float]:
    """CPU and wall milliseconds from the start of the process to the first picture."""
    with Terminal(_command(64, 0.0, 0.0)) as terminal:
        wall = terminal.wait_for(b"enginetop")
        return terminal.cpu_seconds() * 1000, wall * 1000


def resize_bytes() -> tuple[float, float]:
    """After a change of size, 1000 replicas below the screen: bytes of the largest frame, and of all."""
    with Terminal(_command(1000, 0.0, 0.0)) as terminal:
        terminal.wait_for(b"need you")
        terminal.read_for(1.0)
        terminal.resize(WIDTH - 1, HEIGHT)
        terminal.read_for(2.0)
        terminal.resize(WIDTH, HEIGHT)
        frames = terminal.frames_for(2.0)
        return float(max(frames)), float(sum(frames))


def key_to_paint_seconds(keys: int) -> list[float]:
    """The times from keys that move the cursor to the first byte of their paint.

    A fleet of 1000 replicas of which a tenth change each second; a frame that was under way is waited for. A
    key that nothing follows counts with `_LOST_SECONDS`.
    """
    times = []
    with Terminal(_command(1000, 0.1, 1.0)) as terminal:
        terminal.wait_for(b"need you")
        terminal.read_for(_SETTLE_SECONDS)
        for number in range(keys):
            terminal.read_until_quiet()
            terminal.press(b"j" if number % 40 < 20 else b"k")
            began = time.monotonic()
            terminal.read(_LOST_SECONDS)
            times.append(time.monotonic() - began)
    return times


def measure(seconds: float, keys: int) -> dict[str, float]:
    """All figures, units in the names."""
    figures: dict[str, float] = {}
    for count in (64, 256, 1000):
        least, median = paint_cpu_ms(count)
        figures[f"paint_{count}_rows_cpu_ms_min"] = round(least, 1)
        figures[f"paint_{count}_rows_cpu_ms_median"] = round(median, 1)
    cpu, wall = first_paint()
    figures["first_paint_cpu_ms"], figures["first_paint_wall_ms"] = round(cpu), round(wall)
    figures["full_frame_bytes"], figures["resize_bytes"] = resize_bytes()
    for percent in (0, 10, 100):
        rate = churn_bytes_per_second(percent, seconds)
        figures[f"churn_{percent}_percent_bytes_per_second"] = round(rate, 1)
    return figures | spread("key_to_paint", key_to_paint_seconds(keys))


def over_budget(figures: dict[str, float]) -> list[str]:
    """One line for each figure that is more than its budget."""
    return [
        f"{name} is {figures[name]:g}, at most {limit:g} are allowed"
        for name, limit in BUDGETS.items()
        if figures[name] > limit
    ]


def main() -> int:
    """Print the figures; with `--check` 1 when one is over its budget."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--check", action="store_true", help="fail when a figure is over its budget")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each terminal is listened to")
    parser.add_argument("--keys", type=int, default=200, help="how many keys are timed")
    parser.add_argument("--child", nargs=3, metavar=("ROWS", "SHARE", "HERTZ"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        _child(int(arguments.child[0]), float(arguments.child[1]), float(arguments.child[2]))
        return 0
    figures = measure(arguments.seconds, arguments.keys)
    tell(figures, as_json=arguments.json)
    failed = over_budget(figures) if arguments.check else []
    for line in failed:
        print(f"over budget: {line}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
