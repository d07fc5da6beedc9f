"""From the bytes of a metrics page to a `Page`: tolerant, bounded, and cheap for the next page alike.

Text format 0.0.4 and OpenMetrics. A line that cannot be read is skipped and counted, never an error: one
broken label must not blank a replica. Nothing here raises for what a page holds.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, count
from operator import ne
from types import MappingProxyType
from typing import Final

from collectors.layout import NO_SAMPLE, SCRATCH, Follower, LayoutCache, Template
from collectors.page import Layout, Page
from collectors.sample_line import OverLimitError, SampleGrammar, family_type

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_OPEN_METRICS: Final = "application/openmetrics-text"
_END_OF_PAGE: Final = b"# EOF"


@dataclass(frozen=True, slots=True)
class ParseLimits:
    """Bounds of one page; what lies beyond is dropped and named in `Page.problem`.

    A body that is too long is cut at its last whole line. Lines, samples: the rest is not read. A line, a
    name or a label that is too long, or a sample with too many labels: that line is skipped and counted as
    bad. The defaults fit a router's page over a hundred engines.
    """

    body_bytes: int = 16 * 1024 * 1024
    lines: int = 400_000
    samples: int = 100_000
    line_bytes: int = 64 * 1024
    labels: int = 64
    label_characters: int = 4096


DEFAULT_LIMITS: Final = ParseLimits()


class PageParser:
    """Parses the pages of one target, each in the light of the one before."""

    def __init__(self, layouts: LayoutCache, limits: ParseLimits = DEFAULT_LIMITS) -> None:
        self._layouts = layouts
        self._limits = limits
        self._follower: Follower | None = None
        self._changed: Sequence[int] | None = None

    @property
    def changed(self) -> Sequence[int] | None:
        """What moved from the previous page to the last one, as indexes into `Page.values`.

        Every value that differs is listed; a value written in another way (`1`, `1.0`) or still NaN may be.
        None when the last page has another layout than the one before it, or is the first.
        """
        return self._changed

    def parse(self, body: bytes, content_type: str = "") -> Page:
        """The page; `content_type` is that of the answer and only tells whether a missing `# EOF` matters."""
        truncated = _is_truncated(body, content_type)
        lines, problem = _split(body, self._limits)
        if problem:
            self._follower = self._changed = None
            return _page(parse_lines(lines, self._limits), None, truncated, problem)
        follower = self._follower
        if follower is not None:
            changed = follower.follow(lines)
            if changed is not None:
                self._changed = changed
                return _page(follower.template, follower.values, truncated)
        return self._page_with_new_lines(lines, truncated)

    def _page_with_new_lines(self, lines: Sequence[bytes], truncated: bool) -> Page:
        before, self._changed = self._follower, None
        self._follower = follower = self._layouts.follow_known(lines)
        if follower is None:
            template = parse_lines(lines, self._limits)
            if not template.values:
                return _page(template, None, truncated)
            template = self._layouts.add(template)
            self._follower = follower = Follower(template)
        if before is not None and before.template.layout is follower.template.layout:
            self._changed = list(compress(count(), map(ne, before.values, follower.values)))
        return _page(follower.template, follower.values, truncated)


def parse_lines(lines: Sequence[bytes], limits: ParseLimits) -> Template:
    """Every line read by itself, without knowledge of other pages."""
    grammar = SampleGrammar(limits.labels, limits.label_characters)
    names: list[str] = []
    labels: list[Mapping[str, str]] = []
    values = array("d")
    slot_of_key: dict[str, int] = {}
    place_of_slot: list[int] = []
    types: dict[str, str] = {}
    prefixes = [NO_SAMPLE] * len(lines)
    slots = [SCRATCH] * len(lines)
    bad_lines = 0
    problem = ""
    for place, raw in enumerate(lines):
        if raw[:1] == b"#":
            if b"TYPE" in raw[:16]:
                _note_type(raw, types)
            continue
        if not raw or raw.isspace():
            continue
        if len(raw) > limits.line_bytes:
            bad_lines += 1
            problem = problem or f"a line is longer than {limits.line_bytes} bytes"
            continue
        line = raw.decode("utf-8", "surrogateescape")
        try:
            sample = grammar.parse(line)
        except OverLimitError as error:
            bad_lines += 1
            problem = problem or str(error)
            continue
        if sample is None:
            bad_lines += not line.lstrip(" \t").startswith("#")
            continue
        name, label_set, key, value, start = sample
        slot = slot_of_key.get(key)
        if slot is not None:
            bad_lines += 1
            slots[place_of_slot[slot]] = SCRATCH
            values[slot] = value
            place_of_slot[slot] = place
        elif len(names) == limits.samples:
            problem = f"more than {limits.samples} samples: the rest was not read"
            break
        else:
            slot = slot_of_key[key] = len(names)
            names.append(name)
            labels.append(label_set)
            values.append(value)
            place_of_slot.append(place)
        slots[place] = slot
        prefixes[place] = line[:start].encode("utf-8", "surrogateescape")
    layout = Layout(tuple(names), tuple(labels), tuple(slot_of_key), MappingProxyType(types))
    return Template(layout, tuple(lines), tuple(prefixes), tuple(slots), values, bad_lines, problem)


def _note_type(raw: bytes, types: dict[str, str]) -> None:
    """The last TYPE line of a family wins."""
    found = family_type(raw.decode("utf-8", "surrogateescape"))
    if found is not None:
        types[found[0]] = found[1]


def _split(body: bytes, limits: ParseLimits) -> tuple[Sequence[bytes], str]:
    """The lines without their ends, and what was cut off, if anything."""
    problem = ""
    if len(body) > limits.body_bytes:
        problem = f"the body is longer than {limits.body_bytes} bytes: the rest was not read"
        body = body[: body.rfind(b"\n", 0, limits.body_bytes) + 1]
    if body.startswith(_BYTE_ORDER_MARK):
        body = body[len(_BYTE_ORDER_MARK) :]
    if b"\r" in body:
        body = body.replace(b"\r\n", b"\n")
    lines = body.split(b"\n", limits.lines)
    if len(lines) > limits.lines:
        problem = problem or f"more than {limits.lines} lines: the rest was not read"
        del lines[limits.lines :]
    return lines, problem


def _is_truncated(body: bytes, content_type: str) -> bool:
    return _OPEN_METRICS in content_type.lower() and body.rstrip().rpartition(b"\n")[2] != _END_OF_PAGE


def _page(template: Template, values: Sequence[float] | None, truncated: bool, problem: str = "") -> Page:
    return Page(
        template.layout,
        template.values if values is None else values,
        template.bad_lines,
        truncated,
        problem or template.problem,
    )
