"""The grammar of the command line as values, for whoever writes completions and the man page from it."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from enginetop.cli.parser import COMMANDS, UI, Command
from enginetop.fleet.frozen import frozen

_FILES = frozenset({"FILE", "F", "PLAN", "FILE[=TARGET]", "NAME|FILE"})
"""Metavars of arguments that are, or start with, the path of a file."""


@frozen
class Argument:
    """An option, or a place when it has no flags.

    `metavar`: the name of its value, empty where an option takes none. `words`: values that are known.
    """

    flags: tuple[str, ...]
    metavar: str
    help: str
    words: tuple[str, ...] = ()
    repeatable: bool = False
    optional: bool = True

    @property
    def takes_file(self) -> bool:
        """Whether the path of a file is a value of it."""
        return self.metavar in _FILES


@frozen
class CommandGrammar:
    """One command with what it takes; the UI's `name` is empty."""

    name: str
    help: str
    options: tuple[Argument, ...]
    places: tuple[Argument, ...]
    takes_command: bool = False


class _Listener(argparse.ArgumentParser):
    """Keeps what it was told to take."""

    def __init__(self) -> None:
        self.heard: list[argparse.Action] = []
        super().__init__()

    def add_argument(self, *names: Any, **settings: Any) -> argparse.Action:
        action = super().add_argument(*names, **settings)
        self.heard.append(action)
        return action


def command_tree(words: Mapping[str, tuple[str, ...]] | None = None) -> tuple[CommandGrammar, ...]:
    """The UI and every command, in the order of the table.

    `words`: known values of arguments by their destination, beside those that the parser itself knows.
    """
    return tuple(_grammar(command, words or {}) for command in (UI, *COMMANDS))


def _grammar(command: Command, words: Mapping[str, tuple[str, ...]]) -> CommandGrammar:
    parser = _Listener()
    if command is UI:
        parser.add_argument("--version", action="version", help="show the version and exit")
    command.add_arguments(parser)
    arguments = [_argument(action, words) for action in parser.heard]
    return CommandGrammar(
        command.name,
        command.help,
        tuple(argument for argument in arguments if argument.flags),
        tuple(argument for argument in arguments if not argument.flags),
        command.takes_command,
    )


def _argument(action: argparse.Action, words: Mapping[str, tuple[str, ...]]) -> Argument:
    choices = tuple(map(str, action.choices or ()))
    metavar = action.metavar if isinstance(action.metavar, str) else f"{{{','.join(choices)}}}"
    return Argument(
        tuple(action.option_strings),
        "" if action.nargs == 0 else metavar,
        action.help or "",
        choices or words.get(action.dest, ()),
        action.nargs in ("*", "+") or type(action).__name__.startswith("_Append"),
        bool(action.option_strings) or action.nargs in ("*", "?"),
    )
