"""What drawing costs: `python -m bench.screen [--json]`.

CPU of one paint (a new snapshot, laid out and rendered) at 64, 256 and 1000 replicas with every row changed;
bytes that a terminal of 200x50 receives per snapshot at 0, 10 and 100 % changed rows, measured through a
pseudo-terminal; CPU from the start of the process to the first picture.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import gc
import json
import os
import pty
import select
import signal
import statistics
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from enginetop.fleet.model import EngineKind, Quality, ReplicaState, Role, Target
from enginetop.fleet.signals import DISTRIBUTIONS, SCALARS
from enginetop.fleet.snapshot import (
    Distribution,
    FleetSnapshot,
    FleetSummary,
    Quantile,
    ReplicaSnapshot,
    Scalar,
    SignalValue,
    Slo,
)

AT = 1_764_446_400.0
WIDTH, HEIGHT = 200, 50
SYNC_QUERY, SYNC_ANSWER = b"\x1b[?2026$p", b"\x1b[?2026;2$y"


def _signals(seed: int) -> dict[str, SignalValue]:
    signals: dict[str, SignalValue] = {
        row.name: Scalar(float(1 + (seed * 7 + number) % 97), row.unit, Quality.OK)
        for number, row in enumerate(SCALARS)
    }
    signals["kv_usage_ratio"] = Scalar((seed * 13 % 90) / 100, "ratio", Quality.OK)
    signals["preemptions_per_second"] = Scalar(0.0, "1/s", Quality.OK)
    for number, row in enumerate(DISTRIBUTIONS):
        value = 0.001 * (1 + (seed * 11 + number) % 89)
        point = Quantile(value, value, value)
        quantiles = {"p50": point, "p90": point, "p95": point, "p99": point}
        signals[row.name] = Distribution(100, 1.0, point, quantiles, row.unit, Quality.OK)
    return signals


def _replica(number: int, seed: int) -> ReplicaSnapshot:
    times = tuple(AT - 2.0 * step for step in range(150, 0, -1))
    wave = tuple(((number * 3 + step) % 50) / 50 for step in range(150))
    return ReplicaSnapshot(
        target=Target(f"http://10.0.{number // 250}.{number % 250}:8000", f"n{number:04}"),
        engine=EngineKind.VLLM,
        engine_version="0.33.0",
        stack=None,
        model=f"model-{number % 4}",
        role=Role.DECODE,
        state=ReplicaState.OK,
        since=AT - 900,
        reasons=(),
        scraped_at=AT,
        scrape_seconds=0.01,
        bad_lines=0,
        signals=_signals(seed),
        ranks=(),
        config={},
        events=(),
        gpus=(),
        advice=(),
        slo=Slo(),
        trends={"kv_usage_ratio": wave, "generation_tokens_per_second": wave},
        trend_times=times,
    )


def fleet(
    replicas: Sequence[ReplicaSnapshot], sequence: int, totals: dict[str, SignalValue]
) -> FleetSnapshot:
    """A snapshot of these replicas; its time stands still, so that only what changed is drawn."""
    summary = FleetSummary(len(replicas), {ReplicaState.OK: len(replicas)}, totals, Slo())
    return FleetSnapshot(AT, sequence, 2.0, 60.0, summary, tuple(replicas))


class Churn:
    """A source whose next snapshot changes a share of the replicas."""

    def __init__(self, count: int, share: float) -> None:
        self._replicas = [_replica(number, number) for number in range(count)]
        self._totals = _signals(1)
        self._share = share
        self._sequence = 0
        self._listeners: list[Callable[[], None]] = []
        self._snapshot: FleetSnapshot | None = None

    def start(self) -> None:
        """The first snapshot."""
        self.step()

    def stop(self) -> None:
        """Nothing to release."""

    def latest(self) -> FleetSnapshot | None:
        """The newest snapshot."""
        return self._snapshot

    def subscribe(self, on_snapshot: Callable[[], None]) -> Callable[[], None]:
        """Remember who is told."""
        self._listeners.append(on_snapshot)
        return lambda: self._listeners.remove(on_snapshot)

    def finished(self) -> bool:
        return False

    def request_refresh(self) -> None:
        """Another snapshot."""
        self.step()

    def step(self) -> None:
        """Make the next snapshot and tell everybody."""
        self.prepare()
        for listener in list(self._listeners):
            listener()

    def prepare(self) -> None:
        """Make the next snapshot: the share of the replicas, evenly spread, is changed."""
        self._sequence += 1
        if self._share:
            every = round(1 / self._share)
            for number in range(self._sequence % every, len(self._replicas), every):
                seed = number + 31 * self._sequence
                self._replicas[number] = replace(self._replicas[number], signals=_signals(seed))
        self._snapshot = fleet(self._replicas, self._sequence, self._totals)


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

    from tui.app import run_app

    source = Churn(count, share)

    def tick() -> None:
        while True:
            time.sleep(1 / hertz)
            source.step()

    threading.Thread(target=tick, daemon=True).start()
    run_app(source, mouse=False)


def _terminal(command: Sequence[str], seconds: float, settle: float) -> tuple[int, float, float]:
    """Bytes received in `seconds` after `settle`, CPU and wall seconds up to the first picture."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    environ = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}
    environ.pop("NO_COLOR", None)
    began = time.monotonic()
    child = subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, env=environ)
    os.close(follower)
    received = bytearray()
    counted = 0
    first_cpu = first_wall = 0.0
    while (elapsed := time.monotonic() - began) < settle + seconds:
        ready, _, _ = select.select([leader], [], [], 0.2)
        if not ready:
            continue
        try:
            block = os.read(leader, 1 << 16)
        except OSError:
            break
        if SYNC_QUERY in block:
            os.write(leader, SYNC_ANSWER)
        if elapsed > settle:
            counted += len(block)
        if not first_wall:
            received += block
            if b"enginetop" in received:
                first_wall, first_cpu = time.monotonic() - began, _cpu_seconds(child.pid)
    child.send_signal(signal.SIGKILL)
    child.wait()
    os.close(leader)
    return counted, first_cpu, first_wall


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(seconds: float) -> dict[str, float]:
    """All figures, units in the names."""
    figures: dict[str, float] = {}
    for count in (64, 256, 1000):
        least, median = paint_cpu_ms(count)
        figures[f"paint_{count}_rows_cpu_ms_min"] = round(least, 1)
        figures[f"paint_{count}_rows_cpu_ms_median"] = round(median, 1)
    for percent in (0, 10, 100):
        command = [sys.executable, "-m", "bench.screen", "--child", "256", str(percent / 100), "1.0"]
        counted, first_cpu, first_wall = _terminal(command, seconds, settle=6.0)
        figures[f"churn_{percent}_percent_bytes_per_second"] = round(counted / seconds, 1)
        figures["first_paint_cpu_ms"] = round(first_cpu * 1000)
        figures["first_paint_wall_ms"] = round(first_wall * 1000)
    return figures


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each terminal is listened to")
    parser.add_argument("--child", nargs=3, metavar=("ROWS", "SHARE", "HERTZ"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        _child(int(arguments.child[0]), float(arguments.child[1]), float(arguments.child[2]))
        return 0
    figures = measure(arguments.seconds)
    if arguments.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:<40} {value}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
