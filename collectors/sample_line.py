"""The grammar of sample lines: text format 0.0.4, OpenMetrics 1.0 and quoted UTF-8 names.

One tolerant grammar serves both formats, because engines answer with the other one than they declare. What no
format allows (an unescaped quote, `1_000`, a hex float, a name that starts with a digit) makes the line bad.

https://prometheus.io/docs/instrumenting/exposition_formats/ and the OpenMetrics 1.0 specification.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Mapping, Sequence
from itertools import repeat
from typing import Final, NamedTuple

from collectors.sanitise import clean_text
from enginetop.fleet.frozen import frozen

_QUOTED: Final = r'"([^"\\\n]*+(?:\\.[^"\\\n]*+)*+)"'
_NUMBER: Final = (
    r"[+-]?(?:(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?|[iI][nN][fF]|[nN][aA][nN])"
)
_METRIC_NAME: Final = r"[a-zA-Z_:][a-zA-Z0-9_:]*+"
_LABEL_NAME: Final = r"[a-zA-Z_][a-zA-Z0-9_]*+"

_NAME = re.compile(_METRIC_NAME)
_PLAIN_LABEL = re.compile(_LABEL_NAME)
_LABEL = re.compile(rf"[ \t]*+(?:({_LABEL_NAME})|{_QUOTED})[ \t]*+=[ \t]*+{_QUOTED}[ \t]*+([,}}])")
_QUOTED_NAME = re.compile(rf"[ \t]*+{_QUOTED}[ \t]*+([,}}])")
_CLOSING = re.compile(r"[ \t]*+\}")
_BLANKS = re.compile(r"[ \t]*+")
_TAIL = re.compile(rf"[ \t]*+({_NUMBER})(?:[ \t]++{_NUMBER})?[ \t\r]*+(?:(?<=[ \t])#.*+)?", re.DOTALL)
_FIRST_PART = re.compile(rf"{_LABEL_NAME}=")
_NEXT_PART = re.compile(rf",{_LABEL_NAME}=")
_TYPE = re.compile(
    rf"^#[ \t]*+TYPE[ \t]++(?:({_METRIC_NAME})|{_QUOTED})[ \t]++([a-zA-Z]++)[ \t\r]*+$", re.MULTILINE
)

_ESCAPE = re.compile(r'\\([\\"n])')
_ESCAPED: Final = {"\\": "\\", '"': '"', "n": "\n"}
_TYPE_WORDS: Final = frozenset(
    ("counter", "gauge", "histogram", "summary", "untyped", "unknown", "info", "stateset", "gaugehistogram")
)

NUMBER_CHARACTERS: Final = "0123456789.eE+-nNaAiIfF"
"""Of texts made of these alone, `float` takes exactly the numbers that the formats allow."""

_NUMBERS_REMOVED: Final = str.maketrans("", "", NUMBER_CHARACTERS)
_NO_LABELS: Final[Mapping[str, str]] = {}


class Sample(NamedTuple):
    """One sample. `prefix` is its line, as bytes, up to the value."""

    name: str
    labels: Mapping[str, str]
    key: str
    value: float
    prefix: bytes


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


class OverLimitError(ValueError):
    """A line breaks a limit; the text says which."""


def tail_value(tail: str) -> float | None:
    """The value in what follows the labels (`1.5`, `-nan`, `2 1700000000000`, `3 # {id="x"} 0.7`), else None.

    A timestamp is checked for form, an exemplar is not looked at; both are dropped. Infinity is what printf
    and the formats write (`Inf`, `+Inf`, `inf`), not `infinity`.
    """
    match = _TAIL.fullmatch(tail)
    return None if match is None else float(match[1])


def family_types(comments: str) -> dict[str, str]:
    """Family name to type in lower case, from comment lines; the last good TYPE line of a family wins."""
    types = {}
    for plain, quoted, text in _TYPE.findall(comments):
        word = text.lower()
        if word in _TYPE_WORDS:
            types[plain or clean_text(_decode(quoted), len(quoted))] = word
    return types


class SampleGrammar:
    """Parses the sample lines of one page.

    Nearly all lines are plain: `name{label="value",...} number` without an escape. Their parts repeat, so
    each part is looked at once. A line that is not plain goes through the full grammar; both agree on a line.
    """

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

    def plain(self, lines: Sequence[str]) -> Samples:
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
            if len(name) <= self._max_characters and _NAME.fullmatch(name):
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
                self._key_ends[inner] = _key_end(labels)
            sets[inner] = labels if printable and inner.isascii() else _cleaned(labels)

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

    def full(self, line: str) -> Sample | None:
        """The sample of a line that is neither blank nor a comment, by the full grammar; None when it is bad.

        Raises OverLimitError when a limit is broken.
        """
        at = _blanks_end(line, 0)
        match = _NAME.match(line, at)
        name = match[0] if match else ""
        name_end = at + len(name)
        at = _blanks_end(line, name_end)
        labels: dict[str, str] = {}
        if line.startswith("{", at):
            found = _scan_labels(line, at + 1, name)
            if found is None:
                return None
            name, labels, at = found
        elif at == name_end:
            return None
        value = tail_value(line[at:])
        if value is None or not name:
            return None
        self._check_limits(name, labels)
        return Sample(
            clean_text(name, len(name)),
            _cleaned(labels),
            _quoted_unless(_NAME, name) + _key_end(labels),
            value,
            line[: _blanks_end(line, at)].encode("utf-8", "surrogateescape"),
        )

    def _check_limits(self, name: str, labels: Mapping[str, str]) -> None:
        if len(labels) > self._max_labels:
            raise OverLimitError(f"a sample has more than {self._max_labels} labels")
        if max(map(len, (name, *labels, *labels.values()))) > self._max_characters:
            raise OverLimitError(f"a name or a label is longer than {self._max_characters} characters")


def _numbers(tokens: Sequence[str]) -> list[float | None] | None:
    """The numbers that the tokens are, if all of them are plain numbers."""
    if "".join(tokens).translate(_NUMBERS_REMOVED):
        return None
    try:
        return list(map(float, tokens))
    except ValueError:
        return None  # one of them is no number, such as "1-2"


def _scan_labels(line: str, at: int, name: str) -> tuple[str, dict[str, str], int] | None:
    """Name, decoded labels and the place behind the closing brace; None when it is no label set.

    A quoted name may stand first within the braces, if none stands before them.
    """
    labels: dict[str, str] = {}
    if not name:
        quoted = _QUOTED_NAME.match(line, at)
        if quoted is None:
            return None
        name, at = _decode(quoted[1]), quoted.end()
        if quoted[2] == "}":
            return name, labels, at
    while True:
        closing = _CLOSING.match(line, at)  # empty braces, or a trailing comma
        if closing:
            return name, labels, closing.end()
        pair = _LABEL.match(line, at)
        if pair is None:
            return None
        label = pair[1] or _decode(pair[2])
        if label in labels:
            return None
        labels[label] = _decode(pair[3])
        at = pair.end()
        if pair[4] == "}":
            return name, labels, at


def _blanks_end(line: str, at: int) -> int:
    match = _BLANKS.match(line, at)
    return match.end() if match else at


def _decode(text: str) -> str:
    """Undo the three escapes; any other backslash stays, as the reference parsers do."""
    return _ESCAPE.sub(lambda match: _ESCAPED[match[1]], text) if "\\" in text else text


def _cleaned(labels: Mapping[str, str]) -> dict[str, str]:
    return {clean_text(label, len(label)): clean_text(text, len(text)) for label, text in labels.items()}


def _key_end(labels: Mapping[str, str]) -> str:
    """The label part of a key: sorted, escaped, printable, and different for different decoded labels."""
    if not labels:
        return ""
    pairs = (f'{_quoted_unless(_PLAIN_LABEL, label)}="{_escape(labels[label])}"' for label in sorted(labels))
    return "{" + ",".join(pairs) + "}"


def _quoted_unless(plain: re.Pattern[str], name: str) -> str:
    return name if plain.fullmatch(name) else f'"{_escape(name)}"'


def _escape(text: str) -> str:
    text = text.replace("\\", "\\\\").replace('"', '\\"')
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else f"\\u{{{ord(c):x}}}" for c in text)
