"""The app on a terminal of its own, for tests of the link: `python -m tests.support.pty_app STATUS_FILE`.

The status file, replaced as a whole, tells what a test cannot see from outside: how often the source ticked,
how often the event loop turned, the size, and what waits to be written.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

from enginetop.fleet.snapshot import FleetSnapshot
from tests.tui.snapshots import AT, FakeSource, fleet, replica
from tui.app import FleetApp
from tui.patient_driver import PatientDriver
from tui.run import run_app


def snapshot(tick: int) -> FleetSnapshot:
    """Sixty replicas of which every figure is another one at each tick."""
    members = [
        replica(
            f"n{number:02}", changes={"requests_running": (tick * 7 + number) % 97, "kv_usage_ratio": 0.5}
        )
        for number in range(60)
    ]
    return fleet(members, at=AT + tick, sequence=tick)


class Ticking(FakeSource):
    """A source with a thread of its own, as the real ones have."""

    ticks = 0

    def start(self) -> None:
        """Tick twenty times a second until it is stopped."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(0.05):
            self.ticks += 1
            self.publish(snapshot(self.ticks))

    def stop(self) -> None:
        """End the thread."""
        self._over.set()
        self._thread.join()


def main(status: Path) -> int:
    """Run the app; the exit code is its own."""
    source = Ticking()
    turns = 0
    mounted = FleetApp.on_mount

    def on_mount(app: FleetApp) -> None:
        mounted(app)

        def turn() -> None:
            nonlocal turns
            turns += 1
            driver = app._driver
            pending = driver.outlet.pending if isinstance(driver, PatientDriver) else 0
            said = {"ticks": source.ticks, "turns": turns, "size": list(app.size), "pending": pending}
            new = status.with_suffix(".new")
            new.write_text(json.dumps(said), encoding="utf-8")
            new.replace(status)

        app.set_interval(0.05, turn)

    FleetApp.on_mount = on_mount  # type: ignore[method-assign, assignment]
    return run_app(source, mouse=False)


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
