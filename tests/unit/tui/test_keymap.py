"""Words, keys and the user's own keys."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from textual.keys import _character_to_key

from enginetop.fleet.errors import ConfigError
from tui.actions import ACTIONS, Action, Place, actions_at
from tui.key_names import is_unshifted, key_name, written
from tui.keymap import alt_letters, binding_keys, careless, clashes, with_keys

SIGNS = [chr(number) for number in range(33, 127)]


@pytest.mark.parametrize("sign", SIGNS)
def test_a_sign_has_textuals_name_and_is_written_as_itself(sign: str) -> None:
    name = key_name(sign)
    assert name == _character_to_key(sign)
    assert written(name or "") == sign


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("esc", "escape"), ("PgDn", "pagedown"), ("F5", "f5"), ("ctrl+p", "ctrl+p"), ("space", "space"),
        (" ", "space"), ("question_mark", "question_mark"), ("ctrl+left", "ctrl+left"), ("f13", None),
        ("alt+n", "alt+n"), ("alt+N", "alt+shift+n"), ("", None), ("ctrl+", None),
        ("hyper+x", None), ("ab", None), ("\x1b", None),
    ],
)  # fmt: skip
def test_how_keys_are_written(text: str, name: str | None) -> None:
    assert key_name(text) == name


@pytest.mark.parametrize(("key", "easy"), [("a", True), ("A", False), ("ctrl+a", False), ("f5", True)])
def test_what_is_easily_hit(key: str, easy: bool) -> None:
    assert is_unshifted(key) is easy


def test_the_table_has_no_clash_and_no_careless_key() -> None:
    assert list(clashes(ACTIONS)) == []
    assert list(careless(ACTIONS)) == []
    assert {action.word for action in ACTIONS if action.dangerous} == {"apply", "roll-back"}


def test_words_are_words_of_the_config_file() -> None:
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", action.word) for action in ACTIONS)
    for word in {action.word for action in ACTIONS}:
        assert len({action.keys for action in ACTIONS if action.word == word}) == 1, word


def test_actions_that_are_not_one_have_different_words_in_one_place() -> None:
    for place in Place:
        words = [action.word for action in actions_at(place)]
        assert len(words) == len(set(words)), place


def keys_of(actions: tuple[Action, ...], word: str) -> set[tuple[str, ...]]:
    return {action.keys for action in actions if action.word == word}


def test_other_keys_in_every_place() -> None:
    actions = with_keys(
        {"pause": ["p", "f9"], "previous": ["P"], "down": ["n"], "next": ["N"], "note": ["Z"]}
    )
    assert keys_of(actions, "pause") == {("p", "f9")}
    assert keys_of(actions, "down") == {("n",)}
    assert next(action for action in actions if action.word == "pause").key_text == "p f9"
    ids = binding_keys(actions)
    assert ids["anywhere.pause"] == "p,f9"
    assert ids["fleet.cursor(1)"] == ids["replica.read(1)"] == "n"
    assert "fleet.filter" not in ids


def test_keys_can_be_swapped() -> None:
    actions = with_keys({"sort-next": ["S"], "sort-turn": ["s"]})
    assert list(clashes(actions)) == []


def test_the_way_out_stays() -> None:
    actions = with_keys({"quit": ["Q"], "back": ["backspace"]})
    assert keys_of(actions, "quit") == {("Q", "ctrl+c")}
    assert keys_of(actions, "back") == {("backspace", "escape")}


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"pausee": ["p"]}, "file: keys.pausee: no such action; did you mean 'pause'?"),
        ({"zzz": ["p"]}, "file: keys.zzz: no such action; there are acknowledge, "),
        ({"pause": ["control-x"]}, "file: keys.pause: 'control-x' is no key; write a character"),
        ({"pause": [","]}, "file: keys.pause: ',' is no key"),
        ({"pause": []}, "file: keys.pause: no key; leave the line out"),
        ({"pause": ["q"]}, "file: keys.pause: q already means quit; take another key, or move quit too"),
        ({"quit": ["s"]}, "file: keys.quit: s already means"),
        ({"pause": ["ctrl+c"]}, "ctrl+c already means"),
        ({"apply": ["a"]}, "file: keys.apply: a is too easily hit for what changes an engine"),
        ({"roll-back": ["K", "f8"]}, "file: keys.roll-back: f8 is too easily hit"),
    ],
)
def test_a_mistake_is_one_line(table: dict[str, list[str]], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        with_keys(table, "file: keys")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


words = st.sampled_from(sorted({action.word for action in ACTIONS})) | st.text(max_size=8)
keys = st.sampled_from([*SIGNS, "ctrl+a", "f5", "enter", "esc", "nokey"]) | st.text(max_size=3)


@settings(max_examples=120, deadline=None)
@given(st.dictionaries(words, st.lists(keys, max_size=3), max_size=6))
def test_whatever_is_configured_is_refused_or_safe(table: dict[str, list[str]]) -> None:
    try:
        actions = with_keys(table)
    except ConfigError as error:
        actions, refusal = ACTIONS, str(error)
    else:
        refusal = ""
    assert refusal.isprintable()
    assert list(clashes(actions)) == []
    assert list(careless(actions)) == []
    assert any("escape" in action.keys for action in actions if action.word == "back")
    assert any("ctrl+c" in action.keys for action in actions if action.word == "quit")


def test_letters_with_alt_are_told_from_an_escape_and_a_letter() -> None:
    assert alt_letters(with_keys({})) == set()
    own = with_keys({"pause": ["alt+p", "f5", "ctrl+alt+z"], "next": ["alt+N", "alt+5"]})
    assert alt_letters(own) == {"p", "N"}
