"""The knob of one owner: read from the object and its pods, written by a guarded patch of the object.

A `KnobClient` for every seat of the owner. What it says of a rollout comes from the pods; it never takes
anything back by itself, so that every write is the machine's, and stands in the audit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from enginetop.fleet.errors import ClusterError
from enginetop.fleet.knobs import BY_HAND, VALUE, KnobRow, KnobSheet
from enginetop.fleet.plan import VIA_KUBERNETES
from tuners.control.flags import FLAGS, FlagError
from tuners.control.knob_api import KnobReply, ReplyKind
from tuners.control.kubernetes.change_points import ChangePoint, NoPlaceError
from tuners.control.kubernetes.findings import Finding, of_managers
from tuners.control.kubernetes.inspect import OwnedFlags, inspect
from tuners.control.kubernetes.owner import Owner
from tuners.control.kubernetes.owner_look import Cluster, Look, OwnerLooks
from tuners.control.kubernetes.patches import (
    JSON_PATCH,
    MANAGER,
    Also,
    json_patch,
    missing,
    pointer,
    written_at,
)
from tuners.control.kubernetes.rollout import Member, drained

READY_SECONDS = 900.0
"""So long nothing may become ready before a rollout counts as stuck."""
_LOOK_SECONDS = 1.0
_FINDINGS_SECONDS = 30.0
_TRIES = 3
_KINDS = {401: ReplyKind.UNAUTHORIZED, 403: ReplyKind.UNAUTHORIZED, 404: ReplyKind.MISSING}


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
        self.looks = OwnerLooks(cluster, owner, now, ready_seconds)
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
        found = self.looks.look(self.by_hand)
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
            look.value, look.phase, look.note, self._version, self._expires_at, self.looks.count(look.item)
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

    def _sheet(self, look: Look) -> KnobReply:
        return KnobReply(ReplyKind.OK, sheet=self.sheet(self.row(look), self.owner.instance))

    def _examined(self) -> KnobReply:
        look = self.look()
        found = self.findings(look)
        rolls = f"{self.owner.instance}: a change restarts {look.point.rolls} ({self.looks.count(look.item)})"
        there = max(self.looks.count(look.item), len(look.members))
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
