"""Who belongs to the fleet, as several sources list it, and what changed since the last list. Pure.

Lists come whole; what goes out are differences. A replica is followed by the identity that its source gives
it, so that one that moves keeps its history, and one URL is one replica, whoever lists it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count

from collectors.discovery.listing import Listed
from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import Target

GONE_KEPT_SECONDS = 300.0
"""How long a replica that nothing lists any more stays in the picture."""

_Key = tuple[str, str]
"""Source and identity in it."""


@frozen
class Changes:
    """Differences, to be applied in this order.

    `dropped` are URLs to forget, `moved` former URLs with the targets of now (all at once: two may have
    changed places; the same URL: it is back, or described anew), `left` URLs that nothing lists any more,
    `joined` new targets.
    """

    dropped: tuple[str, ...] = ()
    moved: tuple[tuple[str, Target], ...] = ()
    left: tuple[str, ...] = ()
    joined: tuple[Target, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.dropped or self.moved or self.left or self.joined)


@frozen
class _Row:
    key: _Key
    listed: Target
    shown: Target
    gone_at: float | None = None


class Roster:
    """The members of a fleet: `fixed` targets, that stay whatever the sources say, and listed ones."""

    def __init__(self, fixed: Sequence[Target] = (), *, kept_seconds: float = GONE_KEPT_SECONDS) -> None:
        self._fixed = tuple(fixed)
        self._fixed_urls = frozenset(target.url for target in fixed)
        self._kept_seconds = kept_seconds
        self._lists: dict[str, dict[_Key, Target]] = {}
        self._rows: dict[str, _Row] = {}

    @property
    def targets(self) -> tuple[Target, ...]:
        """The present members, fixed ones first, then in order of first sight."""
        return (*self._fixed, *(row.shown for row in self._rows.values() if row.gone_at is None))

    def take(self, source: str, listed: Sequence[Listed], now: float) -> Changes:
        """Take the whole list of one source; what changed by it. `now` is Unix time."""
        self._lists[source] = self._keyed(source, listed)
        return self._compared(now)

    def expire(self, now: float) -> Changes:
        """Forget those that have been gone for long enough."""
        over = tuple(
            url
            for url, row in self._rows.items()
            if row.gone_at is not None and now - row.gone_at >= self._kept_seconds
        )
        for url in over:
            del self._rows[url]
        return Changes(dropped=over)

    def _keyed(self, source: str, listed: Sequence[Listed]) -> dict[_Key, Target]:
        """The list by identity. One that stands for several addresses is none: there the URL is."""
        places = Counter(identity for identity, _ in {(one.identity, one.target.url) for one in listed})
        wanted: dict[_Key, Target] = {}
        urls: set[str] = set()
        for one in listed:
            url = one.target.url
            if url in urls or url in self._fixed_urls:
                continue
            urls.add(url)
            own = one.identity if one.identity and places[one.identity] == 1 else url
            wanted[(source, own)] = one.target
        return wanted

    def _compared(self, now: float) -> Changes:
        owners = self._owners()
        place = dict(owners.values())
        known = {row.key for row in self._rows.values()}
        rows: dict[str, _Row] = {}
        former: dict[str, str] = {}  # by the URL of now, of those that moved, are back, or described anew
        left: list[str] = []
        dropped: list[str] = []
        for url, row in self._rows.items():
            target = place.get(row.key)
            if target is None and url in owners:
                if owners[url][0] in known:
                    dropped.append(url)  # another one moves here, and brings its own history
                    continue
                row, target = replace(row, key=owners[url][0]), owners[url][1]
            if target is None:
                if row.gone_at is None:
                    left.append(url)
                    row = replace(row, gone_at=now)
                rows[url] = row
                continue
            if target != row.listed or row.gone_at is not None:
                row = _Row(row.key, target, target)
                former[target.url] = url
            rows[target.url] = row
        new = [url for url in owners if url not in rows]
        rows |= {url: _Row(*owners[url], owners[url][1]) for url in new}
        self._rows = _with_names(rows, {*former, *new}, {target.name for target in self._fixed})
        return Changes(
            tuple(dropped),
            tuple((url, self._rows[now_at].shown) for now_at, url in former.items()),
            tuple(left),
            tuple(self._rows[url].shown for url in new),
        )

    def _owners(self) -> dict[str, tuple[_Key, Target]]:
        """Who speaks for each listed URL: the one that did before, else the first source that lists it."""
        owners: dict[str, tuple[_Key, Target]] = {}
        for listed in self._lists.values():
            for key, target in listed.items():
                row = self._rows.get(target.url)
                if target.url not in owners or (row is not None and row.key == key):
                    owners[target.url] = (key, target)
        return owners


def _with_names(
    rows: Mapping[str, _Row], unnamed: Collection[str], taken: Collection[str]
) -> dict[str, _Row]:
    """The rows, those at `unnamed` under names that no other one has."""
    names = {*taken, *(row.shown.name for url, row in rows.items() if url not in unnamed)}
    named: dict[str, _Row] = {}
    for url, row in rows.items():
        if url in unnamed:
            wanted = row.listed.name
            candidates = chain((wanted,), (f"{wanted} ({number})" for number in count(2)))
            name = next(name for name in candidates if name not in names)
            names.add(name)
            row = replace(row, shown=replace(row.listed, name=name))
        named[url] = row
    return named
