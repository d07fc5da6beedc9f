"""Completion for bash: one function, which needs no other package of completions."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

from enginetop.cli.command_tree import CommandGrammar

_FUNCTION = """\
# bash completion of enginetop: source <(enginetop completion bash)
_enginetop() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}}
    local command="" words="" files=""
    ((COMP_CWORD > 1)) && command=${{COMP_WORDS[1]}}
    case $command in {names}) ;; *) command="" ;; esac
    # bash takes `--flag=value` and `kind:value` apart
    if [[ $current == = ]]; then
        current=""
    elif [[ $current == : ]]; then
        current="" before=:
    elif [[ $before == = ]]; then
        before=${{COMP_WORDS[COMP_CWORD-2]}}
    fi
    COMPREPLY=()
    if [[ $command == launch && " ${{COMP_WORDS[*]:2:COMP_CWORD-2}} " == *" -- "* ]]; then
        mapfile -t COMPREPLY < <(compgen -c -f -- "$current")
        return
    fi
    case $command:$before in
{values}
        *::) files=1 ;;
        *)
            case $command in
{places}
            esac
            ;;
    esac
    if [[ $words ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
        [[ ${{#COMPREPLY[@]}} == 1 && ${{COMPREPLY[0]}} == *[:=] ]] && compopt -o nospace
    fi
    if [[ $files ]]; then
        compopt -o filenames
        mapfile -t -O ${{#COMPREPLY[@]}} COMPREPLY < <(compgen -f -- "$current")
    fi
}}
complete -F _enginetop enginetop
"""


def script(tree: tuple[CommandGrammar, ...]) -> str:
    """The text to source."""
    names = [grammar.name for grammar in tree if grammar.name]
    return _FUNCTION.format(
        names="|".join(names),
        values="\n".join(line for grammar in tree for line in _values(grammar)),
        places="\n".join(_place(grammar, names) for grammar in tree),
    )


def _values(grammar: CommandGrammar) -> Iterator[str]:
    """What may stand behind each option that takes a value; options alike share a line."""
    alike: dict[str, list[str]] = {}
    for option in grammar.options:
        if option.metavar:
            patterns = [f'"{grammar.name}":{flag}' for flag in option.flags]
            alike.setdefault(_offer(option.words, files=option.takes_file), []).extend(patterns)
    for offer, patterns in alike.items():
        yield f"        {'|'.join(patterns)}) {offer} ;;"


def _place(grammar: CommandGrammar, names: Iterable[str]) -> str:
    """What may stand anywhere else: options after a dash, else values of places; first come the commands."""
    flags = [flag for option in grammar.options for flag in option.flags]
    words = [word for place in grammar.places for word in place.words]
    files = any(place.takes_file for place in grammar.places)
    offer = _offer(words, files=files)
    if not grammar.name:
        offer = f"((COMP_CWORD == 1)) && {_offer(names, files=False)}"
    return (
        f'                "{grammar.name}") if [[ $current == -* ]]; then {_offer(flags, files=False)}; '
        f"else {offer}; fi ;;"
    )


def _offer(words: Iterable[str], *, files: bool) -> str:
    told = " ".join(words)
    parts = ([f"words={shlex.quote(told)}"] if told else []) + (["files=1"] if files else [])
    return " ".join(parts) or ":"
