"""The side pages of one target: what they told last, and which of them are still worth asking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from collectors.answer import Answer
from collectors.engines.base import Json, SidePage
from collectors.engines.detect import SIDE_FIELDS, STATUS_PATHS
from collectors.redact import reduced
from enginetop.fleet.foreign_json import decoded
from enginetop.fleet.frozen import frozen

SIDE_TRIES = 3
"""A page that is asked once per start is given up after as many faults."""
_ABSENT = 1 << 30  # tries of a path that is not there, or not for us: not asked again before a restart
_NOT_FOR_US = frozenset({401, 403, 404, 405, 501})


@frozen
class _Side:
    body: Json
    at: float


class SidePages:
    """Paths that are no side page of any engine are passed over.

    A scrape asks for the bodies after each of its answers: until `end_scrape` what each told is remembered.
    """

    def __init__(self) -> None:
        self._pages: dict[str, _Side] = {}
        self._bodies: Mapping[str, Json] = MappingProxyType({})
        self._told: dict[Answer, _Side | None] = {}
        self._tries: dict[str, int] = {}

    def __contains__(self, path: str) -> bool:
        """Whether the page answered when it was asked last."""
        return path in self._pages

    @property
    def bodies(self) -> Mapping[str, Json]:
        """The newest body by path; a path that failed is missing. The same object until one is told anew."""
        return self._bodies

    def bodies_after(self, answers: Sequence[Answer]) -> Mapping[str, Json]:
        """The bodies as they will be when these answers are taken."""
        pages = self._after(answers)
        return self._bodies if pages is self._pages else _bodies_of(pages)

    def fresh_since(self, at: float) -> frozenset[str]:
        """Paths whose body is not older than `at`."""
        return frozenset(path for path, page in self._pages.items() if page.at >= at)

    def is_due(self, side: SidePage) -> bool:
        """Whether the page is to be asked at the next scrape."""
        return self._tries.get(side.path, 0) < (_ABSENT if side.every_scrape else SIDE_TRIES)

    def take(self, answers: Sequence[Answer]) -> None:
        """Remember what came, and what did not."""
        if all(answer.path not in SIDE_FIELDS for answer in answers):
            return
        self._keep(self._after(answers))
        for answer in answers:
            if answer.path in SIDE_FIELDS:
                settled = answer.error is None and answer.status < 500
                tries = SIDE_TRIES if settled else self._tries.get(answer.path, 0) + 1
                refused = answer.error is None and answer.status in _NOT_FOR_US
                self._tries[answer.path] = _ABSENT if refused else tries

    def end_scrape(self) -> None:
        """The answers of this scrape come no more."""
        self._told.clear()

    def ask_again(self) -> None:
        """Another process may answer now: what was given up is asked anew."""
        self._tries.clear()

    def forget(self) -> None:
        """Another engine is there: nothing that was told holds."""
        self._keep({})
        self._tries.clear()

    def _keep(self, pages: dict[str, _Side]) -> None:
        if pages is not self._pages:
            self._pages, self._bodies = pages, _bodies_of(pages)

    def _after(self, answers: Sequence[Answer]) -> dict[str, _Side]:
        sides = [answer for answer in answers if answer.path in SIDE_FIELDS]
        if not sides:
            return self._pages
        pages = dict(self._pages)
        for answer in sides:
            if answer not in self._told:
                self._told[answer] = _side_of(answer)
            side = self._told[answer]
            if side is None:
                pages.pop(answer.path, None)
            else:
                pages[answer.path] = side
        return pages


def _bodies_of(pages: Mapping[str, _Side]) -> Mapping[str, Json]:
    return MappingProxyType({path: page.body for path, page in pages.items()})


def _side_of(answer: Answer) -> _Side | None:
    """What an answer tells; None when it tells nothing."""
    if answer.error is not None:
        return None
    if answer.path in STATUS_PATHS and answer.status not in _NOT_FOR_US:
        return _Side(answer.status, answer.at)
    body = decoded(answer.body) if 200 <= answer.status < 300 else None
    # What is not read is dropped at once: these pages can show keys and command lines.
    return None if body is None else _Side(reduced(body, SIDE_FIELDS[answer.path]), answer.at)
