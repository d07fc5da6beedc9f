"""What is seen of an owner and its pods: the place of the flags, their value, and how a rollout stands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol
from urllib.parse import quote

from enginetop.fleet.errors import ClusterError
from enginetop.fleet.foreign_json import Fields, field_at, objects_at
from enginetop.fleet.frozen import frozen
from enginetop.fleet.knobs import BY_HAND, FAILED, STUCK
from tuners.control.flags import FLAGS, value_of
from tuners.control.kubernetes.arguments import Style, words_of
from tuners.control.kubernetes.change_points import ChangePoint, change_point
from tuners.control.kubernetes.inspect import ObjectApi
from tuners.control.kubernetes.owner import Owner
from tuners.control.kubernetes.rollout import Member, members, trouble_of

_NOT_FOUND = 404
_LIVE = "status.phase!=Succeeded,status.phase!=Failed"
_WORKER_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"


class Cluster(ObjectApi, Protocol):
    """An API server that knows who owns what."""

    def top_of(self, pod: Fields) -> str:
        """The path of the object at the top of a pod's owners; empty: nobody's."""

    def close(self) -> None:
        """Nothing is asked for a while."""


@frozen
class Look:
    """An owner at one instant: the object, its place, its value and its live members."""

    item: Fields
    point: ChangePoint
    value: int | None
    members: tuple[Member, ...]
    pods: tuple[Fields, ...]
    phase: str
    note: str


class ProgressWatch:
    """Tells when nothing has moved for too long."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._last: object = None
        self._since = 0.0

    def stuck(self, state: object, now: float) -> str:
        """Why it counts as stuck; empty: it moves, or may yet."""
        if state != self._last:
            self._last, self._since = state, now
        waited = now - self._since
        return f"nothing became ready for {waited:.0f} s" if waited >= self._seconds else ""


class OwnerLooks:
    """Looks at one owner through its API server. `ready_seconds`: so long nothing may become ready."""

    def __init__(
        self, cluster: Cluster, owner: Owner, now: Callable[[], float], ready_seconds: float
    ) -> None:
        self._cluster, self._owner, self._now = cluster, owner, now
        self._watch = ProgressWatch(ready_seconds)

    def look(self, by_hand: str) -> Look:
        """The owner now; `by_hand` is what a person would do about it. ClusterError, NoPlaceError."""
        try:
            item = self._cluster.send("GET", self._owner.path)
        except ClusterError as error:
            if error.status != _NOT_FOUND:
                raise
            return self._gone()
        pods = self.pods(self._owner.path, self._owner.selector)
        point = self.place(item, pods)
        value = self.value_at(point)
        found = members(pods, self._owner.container, self._owner.engine, self._owner.knob, self._now())
        phase, note = self.phase(item, value, found, self.count(item), self._watch, by_hand)
        return Look(item, point, value, found, pods, phase, note)

    def pods(self, path: str, selector: Mapping[str, str]) -> tuple[Fields, ...]:
        """The leaders among the live pods at whose top the object at `path` stands."""
        words = ",".join(f"{key}={value}" for key, value in selector.items())
        where = f"/api/v1/namespaces/{quote(self._owner.namespace, safe='')}/pods"
        listed = self._cluster.send("GET", where, {"labelSelector": words, "fieldSelector": _LIVE})
        return tuple(
            pod
            for pod in objects_at(listed, "items")
            if field_at(pod, "metadata", "labels", _WORKER_INDEX) in (None, "0")
            and self._cluster.top_of(pod) == path
        )

    def place(self, item: Fields, pods: Sequence[Fields]) -> ChangePoint:
        """The place of the flags; without a live pod it is found by what was kept of one. NoPlaceError."""
        kept = {"metadata": {"labels": dict(self._owner.selector)}}
        stub = {**kept, "spec": {"containers": [{"name": self._owner.container}]}}
        return change_point(item, pods[0] if pods else stub, self._owner.container, self._owner.role)

    def value_at(self, point: ChangePoint) -> int | None:
        """The knob's value at a place."""
        if not point.there and not self._owner.there:
            return self._owner.before  # the object says nothing, as it did at first
        words = words_of(point.present, point.style)
        return value_of(words, FLAGS[self._owner.engine][self._owner.knob])

    def phase(
        self,
        item: Fields,
        value: int | None,
        found: Sequence[Member],
        count: int,
        watch: ProgressWatch,
        hand: str,
    ) -> tuple[str, str]:
        """What is under way, and what speaks against it. `hand` is what a person would do about it."""
        ready = sum(one.ready and one.value == value for one in found)
        stuck = watch.stuck((value, ready), self._now())  # also when all is well: a later trouble begins anew
        if len(found) >= count and ready == len(found):
            return "", ""
        troubles = (one.trouble for one in found if one.value == value and one.trouble)
        trouble = next(troubles, "") or trouble_of(item) or stuck
        forward = value == self._owner.after
        if trouble:
            return (STUCK, trouble) if forward else (FAILED, f"{trouble}{BY_HAND}{hand}")
        return ("restarting" if forward else "going_back"), f"{ready} of {count} ready with {value}"

    def count(self, item: Fields) -> int:
        """How many replicas the object is to have."""
        spec = item.get("spec") or {}
        nested = (spec.get("deploymentConfig") or {}).get("replicas")
        said = spec.get("replicas", nested) if isinstance(spec, dict) else None
        return said if isinstance(said, int) and not isinstance(said, bool) else self._owner.count

    def _gone(self) -> Look:
        """Somebody has deleted the object: nothing of ours is in force."""
        nowhere = ChangePoint((), Style.LIST, (), there=False, rolls="nothing")
        return Look({}, nowhere, self._owner.before, (), (), "", f"{self._owner.shown} is gone")
