"""The grammar of the command line."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tui.actions import Place, actions_at
from tui.commands import (
    CommandError,
    Context,
    commands_of,
    complete,
    matching,
    one_of,
    parse_command,
    parse_time,
)
from tui.pace import next_pace, parse_pace

COMMANDS = commands_of(actions_at(Place.FLEET))
CONTEXT = Context(("a1", "a2", "c0"), ("dark", "light"))


def day_of(near: float, hour: int, minute: int, second: int) -> float:
    return near // 86400 * 86400 + hour * 3600 + minute * 60 + second


@pytest.mark.parametrize(
    ("line", "word", "argument"),
    [
        ("pause", "pause", ""),
        (" :pause ", "pause", ""),
        ("pau", "pause", ""),
        ("filter kv>0.9", "filter", "kv>0.9"),
        ("filter  a  b ", "filter", "a  b"),
        ("time -5m", "time", "-5m"),
        ("export svg a b.svg", "export", "svg a b.svg"),
    ],
)
def test_lines(line: str, word: str, argument: str) -> None:
    command, rest = parse_command(line, COMMANDS)
    assert (command.word, rest) == (word, argument)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "no command; tab shows them all"),
        ("puase", "no command 'puase'; did you mean 'pause'?"),
        ("p", "no command 'p'; "),
        ("pause now", "pause takes nothing behind it"),
    ],
)
def test_mistakes(line: str, said: str) -> None:
    with pytest.raises(CommandError) as caught:
        parse_command(line, COMMANDS)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("paus", ["pause"]),
        ("op", ["open "]),
        ("open ", ["open a1", "open a2", "open c0"]),
        ("open a", ["open a1", "open a2"]),
        ("theme d", ["theme dark"]),
        ("export s", ["export svg"]),
        ("filter state:down en", ["filter state:down engine:"]),
        ("nothing x", []),
    ],
)
def test_completions(line: str, found: list[str]) -> None:
    assert complete(line, COMMANDS, CONTEXT) == found


def test_letters_find_words_and_meanings_the_nearest_first() -> None:
    assert next(iter(matching("sort", COMMANDS))).word == "sort"
    assert [command.word for command in matching("scrape every", COMMANDS)] == ["refresh"]
    assert "sort-turn" in [command.word for command in matching("srtn", COMMANDS)]
    assert matching("", COMMANDS) == list(COMMANDS)


AT = 86400.0 * 20000 + 50_000  # 13:53:20


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("-5m", -300), ("+30s", 30), ("-2h", -7200), ("13:53", -20), ("13:53:21", 1), ("0:00", -50_000)],
)
def test_instants(text: str, seconds: float) -> None:
    found = parse_time(text, AT, day_of)
    assert found == AT + seconds


@pytest.mark.parametrize("text", ["", "5m", "-5", "24:00", "1:2:3:4", "12:60", "٣:00", "-5m ago"])
def test_what_is_no_instant(text: str) -> None:
    with pytest.raises(CommandError):
        parse_time(text, AT, day_of)


def test_live_is_no_instant() -> None:
    assert parse_time("live", AT, day_of) is None


def test_one_of() -> None:
    assert one_of("KV", ["kv", "kv_trend"], "column") == "kv"
    assert one_of("tt", ["kv", "ttft"], "column") == "ttft"
    with pytest.raises(CommandError, match="is one of ttft, ttft95"):
        one_of("tt", ["ttft", "ttft95"], "column")


def test_paces() -> None:
    assert [next_pace(speed, 1) for speed in (0.5, 1, 2, 10, 60, 100)] == [1, 2, 10, 60, 60, 100]
    assert [next_pace(speed, -1) for speed in (100, 60, 10, 2, 1, 0.5)] == [60, 10, 2, 1, 1, 1]
    assert parse_pace("10x") == 10
    for text in ("", "fast", "0", "nan", "-1", "1e9"):
        with pytest.raises(CommandError):
            parse_pace(text)


@settings(max_examples=120, deadline=None)
@given(st.text(max_size=40))
def test_any_line_is_understood_or_refused_in_one_line(line: str) -> None:
    complete(line, COMMANDS, CONTEXT)
    matching(line, COMMANDS)
    try:
        command, _ = parse_command(line, COMMANDS)
    except CommandError as error:
        refusal = str(error)
    else:
        refusal = ""
        assert command in COMMANDS
    assert refusal.isprintable()


@settings(max_examples=80, deadline=None)
@given(st.text(max_size=12))
def test_completions_complete(line: str) -> None:
    assert all(found.startswith((line, line.lstrip())) for found in complete(line, COMMANDS, CONTEXT))
