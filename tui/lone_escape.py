"""An escape that is typed, and one that begins a sequence: a slow link joins it to what comes next.

Terminals send `alt` and a letter as an escape and that letter, too. Textual takes every pair for it: an
escape right before an enter would be lost, and the enter would send what was to be left.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

ESCAPE = "\x1b"

_BEGINNINGS = ("\x1b[", "\x1bO")
"""Of control sequences and of those of the keypad (ECMA-48); `[` and `O` may be typed as well."""
_KEYPAD = re.compile(r"\x1bO[A-Za-z]")
_DELETE = "\x7f"
"""Behind an escape it deletes a word."""
_PASTE_BEGINS, _PASTE_ENDS = "\x1b[200~", "\x1b[201~"


class LoneEscape:
    """Takes the characters of a terminal, and gives those on that are for a parser of sequences.

    None among them is an escape that was typed. `alt` are the letters that mean something with `alt` held.
    """

    def __init__(self, alt: Collection[str] = ()) -> None:
        self._pairs = frozenset((*alt, _DELETE))
        self._held = ""
        """An escape, with what may be typed behind it: not given on yet."""
        self._given = ""
        """The last that was given on, as much as tells that a paste begins."""
        self._pasted = False

    def take(self, character: str) -> Iterator[str | None]:
        """What came."""
        held, self._held = self._held, ""
        if self._pasted:
            yield from self._paste(held + character)
        elif not held and character == ESCAPE:
            self._held = ESCAPE
        elif held == ESCAPE and held + character in _BEGINNINGS:
            self._held = held + character
        elif held and not self._is_one(held + character):
            yield None
            yield from held[1:]
            yield from self.take(character)
        else:
            yield from self._give(held + character)

    def rest(self) -> Iterator[str | None]:
        """Nothing came for a while: what was held was typed, if nothing is pasted."""
        if self._held and not self._pasted:
            held, self._held = self._held, ""
            yield None
            yield from held[1:]

    def _is_one(self, sequence: str) -> bool:
        """Whether these belong together: the beginning of a sequence, or a key with `alt`."""
        if sequence.startswith("\x1b["):
            return sequence[-1] != ESCAPE
        return sequence[1:] in self._pairs or _KEYPAD.fullmatch(sequence) is not None

    def _paste(self, text: str) -> Iterator[str]:
        """What is pasted, without the escapes in it: a parser would take what follows them for keys."""
        if _PASTE_ENDS.startswith(text):
            self._held = text
            if text != _PASTE_ENDS:
                return
            self._held, self._pasted = "", False
            yield from text
        elif text[-1] == ESCAPE:
            self._held = ESCAPE
            yield from text[1:-1]
        else:
            yield from text.removeprefix(ESCAPE)

    def _give(self, characters: str) -> Iterator[str]:
        for character in characters:
            self._given = (self._given + character)[-len(_PASTE_BEGINS) :]
            self._pasted = self._given == _PASTE_BEGINS
            yield character
