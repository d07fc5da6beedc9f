"""One run: a fleet, a load of known size, and a recording of it by `enginetop record`."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collectors.replay import run_replay
from enginetop.fleet.fleet_tracker import FleetTracker
from enginetop.fleet.model import Target
from enginetop.fleet.snapshot import FleetSnapshot, ReplicaSnapshot, Slo
from tests.dynamo.fleet import Fleet, Worker
from tests.dynamo.load import Served, serve
from tests.support.installing import Environment
from tests.support.small_fleet import new_feeds

AT_ONCE = 64
PROMPT_BYTES = 180
OUTPUT_TOKENS = 80
_INTERVAL = 0.5
_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Run:
    """A fleet that served, what clients saw, and what enginetop recorded from before to after the load."""

    fleet: Fleet
    workers: tuple[Worker, ...]
    served: Served
    recording: Path
    snapshot: FleetSnapshot

    @property
    def gateway(self) -> ReplicaSnapshot:
        """The frontend's row."""
        return self.row(self.fleet.frontend)

    @property
    def rows(self) -> list[ReplicaSnapshot]:
        """The rows of the workers."""
        return [self.row(worker.url) for worker in self.workers]

    def row(self, url: str) -> ReplicaSnapshot:
        """The row of one target at the end of the recording."""
        return next(replica for replica in self.snapshot.replicas if replica.target.url == url)

    def pages(self, url: str) -> list[tuple[float, str]]:
        """The metrics pages of one target in the recording, with the times when they were complete."""
        return [
            (line["t"], line["body"])
            for line in _lines(self.recording)
            if line.get("target") == url and line.get("path") == "/metrics" and line.get("body")
        ]

    def document(self) -> dict[str, Any]:
        """What `enginetop snapshot --replay` prints of the recording, over all of it."""
        words = ("snapshot", "--replay", str(self.recording), "--window", "600", "--format", "json")
        done = subprocess.run(
            [sys.executable, "-m", "enginetop", *words], capture_output=True, text=True, check=True
        )
        document: dict[str, Any] = json.loads(done.stdout)
        return document


@contextlib.contextmanager
def recorded_run(
    here: Environment, folder: Path, *, decode: int, prefill: int, blocks: int, requests: int
) -> Iterator[Run]:
    """Start the fleet, record it while it serves, and keep it running for what else is asked of it."""
    recording = folder / "run.jsonl"
    with Fleet(here, folder / "fleet", decode=decode, prefill=prefill, blocks=blocks) as fleet:
        workers = tuple(fleet.workers())
        urls = [fleet.frontend, *(worker.url for worker in workers)]
        with _recording(urls, recording, folder):
            served = serve(
                fleet.frontend,
                requests,
                at_once=AT_ONCE,
                prompt_bytes=PROMPT_BYTES,
                output_tokens=OUTPUT_TOKENS,
            )
            ended = time.time()
            _wait(lambda: _seen_since(recording, ended + 1.0) >= set(urls))
        yield Run(fleet, workers, served, recording, _replayed(recording))


@contextlib.contextmanager
def _recording(urls: list[str], recording: Path, folder: Path) -> Iterator[None]:
    """`enginetop record` of the targets, from a page of each on."""
    words = ("record", *urls, "-o", str(recording), "--interval", str(_INTERVAL), "--timeout", "5")
    own = {"XDG_CONFIG_HOME": str(folder / "config"), "XDG_STATE_HOME": str(folder / "state")}
    process = subprocess.Popen(
        [sys.executable, "-m", "enginetop", *words],
        env={**os.environ, **own},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait(lambda: _seen_since(recording, 0.0) >= set(urls))
        yield
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(_SECONDS)


def _seen_since(recording: Path, since: float) -> set[str]:
    """Targets with a page at or after a time."""
    return {
        line["target"]
        for line in _lines(recording)
        if line.get("path") == "/metrics" and line.get("body") and line["t"] >= since
    }


def _lines(recording: Path) -> Iterator[dict[str, Any]]:
    if not recording.exists():
        return
    for line in recording.read_text().splitlines():
        if line.endswith("}"):  # the last one may be half written
            yield json.loads(line)


def _replayed(recording: Path) -> FleetSnapshot:
    def tracker(targets: Sequence[Target]) -> FleetTracker:
        return FleetTracker(
            targets,
            interval_seconds=_INTERVAL,
            window_seconds=600.0,
            slo_for=lambda model: Slo(),
            fixed_spacing_seconds=None,
        )

    return run_replay(recording, new_tracker=tracker, new_feed=new_feeds())


def _wait(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + _SECONDS
    while not condition():
        assert time.monotonic() < end, f"not within {_SECONDS:g} s"
        time.sleep(0.2)
