"""A page in blocks, one a family: what repeats of each from page to page, and the numbers between.

A page is cut in front of its HELP lines (TYPE lines, where it has few others). A block that is still the same
is told by one comparison, wherever it stands by now; of one that moved only the numbers are read. A block's
text ends with the `cut` that the next one begins behind, but for the last of a page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Final

from collectors.sample_line import NUMBER_CHARACTERS, tail_value

NO_SAMPLE: Final = b"\n"
"""Prefix of a line that holds no sample: no line begins with it, so such a line must stay as it is."""

_AT_HELP: Final = b"\n# HELP "
_AT_TYPE: Final = b"\n# TYPE "
_NUMBER_BYTES: Final = NUMBER_CHARACTERS.encode()


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Some lines of a page: `head`, then sample lines, then `foot`.

    `prefixes` are the sample lines up to their values, `slots` the indexes of these values. Where other lines
    stand between samples `fixed` holds all that are no samples, by place, and `head` and `foot` are empty.
    No text that fits ends, or is cut, before `least_bytes`. Of a block that is not `read` no number is
    looked at, only the number of its lines.
    """

    head: bytes
    foot: bytes
    prefixes: tuple[bytes, ...]
    slots: tuple[int, ...]
    fixed: tuple[tuple[int, bytes], ...]
    fixed_bytes: int
    prefix_bytes: int
    least_bytes: int
    line_ends: int
    read: bool = True

    def samples(self, text: bytes) -> bytes:
        """The sample lines of another text of this block; more than these where it does not fit."""
        if not self.fixed:
            return text.removeprefix(self.head).removesuffix(self.foot)
        lines = text.split(b"\n")
        if len(lines) != len(self.fixed) + len(self.prefixes):
            return text
        if any(lines[place] != line for place, line in self.fixed):
            return text
        gone = {place for place, _ in self.fixed}
        return b"\n".join([line for place, line in enumerate(lines) if place not in gone])


def cut_for(lines: Sequence[bytes]) -> bytes:
    """Where such a page is best cut into blocks."""
    helps = sum(line.startswith(_AT_HELP[1:]) for line in lines)
    types = sum(line.startswith(_AT_TYPE[1:]) for line in lines)
    return _AT_HELP if 2 * helps >= types else _AT_TYPE


def blocks_of(
    cut: bytes, lines: Sequence[bytes], prefixes: Sequence[bytes], slots: Sequence[int]
) -> Iterator[tuple[bytes, Block]]:
    """The blocks of a page and their texts; `prefixes` and `slots` are those of `lines`, line by line."""
    *texts, last = b"\n".join(lines).split(cut)
    begin = 0
    for text in (*(text + cut for text in texts), last):
        # a cut leaves the beginning of the next line behind, which is fixed
        own = text.split(b"\n")
        end = begin + len(own) - (text is not last)
        yield text, _block(own, prefixes[begin:end], slots[begin:end], len(cut))
        begin = end


def _block(lines: Sequence[bytes], prefixes: Sequence[bytes], slots: Sequence[int], cut_bytes: int) -> Block:
    places = [place for place, prefix in enumerate(prefixes) if prefix != NO_SAMPLE]
    begin, end = (places[0], places[-1] + 1) if places else (len(lines), len(lines))
    together = end - begin == len(places)
    head, foot = b"", b""
    fixed: tuple[tuple[int, bytes], ...] = ()
    if not places:
        head = b"\n".join(lines)
    elif together:
        head = b"".join([line + b"\n" for line in lines[:begin]])
        foot = b"".join([b"\n" + line for line in lines[end:]])
    else:
        standing = set(range(len(lines))).difference(places)
        fixed = tuple((place, lines[place]) for place in sorted(standing))
    samples = sum(len(lines[place]) + 1 for place in places)
    fixed_bytes = sum(len(line) + 1 for line in lines) - samples - (not places)
    prefix_bytes = sum(len(prefixes[place]) for place in places)
    return Block(
        head=head,
        foot=foot,
        prefixes=tuple(prefixes[place] for place in places),
        slots=tuple(slots[place] for place in places),
        fixed=fixed,
        fixed_bytes=fixed_bytes,
        prefix_bytes=prefix_bytes,
        least_bytes=max(0, fixed_bytes + prefix_bytes - cut_bytes),
        line_ends=len(lines) - 1,
    )


_PREFIXES = attrgetter("prefixes")
_SLOTS = attrgetter("slots")
_FIXED_BYTES = attrgetter("fixed_bytes")
_PREFIX_BYTES = attrgetter("prefix_bytes")


def slots_of(blocks: Sequence[Block]) -> list[int]:
    """The slots of all numbers of these blocks, in the order of the page."""
    return list(chain.from_iterable(map(_SLOTS, blocks)))


def numbers_of(blocks: Sequence[Block], texts: Sequence[bytes]) -> Sequence[float] | None:
    """The numbers in other texts of these blocks, as `slots_of` orders them; None where one does not fit.

    What is taken away is as long as what was expected only if all of it was found: no line needs a look of
    its own for that.
    """
    samples = list(map(Block.samples, blocks, texts))
    if sum(map(len, texts)) - sum(map(len, samples)) != sum(map(_FIXED_BYTES, blocks)):
        return None
    joined = b"\n".join(samples)
    lines = joined.split(b"\n")
    prefixes = list(chain.from_iterable(map(_PREFIXES, blocks)))
    if len(lines) != len(prefixes):
        return None
    tails = list(map(bytes.removeprefix, lines, prefixes))
    numerals = b"".join(tails)
    if len(joined) - len(lines) + 1 - len(numerals) != sum(map(_PREFIX_BYTES, blocks)):
        return None
    if not numerals.translate(None, _NUMBER_BYTES):
        try:
            return list(map(float, tails))
        except ValueError:
            return None
    values = [tail_value(tail.decode("utf-8", "surrogateescape")) for tail in tails]
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) else None
