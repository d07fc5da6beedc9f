"""`docs/keys.md` from the table of actions: `python -m tui.docs_keys FILE` writes it.

A test holds the file against the table, so that it cannot say what the keys do not do.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from tui.actions import ACTIONS, Action, Place
from tui.commands import commands_of
from tui.key_names import written
from tui.keymap import ALWAYS
from tui.view.alert_condition import ALERT_WORDS
from tui.view.condition import NO_ANSWER, SLOW, STATES
from tui.view.help import MOUSE
from tui.view.query import FILTER_HELP
from tui.view.severity import GLYPH_OF, Severity

_INTRODUCTION = """\
# Keys and commands of the screen

Written by `make docs` from the table of actions (`tui/actions.py`); a test fails when it is not what that
says. `?` shows the keys on the screen. Keys marked **dangerous** change an engine: they ask first, are absent
while everything is read-only, and are never a single unshifted key.
"""

_MOUSE = """\
## The mouse

{rows}

`--no-mouse` leaves it to the terminal, for selecting text; most terminals select with shift held as well.
"""

_OWN = """\
## Your own keys

The config file can give any word of these tables other keys, which replace the usual ones everywhere:

    [keys]
    pause = "p"
    next = ["N", "tab"]
    previous = "P"

A key is a character, a name (`enter space tab esc up down left right home end pgup pgdn f1` ...) or one of
them behind `ctrl+`, `alt+`, `shift+`; with `alt` terminals tell letters alone. An unknown word, a key with
two meanings in one place, and a single unshifted key for a dangerous action are refused at the start, in one
line. {always} always stay.
"""

_COMMANDS = """\
## Commands

`:` opens the command line: tab completes, up and down go through the history, and an unambiguous beginning
of a word is enough. `ctrl+p` lists all commands. Besides the words of the tables above there are:
"""

_FILTER = "## The filter\n"

_STATE = """\
## The state column

The gravest thing known of a replica, in a word; `enter` has the reasons, `7` the alerts.
`{warning}` and `{critical}` need you, `{info}` is worth a look, `{quiet}` has nothing to do.

| word | when |
| --- | --- |
"""
_SOON = """
`backends`, `errors`, `preempt`, `pressure`, `ttft slo`, `tpot slo` and `throttled` appear as soon as the
figures show them, before the rule's hold is over.
"""
_PASSING = (
    (SLOW, "TTFT, TPOT or ITL is far above the median of similar replicas; the objective may still be met"),
    ("outlier", "another figure is far from the median of similar replicas"),
    (NO_ANSWER, "the newest look failed, or its answer is overdue; the state has not changed yet"),
    ("restarted", "it restarted within the last two minutes"),
)
"""Words of `◌` that are no state and no alert."""


def page() -> str:
    """The whole text of `docs/keys.md`."""
    always = ", ".join(f"`{written(key)}` for {word}" for word, key in sorted(ALWAYS.items()))
    rows = "\n".join(f"- **{deed}** {meaning}" for deed, meaning in MOUSE)
    parts = [
        _INTRODUCTION,
        *_tables(),
        _MOUSE.format(rows=rows),
        _OWN.format(always=always),
        _COMMANDS,
        *_commands(),
        _FILTER,
    ]
    parts += (f"    {line}" for line in FILTER_HELP)
    return "\n".join(parts) + "\n\n" + "".join(_states())


def _states() -> Iterator[str]:
    yield _STATE.format(
        warning=GLYPH_OF[Severity.WARN],
        critical=GLYPH_OF[Severity.CRIT],
        info=GLYPH_OF[Severity.INFO],
        quiet=GLYPH_OF[Severity.QUIET],
    )
    for state, (severity, word) in STATES.items():
        yield f"| {GLYPH_OF[severity]} {word} | state `{state}` |\n"
    for word, when in _PASSING:
        yield f"| {GLYPH_OF[Severity.INFO]} {word} | {when} |\n"
    for rule, word in ALERT_WORDS.items():
        yield f"| {word} | `{rule}` fires |\n"
    yield _SOON


def _tables() -> Iterator[str]:
    told: set[tuple[str, tuple[Place, ...]]] = set()
    for place in Place:
        own = [
            action
            for action in ACTIONS
            if place in action.places and (action.name, action.places) not in told
        ]
        told |= {(action.name, action.places) for action in own}
        if own:
            yield f"## {str(place).capitalize()}\n"
            yield from _rows(own)


def _rows(actions: Iterable[Action]) -> Iterator[str]:
    yield "| keys | word | what it does |"
    yield "| --- | --- | --- |"
    for action in actions:
        keys = " ".join(f"`{_escaped(written(key))}`" for key in action.keys)
        mark = " **dangerous**" if action.dangerous else ""
        yield f"| {keys} | {action.word} | {action.meaning}{mark} |"
    yield ""


def _commands() -> Iterator[str]:
    yield "| command | what it does |"
    yield "| --- | --- |"
    for command in commands_of(()):
        yield f"| `:{command.word} {_escaped(command.usage)}` | {command.meaning} |"
    yield ""


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def main(argv: list[str]) -> int:
    """Write the page."""
    (path,) = argv
    Path(path).write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
