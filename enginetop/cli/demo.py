"""`enginetop demo`: the UI on an embedded simulated fleet."""

from __future__ import annotations

import argparse
from dataclasses import replace

from enginetop.cli import exit_codes, ui
from enginetop.cli.diagnostics import tell
from enginetop.cli.output import has_terminal
from enginetop.cli.settings import resolve
from enginetop.cli.sim import simulated_fleet
from enginetop.simulator.builtin import SCENARIOS

_TABLE_INTERVAL_SECONDS = 1.0
"""Without a terminal two scrapes are enough, and nobody wants to wait for them."""


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    if args.list:
        width = max(map(len, SCENARIOS))
        for name, scenario in SCENARIOS.items():
            print(f"{name:<{width}}  {scenario.summary}")
        return exit_codes.OK
    settings = resolve(args, tell)
    if not has_terminal() and not args.interval:
        settings = replace(settings, interval_seconds=_TABLE_INTERVAL_SECONDS)
    with simulated_fleet(args) as fleet:
        return ui.watch(args, settings, fleet.targets(), fleet.gpus, title=f"demo: {fleet.scenario.name}")
