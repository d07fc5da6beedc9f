"""`enginetop snapshot [TARGET ...]`."""

from __future__ import annotations

import argparse
from pathlib import Path

from enginetop.cli import exit_codes, wiring
from enginetop.cli.diagnostics import tell
from enginetop.cli.live_targets import live_targets, local_gpus
from enginetop.cli.output import print_snapshot
from enginetop.cli.resolve import resolve


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    settings = resolve(args, tell)
    if args.replay:
        snapshot = wiring.replay_to_end(settings, Path(args.replay))
    else:
        targets = live_targets(settings)
        snapshot = wiring.sample(settings, targets, args.samples, local_gpus(targets))
    if snapshot.collector.told:
        tell(snapshot.collector.told)
    print_snapshot(snapshot, args.format, read_only=settings.control is None or bool(args.replay))
    return exit_codes.OK
