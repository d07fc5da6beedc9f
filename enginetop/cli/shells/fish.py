"""Completion for fish: one `complete` a command and option."""

from __future__ import annotations

from collections.abc import Iterator

from enginetop.cli.command_tree import Argument, CommandGrammar


def script(tree: tuple[CommandGrammar, ...]) -> str:
    """The text to source."""
    names = " ".join(grammar.name for grammar in tree if grammar.name)
    head = [
        "# fish completion of enginetop: enginetop completion fish | source",
        f"set -l enginetop_commands {names}",
        "complete -c enginetop -f",
    ]
    return "\n".join([*head, *(line for grammar in tree for line in _lines(grammar))]) + "\n"


def _lines(grammar: CommandGrammar) -> Iterator[str]:
    if grammar.name:
        yield (
            'complete -c enginetop -n "not __fish_seen_subcommand_from $enginetop_commands" '
            f"-a {grammar.name} -d {_quoted(grammar.help)}"
        )
    seen = grammar.name or "$enginetop_commands"
    where = f'-n "{"" if grammar.name else "not "}__fish_seen_subcommand_from {seen}"'
    for option in grammar.options:
        names = " ".join(
            f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.flags
        )
        yield f"complete -c enginetop {where} {names}{_value(option)} -d {_quoted(option.help)}"
    for place in grammar.places:
        if place.words or place.takes_file:
            yield f"complete -c enginetop {where}{_value(place)} -d {_quoted(place.help)}"
    if grammar.takes_command:
        yield f"complete -c enginetop {where} -F"


def _value(argument: Argument) -> str:
    words = f" -a {_quoted(' '.join(argument.words))}" if argument.words else ""
    if not argument.flags:
        return words + (" -F" if argument.takes_file else "")
    if not argument.metavar:
        return ""
    return (" -rF" if argument.takes_file else " -x") + words


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
