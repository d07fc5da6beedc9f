"""`enginetop demo`: the UI on an embedded simulated fleet."""

from __future__ import annotations

import argparse
from dataclasses import replace

from enginetop.cli import exit_codes, ui
from enginetop.cli.diagnostics import tell
from enginetop.cli.output import has_terminal
from enginetop.cli.resolve import resolve
from enginetop.cli.settings import Settings
from enginetop.cli.sim import simulated_fleet
from enginetop.cli.until_stopped import passing_folder
from enginetop.fleet.snapshot import Slo
from enginetop.simulator.builtin import SCENARIOS
from tuners.control.settings import ControlSettings

_CONTROL = ControlSettings(warmup_seconds=30.0, blocks=30, block_seconds=8.0, soak_seconds=10.0)
"""Nobody loses by a hasty verdict on a simulated fleet: one in four and a half minutes."""

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
    with simulated_fleet(args) as fleet, passing_folder("enginetop-demo-") as state:
        return ui.watch(
            args,
            for_demo(settings, fleet.scenario.slo),
            fleet.targets(),
            fleet.gpus,
            title=f"demo: {fleet.scenario.name}",
            state_folder=state,
        )


def for_demo(settings: Settings, slo: Slo) -> Settings:
    """The scenario's objective, and a controller with little patience, unless they are configured."""
    stated = slo if slo == Slo() else replace(slo, source="config")  # by its scenario, where not the default
    slos = settings.slos or (("*", stated),)
    return replace(settings, slos=slos, control=settings.control or _CONTROL, discovery=())
