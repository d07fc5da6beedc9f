"""A page in blocks, one a family: what repeats of each from page to page, and the numbers between.

A page is cut in front of its HELP lines (TYPE lines, where it has few others). A block that is still the same
is told by one comparison, wherever it stands by now; of one that moved only the numbers are read. A block's
text ends with the `cut` that the next one begins behind, but for the last of a page.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

from collectors.sample_line import NUMBER_CHARACTERS, tail_value
from enginetop.fleet.frozen import frozen

NO_SAMPLE: Final = b"\n"
"""Prefix of a line that holds no sample: no line begins with it, so such a line must stay as it is."""

_AT_HELP: Final = b"\n# HELP "
_AT_TYPE: Final = b"\n# TYPE "
_NUMBER_BYTES: Final = NUMBER_CHARACTERS.encode()


@frozen(eq=False)
class Block:
    """Some lines of a page: `head`, then sample lines, then `foot`.

    `prefixes` are the sample lines up to their values, `slots` the indexes of these values. Where other lines
    stand between samples `fixed` holds all that are no samples, by place, and `head` and `foot` are empty.
    No text that fits ends, or is cut, before `least_bytes`. Of a block that is not `read` the numbers behind
    `counts` alone are looked at, those of `count_slots`, and the number of its lines.
    """

    head: bytes
    foot: bytes
    prefixes: tuple[bytes, ...]
    slots: tuple[int, ...]
    fixed: tuple[tuple[int, bytes], ...]
    prefix_bytes: int
    least_bytes: int
    line_ends: int
    read: bool
    counts: tuple[bytes, ...] = ()
    count_slots: tuple[int, ...] = ()

    def count_tails(self, body: bytes, begin: int, end: int) -> list[bytes] | None:
        """What stands behind `counts` in the part of a page that is this block; None: it is not."""
        tails = []
        for prefix in self.counts:
            at = body.rfind(prefix, begin, end) + len(prefix)
            if at < len(prefix):
                return None
            line_end = body.find(b"\n", at, end)
            tails.append(body[at : line_end if line_end >= 0 else end])
        return tails

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


def cut_for(body: bytes) -> bytes:
    """Where such a page is best cut into blocks."""
    helps, types = body.count(_AT_HELP), body.count(_AT_TYPE)
    return _AT_HELP if 2 * helps >= types else _AT_TYPE


def blocks_of(
    body: bytes,
    cut: bytes,
    prefixes: Sequence[bytes],
    slots: Sequence[int],
    read_of: Callable[[Sequence[int]], Collection[int]],
) -> Iterator[tuple[bytes, Block]]:
    """The blocks of a page and their texts; `prefixes` and `slots` are those of its lines, line by line.

    `read_of` says by the slots of a block which of its numbers are looked at: all, some counts, or none.
    """
    *texts, last = body.split(cut)
    begin = 0
    for text in (*(text + cut for text in texts), last):
        lines = text.split(b"\n")
        # a cut leaves the beginning of the next line behind, which is fixed
        end = begin + len(lines) - (text is not last)
        yield text, _block(text, lines, prefixes[begin:end], slots[begin:end], len(cut), read_of)
        begin = end


def _block(
    text: bytes,
    lines: Sequence[bytes],
    prefixes: Sequence[bytes],
    slots: Sequence[int],
    cut_bytes: int,
    read_of: Callable[[Sequence[int]], Collection[int]],
) -> Block:
    places = [place for place, prefix in enumerate(prefixes) if prefix != NO_SAMPLE]
    head, foot = text, b""
    fixed: tuple[tuple[int, bytes], ...] = ()
    samples: Sequence[bytes] = ()
    if places:
        begin, end = places[0], places[-1] + 1
        if end - begin == len(places):
            samples, prefixes, slots = lines[begin:end], prefixes[begin:end], slots[begin:end]
            head = b"".join([line + b"\n" for line in lines[:begin]])
            foot = b"".join([b"\n" + line for line in lines[end:]])
        else:
            standing = sorted(set(range(len(lines))).difference(places))
            fixed = tuple((place, lines[place]) for place in standing)
            head = b""
            samples = [lines[place] for place in places]
            prefixes = [prefixes[place] for place in places]
            slots = [slots[place] for place in places]
    else:
        prefixes = slots = ()
    fixed_bytes = len(text) - (sum(map(len, samples)) + len(samples) - 1 if samples else 0)
    prefix_bytes = sum(map(len, prefixes))
    read = read_of(slots)
    all_read = len(read) == len(slots)
    pairs = () if all_read else zip(prefixes, slots, strict=True)
    counted = [(prefix, slot) for prefix, slot in pairs if slot in read]
    return Block(
        head=head,
        foot=foot,
        prefixes=tuple(prefixes),
        slots=tuple(slots),
        fixed=fixed,
        prefix_bytes=prefix_bytes,
        least_bytes=max(0, fixed_bytes + prefix_bytes - cut_bytes),
        line_ends=len(lines) - 1,
        read=all_read,
        counts=tuple(b"\n" + prefix for prefix, _ in counted),
        count_slots=tuple(slot for _, slot in counted),
    )


class Moving:
    """Blocks that moved at one look, made ready to be read together: most looks find the same ones moved."""

    __slots__ = ("_blocks", "_feet", "_heads", "_prefix_bytes", "_prefixes", "slots")

    def __init__(self, blocks: Sequence[Block]) -> None:
        self.slots = tuple(chain.from_iterable(block.slots for block in blocks))
        """The slots of all their numbers, in the order of the page."""
        self._prefixes = tuple(chain.from_iterable(block.prefixes for block in blocks))
        self._prefix_bytes = sum(block.prefix_bytes for block in blocks)
        self._heads = tuple(block.head for block in blocks)
        self._feet = tuple(block.foot for block in blocks)
        self._blocks = blocks if any(block.fixed for block in blocks) else ()

    def numbers(self, texts: Sequence[bytes]) -> Sequence[float] | None:
        """The numbers in other texts of these blocks, as `slots` orders them; None where one does not fit.

        A comment that is another one stays, and makes a line too many. The prefixes that are taken away are
        as long as what was expected only if all of them were found: no line needs a look of its own for that.
        """
        samples: Iterable[bytes]
        if self._blocks:
            samples = map(Block.samples, self._blocks, texts)
        else:
            samples = map(bytes.removesuffix, map(bytes.removeprefix, texts, self._heads), self._feet)
        joined = b"\n".join(samples)
        lines = joined.split(b"\n")
        if len(lines) != len(self._prefixes):
            return None
        tails = list(map(bytes.removeprefix, lines, self._prefixes))
        numerals = b"".join(tails)
        if len(joined) - len(lines) + 1 - len(numerals) != self._prefix_bytes:
            return None
        return numbers_in(tails, numerals)


def numbers_in(tails: Sequence[bytes], joined: bytes) -> Sequence[float] | None:
    """The numbers behind the prefixes of lines, `joined` being all of them; None where one is none."""
    if not joined.translate(None, _NUMBER_BYTES):
        try:
            return list(map(float, tails))
        except ValueError:
            return None
    values = [tail_value(tail.decode("utf-8", "surrogateescape")) for tail in tails]
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) else None
