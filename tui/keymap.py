"""The user's own keys: the table of actions with the `[keys]` of the config file laid over it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches

from enginetop.fleet.errors import ConfigError
from tui.actions import ACTIONS, Action, Place, actions_at
from tui.key_names import is_unshifted, key_name, written

ALWAYS: Mapping[str, str] = {"back": "escape", "confirm": "enter", "quit": "ctrl+c"}
"""Keys that stay, so that nobody locks himself in."""

_ALT = re.compile(r"alt\+(shift\+)?([a-z])")


def with_keys(wanted: Mapping[str, Sequence[str]], origin: str = "keys") -> tuple[Action, ...]:
    """The actions with these keys, by word.

    ConfigError, one line: an unknown word or key, no key at all, a key that means two things in one place, a
    dangerous action on a single unshifted key. `origin` says where the table stands.
    """
    words = {action.word for action in ACTIONS}
    new: dict[str, tuple[str, ...]] = {}
    for word, keys in wanted.items():
        if word not in words:
            near = get_close_matches(word, words, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(words))}"
            shown = word if word.isprintable() else repr(word)
            raise ConfigError(f"{origin}.{shown}: no such action; {hint}")
        new[word] = _names(word, keys, origin)
    actions = tuple(_rekeyed(action, new.get(action.word)) for action in ACTIONS)
    _refuse_clashes(actions, set(new), origin)
    _refuse_careless(actions, origin)
    return actions


def clashes(actions: Sequence[Action]) -> Iterator[tuple[str, str, str]]:
    """Key and two words for each key that means two things in one place."""
    for place in Place:
        owner: dict[str, str] = {}
        for action in actions_at(place, actions):
            for key in action.keys:
                other = owner.setdefault(key, action.word)
                if other != action.word:
                    yield key, other, action.word


def careless(actions: Sequence[Action]) -> Iterator[tuple[str, str]]:
    """Word and key for each dangerous action on a single unshifted key."""
    for action in actions:
        if action.dangerous:
            yield from ((action.word, key) for key in action.keys if is_unshifted(key))


def alt_letters(actions: Sequence[Action]) -> frozenset[str]:
    """The letters that are keys of an action with `alt` held; as Textual names them, `alt+shift+g` is `G`."""
    found = (_ALT.fullmatch(key) for action in actions for key in action.keys)
    return frozenset(one[2].upper() if one[1] else one[2] for one in found if one is not None)


def binding_keys(actions: Sequence[Action]) -> dict[str, str]:
    """The keys that differ from the table's, by the id of the binding, as Textual's keymap wants them."""
    former = {(action.name, action.places): action.keys for action in ACTIONS}
    return {
        binding_id(place, action): ",".join(action.keys)
        for action in actions
        for place in action.places
        if former.get((action.name, action.places)) != action.keys
    }


def binding_id(place: Place, action: Action) -> str:
    """The id of an action's binding at a place."""
    return f"{place}.{action.name}"


def _names(word: str, keys: Sequence[str], origin: str) -> tuple[str, ...]:
    names: list[str] = []
    for key in keys:
        name = key_name(key)
        if name is None or name == "comma":  # Textual separates keys with it
            raise ConfigError(
                f"{origin}.{word}: {key!r} is no key; write a character, a name such as f5, or ctrl+x"
            )
        if name not in names:
            names.append(name)
    if not names:
        raise ConfigError(f"{origin}.{word}: no key; leave the line out to keep the usual one")
    kept = ALWAYS.get(word)
    return (*names, kept) if kept is not None and kept not in names else tuple(names)


def _rekeyed(action: Action, keys: tuple[str, ...] | None) -> Action:
    if keys is None:
        return action
    return replace(action, keys=keys, shown=" ".join(map(written, keys[:2])))


def _refuse_clashes(actions: Sequence[Action], changed: set[str], origin: str) -> None:
    for key, one, other in clashes(actions):
        word, rival = (other, one) if other in changed else (one, other)
        raise ConfigError(
            f"{origin}.{word}: {written(key)} already means {rival}; take another key, or move {rival} too"
        )


def _refuse_careless(actions: Sequence[Action], origin: str) -> None:
    for word, key in careless(actions):
        raise ConfigError(
            f"{origin}.{word}: {written(key)} is too easily hit for what changes an engine; "
            f"take a capital letter or ctrl+"
        )
