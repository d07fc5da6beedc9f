"""From the bytes of a metrics page to a `Page`: tolerant, bounded, and cheap for the next page alike.

Text format 0.0.4 and OpenMetrics. A line that cannot be read is skipped and counted, never an error: one
broken label must not blank a replica. Nothing here raises for what a page holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress, count
from operator import ne
from typing import Final

from collectors.layout import Follower, LayoutCache, Template
from collectors.page import Page
from collectors.page_lines import ParseLimits, parse_lines

__all__ = ["LayoutCache", "PageParser", "ParseLimits"]

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_OPEN_METRICS: Final = "application/openmetrics-text"
_END_OF_PAGE: Final = b"# EOF"

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


def _split(body: bytes, limits: ParseLimits) -> tuple[Sequence[bytes], str]:
    """The lines without their ends, and what was cut off, if anything."""
    problem = ""
    if len(body) > limits.body_bytes:
        problem = f"the body is longer than {limits.body_bytes} bytes: the rest was not read"
        body = body[: body.rfind(b"\n", 0, limits.body_bytes) + 1]
    if body.startswith(_BYTE_ORDER_MARK):
        body = body[len(_BYTE_ORDER_MARK) :]
    lines = body.split(b"\n", limits.lines)
    if len(lines) > limits.lines and lines[-1]:
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
