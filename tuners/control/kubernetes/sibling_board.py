"""The canary's seat: the sibling object where there is one, else the owner that it would stand beside."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from enginetop.fleet.errors import ClusterError
from enginetop.fleet.foreign_json import Fields
from enginetop.fleet.knobs import KnobRow
from enginetop.fleet.plan import CANARY_LABEL
from tuners.control.knob_api import KnobReply, ReplyKind
from tuners.control.kubernetes.findings import Finding
from tuners.control.kubernetes.inspect import may
from tuners.control.kubernetes.owner_board import OwnerBoard
from tuners.control.kubernetes.owner_look import Look, ProgressWatch
from tuners.control.kubernetes.patches import MANAGER, Also, missing, written_at
from tuners.control.kubernetes.rollout import Member, members
from tuners.control.kubernetes.siblings import (
    EXPIRES_KEY,
    OF_KEY,
    PLAN_LABEL,
    label_of,
    sibling_name,
    sibling_of,
)

_MERGE_PATCH = "application/merge-patch+json"


class SiblingBoard:
    """A `KnobClient` beside `board`, the owner's. `there` and `members` tell of the sibling's newest look."""

    def __init__(self, board: OwnerBoard) -> None:
        self.board = board
        self.there = False
        self.members: tuple[Member, ...] = ()
        self._watch = ProgressWatch(board.ready_seconds)
        self._expires_at: float | None = None

    def read(self) -> KnobReply:
        """See `KnobClient`."""
        return self.board.answered(self._read, self._hand)

    def examine(self) -> KnobReply:
        """See `KnobClient`. What speaks against a sibling is in it as well."""
        return self.board.answered(self._examined)

    def write(
        self,
        knob: str,  # noqa: ARG002 - of one knob
        value: int,
        *,
        if_version: int | None,
        ttl_seconds: float | None,
        change: str,  # noqa: ARG002 - the same value again is a renewal
        reason: str,  # noqa: ARG002 - the audit has it
    ) -> KnobReply:
        """See `KnobClient`: creates the sibling, renews it, or deletes it."""
        return self.board.answered(lambda: self._set(value, if_version, ttl_seconds), self._hand)

    def reset(self, knob: str) -> KnobReply:  # noqa: ARG002 - of one knob
        """See `KnobClient`."""
        return self.board.answered(lambda: self._set(None, None, None), self._hand)

    @property
    def instance(self) -> str:
        """Of the canary's sheet."""
        return f"{self.board.owner.instance}/canary"

    def _read(self) -> KnobReply:
        look = self.board.look()
        sibling = self._sibling(look)
        row = self.board.row(look) if sibling is None else self._row(sibling)
        return KnobReply(ReplyKind.OK, sheet=self.board.sheet(row, self.instance))

    def _examined(self) -> KnobReply:
        look = self.board.look()
        found = (*self.board.findings(look), *self._against(look))
        kind = self.board.owner.shown.partition("/")[0]
        name = f"{kind}/{sibling_name(look.item, self.board.plan)}"
        return replace(
            self._read(),
            problems=tuple(one.text for one in found if one.stops),
            notes=(
                f"canary: {name}, one new replica beside {self.board.owner.instance}",
                *(one.text for one in found if not one.stops),
            ),
        )

    def _set(self, value: int | None, if_version: int | None, ttl_seconds: float | None) -> KnobReply:
        owner = self.board.owner
        look = self.board.look()
        sibling = self._sibling(look)
        if value == owner.after:
            if sibling is None and look.value == owner.before:
                if ttl_seconds is None:
                    return self.board.set(value, None, None)
                return self._create(look, ttl_seconds)
            if sibling is not None and ttl_seconds is not None:
                return self._renew(sibling, ttl_seconds)
        if sibling is None:
            return self.board.set(value, if_version, ttl_seconds)
        # the trial is over: the owner has the value, or is to keep the former one
        if value == owner.after and look.value != value:
            return KnobReply(ReplyKind.CONFLICT, f"{owner.instance} does not have the value yet")
        self._delete(sibling)
        return KnobReply(ReplyKind.OK, row=self.board.row(self.board.look()), applied=1, total=1)

    def _create(self, look: Look, ttl_seconds: float) -> KnobReply:
        board = self.board
        board.begin()
        expires = board.now() + ttl_seconds
        made = board.cluster.send(
            "POST", self._collection, {"fieldManager": MANAGER}, self._body(look, expires)
        )
        self.there = True
        self._expires_at = expires
        return KnobReply(ReplyKind.OK, row=self._row(made), applied=1, total=1)

    def _renew(self, sibling: Fields, ttl_seconds: float) -> KnobReply:
        self._expires_at = self.board.now() + ttl_seconds
        body = {"metadata": {"annotations": {EXPIRES_KEY: f"{self._expires_at:.0f}"}}}
        made = self.board.cluster.send(
            "PATCH", self._path(sibling), {"fieldManager": MANAGER}, body, _MERGE_PATCH
        )
        return KnobReply(ReplyKind.OK, row=self._row(made), applied=1, total=1)

    def _delete(self, sibling: Fields) -> None:
        """Exactly this object, and its pods with it."""
        self.board.begin()
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": {"uid": sibling.get("metadata", {}).get("uid")},
        }
        try:
            self.board.cluster.send("DELETE", self._path(sibling), body=options)
        except ClusterError as error:
            if error.status != 404:
                raise
        self._expires_at = None
        self.there, self.members = False, ()

    def _sibling(self, look: Look) -> dict[str, Any] | None:
        """The sibling of this plan, found by its label; one that is on its way out is none."""
        listed = self.board.cluster.send(
            "GET", self._collection, {"labelSelector": f"{PLAN_LABEL}={label_of(self.board.plan)}"}
        )
        found = [one for one in listed.get("items") or () if isinstance(one, dict) and self._is_ours(one)]
        self.there = bool(found)
        if not found:
            self.members = ()
            return None
        # what a list leaves out of its items
        return {**{key: look.item.get(key) for key in ("apiVersion", "kind")}, **found[0]}

    def _is_ours(self, item: Fields) -> bool:
        meta = item.get("metadata", {})
        of = (meta.get("annotations") or {}).get(OF_KEY)
        return meta.get("deletionTimestamp") is None and of == self.board.owner.shown

    def _row(self, sibling: Fields) -> KnobRow:
        board, owner = self.board, self.board.owner
        pods = board.looks.pods(self._path(sibling), {CANARY_LABEL: label_of(board.plan)})
        self.members = members(pods, owner.container, owner.engine, owner.knob, board.now())
        value = board.looks.value_at(board.looks.place(sibling, pods))
        phase, note = board.looks.phase(sibling, value, self.members, 1, self._watch, self._hand)
        return board.row_of(value, phase, note, 0, self._expires_at, 1)

    def _against(self, look: Look) -> Iterator[Finding]:
        """What speaks against a sibling: rights, another one, what the server's dry run says."""
        cluster, owner = self.board.cluster, self.board.owner
        for verb in ("create", "delete"):
            yield from may(cluster, owner.path, owner.namespace, verb)
        for one in cluster.send("GET", self._collection, {"labelSelector": PLAN_LABEL}).get("items") or ():
            meta = one.get("metadata", {})
            if (meta.get("annotations") or {}).get(OF_KEY) == owner.shown:
                plan = (meta.get("labels") or {}).get(PLAN_LABEL)
                words = f"{meta.get('name')} is the canary of the plan {plan}: roll that back, or delete it"
                yield Finding(words, refuses=True)
        body = self._body(look, self.board.now())
        try:
            answer = cluster.send("POST", self._collection, {"dryRun": "All", "fieldManager": MANAGER}, body)
        except ClusterError as error:
            yield Finding(f"the server would refuse the canary: {error}", refuses=True)
            return
        if dropped := missing(look.point.place, self._value(look)[0], answer):
            yield Finding(f"the canary: {dropped}", refuses=True)

    def _body(self, look: Look, expires: float) -> dict[str, Any]:
        value, also = self._value(look)
        plan = self.board.plan
        return sibling_of(look.item, look.point, value, plan=plan, expires=expires, also=also)

    def _value(self, look: Look) -> tuple[list[str] | str, Also]:
        owner = self.board.owner
        return written_at(look.point, owner.engine, {owner.knob: owner.after})

    @property
    def _hand(self) -> str:
        """What a person does instead of us."""
        owner = self.board.owner
        kind = owner.shown.partition("/")[0].lower()
        return f"kubectl -n {owner.namespace} delete {kind} -l {PLAN_LABEL}={label_of(self.board.plan)}"

    @property
    def _collection(self) -> str:
        return self.board.owner.path.rpartition("/")[0]

    def _path(self, sibling: Fields) -> str:
        return f"{self._collection}/{sibling.get('metadata', {}).get('name')}"
