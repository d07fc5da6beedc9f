"""`enginetop record [TARGET ...] -o FILE`."""

from __future__ import annotations

import argparse
import gzip
import os
import shlex
import shutil
import time
from pathlib import Path

from enginetop.cli import exit_codes, wiring
from enginetop.cli.diagnostics import tell
from enginetop.cli.live_targets import live_targets, local_gpus
from enginetop.cli.resolve import resolve
from enginetop.cli.until_stopped import stop_event
from enginetop.fleet.errors import ConfigError

_LOOK_SECONDS = 0.2
"""How soon a disk that went full ends the command."""
_BLOCK_BYTES = 1024 * 1024


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    settings = resolve(args, tell)
    if args.replay:  # a stretch of the past
        return _keep(Path(args.replay), Path(args.output))
    targets = live_targets(settings)
    path = Path(args.output)
    known = targets
    if settings.prometheus is not None:  # it tells who they are: a recording begins with their names
        known = tuple(replica.target for replica in wiring.sample(settings, (), 1, None).replicas)
    recorder = wiring.recorder(settings, known, path, time.time())
    engine = wiring.live_engine(settings, targets, local_gpus(targets), recorder)
    deadline = time.monotonic() + args.duration if args.duration else float("inf")
    with stop_event() as stopped:
        engine.start()
        tell(f"recording {settings.watched(len(targets))} to {path}; ctrl+c ends it")
        while not recorder.problem and not stopped.wait(min(_LOOK_SECONDS, deadline - time.monotonic())):
            if time.monotonic() >= deadline:
                break
        engine.stop()
        recorder.close()
    if recorder.problem:
        tell(recorder.problem)
        return exit_codes.INTERNAL
    tell(f"{recorder.scrapes} scrape{'s' * (recorder.scrapes != 1)} in {path}: {_replaying(path)}")
    return exit_codes.OK


def _replaying(recording: Path) -> str:
    return shlex.join(("enginetop", "replay", str(recording)))


def _keep(past: Path, output: Path) -> int:
    """The past of a Prometheus, which is a recording already, under the name that was asked for."""
    try:
        # as `Recorder` does: a new file is for its owner alone
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with past.open("rb") as source, os.fdopen(descriptor, "wb") as raw:
            packed = gzip.GzipFile(fileobj=raw, mode="wb") if output.name.endswith(".gz") else raw
            with packed as kept:
                shutil.copyfileobj(source, kept, _BLOCK_BYTES)
    except OSError as error:
        raise ConfigError(f"{output}: {error.strerror}; name a file that can be written with -o") from error
    tell(f"kept in {output}: {_replaying(output)}")
    return exit_codes.OK
