"""`enginetop replay FILE`."""

from __future__ import annotations

import argparse
from pathlib import Path

from enginetop.cli import ui
from enginetop.cli.diagnostics import tell
from enginetop.cli.resolve import resolve


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    return ui.play(args, resolve(args, tell), Path(args.recording), args.speed)
