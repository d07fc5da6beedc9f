"""`docs/man/enginetop.1` from the parser: `python -m enginetop.docs_man FILE` writes it.

A test holds the file against the parser, so that it cannot name an option that is not there.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from enginetop import __version__
from enginetop.cli.command_tree import Argument, CommandGrammar, command_tree

_SHARED_BY = 4
"""An option that so many commands take with the same words is told once."""

_DESCRIPTION = """\
Watches live LLM inference fleets: vLLM, SGLang, TensorRT-LLM, Triton, Dynamo, llama.cpp, TGI, LMDeploy and
their gateways. Without a COMMAND it is a terminal UI on the TARGETs, those of the config file, or the engines
that listen on this machine; without a terminal it prints one table. It is read-only unless the config file
has a [control] table. A TARGET is http(s)://host:port[/path], host:port or ssh://host/127.0.0.1:8000."""
EXIT_CODES = (
    (
        "0",
        """\
Done. Of check: all is well. Of doctor: nothing is wrong. Of rollback: undone. Launch exits with the engine's
own code where that ended by itself.""",
    ),
    (
        "1",
        """\
It broke, and the reason is one line on stderr. Of check: a warning fires. Of doctor: warnings. Of probe: no
request was answered. Of record: the recording ended early. Of watch: not all lines could be written.""",
    ),
    (
        "2",
        """\
The command line, the config file, a recording or a name cannot be used; a plan that does not fit or that
nobody approved. Of check: something critical fires. Of doctor: something is wrong. Of audit: it is not
intact.""",
    ),
    (
        "3",
        """\
Of check: unknown, also where its command line, its config file or its targets cannot be used, and where it
broke. Of tune --plan: there is nothing to propose. Of apply: inconclusive, and the value went back.""",
    ),
    ("4", "Of apply: rolled back."),
    ("5", "Of apply and rollback: a value may still be in force; stderr says what to do by hand."),
    ("130", "Ended by ctrl+c."),
)
"""Every code with what it means; a test holds `docs/recipes.md` against it."""
_FILES = (
    ("$XDG_CONFIG_HOME/enginetop/config.toml", "The config file (~/.config where that variable is not set)."),
    ("$XDG_CONFIG_HOME/enginetop/themes/", "Themes of your own."),
    (
        "$XDG_STATE_HOME/enginetop/",
        """\
Silences, alerts that are to be told, changes and their audit (~/.local/state where that variable is not set).
While a file kill-switch is there, every change is refused.""",
    ),
)
_ENVIRONMENT = (
    ("NO_COLOR", "Draw without colours."),
    ("COLORTERM, TERM", "What the terminal can draw; with TERM=dumb a table is printed."),
    ("KUBECONFIG", "Files of Kubernetes contexts, for --kubernetes."),
    ("HTTP_PROXY, HTTPS_PROXY, NO_PROXY", "The proxy that targets are asked through."),
    ("ENGINETOP_TRACEBACK", "Show where a fault of enginetop itself is."),
)


def page(tree: tuple[CommandGrammar, ...] | None = None) -> str:
    """The whole text of the man page."""
    ui, *commands = tree or command_tree()
    told = Counter(option for one in (ui, *commands) for option in one.options)
    shared = [option for option, times in told.items() if times >= _SHARED_BY]
    lines = [
        f'.TH ENGINETOP 1 "" "enginetop {__version__}" "User Commands"',
        ".SH NAME",
        "enginetop \\- watch and tune live LLM inference fleets",
        ".SH SYNOPSIS",
        ".B enginetop",
        "[\\fIOPTION\\fR ...] [\\fITARGET\\fR ...]",
        ".br",
        ".B enginetop",
        "\\fICOMMAND\\fR [\\fIOPTION\\fR ...] [\\fIARGUMENT\\fR ...]",
        ".SH DESCRIPTION",
        _text(_DESCRIPTION),
        ".SH OPTIONS",
        "Of the terminal UI, beside the common ones:",
        *_options(option for option in ui.options if option not in shared),
        ".SH COMMANDS",
        *(line for one in commands for line in _command(one, shared)),
        ".SH COMMON OPTIONS",
        "Of the terminal UI and of every command that names them.",
        *_options(shared),
        ".SH EXIT STATUS",
        *_list(EXIT_CODES),
        ".SH FILES",
        *_list(_FILES),
        ".SH ENVIRONMENT",
        *_list(_ENVIRONMENT),
        ".SH SEE ALSO",
        "README.md of the project, and the documents that docs/README.md lists.",
    ]
    return "\n".join(lines) + "\n"


def _command(grammar: CommandGrammar, shared: Iterable[Argument]) -> Iterator[str]:
    places = " ".join(map(_place, grammar.places))
    yield f".SS enginetop {grammar.name} {places}".rstrip()
    yield _text(f"{grammar.help[0].upper()}{grammar.help[1:]}.")
    yield from _options(option for option in grammar.options if option not in shared)
    common = [option.flags[-1] for option in grammar.options if option in shared]
    if common:
        yield ".PP"
        yield _text(f"Common: {', '.join(common)}.")


def _place(place: Argument) -> str:
    name = f"\\fI{_text(place.metavar)}\\fR" + (" ..." if place.repeatable else "")
    return f"[{name}]" if place.optional else name


def _options(options: Iterable[Argument]) -> Iterator[str]:
    for option in options:
        flags = ", ".join(f"\\fB{_text(flag)}\\fR" for flag in option.flags)
        yield ".TP"
        yield f"{flags} \\fI{_text(option.metavar)}\\fR" if option.metavar else flags
        yield _text(f"{option.help[0].upper()}{option.help[1:]}." if option.help else "")


def _list(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    for name, meaning in rows:
        yield from (".TP", f".B {_text(name)}", _text(meaning))


def _text(text: str) -> str:
    """Text of which roff reads nothing as a command: hyphens are to be copied, a line starts with no dot."""
    safe = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga").replace("'", "\\(aq")
    return "\\&" + safe if safe.startswith(".") else safe


if __name__ == "__main__":
    Path(sys.argv[1] if len(sys.argv) > 1 else "docs/man/enginetop.1").write_text(page(), encoding="utf-8")
