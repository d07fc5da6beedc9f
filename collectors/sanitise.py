"""Foreign text made safe to show: the one place where strings from the network are cleaned.

Whatever an engine, a proxy or a label writes may end in a terminal, a log or a JSON line. Control characters
could move the cursor or change colours, direction controls could make a name read as another one, invisible
characters could hide in it. They are replaced, never interpreted, so that what is shown has the length and
the order of what was sent.
"""

from __future__ import annotations

import unicodedata

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
ELLIPSIS = "…"

_SPACING_CONTROLS = frozenset("\t\n\v\f\r\x1c\x1d\x1e\x1f\x85\u2028\u2029")

# Controls, format characters (direction, joiners, zero-width space, tags), lone surrogates, separators of
# lines and paragraphs; private and unassigned characters have no width that terminals agree on.
_UNSAFE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})

# Letters and marks that draw nothing: grapheme joiner, Hangul fillers, Khmer inherent vowels, variation
# selectors.
_INVISIBLE_RANGES = (
    (0x034F, 0x034F),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFFA0, 0xFFA0),
    (0xE0100, 0xE01EF),
)


def clean_text(value: str, limit: int) -> str:
    """`value` without anything a terminal could obey, at most `limit` characters long (at least 1).

    Characters that stand for white space (tab, line ends and separators) become a space, other unsafe ones
    U+FFFD. A longer value is cut and ends in an ellipsis. Markup of the screen library is not touched: who
    draws the text must draw it as text.
    """
    if len(value) > limit:
        value = value[: max(limit - 1, 0)] + ELLIPSIS
    if value.isascii() and value.isprintable():
        return value
    return "".join(map(_clean_character, value))


def _clean_character(character: str) -> str:
    if character in _SPACING_CONTROLS:
        return " "
    if unicodedata.category(character) in _UNSAFE_CATEGORIES:
        return REPLACEMENT
    code = ord(character)
    if any(first <= code <= last for first, last in _INVISIBLE_RANGES):
        return REPLACEMENT
    return character
