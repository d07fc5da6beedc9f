"""Completion for zsh: `_arguments` for each command."""

from __future__ import annotations

import re
from collections.abc import Iterator

from enginetop.cli.command_tree import Argument, CommandGrammar

_FUNCTION = """\
#compdef enginetop
# zsh completion of enginetop: a file `_enginetop` in $fpath, or source <(enginetop completion zsh)
_enginetop() {{
    local -a commands=(
{commands}
    )
    if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then
        _describe -t commands command commands
        return
    fi
    case $words[2] in
{cases}
    esac
}}
if [[ ${{funcstack[1]}} == _enginetop ]]; then
    _enginetop "$@"
else
    compdef _enginetop enginetop
fi
"""


def script(tree: tuple[CommandGrammar, ...]) -> str:
    """The text of the file."""
    ui, *commands = tree
    named = (_quoted(f"{one.name}:{one.help}") for one in commands)
    cases = [*(case for one in commands for case in _case(one)), *_case(ui)]
    return _FUNCTION.format(commands="\n".join(f"        {one}" for one in named), cases="\n".join(cases))


def _case(grammar: CommandGrammar) -> Iterator[str]:
    if grammar.name:
        yield f"        {grammar.name})"
        yield "            shift words"
        yield "            (( CURRENT-- ))"
    else:
        yield "        *)"
    yield "            _arguments -S \\"
    for option in grammar.options:
        yield f"                {_option(option)} \\"
    for place in grammar.places:
        yield f"                {_place(place)} \\"
    end = "'*::command:_normal'" if grammar.takes_command else ""
    yield f"                {end}" if end else "                && return"
    yield "            ;;"


def _option(option: Argument) -> str:
    said = re.sub(r"([\[\]:\\])", r"\\\1", option.help)
    value = f":{_escaped(option.metavar)}:{_action(option)}" if option.metavar else ""
    if len(option.flags) == 1 or option.repeatable:
        star = "*" if option.repeatable else ""
        return " ".join(_quoted(f"{star}{flag}[{said}]{value}") for flag in option.flags)
    others = _quoted(f"({' '.join(option.flags)})")
    return f"{others}{{{','.join(option.flags)}}}{_quoted(f'[{said}]{value}')}"


def _place(place: Argument) -> str:
    # without `()`, nothing at all, zsh would only show what a place is for, and complete no option beside it
    start = "*:" if place.repeatable else "::" if place.optional else ":"
    return _quoted(f"{start}{_escaped(place.metavar)}:{_action(place) or '()'}")


def _action(argument: Argument) -> str:
    words = " ".join(_escaped(word) for word in argument.words)
    if argument.takes_file:
        return f"{{_alternative 'words:word:({words})' 'files:file:_files'}}" if words else "_files"
    return f"({words})" if words else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace(":", "\\:")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
