"""Looks at the sources again and again, each in a thread of its own: one that hangs delays nobody."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from collectors.discovery.listing import Listed, ListingError, Source
from collectors.fetch import one_line
from collectors.no_engine_there import why_not_listed
from enginetop.fleet.frozen import frozen

_FIRST_LOOK_SECONDS = 5.0
"""How long a start waits for the first lists."""


@frozen
class Look:
    """What one look at a source brought: its list, or None and the reason in `problem`."""

    source: str
    listed: tuple[Listed, ...] | None
    problem: str = ""


class SourceWatcher:
    """Watches sources. `first_looks` at once, then `start` for those that follow."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = tuple(sources)
        self._stopping = threading.Event()

    def first_looks(self, timeout_seconds: float = _FIRST_LOOK_SECONDS) -> Sequence[Look]:
        """One look at every source, all at the same time; what takes longer is told as a problem.

        Returns after `timeout_seconds` at the latest.
        """
        looks: dict[int, Look] = {}
        threads = [
            threading.Thread(
                target=lambda at=at, source=source: looks.__setitem__(at, look_at(source)),
                name="enginetop-discovery",
                daemon=True,
            )
            for at, source in enumerate(self._sources)
        ]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + timeout_seconds
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        late = {
            at: Look(source.title, None, _late(source, timeout_seconds))
            for at, source in enumerate(self._sources)
        }
        return [looks.get(at, missing) for at, missing in late.items()]

    def start(self, on_look: Callable[[Look], None]) -> None:
        """Call `on_look` for every further look, from the threads of the sources."""
        for source in self._sources:
            threading.Thread(
                target=self._watch, args=(source, on_look), name="enginetop-discovery", daemon=True
            ).start()

    def stop(self) -> None:
        """End all looks; one that hangs is left behind."""
        self._stopping.set()

    def _watch(self, source: Source, on_look: Callable[[Look], None]) -> None:
        while not self._stopping.wait(source.every_seconds):
            look = look_at(source)
            if not self._stopping.is_set():
                on_look(look)


def _late(source: Source, seconds: float) -> str:
    """Why there is no list yet, with what the source itself says of it."""
    said = f"{source.title}: no list within {seconds:g} s"
    return one_line(f"{said}; {source.note}" if source.note else said)


def look_at(source: Source) -> Look:
    """One look. Never raises."""
    try:
        listed = tuple(source.look())
        reasons = {one.target.url: why_not_listed(one.target.url) for one in listed}
    except ListingError as error:
        return Look(source.title, None, str(error))
    except Exception as error:  # noqa: BLE001 - a source's trouble is told, the fleet goes on
        return Look(source.title, None, one_line(f"{source.title}: {type(error).__name__}: {error}"))
    astray = [f"{url}: {reason}, left out" for url, reason in reasons.items() if reason]
    kept = tuple(one for one in listed if not reasons[one.target.url])
    return Look(source.title, kept, one_line("; ".join([*astray, *filter(None, [source.note])])))
