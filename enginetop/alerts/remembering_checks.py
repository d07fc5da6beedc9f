"""Checks that compare with what was: the prefix hits of the last minutes, the Xid seen before."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from statistics import median

from enginetop.alerts.gpu_checks import devices, gpu_labels
from enginetop.alerts.rule import Finding
from enginetop.alerts.seen import number
from enginetop.fleet.snapshot import FleetSnapshot, ReplicaSnapshot

LOOK_BACK_SECONDS = 900.0
LEARNING_SECONDS = 300.0
"""What was must be known for so long before it is a measure, and so long it takes a cold cache to fill."""
DROP_SHARE = 0.5
LEAST_USUAL_RATIO = 0.2
"""Where hits are rare anyway (prefixes shorter than a block), a fall says nothing."""
NEW_USUAL_SECONDS = 3600.0
"""After an hour the lower level is what is usual."""

XID_SECONDS = 600.0
"""How long an Xid is news: drivers tell that it happened, and never that it is over."""

FATAL_XIDS: frozenset[int] = frozenset({48, 62, 64, 74, 79, 95, 119, 120})
"""Xids after which a GPU is not to be trusted: double-bit ECC, halted controller, failed row remap, NVLink,
fallen off the bus, uncontained ECC, GSP failures. Others are mostly faults of the program."""


class _Usual:
    """The recent prefix hits of one replica."""

    __slots__ = ("points", "seen", "since")

    def __init__(self) -> None:
        self.points: deque[tuple[float, float]] = deque()
        self.seen: float | None = None
        self.since: float | None = None


class PrefixCacheDrop:
    """The share of prefix hits is less than half of what it usually was in the last 15 minutes.

    A restarted engine begins with an empty cache: what is usual is learnt anew.
    """

    def __init__(self) -> None:
        self._usual: dict[str, _Usual] = {}

    def __call__(self, snapshot: FleetSnapshot) -> Iterator[Finding]:
        """See `rule.Check`."""
        for replica in snapshot.replicas:
            yield self._look(replica, snapshot.at)

    def _look(self, replica: ReplicaSnapshot, at: float) -> Finding:
        url, hits = replica.target.url, number(replica, "prefix_hit_ratio")
        usual = self._usual.setdefault(url, _Usual())
        if usual.points and any(e.kind == "restarted" and e.at > usual.points[0][0] for e in replica.events):
            usual = self._usual[url] = _Usual()
        if hits is None:
            return Finding(url, None)
        fresh = replica.scraped_at != usual.seen
        usual.seen = replica.scraped_at
        while usual.points and not at - LOOK_BACK_SECONDS <= usual.points[0][0] <= at and usual.since is None:
            usual.points.popleft()
        before = median(value for _, value in usual.points) if usual.points else 0.0
        known = bool(usual.points) and at - usual.points[0][0] >= LEARNING_SECONDS
        breached = known and before >= LEAST_USUAL_RATIO and hits < DROP_SHARE * before
        if breached and usual.since is not None and at - usual.since >= NEW_USUAL_SECONDS:
            usual.points.clear()
            breached = False
        usual.since = (at if usual.since is None else usual.since) if breached else None
        if fresh and not breached:
            usual.points.append((at, hits))
        said = f"{100 * hits:.0f} % of prefix tokens hit, {100 * before:.0f} % were usual"
        return Finding(url, breached, hits, DROP_SHARE * before, said)


class GpuXid:
    """A GPU reported an Xid error within the last ten minutes."""

    def __init__(self, fatal: bool) -> None:
        self._fatal = fatal
        self._seen: dict[str, tuple[int, float]] = {}

    def __call__(self, snapshot: FleetSnapshot) -> Iterator[Finding]:
        """See `rule.Check`."""
        for replica, gpu in devices(snapshot):
            if gpu.last_xid is None or (gpu.last_xid in FATAL_XIDS) is not self._fatal:
                self._seen.pop(gpu.uuid, None)
                continue
            xid, first = self._seen.get(gpu.uuid, (None, snapshot.at))
            if xid != gpu.last_xid:
                first = snapshot.at
            self._seen[gpu.uuid] = (gpu.last_xid, first)
            news = snapshot.at - first < XID_SECONDS
            said = f"GPU {gpu.index}: Xid {gpu.last_xid}"
            yield Finding(
                replica.target.url,
                news,
                gpu.last_xid,
                None,
                said,
                first,
                {"gpu_uuid": gpu.uuid},
                gpu_labels(gpu),
            )
