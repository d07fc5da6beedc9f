"""`enginetop sim`: only the simulated fleet, for other tools to look at."""

from __future__ import annotations

import argparse

from enginetop.cli import exit_codes
from enginetop.cli.diagnostics import tell
from enginetop.cli.slo_flag import slo_flag
from enginetop.cli.until_stopped import stop_event
from enginetop.simulator.builtin import DEFAULT_SCENARIO
from enginetop.simulator.scenario_file import find_scenario
from enginetop.simulator.simulated_fleet import SimulatedFleet, serve_until


def simulated_fleet(args: argparse.Namespace) -> SimulatedFleet:
    """The fleet that `--scenario`, `--replicas` and `--seed` name, not started yet."""
    scenario = find_scenario(args.scenario or DEFAULT_SCENARIO)
    return SimulatedFleet(scenario, args.replicas or scenario.replicas, args.seed)


def run(args: argparse.Namespace) -> int:
    """Run the command: one base URL a line, then serve until stopped."""
    fleet = simulated_fleet(args)
    slo = fleet.scenario.slo
    # whoever watches it has an objective of his own unless he is told of the one that the scenario is about
    tell(f"{fleet.scenario.name}: watch it with --slo {slo_flag(slo)}")
    with stop_event() as stopped:
        serve_until(stopped, fleet, lambda url: print(url, flush=True), args.port or 0)
    return exit_codes.OK
