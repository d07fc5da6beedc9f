"""Known pages: what two pages of the same exporter share, kept once, so that most of a page needs no parsing.

A scrape changes numbers, not lines: the blocks of a page are compared with those of the page before, and of a
block that differs only the part of each line behind its known prefix is read. A `Template` holds what that
takes; it is shared between targets. A page that does not fit its template in every line is parsed anew, so
that following a template gives exactly what parsing would have given.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict, deque
from collections.abc import Collection, Iterable, Iterator, MutableSequence, Sequence
from dataclasses import field, replace
from itertools import count, repeat
from math import nan
from operator import setitem
from typing import Final, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from collectors.blocks import Block, Moving, blocks_of, cut_for, numbers_in
from collectors.page import Layout
from enginetop.fleet.frozen import frozen

MAX_TEMPLATES: Final = 64
"""Templates that the cache keeps. One engine version needs a handful: lines appear with first events."""

MAX_TEMPLATE_BYTES: Final = 20 * 1024 * 1024
"""Weight of all kept templates together; measured, a weight of 1 takes about 1.6 bytes of memory."""

_LINE_WEIGHT: Final = 200
"""What a line takes beside its text: objects, pointers, its dictionary of labels."""

SCRATCH: Final = -1
"""Slot of a line that a later line with the same name and labels overrides."""

_TRIED_TEMPLATES: Final = 4
_KEPT_EVERY: Final = 8
_MOVING_KEPT: Final = 64

LayoutIdentity = tuple[tuple[str, ...], tuple[tuple[str, str], ...]]
"""Keys, and types with their families."""

T = TypeVar("T")


class Unread(NamedTuple):
    """What is passed over of a page: families by how the names of all their samples begin.

    Of histograms `but_for_counts` the counts alone are looked at. All other numbers are NaN.
    """

    wholly: tuple[str, ...] = ()
    but_for_counts: tuple[str, ...] = ()


READ_ALL: Final = Unread()


@frozen(eq=False)
class Template:
    """One page, block by block, cut at `cut`; `texts` are those of `blocks`, None of one that tells nothing.

    Numbers of blocks that are not read are NaN in `values`. `bad_lines` counts lines without a sample that
    are neither blank nor comments, and overridden ones; `problem` and `whole` are those of the page.
    """

    layout: Layout
    cut: bytes
    first_line: bytes
    lines: int
    weight: int
    blocks: tuple[Block, ...]
    texts: tuple[bytes | None, ...]
    values: array[float]
    bad_lines: int
    problem: str
    whole: bool
    followers: Iterator[int] = field(default_factory=count)
    known_moving: dict[tuple[int, ...], Moving] = field(default_factory=dict)

    def moving(self, places: tuple[int, ...]) -> Moving:
        """The blocks at these places, ready to be read together."""
        known = self.known_moving.get(places)
        if known is None:
            if len(self.known_moving) == _MOVING_KEPT:
                self.known_moving.clear()
            known = self.known_moving[places] = Moving([self.blocks[place] for place in places])
        return known


def template_of(
    lines: Sequence[bytes],
    prefixes: Sequence[bytes],
    slots: Sequence[int],
    layout: Layout,
    values: array[float],
    *,
    bad_lines: int,
    problem: str,
    whole: bool,
    unread: Unread,
) -> Template:
    """The template of a page that was parsed.

    `prefixes[i]` is line i up to its value (`NO_SAMPLE` if it holds none), `slots[i]` the index of that value
    or `SCRATCH`. Of blocks whose names all begin as `unread` says not all is looked at.
    """
    passed_over = (*unread.wholly, *unread.but_for_counts)

    def read_of(own: Sequence[int]) -> Collection[int]:
        names = [layout.names[slot] for slot in own]
        if SCRATCH in own or not all(name.startswith(passed_over) for name in names):
            return own
        return [
            slot
            for slot, name in zip(own, names, strict=True)
            if name.endswith("_count") and name.startswith(unread.but_for_counts)
        ]

    body = b"\n".join(lines)
    cut = cut_for(body)
    pairs = list(blocks_of(body, cut, prefixes, slots, read_of))
    for _, block in pairs:
        if not block.read:
            passed = set(block.slots).difference(block.count_slots)
            put(values, list(passed), repeat(nan))
    return Template(
        layout=layout,
        cut=cut,
        first_line=lines[0].rpartition(b" ")[0],
        lines=len(lines),
        weight=len(body) + _LINE_WEIGHT * len(lines),
        blocks=tuple(block for _, block in pairs),
        texts=tuple(text if block.read or block.counts else None for text, block in pairs),
        values=values,
        bad_lines=bad_lines,
        problem=problem,
        whole=whole,
    )


class Follower:
    """A target's last page as it differs from a template.

    `texts` shares every block that the target has in common with the template. Of a block that moved the text
    is kept at one look in `_KEPT_EVERY` only, to see whether it stands still by now: what moves at every look
    has no use for it. At such a look the lines of blocks that are not read are counted as well.
    `values` is never changed in place, pages may keep it.
    """

    __slots__ = ("_looks", "template", "texts", "values")

    def __init__(self, template: Template) -> None:
        self.template = template
        self.values = template.values
        self.texts: list[bytes | None] = list(template.texts)
        self._looks = next(template.followers)  # not all targets keep their texts at one time

    def follow(self, body: bytes) -> bool:
        """Take over the next page; False when it does not fit: nothing is taken over then."""
        template = self.template
        cut = template.cut
        size, cut_size, last = len(body), len(cut), len(self.texts) - 1
        # counting lines takes half as long as reading them
        counting = not self._looks % _KEPT_EVERY
        same, find = body.startswith, body.find
        places: list[int] = []
        moved: list[bytes] = []
        tails: list[bytes] = []
        count_slots: list[int] = []
        at = 0
        for place, text in enumerate(self.texts):
            if text is not None and same(text, at):
                at += len(text)
                continue
            block = template.blocks[place]
            end = find(cut, at + block.least_bytes) + cut_size if place < last else size
            if end < at + block.least_bytes:
                return False
            if block.read:
                places.append(place)
                moved.append(body[at:end])
            elif counting and body.count(b"\n", at, end) != block.line_ends:
                return False
            elif block.counts:
                counts = block.count_tails(body, at, end)
                if counts is None:
                    return False
                tails += counts
                count_slots += block.count_slots
            at = end
        if at != size or ((places or tails) and not self._take(places, moved, count_slots, tails)):
            return False
        self._looks += 1
        return True

    def _take(
        self,
        places: Sequence[int],
        moved: Sequence[bytes],
        count_slots: Sequence[int],
        tails: Sequence[bytes],
    ) -> bool:
        moving = self.template.moving(tuple(places))
        numbers = moving.numbers(moved) if places else ()
        counts = numbers_in(tails, b"".join(tails))
        if numbers is None or counts is None:
            return False
        values = self.values[:]
        values.append(0.0)  # the scratch slot
        put(values, moving.slots, numbers)
        put(values, count_slots, counts)
        values.pop()
        self.values = values
        put(self.texts, places, repeat(None) if self._looks % _KEPT_EVERY else moved)
        return True


def put(items: MutableSequence[T], places: Sequence[int], new: Iterable[T]) -> None:
    """Set `items` at `places`; the loop runs in C."""
    deque(map(setitem, repeat(items), places, new), maxlen=0)


class LayoutCache:
    """Templates and layouts shared between targets; the least recently used template goes first.

    Holds at most `max_templates` templates with a weight of `max_bytes` together. A layout lives as long as
    anyone uses it. Parsers that share a cache must have the same limits and run in one thread.
    """

    def __init__(self, max_templates: int = MAX_TEMPLATES, max_bytes: int = MAX_TEMPLATE_BYTES) -> None:
        self._max_templates = max_templates
        self._max_bytes = max_bytes
        self._bytes = 0
        self._templates: OrderedDict[Template, int] = OrderedDict()
        self._layouts: WeakValueDictionary[LayoutIdentity, Layout] = WeakValueDictionary()

    def follow_known(self, body: bytes) -> Follower | None:
        """A follower that has taken over `body`, if some template fits; the newest few alike are tried."""
        lines = body.count(b"\n") + 1
        first_line = body.partition(b"\n")[0].rpartition(b" ")[0]
        alike = [
            template
            for template in reversed(self._templates)
            if template.lines == lines and template.first_line == first_line
        ]
        for template in alike[:_TRIED_TEMPLATES]:
            follower = Follower(template)
            if follower.follow(body):
                self._templates.move_to_end(template)
                return follower
        return None

    def add(self, template: Template) -> Template:
        """Keep a template; the result is it with the one layout of these keys and types."""
        own = template.layout
        shared = self._layouts.setdefault((own.keys, tuple(own.types.items())), own)
        template = template if shared is own else replace(template, layout=shared)
        if template.weight <= self._max_bytes:
            self._templates[template] = template.weight
            self._bytes += template.weight
        while len(self._templates) > self._max_templates or self._bytes > self._max_bytes:
            _, oldest_weight = self._templates.popitem(last=False)
            self._bytes -= oldest_weight
        return template

    def __len__(self) -> int:
        return len(self._templates)
