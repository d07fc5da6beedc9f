"""`enginetop completion SHELL`: completions for a shell, written from the parser."""

from __future__ import annotations

import argparse
import importlib

from enginetop.alerts.builtin import BUILTIN_NAMES
from enginetop.cli import exit_codes
from enginetop.cli.command_tree import command_tree
from enginetop.cli.discovering import KINDS
from enginetop.fleet.signals import KNOBS
from enginetop.simulator.builtin import SCENARIOS
from themes.loader import theme_names


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    print(completion(args.shell), end="")
    return exit_codes.OK


def completion(shell: str) -> str:
    """The script of a shell: `bash`, `zsh` or `fish`."""
    words = {
        "scenario": tuple(SCENARIOS),
        "theme": theme_names(),
        "rule": BUILTIN_NAMES,
        "discover": tuple(kind if kind == "local" else f"{kind}:" for kind in KINDS),
        "what_if": tuple(f"{knob}=" for knob in KNOBS),
    }
    script: str = importlib.import_module(f"enginetop.cli.shells.{shell}").script(command_tree(words))
    return script
