"""Kill a controller at every point where it stores, audits or asks, and start another: run as a program.

    python -m tests.support.crash_run FOLDER KIND

One first life is led to its end; what a crash would leave is copied at each of its points. Each life that
follows is a process of its own, ended by SIGKILL; the engines outlive it in a file. One JSON line a crash
point goes to stdout: the point, the state at the crash, the final state, the values, and whether the audit is
intact. The last line is the story of the life that nobody ended.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from enginetop.fleet.change import AuditRow
from tests.support.control_runs import gain, loss
from tests.support.virtual_fleet import VERSION, Engine, VirtualFleet, plan_for, three
from tuners.control.driver import drive, run_change
from tuners.control.knob_api import HttpKnobClient
from tuners.control.progress import Progress
from tuners.control.recovery import progress_document, resume_to_undo
from tuners.control.settings import ControlSettings
from tuners.control.store import ChangeStore

BRIEF = ControlSettings(
    warmup_seconds=20.0, blocks=8, block_seconds=30.0, ttl_seconds=60.0, soak_seconds=20.0, baselines=2
)
KINDS: dict[str, dict[str, Any]] = {
    "gain": {"attainment": gain},
    "loss": {"attainment": loss},
    "trickle": {"attainment": gain, "rate": 0.05},
}


class Killer:
    """Called where the process may die. `die` is called at the `point`-th time, the engines written to their
    file; with point 0 never, with None each time.
    """

    def __init__(self, point: int | None, die: Callable[[], None]) -> None:
        self._point = point
        self._die = die
        self._calls = 0
        self.keep_engines: Callable[[], None] = lambda: None

    def __call__(self) -> None:
        self._calls += 1
        if self._point is None or self._calls == self._point:
            self.keep_engines()
            self._die()


def _end() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class KilledStore(ChangeStore):
    """A store at which the process may die: before, between and after its writes."""

    def __init__(self, folder: Path, killer: Killer) -> None:
        super().__init__(folder)
        self._killer = killer

    def save(self, progress: Progress) -> None:
        """See `ChangeStore`."""
        if self._saved.get(progress.plan.id) != progress_document(progress):
            self._killer()
        super().save(progress)

    def append(self, rows: Sequence[AuditRow]) -> None:
        """See `ChangeStore`."""
        if rows:
            self._killer()
        super().append(rows)
        if rows:
            self._killer()


class LastingFleet(VirtualFleet):
    """Engines in a file, so that they outlive the controller."""

    def __init__(self, engines: list[Engine], file: Path, killer: Killer) -> None:
        super().__init__(engines)
        self._file = file
        self._killer = killer
        killer.keep_engines = self.keep

    def client(self, target: str) -> HttpKnobClient | None:
        """See `World`; the process may die before a write, or with its answer."""
        fleet = self

        class Wire:
            def request(self, method: str, path: str, body: bytes | None = None) -> Any:
                if method == "GET":
                    return fleet.engines[target].handle(fleet.time, method, path, body)
                fleet._killer()
                answer = fleet.engines[target].handle(fleet.time, method, path, body)
                fleet._killer()
                return answer

        return HttpKnobClient(Wire())

    def keep(self) -> None:
        """Write the engines down."""
        kept = {
            url: [engine.value, engine.version, engine.expires_at, engine.former, engine.instance]
            for url, engine in self.engines.items()
        }
        self._file.write_text(json.dumps([self.time, kept]))

    def remember(self) -> None:
        """Take the engines up as they were left."""
        self.time, kept = json.loads(self._file.read_text())
        for url, (value, version, expires_at, former, instance) in kept.items():
            engine = self.engines[url]
            engine.value, engine.version, engine.expires_at = value, version, expires_at
            engine.former, engine.instance = former, instance


def first_life(folder: Path, kind: str, at_point: Callable[[], None]) -> None:
    """Carry the plan out. `at_point` is called wherever it could die; what it would leave is in `folder`."""
    killer = Killer(None, at_point)
    fleet = LastingFleet(list(three(**KINDS[kind]).engines.values()), folder / "engines.json", killer)
    run_change(
        plan_for(fleet),
        fleet,
        settings=BRIEF,
        tool_version=VERSION,
        approved_by="a test",
        journal=KilledStore(folder / "state", killer),
    )
    fleet.keep()


def next_life(folder: Path, kind: str, point: int, pause_seconds: float) -> None:
    """Undo what was left, after a pause, until death or the end."""
    killer = Killer(point, _end)
    file = folder / "engines.json"
    fleet = LastingFleet(list(three(**KINDS[kind]).engines.values()), file, killer)
    fleet.remember()
    fleet.tick = pause_seconds
    fleet.advance()
    fleet.tick = 10.0
    store = KilledStore(folder / "state", killer)
    for change in store.unfinished():
        progress = resume_to_undo(
            store.load(change), now=fleet.time, why="it was killed", settings=BRIEF, tool_version=VERSION
        )
        drive(progress, fleet, journal=store)
    fleet.keep()


def outcome(folder: Path) -> dict[str, Any]:
    """What is left at the end."""
    store = ChangeStore(folder / "state")
    _, kept = json.loads((folder / "engines.json").read_text())
    ids = store.ids()
    rows = store.audit.rows()
    return {
        "state": store.load(ids[0])["state"] if ids else None,
        "audited": rows[-1].state.value if rows else None,
        "values": [[value, expires] for value, _, expires, _, _ in kept.values()],
        "audit": store.audit.verify().problem,
    }


def _later_lives(folder: Path, kind: str, point: int) -> dict[str, Any]:
    """The story after a crash: a second one early in the recovery, and a recovery."""
    at_crash = outcome(folder)["state"]
    pause = (1.0, BRIEF.ttl_seconds + 1.0)[point % 2]
    if _in_child(lambda: next_life(folder, kind, 1 + point % 5, pause)):
        _in_child(lambda: next_life(folder, kind, 0, 1.0))
    return {"point": point, "died": True, "at_crash": at_crash, **outcome(folder)}


def _in_child(life: Any) -> bool:
    """Run in a child; whether it was killed."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            life()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0:
        raise SystemExit("a life ended by itself, with an error")
    return os.WIFSIGNALED(status)


def main() -> None:
    """Every point, then the change that ended by itself."""
    os.fsync = lambda fd: None  # a killed process loses nothing that it wrote; the disk is not what is tested
    base, kind = Path(sys.argv[1]), sys.argv[2]
    whole = base / kind
    whole.mkdir()
    crashed: list[Path] = []

    def crash() -> None:
        crashed.append(shutil.copytree(whole, base / f"{kind}-{len(crashed) + 1}"))

    first_life(whole, kind, crash)
    for point, folder in enumerate(crashed, 1):
        print(json.dumps(_later_lives(folder, kind, point)))
    print(json.dumps({"point": len(crashed) + 1, "died": False, "at_crash": None, **outcome(whole)}))


if __name__ == "__main__":
    main()
