"""Checks that compare with what was: the prefix hits of the last minutes, the Xid seen before."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from statistics import median

from enginetop.alerts.gpu_checks import devices, gpu_labels
from enginetop.alerts.rule import Finding, untold
from enginetop.alerts.seen import number
from enginetop.alerts.standing import EachReplica
from enginetop.fleet.figure_ring import FigureRing
from enginetop.fleet.snapshot import FleetSnapshot, ReplicaSnapshot

LOOK_BACK_SECONDS = 900.0
_SPACING_SECONDS = 2.0
LEARNING_SECONDS = 300.0
"""What was must be known for so long before it is a measure, and so long it takes a cold cache to fill."""
DROP_SHARE = 0.5
LEAST_USUAL_RATIO = 0.2
"""Where hits are rare anyway (prefixes shorter than a block), a fall says nothing."""
NEW_USUAL_SECONDS = 3600.0
"""After an hour the lower level is what is usual."""

_ROUNDING = 1e-6
"""Hits are kept in single precision."""

XID_SECONDS = 600.0
"""How long an Xid is news: drivers tell that it happened, and never that it is over."""

FATAL_XIDS: frozenset[int] = frozenset({48, 62, 64, 74, 79, 95, 119, 120})
"""Xids after which a GPU is not to be trusted: double-bit ECC, halted controller, failed row remap, NVLink,
fallen off the bus, uncontained ECC, GSP failures. Others are mostly faults of the program."""


class _Usual:
    """The recent prefix hits of one replica."""

    __slots__ = ("_ring", "highest", "seen", "since")

    def __init__(self) -> None:
        self.seen: float | None = None
        self.since: float | None = None
        self.highest = 0.0
        self.forget()

    def add(self, at: float, hits: float) -> None:
        """Remember the hits of a page."""
        self._ring.add(at, {"hits": hits})
        self.highest = max(self.highest, hits)

    def forget(self) -> None:
        """Learn anew."""
        self._ring = FigureRing(("hits",), _SPACING_SECONDS, LOOK_BACK_SECONDS)
        self.highest = 0.0

    def began(self, at: float) -> float | None:
        """Since when hits are known that are usual at `at`; None: none are."""
        first, last = self._span(at)
        return self._ring.times[first] if first < last else None

    def usual(self, at: float) -> float:
        """The hits that are usual; while they are less, what was usual before stays."""
        first, last = self._span(at)
        values = [value for value in self._ring.values["hits"][first:last] if value is not None]
        return round(median(values), 6) if values else 0.0  # they are kept in single precision

    def _span(self, at: float) -> tuple[int, int]:
        times = self._ring.times[:]
        if self.since is not None:
            return 0, len(times)
        return bisect_left(times, at - LOOK_BACK_SECONDS), bisect_right(times, at)


def prefix_cache_drop() -> EachReplica:
    """The share of prefix hits is less than half of what it usually was in the last 15 minutes.

    A restarted engine begins with an empty cache: what is usual is learnt anew. It remembers: every book
    needs its own.
    """
    return EachReplica(_PrefixHits().judge, engines_only=True)


class _PrefixHits:
    """What is usual at each replica."""

    def __init__(self) -> None:
        self._usual: dict[str, _Usual] = {}

    def judge(self, replica: ReplicaSnapshot, snapshot: FleetSnapshot) -> Finding | None:
        """See `standing.OneCheck`."""
        at, hits = snapshot.at, number(replica, "prefix_hit_ratio")
        usual, began = self._known(replica, snapshot)
        if hits is None:
            return untold(replica.target.url)
        fresh = replica.scraped_at != usual.seen
        usual.seen = replica.scraped_at
        before = 0.0
        # the usual is asked for, which sorts all that is known, only where half of it may be missing
        if (
            began is not None
            and at - began >= LEARNING_SECONDS
            and hits < DROP_SHARE * usual.highest + _ROUNDING
        ):
            before = usual.usual(at)
        breached = before >= LEAST_USUAL_RATIO and hits < DROP_SHARE * before
        if breached and usual.since is not None and at - usual.since >= NEW_USUAL_SECONDS:
            usual.forget()
            breached = False
        usual.since = (at if usual.since is None else usual.since) if breached else None
        if fresh and not breached:
            usual.add(at, hits)
        if not breached:
            return None
        said = f"{100 * hits:.0f} % of prefix tokens hit, {100 * before:.0f} % were usual"
        return Finding(replica.target.url, True, hits, DROP_SHARE * before, said)

    def _known(self, replica: ReplicaSnapshot, snapshot: FleetSnapshot) -> tuple[_Usual, float | None]:
        """What is known of the replica, and since when."""
        url = replica.target.url
        usual = self._usual.get(url)
        if usual is None:
            if len(self._usual) >= len(snapshot.replicas):
                there = {one.target.url for one in snapshot.replicas}
                self._usual = {known: one for known, one in self._usual.items() if known in there}
            usual = self._usual[url] = _Usual()
        began = usual.began(snapshot.at)
        if began is not None and replica.restarted_after(began):
            usual, began = _Usual(), None
            self._usual[url] = usual
        return usual, began


class GpuXid:
    """A GPU reported an Xid error within the last ten minutes."""

    def __init__(self, fatal: bool) -> None:
        self._fatal = fatal
        self._seen: dict[str, tuple[int, float]] = {}
        self._met: set[str] = set()

    def __call__(self, snapshot: FleetSnapshot) -> Iterator[Finding]:
        """See `rule.Check`."""
        for key, replica, gpu in devices(snapshot):
            # exporters tell the last Xid for ever: one that was there at first sight is no news
            lasting = gpu.changed_at is not None and key not in self._met
            self._met.add(key)
            if gpu.last_xid is None or (gpu.last_xid in FATAL_XIDS) is not self._fatal:
                self._seen.pop(key, None)
                continue
            xid, first = self._seen.get(key, (None, snapshot.at))
            if xid != gpu.last_xid:
                first = snapshot.at - XID_SECONDS * lasting
            self._seen[key] = (gpu.last_xid, first)
            news = snapshot.at - first < XID_SECONDS
            said = f"GPU {gpu.index}: Xid {gpu.last_xid}"
            yield Finding(
                replica.target.url,
                news,
                gpu.last_xid,
                None,
                said,
                first,
                {"gpu_uuid": key},
                gpu_labels(gpu),
            )
