"""What an engine's table must offer, and what the feed may ask of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any, Protocol

from collectors.engines.mapping import Table
from collectors.page import Layout, Page
from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import EngineKind
from enginetop.fleet.observation import Failure
from enginetop.fleet.quickly_made import quickly_made
from enginetop.fleet.reading import Reading

Json = Any
Sides = Mapping[str, Json]
"""The newest decoded JSON body of each side page, by path; a path that failed is missing."""


@frozen
class SidePage:
    """A JSON page read beside the metrics page, asked with `query`.

    `every_scrape` False: asked once, and again after a restart. `before_metrics` True: asked first, because
    it decides whether the metrics page may be asked at all. `keep` is the allow-list of fields that a
    recording may hold, dotted, `[]` for each list item. `when`: it is asked only where the side pages before
    it say so. `status_only`: what is read of it is its status, a number, and never its body.
    """

    path: str
    keep: tuple[str, ...] = ()
    every_scrape: bool = False
    before_metrics: bool = False
    query: str = ""
    when: Callable[[Sides], bool] | None = None
    status_only: bool = False

    @property
    def request(self) -> str:
        """Path and query."""
        return f"{self.path}?{self.query}" if self.query else self.path

    def asked_with(self, sides: Sides) -> bool:
        """Whether the side pages read before it say that it may be asked."""
        return self.when is None or self.when(sides)


@quickly_made(eq=False)
class Look:
    """What is known of one target at one instant: the newest page, and the side pages.

    `page` is None when the metrics page may not be asked now; `headers` are those it came with. `fresh_sides`
    names the side pages that are not older than the page: only these may be added to its counters.
    """

    at: float
    page: Page | None
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    sides: Sides = field(default_factory=lambda: MappingProxyType({}))
    fresh_sides: frozenset[str] = frozenset()


class Reader(Protocol):
    """Turns the looks at one target into readings. May keep state between calls (live token counts)."""

    def wants_side(self, path: str, page: Page) -> bool:
        """Whether a due side page is worth asking after this metrics page; changes nothing here."""

    def read(self, look: Look) -> Reading | Failure:
        """The reading, or why this server has none to give."""


class PageReader(ABC):
    """A `Reader` of an engine whose metrics page may always be asked, and whose side pages are all of use."""

    def wants_side(self, path: str, page: Page) -> bool:
        """Every side page that is due."""
        del path, page
        return True

    def read(self, look: Look) -> Reading:
        """The reading of the page. Raises ValueError without one."""
        if look.page is None:
            raise ValueError(f"{type(self).__name__} reads metrics pages")
        return self.read_page(look, look.page)

    @abstractmethod
    def read_page(self, look: Look, page: Page) -> Reading:
        """The reading of `look.page`."""


def always(sides: Sides) -> bool:
    """For engines whose metrics page has no side effects in any state."""
    del sides
    return True


@frozen
class EngineTable:
    """One engine.

    `recognise` tells from the names of a page; `server_header` is the start of its `Server` header, if it
    sets one of its own. `may_read_metrics` says whether asking the metrics page now is free of side effects
    (a sleeping llama.cpp would wake), given the side pages asked before it. `liveness_path` is a cheap page
    that tells a server whose metrics page timed out from a dead one. `enable_hint` says in words how to
    switch metrics on where they can be off.
    """

    kind: EngineKind
    title: str
    recognise: Callable[[Layout], bool]
    new_reader: Callable[[], Reader]
    side_pages: tuple[SidePage, ...] = ()
    may_read_metrics: Callable[[Sides], bool] = always
    server_header: str = ""
    liveness_path: str = ""
    enable_hint: str = ""
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """Raw names by measure, newest first: the mapping as data, for documentation."""
    tables: tuple[Table, ...] = ()
    """What its pages are matched against: first releases, notes and remedies by measure."""
    never: tuple[tuple[str, str], ...] = ()
    """Paths that are asked in no state of the server, and what asking would do: it drains a queue, loads or
    wakes a model, generates, kills, counts as a health probe, asks every backend. They are no side pages."""
    live_progress: str = ""
    """The series that moves while a request is being decoded, and when it is there, in words; "none" and why
    where there is none: then a standstill may be one long request, and is held for longer."""
    reads: str = ""
    """What is read of it, in a few words for people."""
    changes: str = ""
    """What can be changed on it and how, in a few words for people."""
