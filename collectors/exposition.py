"""From the bytes of a metrics page to a `Page`: tolerant, bounded, and cheap for the next page alike.

Text format 0.0.4 and OpenMetrics. A line that cannot be read is skipped and counted, never an error: one
broken label must not blank a replica. Nothing here raises for what a page holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from collectors.layout import READ_ALL, Follower, LayoutCache, Template, Unread
from collectors.page import Page
from collectors.page_lines import ParseLimits, parse_lines

__all__ = ["LayoutCache", "PageParser", "ParseLimits"]

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_OPEN_METRICS: Final = "application/openmetrics-text"
_END_OF_PAGE: Final = b"# EOF"

DEFAULT_LIMITS: Final = ParseLimits()


class PageParser:
    """Parses the pages of one target, each in the light of the one before.

    Numbers of what is `unread` are not looked at, and NaN. Parsers that share `layouts` must have the same
    `limits` and `unread`.
    """

    def __init__(
        self, layouts: LayoutCache, limits: ParseLimits = DEFAULT_LIMITS, unread: Unread = READ_ALL
    ) -> None:
        self._layouts = layouts
        self._limits = limits
        self._unread = unread
        self._follower: Follower | None = None

    def parse(self, body: bytes, content_type: str = "") -> Page:
        """The page; `content_type` is that of the answer and only tells whether a missing `# EOF` matters."""
        truncated = _is_truncated(body, content_type)
        if len(body) <= self._limits.body_bytes:
            body = body.removeprefix(_BYTE_ORDER_MARK)
            if self._follower is None or not self._follower.follow(body):
                self._follower = self._layouts.follow_known(body)
            if self._follower is not None:
                return _page(self._follower.template, self._follower.values, truncated)
        return self._page_with_new_lines(body, truncated)

    def _page_with_new_lines(self, body: bytes, truncated: bool) -> Page:
        lines, problem = _split(body, self._limits)
        template = parse_lines(lines, self._limits, self._unread)
        if problem or not template.values:
            return _page(template, template.values, truncated, problem)
        template = self._layouts.add(template)
        self._follower = Follower(template)
        return _page(template, template.values, truncated)


def _split(body: bytes, limits: ParseLimits) -> tuple[Sequence[bytes], str]:
    """The lines without their ends, and what was cut off, if anything."""
    problem = ""
    if len(body) > limits.body_bytes:
        problem = f"the body is longer than {limits.body_bytes} bytes: the rest was not read"
        body = body[: body.rfind(b"\n", 0, limits.body_bytes) + 1].removeprefix(_BYTE_ORDER_MARK)
    lines = body.split(b"\n", limits.lines)
    if len(lines) > limits.lines and lines[-1]:
        problem = problem or f"more than {limits.lines} lines: the rest was not read"
        del lines[limits.lines :]
    return lines, problem


def _is_truncated(body: bytes, content_type: str) -> bool:
    return _OPEN_METRICS in content_type.lower() and body.rstrip().rpartition(b"\n")[2] != _END_OF_PAGE


def _page(template: Template, values: Sequence[float], truncated: bool, problem: str = "") -> Page:
    whole = template.whole and not problem
    return Page(template.layout, values, template.bad_lines, truncated, problem or template.problem, whole)
