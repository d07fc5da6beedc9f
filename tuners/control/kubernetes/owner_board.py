"""The knob of one owner: read from the object and its pods, written by a guarded patch of the object.

A `KnobClient` for every seat of the owner. What it says of a rollout comes from the pods; it never takes
anything back by itself, so that every write is the machine's, and stands in the audit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol
from urllib.parse import quote

from enginetop.fleet.errors import ClusterError
from enginetop.fleet.foreign_json import Fields
from enginetop.fleet.knobs import BY_HAND, FAILED, STUCK, VALUE, KnobRow, KnobSheet
from enginetop.fleet.plan import VIA_KUBERNETES
from tuners.control.flags import FLAGS, FlagError, value_of
from tuners.control.knob_api import KnobReply, ReplyKind
from tuners.control.kubernetes.arguments import Style, words_of
from tuners.control.kubernetes.change_points import ChangePoint, NoPlaceError, change_point
from tuners.control.kubernetes.findings import Finding, of_managers
from tuners.control.kubernetes.inspect import ObjectApi, OwnedFlags, inspect
from tuners.control.kubernetes.owner import Owner
from tuners.control.kubernetes.patches import (
    JSON_PATCH,
    MANAGER,
    Also,
    json_patch,
    missing,
    pointer,
    written_at,
)
from tuners.control.kubernetes.rollout import Member, drained, members, trouble_of

READY_SECONDS = 900.0
"""So long nothing may become ready before a rollout counts as stuck."""
_LOOK_SECONDS = 1.0
_NOT_FOUND = 404
_FINDINGS_SECONDS = 30.0
_TRIES = 3
_LIVE = "status.phase!=Succeeded,status.phase!=Failed"
_WORKER_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"
_KINDS = {401: ReplyKind.UNAUTHORIZED, 403: ReplyKind.UNAUTHORIZED, 404: ReplyKind.MISSING}


class Cluster(ObjectApi, Protocol):
    """An API server that knows who owns what."""

    def top_of(self, pod: Fields) -> str:
        """The path of the object at the top of a pod's owners; empty: nobody's."""

    def close(self) -> None:
        """Nothing is asked for a while."""


@dataclass(frozen=True, slots=True)
class Look:
    """An owner at one instant: the object, its place, its value and its live members."""

    item: Fields
    point: ChangePoint
    value: int | None
    members: tuple[Member, ...]
    pods: tuple[Fields, ...]
    phase: str
    note: str


class OwnerBoard:
    """`plan` is the id of the change; what `remember` keeps before the first write must outlive a crash."""

    def __init__(
        self,
        cluster: Cluster,
        owner: Owner,
        plan: str,
        *,
        now: Callable[[], float],
        remember: Callable[[], None],
        rolled: bool = False,
        ready_seconds: float = READY_SECONDS,
    ) -> None:
        self.cluster, self.owner, self.plan = cluster, owner, plan
        self.now, self.remember = now, remember
        self.rolled = rolled
        """Whether pods may have been replaced by a write of ours."""
        self._begun = rolled
        self.ready_seconds = ready_seconds
        self.members: tuple[Member, ...] = ()
        """As of the newest look."""
        self._kept: tuple[float, Look] | None = None
        self._found: tuple[float, tuple[Finding, ...]] | None = None
        self._watch = ProgressWatch(ready_seconds)
        self._version, self._seen = 0, owner.before
        self._expires_at: float | None = None

    # As a `KnobClient`

    def read(self) -> KnobReply:
        """See `KnobClient`."""
        return self.answered(lambda: self._sheet(self.look()))

    def examine(self) -> KnobReply:
        """See `KnobClient`. `problems` and `notes` are what speaks against the change."""
        return self.answered(self._examined)

    def write(
        self,
        knob: str,  # noqa: ARG002 - an owner's board is of one knob
        value: int,
        *,
        if_version: int | None,
        ttl_seconds: float | None,
        change: str,  # noqa: ARG002 - the same value again is a renewal, whoever asks
        reason: str,  # noqa: ARG002 - the audit has it
    ) -> KnobReply:
        """See `KnobClient`. The answer comes at once; the rollout is told by reads."""
        return self.answered(lambda: self.set(value, if_version, ttl_seconds))

    def reset(self, knob: str) -> KnobReply:  # noqa: ARG002 - an owner's board is of one knob
        """See `KnobClient`: the flag goes, as it was not there before."""
        return self.answered(lambda: self.set(None, None, None))

    # Parts that the sibling's board uses as well

    def answered(self, ask: Callable[[], KnobReply], hand: str = "") -> KnobReply:
        """What `ask` brings; refusals and faults as replies, with what a person does instead (`hand`, else an
        edit of the object) once something may have been written.
        """
        try:
            return ask()
        except ClusterError as error:
            kind = ReplyKind.CONFLICT if error.status in (409, 422) else _KINDS.get(error.status)
            command = f"{BY_HAND}{hand or self.command}" if self._begun else ""
            return KnobReply(kind or ReplyKind.UNREACHABLE, f"{error}{command}")
        except (NoPlaceError, FlagError) as error:
            return KnobReply(ReplyKind.BAD, str(error))
        except OSError as error:
            return KnobReply(ReplyKind.BAD, f"the record cannot be written ({error.strerror or error})")
        finally:
            self.cluster.close()

    def look(self) -> Look:
        """The owner now, or as it was less than a second ago."""
        now = self.now()
        if self._kept is not None and 0 <= now - self._kept[0] < _LOOK_SECONDS:
            return self._kept[1]
        found = self._look(now)
        self.members = found.members
        if found.value != self._seen:
            self._seen = found.value
            self._version += 1
        self._kept = (now, found)
        return found

    def set(self, value: int | None, if_version: int | None, ttl_seconds: float | None) -> KnobReply:
        """Patch the object; the same value again only renews. ClusterError: refused."""
        before = self.look()
        if before.value != value:
            if if_version is not None and if_version != self._version:
                words = f"at version {self._version}, not {if_version}"
                return KnobReply(ReplyKind.CONFLICT, words, row=self.row(before))
            trouble = self._patch(value)
            if trouble is not None:
                return trouble
        self._expires_at = None if ttl_seconds is None else self.now() + ttl_seconds
        return KnobReply(ReplyKind.OK, row=self.row(self.look()), applied=1, total=1)

    @property
    def by_hand(self) -> str:
        """What a person does instead of us."""
        kind, _, name = self.owner.shown.partition("/")
        return f"kubectl -n {self.owner.namespace} edit {kind.lower()} {name}"

    @property
    def command(self) -> str:
        """The same, with the value."""
        return f"{self.by_hand}  # {FLAGS[self.owner.engine][self.owner.knob].names[0]} {VALUE}"

    def row(self, look: Look) -> KnobRow:
        """The knob's row."""
        return self.row_of(
            look.value, look.phase, look.note, self._version, self._expires_at, self.count(look.item)
        )

    def row_of(
        self,
        value: int | None,
        phase: str,
        note: str,
        version: int,
        expires_at: float | None,
        replicas: int,
    ) -> KnobRow:
        """A row of this owner's knob, wherever it is set."""
        flag = FLAGS[self.owner.engine][self.owner.knob]
        return KnobRow(
            name=self.owner.knob,
            value=value,
            start=self.owner.before,
            min=flag.min,
            max=flag.max,
            unit=flag.unit,
            version=version,
            expires_in_seconds=None if expires_at is None else max(0.0, expires_at - self.now()),
            note=note,
            apply="restart",
            phase=phase,
            takes_seconds=self.ready_seconds * max(1, replicas),
            by_hand=self.command,
        )

    def sheet(self, row: KnobRow, instance: str) -> KnobSheet:
        """A sheet of one row."""
        return KnobSheet(
            engine=self.owner.engine.value,
            engine_version="",
            instance=instance,
            applied=1,
            total=1,
            knobs=(row,),
            writer=VIA_KUBERNETES,
        )

    def pods(self, path: str, selector: Mapping[str, str]) -> tuple[Fields, ...]:
        """The leaders among the live pods at whose top the object at `path` stands."""
        words = ",".join(f"{key}={value}" for key, value in selector.items())
        where = f"/api/v1/namespaces/{quote(self.owner.namespace, safe='')}/pods"
        listed = self.cluster.send("GET", where, {"labelSelector": words, "fieldSelector": _LIVE})
        found = listed.get("items")
        return tuple(
            pod
            for pod in (found if isinstance(found, list) else ())
            if isinstance(pod, dict)
            and (pod.get("metadata", {}).get("labels") or {}).get(_WORKER_INDEX, "0") == "0"
            and self.cluster.top_of(pod) == path
        )

    def place(self, item: Fields, pods: Sequence[Fields]) -> ChangePoint:
        """The place of the flags; without a live pod it is found by what was kept of one. NoPlaceError."""
        kept = {"metadata": {"labels": dict(self.owner.selector)}}
        stub = {**kept, "spec": {"containers": [{"name": self.owner.container}]}}
        return change_point(item, pods[0] if pods else stub, self.owner.container, self.owner.role)

    def value_at(self, point: ChangePoint) -> int | None:
        """The knob's value at a place."""
        if not point.there and not self.owner.there:
            return self.owner.before  # the object says nothing, as it did at first
        words = words_of(point.present, point.style)
        return value_of(words, FLAGS[self.owner.engine][self.owner.knob])

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
        stuck = watch.stuck((value, ready), self.now())  # also when all is well: a later trouble begins anew
        if len(found) >= count and ready == len(found):
            return "", ""
        troubles = (one.trouble for one in found if one.value == value and one.trouble)
        trouble = next(troubles, "") or trouble_of(item) or stuck
        forward = value == self.owner.after
        if trouble:
            return (STUCK, trouble) if forward else (FAILED, f"{trouble}{BY_HAND}{hand}")
        return ("restarting" if forward else "going_back"), f"{ready} of {count} ready with {value}"

    def count(self, item: Fields) -> int:
        """How many replicas the object is to have."""
        spec = item.get("spec") or {}
        nested = (spec.get("deploymentConfig") or {}).get("replicas")
        said = spec.get("replicas", nested) if isinstance(spec, dict) else None
        return said if isinstance(said, int) and not isinstance(said, bool) else self.owner.count

    def findings(self, look: Look) -> tuple[Finding, ...]:
        """What speaks against the change, asked at most twice a minute."""
        if self._found is None or self.now() - self._found[0] >= _FINDINGS_SECONDS:
            value, also = self._value(look.point, self.owner.after)
            pod = look.pods[0] if look.pods else {}
            flags = OwnedFlags(self.owner.path, look.item, pod, look.point, below=self.owner.below)
            self._found = (self.now(), inspect(self.cluster, flags, value, self.plan, also))
        return self._found[1]

    def begin(self) -> None:
        """Before a write: what it takes to undo it is on disk. OSError: it is not."""
        self.remember()
        self._begun = True
        self._kept = None

    def _look(self, now: float) -> Look:
        try:
            item = self.cluster.send("GET", self.owner.path)
        except ClusterError as error:
            if error.status != _NOT_FOUND:
                raise
            return self._gone()
        pods = self.pods(self.owner.path, self.owner.selector)
        point = self.place(item, pods)
        value = self.value_at(point)
        found = members(pods, self.owner.container, self.owner.engine, self.owner.knob, now)
        phase, note = self.phase(item, value, found, self.count(item), self._watch, self.by_hand)
        return Look(item, point, value, found, pods, phase, note)

    def _gone(self) -> Look:
        """Somebody has deleted the object: nothing of ours is in force."""
        nowhere = ChangePoint((), Style.LIST, (), there=False, rolls="nothing")
        return Look({}, nowhere, self.owner.before, (), (), "", f"{self.owner.shown} is gone")

    def _sheet(self, look: Look) -> KnobReply:
        return KnobReply(ReplyKind.OK, sheet=self.sheet(self.row(look), self.owner.instance))

    def _examined(self) -> KnobReply:
        look = self.look()
        found = self.findings(look)
        rolls = f"{self.owner.instance}: a change restarts {look.point.rolls} ({self.count(look.item)})"
        there = max(self.count(look.item), len(look.members))
        unseen = (
            f"{self.owner.instance}: {self.owner.count} of its {there} replicas are in the plan, all change"
        )
        return replace(
            self._sheet(look),
            problems=(
                *(one.text for one in found if one.stops),
                *((unseen,) if there > self.owner.count else ()),
            ),
            notes=(
                *(one.text for one in found if not one.stops),
                rolls if self.owner.canary else f"{rolls}; no canary: one change rolls all",
                *drained(look.pods[:1]),
            ),
        )

    def _value(self, point: ChangePoint, value: int | None) -> tuple[list[str] | str, Also]:
        return written_at(point, self.owner.engine, {self.owner.knob: value})

    def _patch(self, value: int | None) -> KnobReply | None:
        """Change the object, as long as it holds a value of ours; None: done, else what is in the way."""
        self.begin()
        self.rolled = True
        for left in reversed(range(_TRIES)):
            look = self.look()
            if look.value not in (self.owner.before, self.owner.after):
                who = "; ".join(one.text for one in of_managers(look.item, look.point)) or "nobody says who"
                words = f"{self.owner.knob} of {self.owner.shown} is {look.value} by now ({who})"
                return KnobReply(ReplyKind.CONFLICT, words, row=self.row(look))
            operations, wanted = self._operations(look, value)
            self._kept = None
            try:
                answer = self.cluster.send(
                    "PATCH", self.owner.path, {"fieldManager": MANAGER}, operations, JSON_PATCH
                )
            except ClusterError as error:
                if error.status not in (409, 422) or not left:
                    raise
                continue
            dropped = "" if wanted is None else missing(look.point.place, wanted, answer)
            return KnobReply(ReplyKind.BAD, dropped) if dropped else None
        return None

    def _operations(
        self, look: Look, value: int | None
    ) -> tuple[list[dict[str, Any]], list[str] | str | None]:
        """The patch and what it leaves at the place; None: the place goes, as it was not there at first."""
        back = value == self.owner.before
        if back and not self.owner.there and look.point.there and self.owner.added:
            version = look.item.get("metadata", {}).get("resourceVersion")
            return [
                {"op": "test", "path": "/metadata/resourceVersion", "value": version},
                *({"op": "remove", "path": pointer(place)} for place in self.owner.added),
            ], None
        wanted, also = self._value(look.point, value)
        change = f"{self.plan}-back" if back else self.plan
        return json_patch(look.item, look.point, wanted, change, also=also), wanted


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
