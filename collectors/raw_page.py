"""The pages behind the numbers, for people: of one target at a time, and only while somebody looks.

A tap between the collector and its feeds sees each scrape pass. It asks nothing itself: a page that is
drained by reading it (TensorRT-LLM's) loses nothing to the person who looks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from collectors.answer import Answer
from collectors.redact import Keep, public_body
from collectors.sanitise import clean_text
from collectors.scrape import Feed
from collectors.secrets import without_secrets
from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import Target
from enginetop.fleet.observation import Observation
from enginetop.fleet.ports import RawPage, RawScrape

_MOST_LINES = 50_000
_LONGEST_LINE = 4_000

NewFeed = Callable[[Target], Feed]


@frozen(eq=False)
class _Seen:
    url: str
    at: float
    answers: tuple[Answer, ...]


class RawPageTap:
    """Keeps the answers of the watched target's last scrape; a `RawPages`.

    `watch` and `latest` may be called from another thread than the feeds. `keep` names the fields of JSON
    pages that are shown, by path; None: those that a recording would hold.
    """

    def __init__(self, keep: Keep | None = None) -> None:
        self._keep = keep
        self._url: str | None = None
        self._seen: _Seen | None = None
        self._made: tuple[_Seen, RawScrape] | None = None

    def over(self, new_feed: NewFeed) -> NewFeed:
        """Feeds like those of `new_feed`, whose answers pass by here."""
        return lambda target: _TappedFeed(new_feed(target), target.url, self._pass)

    def watch(self, url: str | None) -> None:
        """See `RawPages.watch`."""
        self._url = url
        self._seen = self._made = None

    def latest(self) -> RawScrape | None:
        """See `RawPages.latest`."""
        seen, made = self._seen, self._made
        if seen is None or seen.url != self._url:  # it came as somebody turned to another target
            return None
        if made is None or made[0] is not seen:
            keep = _recorded_fields() if self._keep is None else self._keep
            pages = tuple(_page(answer, keep) for answer in seen.answers)
            made = self._made = (seen, RawScrape(seen.url, seen.at, pages))
        return made[1]

    def _pass(self, url: str, answers: Sequence[Answer], at: float) -> None:
        if url == self._url and answers:
            self._seen = _Seen(url, at, tuple(answers))


def _recorded_fields() -> Keep:
    from collectors.engines.detect import (
        RECORDED_FIELDS,  # the tables of all engines: not for a first picture
    )

    return RECORDED_FIELDS


class _TappedFeed:
    """A feed whose answers are seen by `seen` as well."""

    def __init__(self, feed: Feed, url: str, seen: Callable[[str, Sequence[Answer], float], None]) -> None:
        self._feed = feed
        self._url = url
        self._seen = seen

    def next_path(self, answers: Sequence[Answer]) -> str | None:
        """See `Feed.next_path`."""
        return self._feed.next_path(answers)

    def take(self, answers: Sequence[Answer], at: float, seconds: float) -> Observation:
        """See `Feed.take`."""
        self._seen(self._url, answers, at)
        return self._feed.take(answers, at, seconds)


def _page(answer: Answer, keep: Keep) -> RawPage:
    took = f"{answer.seconds * 1000:.0f} ms"
    if answer.error is not None:
        detail = clean_text(without_secrets(answer.detail), _LONGEST_LINE)
        said = f"{str(answer.error).replace('_', ' ')}{f': {detail}' if detail else ''}, {took}"
        return RawPage(answer.path, said, ())
    body = public_body(answer, keep).decode("utf-8", "replace")
    lines = body.splitlines()
    shown = tuple(clean_text(line, _LONGEST_LINE) for line in lines[:_MOST_LINES])
    if len(lines) > _MOST_LINES:
        shown = (*shown, f"… {len(lines) - _MOST_LINES} more lines")
    return RawPage(answer.path, f"{answer.status}, {len(answer.body)} bytes, {took}", shown)
