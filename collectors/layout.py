"""Known pages: what two pages of the same exporter share, kept once, so that most of a page needs no parsing.

A scrape changes numbers, not lines: the lines of a page are compared with those of the page before, and of a
line that differs only the part behind its known prefix is read. A `Template` holds what that takes; it is
shared between targets. A page that does not fit its template in every line is parsed anew, so that following
a template gives exactly what parsing would have given.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict, deque
from collections.abc import MutableSequence, Sequence
from dataclasses import dataclass, replace
from itertools import compress, repeat
from operator import eq, itemgetter, ne, setitem
from typing import Final, TypeVar
from weakref import WeakValueDictionary

from collectors.page import Layout
from collectors.sample_line import NUMBER_CHARACTERS, tail_value

MAX_TEMPLATES: Final = 64
"""Templates that the cache keeps. One engine version needs a handful: lines appear with first events."""

MAX_TEMPLATE_BYTES: Final = 20 * 1024 * 1024
"""Weight of all kept templates together; measured, a weight of 1 takes about 1.6 bytes of memory."""

_LINE_WEIGHT: Final = 200
"""What a line takes beside its text: objects, pointers, its dictionary of labels."""

NO_SAMPLE: Final = b"\n"
"""Prefix of a line that holds no sample: no line begins with it, so such a line must stay as it is."""

SCRATCH: Final = -1
"""Slot of a line that a later line with the same name and labels overrides."""

_TRIED_TEMPLATES: Final = 4
_FIRST_PLACES: Final = tuple(range(2048))  # made once: the numbers of a usual page's lines
_NUMBER_BYTES: Final = NUMBER_CHARACTERS.encode()

LayoutIdentity = tuple[tuple[str, ...], tuple[tuple[str, str], ...]]
"""Keys, and types with their families."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Template:
    """One page, line by line.

    `prefixes[i]` is line i up to its value (`NO_SAMPLE` if it holds none), `slots[i]` the index of that value
    or `SCRATCH`. `bad_lines` counts lines without a sample that are neither blank nor comments, and
    overridden ones; `problem` names the limit that some lines broke.
    """

    layout: Layout
    lines: tuple[bytes, ...]
    prefixes: tuple[bytes, ...]
    slots: tuple[int, ...]
    values: array[float]
    bad_lines: int
    problem: str


class Follower:
    """A target's last page as it differs from a template.

    `lines` shares every line that the target has in common with the template; `values` is never changed in
    place, pages may keep it.
    """

    __slots__ = ("lines", "template", "values")

    def __init__(self, template: Template) -> None:
        self.template = template
        self.values = template.values
        self.lines = list(template.lines)

    def follow(self, lines: Sequence[bytes]) -> Sequence[int] | None:
        """Take over the next page's lines; the slots whose line changed, in the order of the page.

        None when the page does not fit: nothing is taken over then.
        """
        template = self.template
        if len(lines) != len(self.lines):
            return None
        numbering = _FIRST_PLACES if len(lines) <= len(_FIRST_PLACES) else range(len(lines))
        places = tuple(compress(numbering, map(ne, lines, self.lines)))
        if not places:
            return ()
        new_lines = _pick(places, lines)
        numbers = _numbers_behind(_pick(places, template.prefixes), new_lines)
        if numbers is None:
            return None
        changed = _pick(places, template.slots)
        values = self.values[:]
        values.append(0.0)  # the scratch slot
        put(values, changed, numbers)
        values.pop()
        self.values = values
        put(self.lines, places, new_lines)
        if template.bad_lines and SCRATCH in changed:
            return [slot for slot in changed if slot != SCRATCH]
        return changed


def _numbers_behind(prefixes: Sequence[bytes], lines: Sequence[bytes]) -> Sequence[float] | None:
    """The value of each line behind its prefix, or None when a line has another prefix or no value."""
    tails = list(map(bytes.removeprefix, lines, prefixes))
    if True in map(eq, tails, lines):
        return None  # a prefix that does not fit is not removed
    if not b"".join(tails).translate(None, _NUMBER_BYTES):
        try:
            return list(map(float, tails))
        except ValueError:
            return None
    values = [tail_value(tail.decode("utf-8", "surrogateescape")) for tail in tails]
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) else None


def _pick(places: tuple[int, ...], items: Sequence[T]) -> Sequence[T]:
    """`items` at `places` (at least one place)."""
    if len(places) == 1:
        return (items[places[0]],)
    picked: Sequence[T] = itemgetter(*places)(items)
    return picked


def put(items: MutableSequence[T], places: Sequence[int], new: Sequence[T]) -> None:
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

    def follow_known(self, lines: Sequence[bytes]) -> Follower | None:
        """A follower that has taken over `lines`, if some template fits; the newest few alike are tried."""
        alike = [template for template in reversed(self._templates) if _looks_like(template, lines)]
        for template in alike[:_TRIED_TEMPLATES]:
            follower = Follower(template)
            if follower.follow(lines) is not None:
                self._templates.move_to_end(template)
                return follower
        return None

    def add(self, template: Template) -> Template:
        """Keep a template; the result is it with the one layout of these keys and types."""
        own = template.layout
        shared = self._layouts.setdefault((own.keys, tuple(own.types.items())), own)
        template = template if shared is own else replace(template, layout=shared)
        weight = sum(map(len, template.lines)) + _LINE_WEIGHT * len(template.lines)
        if weight <= self._max_bytes:
            self._templates[template] = weight
            self._bytes += weight
        while len(self._templates) > self._max_templates or self._bytes > self._max_bytes:
            _, oldest_weight = self._templates.popitem(last=False)
            self._bytes -= oldest_weight
        return template

    def __len__(self) -> int:
        return len(self._templates)


def _looks_like(template: Template, lines: Sequence[bytes]) -> bool:
    """Cheap: as many lines, and the same first one but for its last word."""
    return (
        len(template.lines) == len(lines)
        and template.lines[0].rpartition(b" ")[0] == lines[0].rpartition(b" ")[0]
    )
