"""The grammar of one sample line: text format 0.0.4, OpenMetrics 1.0 and quoted UTF-8 names.

One tolerant grammar serves both formats, because engines answer with the other one than they declare. What no
format allows (an unescaped quote, `1_000`, a hex float, a name that starts with a digit) makes the line bad.

https://prometheus.io/docs/instrumenting/exposition_formats/ and the OpenMetrics 1.0 specification.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from collectors.sanitise import clean_text

_QUOTED: Final = r'"([^"\\]*+(?:\\.[^"\\]*+)*+)"'
_NUMBER: Final = (
    r"[+-]?(?:(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?|[iI][nN][fF]|[nN][aA][nN])"
)

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*+")
_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*+")
_LABEL = re.compile(rf"[ \t]*+(?:([a-zA-Z_][a-zA-Z0-9_]*+)|{_QUOTED})[ \t]*+=[ \t]*+{_QUOTED}[ \t]*+([,}}])")
_QUOTED_NAME = re.compile(rf"[ \t]*+{_QUOTED}[ \t]*+([,}}])")
_CLOSING = re.compile(r"[ \t]*+\}")
_BLANK_RUN = re.compile(r"[ \t]*+")
_TAIL = re.compile(rf"[ \t]*+({_NUMBER})(?:[ \t]++{_NUMBER})?[ \t\r]*+(?:(?<=[ \t])#.*+)?", re.DOTALL)
_ESCAPE = re.compile(r'\\([\\"n])')
_ESCAPED: Final = {"\\": "\\", '"': '"', "n": "\n"}
_FIRST_PART = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*+=")
_NEXT_PART = re.compile(r",[a-zA-Z_][a-zA-Z0-9_]*+=")
_TYPE = re.compile(
    rf"#[ \t]*+TYPE[ \t]++(?:([a-zA-Z_:][a-zA-Z0-9_:]*+)|{_QUOTED})[ \t]++([a-zA-Z]++)[ \t\r]*+"
)
_TYPE_WORDS: Final = frozenset(
    ("counter", "gauge", "histogram", "summary", "untyped", "unknown", "info", "stateset", "gaugehistogram")
)


class Sample(NamedTuple):
    """One sample. `line[start:]` is its value and what follows."""

    name: str
    labels: Mapping[str, str]
    key: str
    value: float
    start: int


class OverLimitError(ValueError):
    """A line breaks a limit; the text says which."""


def tail_value(tail: str) -> float | None:
    """The value in what follows the labels (`1.5`, `-nan`, `2 1700000000000`, `3 # {id="x"} 0.7`), else None.

    Timestamps and exemplars are checked for form and dropped. Infinity is what printf and the formats write
    (`Inf`, `+Inf`, `inf`), not `infinity`.
    """
    match = _TAIL.fullmatch(tail)
    return None if match is None else float(match[1])


def family_type(line: str) -> tuple[str, str] | None:
    """Family name and type in lower case of a TYPE line; None for other comments and broken ones."""
    match = _TYPE.fullmatch(line)
    if match is None:
        return None
    word = match[3].lower()
    if word not in _TYPE_WORDS:
        return None
    name = match[1] or _decode(match[2])
    return clean_text(name, len(name)), word


class SampleGrammar:
    """Parses the sample lines of one page; remembers its names and label sets, since pages repeat them."""

    def __init__(self, max_labels: int, max_label_characters: int) -> None:
        self._max_labels = max_labels
        self._max_label_characters = max_label_characters
        self._names: dict[str, str] = {}
        self._numbers: dict[str, float] = {}
        self._sets: dict[str, tuple[Mapping[str, str], str | None]] = {}
        self._shapes: dict[tuple[str, ...], tuple[tuple[str, ...], bool] | None] = {}

    def parse(self, line: str) -> Sample | None:
        """The sample of a line that is neither blank nor a comment; None when the line is bad.

        Raises OverLimitError when a limit is broken.
        """
        return self._parse_plain(line) or self._parse_any(line)

    def _parse_plain(self, line: str) -> Sample | None:
        """`name{label="value",...} number` with one blank and no escape; None for everything else."""
        head, _, number = line.rpartition(" ")
        value = self._numbers.get(number)
        if value is None:
            found = tail_value(number)
            if found is None:
                return None
            value = self._numbers[number] = found
        name_text, brace, inner = head.partition("{")
        name = self._names.get(name_text)
        if name is None:
            if not _NAME.fullmatch(name_text):
                return None
            self._check_limits((name_text,))
            name = self._names[name_text] = sys.intern(name_text)
        if not brace:
            return Sample(name, _NO_LABELS, name, value, len(head) + 1)
        known = self._sets.get(inner)
        if known is None:
            known = self._plain_labels(inner)
            if known is None:
                return None
            self._sets[inner] = known
        labels, suffix = known
        return Sample(name, labels, head if suffix is None else name + suffix, value, len(head) + 1)

    def _plain_labels(self, inner: str) -> tuple[Mapping[str, str], str | None] | None:
        """Labels of `a="x",b="y"}` and the end of their key (None: as written), or None if not that plain."""
        if "\\" in inner:
            return None
        parts = inner.split('"')
        shape = tuple(parts[0::2])
        if shape not in self._shapes:
            self._check_limits(shape)
            self._shapes[shape] = _names_of_shape(shape)
        known = self._shapes[shape]
        if known is None:
            return None
        names, in_order = known
        values = parts[1::2]
        self._check_limits(values)
        labels = dict(zip(names, values, strict=True))
        suffix = None if in_order and inner.isprintable() else _key_suffix(labels)
        if inner.isascii() and inner.isprintable():
            return labels, suffix
        return {name: clean_text(text, len(text)) for name, text in labels.items()}, suffix

    def _parse_any(self, line: str) -> Sample | None:
        start = _BLANK_RUN.match(line)
        at = start.end() if start else 0
        name_match = _NAME.match(line, at)
        name = name_match[0] if name_match else ""
        if name_match:
            at = name_match.end()
        blank = _BLANK_RUN.match(line, at)
        at = blank.end() if blank else at
        labels: dict[str, str] = {}
        if line[at : at + 1] == "{":
            found = self._scan_labels(line, at + 1, name)
            if found is None:
                return None
            name, labels, at = found
        elif blank is None or not blank[0]:
            return None
        if not name:
            return None
        value = tail_value(line[at:])
        if value is None:
            return None
        gap = _BLANK_RUN.match(line, at)
        self._check_limits((name,))
        self._check_limits(tuple(labels))
        self._check_limits(tuple(labels.values()))
        return Sample(
            clean_text(name, len(name)),
            {clean_text(label, len(label)): clean_text(text, len(text)) for label, text in labels.items()},
            _quoted_unless(name, _NAME) + _key_suffix(labels),
            value,
            gap.end() if gap else at,
        )

    def _scan_labels(self, line: str, at: int, name: str) -> tuple[str, dict[str, str], int] | None:
        """Name, decoded labels and the place after `}`; None when it is no label set."""
        labels: dict[str, str] = {}
        closing = _CLOSING.match(line, at)
        if closing:
            return name, labels, closing.end()
        if not name:
            quoted = _QUOTED_NAME.match(line, at)
            if quoted is None:
                return None
            name, at = _decode(quoted[1]), quoted.end()
            if quoted[2] == "}":
                return name, labels, at
        while True:
            closing = _CLOSING.match(line, at)  # after a trailing comma
            if closing:
                return name, labels, closing.end()
            pair = _LABEL.match(line, at)
            if pair is None:
                return None
            label = pair[1] if pair[1] is not None else _decode(pair[2])
            if label in labels:
                return None
            labels[label] = _decode(pair[3])
            at = pair.end()
            if pair[4] == "}":
                return name, labels, at

    def _check_limits(self, texts: Sequence[str]) -> None:
        """`texts` are the values of a label set, its names, or the name of a metric."""
        if len(texts) > self._max_labels:
            raise OverLimitError(f"a sample has more than {self._max_labels} labels")
        if texts and max(map(len, texts)) > self._max_label_characters:
            raise OverLimitError(f"a name or a label is longer than {self._max_label_characters} characters")


_NO_LABELS: Final[Mapping[str, str]] = {}


def _names_of_shape(shape: Sequence[str]) -> tuple[tuple[str, ...], bool] | None:
    """Label names of what stands outside the quotes, and whether they are sorted; None if it is not plain."""
    *parts, end = shape
    if end != "}" or not parts:
        return None
    if not _FIRST_PART.fullmatch(parts[0]) or not all(map(_NEXT_PART.fullmatch, parts[1:])):
        return None
    names = tuple(sys.intern(part.strip(",=")) for part in parts)
    if len(set(names)) != len(names):
        return None
    return names, list(names) == sorted(names)


def _decode(text: str) -> str:
    """Undo the three escapes; any other backslash stays, as the reference parsers do."""
    return _ESCAPE.sub(lambda match: _ESCAPED[match[1]], text) if "\\" in text else text


def _key_suffix(labels: Mapping[str, str]) -> str:
    """The label part of a key: sorted, escaped, printable, and different for different decoded labels."""
    if not labels:
        return ""
    pairs = (f'{_quoted_unless(name, _LABEL_NAME)}="{_escape(labels[name])}"' for name in sorted(labels))
    return "{" + ",".join(pairs) + "}"


def _quoted_unless(name: str, plain: re.Pattern[str]) -> str:
    return name if plain.fullmatch(name) else f'"{_escape(name)}"'


def _escape(text: str) -> str:
    text = text.replace("\\", "\\\\").replace('"', '\\"')
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else f"\\u{{{ord(c):x}}}" for c in text)
