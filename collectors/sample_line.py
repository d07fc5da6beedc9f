"""The grammar of sample lines: text format 0.0.4, OpenMetrics 1.0 and quoted UTF-8 names.

One tolerant grammar serves both formats, because engines answer with the other one than they declare. What no
format allows (an unescaped quote, `1_000`, a hex float, a name that starts with a digit) makes the line bad.

https://prometheus.io/docs/instrumenting/exposition_formats/ and the OpenMetrics 1.0 specification.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from collectors.sanitise import clean_text

_QUOTED: Final = r'"([^"\\\n]*+(?:\\.[^"\\\n]*+)*+)"'
_NUMBER: Final = (
    r"[+-]?(?:(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?|[iI][nN][fF]|[nN][aA][nN])"
)
_METRIC_NAME: Final = r"[a-zA-Z_:][a-zA-Z0-9_:]*+"
LABEL_NAME: Final = r"[a-zA-Z_][a-zA-Z0-9_]*+"

NAME = re.compile(_METRIC_NAME)
_PLAIN_LABEL = re.compile(LABEL_NAME)
_LABEL = re.compile(rf"[ \t]*+(?:({LABEL_NAME})|{_QUOTED})[ \t]*+=[ \t]*+{_QUOTED}[ \t]*+([,}}])")
_QUOTED_NAME = re.compile(rf"[ \t]*+{_QUOTED}[ \t]*+([,}}])")
_CLOSING = re.compile(r"[ \t]*+\}")
_BLANKS = re.compile(r"[ \t]*+")
_TAIL = re.compile(rf"[ \t]*+({_NUMBER})(?:[ \t]++{_NUMBER})?[ \t\r]*+(?:(?<=[ \t])#.*+)?", re.DOTALL)
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


class Sample(NamedTuple):
    """One sample. `prefix` is its line, as bytes, up to the value."""

    name: str
    labels: Mapping[str, str]
    key: str
    value: float
    prefix: bytes


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


def full_sample(line: str, max_labels: int, max_characters: int) -> Sample | None:
    """The sample of a line that is neither blank nor a comment, by the full grammar; None when it is bad.

    Raises OverLimitError for more than `max_labels` labels, and for a name or a label value of more than
    `max_characters`.
    """
    at = _blanks_end(line, 0)
    match = NAME.match(line, at)
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
    if len(labels) > max_labels:
        raise OverLimitError(f"a sample has more than {max_labels} labels")
    if max(map(len, (name, *labels, *labels.values()))) > max_characters:
        raise OverLimitError(f"a name or a label is longer than {max_characters} characters")
    return Sample(
        clean_text(name, len(name)),
        cleaned(labels),
        _quoted_unless(NAME, name) + key_end(labels),
        value,
        line[: _blanks_end(line, at)].encode("utf-8", "surrogateescape"),
    )


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


def cleaned(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels as they may be shown."""
    return {clean_text(label, len(label)): clean_text(text, len(text)) for label, text in labels.items()}


def key_end(labels: Mapping[str, str]) -> str:
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
