"""The command line's grammar: words of the action table, and a few commands with an argument."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches

from enginetop.fleet.durations import duration_seconds
from enginetop.fleet.frozen import frozen
from tui.actions import Action
from tui.view.arrange import Sort
from tui.view.column_choice import Choice
from tui.view.columns import BY_KEY
from tui.view.placing import read_choice
from tui.view.query import FILTER_FIELDS


class CommandError(ValueError):
    """A line that cannot be carried out; the text is one line that says why."""


@frozen
class Context:
    """What arguments can be completed to."""

    replicas: Sequence[str] = ()
    themes: Sequence[str] = ()


@frozen
class Command:
    """One command. `usage` is its argument, empty for none; `key` is how its key is written."""

    word: str
    usage: str
    meaning: str
    key: str = ""


EXPORT_FORMS = ("svg", "csv", "json")

_ARGUED: tuple[Command, ...] = (
    Command("filter", "QUERY", "show only what matches, as in kv>0.9 or state:down"),
    Command("sort", "COLUMN [up|down]", "sort by a column; without one: trouble first"),
    Command("columns", "KEY,KEY...|all", "these columns of the fleet, in this order; they are kept"),
    Command("open", "REPLICA", "all about a replica"),
    Command("time", "-5m|+30s|14:32|live", "look at an instant of the past"),
    Command("speed", "X|pause|play", "how fast a recording is played"),
    Command("theme", "NAME", "other colours"),
    Command("export", "svg|csv|json [FILE]", "write this view to a file that is not there yet"),
)

_CHOICES: Mapping[str, Callable[[Context], Iterable[str]]] = {
    "filter": lambda _: FILTER_FIELDS,
    "sort": lambda _: [key for key, column in BY_KEY.items() if column.sortable],
    "columns": lambda _: ("all", *BY_KEY),
    "open": lambda context: context.replicas,
    "time": lambda _: ("-1m", "-5m", "-15m", "live"),
    "speed": lambda _: ("1", "2", "10", "60", "pause", "play"),
    "theme": lambda context: context.themes,
    "export": lambda _: EXPORT_FORMS,
}

_LISTED = frozenset({"filter", "columns"})
"""Commands whose argument is a list, of which the last part is completed."""


def commands_of(actions: Iterable[Action]) -> tuple[Command, ...]:
    """Every command there is where these actions can be taken, by word."""
    found = {command.word: command for command in _ARGUED}
    for action in actions:
        known = found.get(action.word)
        if known is None:
            found[action.word] = Command(action.word, "", action.meaning, action.key_text)
        elif not known.key:
            found[action.word] = Command(known.word, known.usage, known.meaning, action.key_text)
    return tuple(found[word] for word in sorted(found))


def parse_command(line: str, commands: Sequence[Command]) -> tuple[Command, str]:
    """The command of a line and its argument. CommandError names the nearest when there is none."""
    word, _, rest = line.strip().removeprefix(":").strip().partition(" ")
    if not word:
        raise CommandError("no command; tab shows them all")
    known = {command.word: command for command in commands}
    starting = [name for name in known if name.startswith(word)]
    if word not in known and len(starting) == 1:
        word = starting[0]
    if word not in known:
        raise CommandError(f"no command {word!r}; {_nearest(word, known)}")
    command, argument = known[word], rest.strip()
    if argument and not command.usage:
        raise CommandError(f"{word} takes nothing behind it")
    return command, argument


def complete(line: str, commands: Sequence[Command], context: Context) -> list[str]:
    """The lines that this beginning of one can become, the likeliest first."""
    word, space, rest = line.lstrip().partition(" ")
    if not space:
        return [command.word + (" " if command.usage else "") for command in _matching(word, commands)]
    choices = _CHOICES.get(word)
    if choices is None:
        return []
    last = re.split("[ ,]" if word in _LISTED else "$^", rest)[-1]
    before = line[: len(line) - len(last)]
    return [before + choice for choice in choices(context) if choice.startswith(last) and choice != last]


def matching(text: str, commands: Sequence[Command]) -> list[Command]:
    """The commands that hold these letters in this order, in their word or in what they mean."""
    wanted = text.lower().split()
    if not wanted:
        return list(commands)
    whole = " ".join(wanted)

    def rank(command: Command) -> int | None:
        if command.word.startswith(whole):
            return 0
        if whole in command.word:
            return 1
        if all(part in f"{command.word} {command.meaning}".lower() for part in wanted):
            return 2
        letters = iter(command.word)
        return 3 if all(letter in letters for letter in whole if letter != " ") else None

    ranked = [(grade, command) for command in commands if (grade := rank(command)) is not None]
    return [command for _, command in sorted(ranked, key=lambda entry: entry[0])]


def parse_time(text: str, shown_at: float, day_of: Callable[[float, int, int, int], float]) -> float | None:
    """An instant: `-5m` and `+30s` from what is shown, `14:32[:05]` on its day; None: `live`.

    `day_of` gives the Unix time of an hour, minute and second on the day of another one. CommandError.
    """
    if text in ("live", "now"):
        return None
    if text[:1] in "+-" and (seconds := duration_seconds(text[1:])) is not None:
        return shown_at + (seconds if text[0] == "+" else -seconds)
    parts = text.split(":")
    if 2 <= len(parts) <= 3 and all(part.isdecimal() and part.isascii() and len(part) <= 2 for part in parts):
        hour, minute, second = (int(part) for part in (*parts, "0")[:3])
        if hour < 24 and minute < 60 and second < 60:
            return day_of(shown_at, hour, minute, second)
    raise CommandError(f"{text!r} is no time; write -5m, +30s, 14:32 or live")


def parse_columns(argument: str) -> Choice:
    """The columns that `KEY,KEY...` names; all of the table for `all`. CommandError, ConfigError."""
    if argument == "all":
        return ()
    names = [name for name in argument.replace(",", " ").split() if name]
    return read_choice([one_of(name, BY_KEY, "column") for name in names], "columns")


def parse_sort(argument: str) -> Sort:
    """The order that `COLUMN [up|down]` asks for; trouble first for nothing. CommandError."""
    name, _, direction = argument.partition(" ")
    if not name:
        return Sort()
    names = {column.key: column.key for column in BY_KEY.values() if column.sortable}
    names |= {column.title: column.key for column in BY_KEY.values() if column.sortable and column.title}
    key = one_of(name, names, "column")
    column = BY_KEY[names[key]]
    if direction.strip() not in ("", "up", "down"):
        raise CommandError(f"{direction.strip()!r} is no direction; write up or down")
    turned = direction.strip() != "" and (direction.strip() == "down") != column.descending
    return Sort(column.key, turned)


def one_of(text: str, known: Iterable[str], what: str) -> str:
    """The one of `known` that `text` names or begins. CommandError names the nearest."""
    names = list(known)
    starting = [name for name in names if name.lower() == text.lower()] or [
        name for name in names if name.lower().startswith(text.lower())
    ]
    if len(starting) == 1:
        return starting[0]
    if starting:
        raise CommandError(f"{what} {text!r} is one of {', '.join(starting[:5])}")
    raise CommandError(f"no {what} {text!r}; {_nearest(text, names)}")


def _matching(word: str, commands: Sequence[Command]) -> list[Command]:
    return [command for command in commands if command.word.startswith(word)]


def _nearest(word: str, known: Iterable[str]) -> str:
    names = list(known)
    near = get_close_matches(word, names, n=1, cutoff=0.4)
    if near:
        return f"did you mean {near[0]!r}?"
    return (
        f"there are {', '.join(names[:8])}{' and more' if len(names) > 8 else ''}" if names else "none known"
    )
