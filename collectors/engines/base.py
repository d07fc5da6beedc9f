"""What an engine's table must offer, and what the feed may ask of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from collectors.page import Page
from enginetop.fleet.model import EngineKind
from enginetop.fleet.reading import Reading

Json = Any
Sides = Mapping[str, Json]
"""The newest decoded JSON body of each side page, by path; a path that failed is missing."""


@dataclass(frozen=True, slots=True)
class SidePage:
    """A JSON page read beside the metrics page.

    `every_scrape` False: asked once, and again after a restart. `before_metrics` True: asked first, because
    it decides whether the metrics page may be asked at all. `keep` is the allow-list of fields that a
    recording may hold, dotted, `[]` for each list item.
    """

    path: str
    keep: tuple[str, ...]
    every_scrape: bool = False
    before_metrics: bool = False


class Reader(Protocol):
    """Turns the pages of one target into readings. May keep state between calls (live token counts)."""

    def may_read_metrics(self, sides: Sides) -> bool:
        """Whether asking the metrics page now is free of side effects (a sleeping llama.cpp would wake)."""

    def read(self, page: Page | None, sides: Sides, at: float) -> Reading:
        """The reading. `page` is None when `may_read_metrics` said no."""


@dataclass(frozen=True, slots=True)
class EngineTable:
    """One engine.

    `recognise` tells from a page's sample names; `server_header` is the start of its `Server` header, if it
    sets one.

    `enable_hint` says in words how to switch metrics on where they can be off.
    """

    kind: EngineKind
    title: str
    recognise: Callable[[Page], bool]
    new_reader: Callable[[], Reader]
    side_pages: tuple[SidePage, ...] = ()
    server_header: str = ""
    enable_hint: str = ""
