"""Plain sample lines, many at once: `name{label="value",...} number` without an escape, as nearly all are.

Their parts repeat, so that each part is looked at once. A line that is not plain goes through the grammar of
`sample_line`; both agree on a line.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Mapping, Sequence
from itertools import repeat
from typing import Final

from collectors.sample_line import (
    LABEL_NAME,
    NAME,
    NUMBER_CHARACTERS,
    Sample,
    cleaned,
    key_end,
    tail_value,
)
from enginetop.fleet.frozen import frozen

_FIRST_PART = re.compile(rf"{LABEL_NAME}=")
_NEXT_PART = re.compile(rf",{LABEL_NAME}=")
_NUMBERS_REMOVED: Final = str.maketrans("", "", NUMBER_CHARACTERS)
_NO_LABELS: Final[Mapping[str, str]] = {}


@frozen
class Samples:
    """The samples of several lines as columns; a row whose name, labels or value is None is not one.

    `complete`: there is no such row.
    """

    complete: bool
    names: list[str | None]
    labels: list[Mapping[str, str] | None]
    keys: list[str]
    values: list[float | None]
    prefixes: list[bytes]

    def row(self, row: int) -> Sample | None:
        """One row."""
        name, labels, value = self.names[row], self.labels[row], self.values[row]
        if name is None or labels is None or value is None:
            return None
        return Sample(name, labels, self.keys[row], value, self.prefixes[row])


class PlainLines:
    """The plain lines of one page."""

    def __init__(self, max_labels: int, max_characters: int) -> None:
        """At most `max_labels` labels a sample and `max_characters` in a name or a label value."""
        self._max_labels = max_labels
        self._max_characters = max_characters
        self._names: dict[str, str] = {}
        self._label_sets: dict[str, Mapping[str, str]] = {"": _NO_LABELS}
        self._key_ends: dict[str, str] = {}
        self._shapes: dict[tuple[str, ...], tuple[tuple[str, ...], bool]] = {}

    @property
    def label_texts(self) -> Collection[str]:
        """The labels of all plain lines so far, each label set once, as they are written."""
        return self._label_sets.keys()

    def samples(self, lines: Sequence[str]) -> Samples:
        """The plain ones of `lines` (at least one line); the others, good or bad, are left open."""
        heads, _, tokens = zip(*map(str.rpartition, lines, repeat(" ")), strict=True)
        names, braces, texts = zip(*map(str.partition, heads, repeat("{")), strict=True)
        # behind `name` stands "", behind `name{` only "{", which is no label text
        inners = [text or brace for text, brace in zip(texts, braces, strict=True)]
        different_names, different_inners = set(names), set(inners)
        numbers = _numbers(tokens)
        self._learn_names(different_names)
        self._learn_label_sets(different_inners)
        return Samples(
            numbers is not None
            and self._names.keys() >= different_names
            and self._label_sets.keys() >= different_inners,
            list(map(self._names.get, names)),
            list(map(self._label_sets.get, inners)),
            self._keys(heads, names, inners),
            list(map(tail_value, tokens)) if numbers is None else numbers,
            (" \n".join(heads) + " ").encode("utf-8", "surrogateescape").split(b"\n"),
        )

    def _keys(self, heads: Sequence[str], names: Sequence[str], inners: Sequence[str]) -> list[str]:
        ends = self._key_ends
        if not ends:
            return list(heads)
        return [
            name + ends[inner] if inner in ends else head
            for head, name, inner in zip(heads, names, inners, strict=True)
        ]

    def _learn_names(self, names: set[str]) -> None:
        for name in names.difference(self._names):
            if len(name) <= self._max_characters and NAME.fullmatch(name):
                self._names[name] = sys.intern(name)

    def _learn_label_sets(self, inners: set[str]) -> None:
        """`inners` are what stands behind the opening brace: `a="x",b="y"}`."""
        sets, shapes, max_characters = self._label_sets, self._shapes, self._max_characters
        for inner in inners.difference(sets):
            parts = inner.split('"')
            shape = tuple(parts[0::2])
            known = shapes.get(shape)
            if known is None:
                known = shapes[shape] = self._names_of_shape(shape)
            names, in_order = known
            if not names or "\\" in inner:
                continue
            values = parts[1::2]
            if len(inner) > max_characters and max(map(len, values)) > max_characters:
                continue
            labels = dict(zip(names, values, strict=True))
            printable = inner.isprintable()
            if not (in_order and printable):
                self._key_ends[inner] = key_end(labels)
            sets[inner] = labels if printable and inner.isascii() else cleaned(labels)

    def _names_of_shape(self, shape: Sequence[str]) -> tuple[tuple[str, ...], bool]:
        """The label names in what stands outside the quotes, and whether they are sorted; none: not plain."""
        *parts, end = shape
        if end != "}" or not 0 < len(parts) <= self._max_labels:
            return (), False
        if not _FIRST_PART.fullmatch(parts[0]) or not all(map(_NEXT_PART.fullmatch, parts[1:])):
            return (), False
        names = tuple(sys.intern(part.strip(",=")) for part in parts)
        if len(set(names)) != len(names) or max(map(len, names)) > self._max_characters:
            return (), False
        return names, list(names) == sorted(names)


def _numbers(tokens: Sequence[str]) -> list[float | None] | None:
    """The numbers that the tokens are, if all of them are plain numbers."""
    if "".join(tokens).translate(_NUMBERS_REMOVED):
        return None
    try:
        return list(map(float, tokens))
    except ValueError:
        return None  # one of them is no number, such as "1-2"
