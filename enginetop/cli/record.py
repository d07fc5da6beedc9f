"""`enginetop record [TARGET ...] -o FILE`."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from enginetop.cli import exit_codes, wiring
from enginetop.cli.diagnostics import tell
from enginetop.cli.settings import resolve
from enginetop.cli.until_stopped import stop_event

_LOOK_SECONDS = 0.2
"""How soon a disk that went full ends the command."""


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    settings = resolve(args, tell)
    targets = wiring.live_targets(settings)
    path = Path(args.output)
    recorder = wiring.recorder(settings, targets, path, time.time())
    engine = wiring.live_engine(settings, targets, wiring.local_gpus(targets), recorder)
    deadline = time.monotonic() + args.duration if args.duration else float("inf")
    with stop_event() as stopped:
        engine.start()
        what = settings.prometheus.url if settings.prometheus is not None else f"{len(targets)} targets"
        tell(f"recording {what} to {path}; ctrl+c ends it")
        while not recorder.problem and not stopped.wait(min(_LOOK_SECONDS, deadline - time.monotonic())):
            if time.monotonic() >= deadline:
                break
        engine.stop()
        recorder.close()
    if recorder.problem:
        tell(recorder.problem)
        return exit_codes.INTERNAL
    tell(f"{recorder.scrapes} scrapes in {path}")
    return exit_codes.OK
