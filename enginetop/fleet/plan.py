"""The plan of a change (schema `enginetop.plan/1`): what would be changed, where, and the way back.

A plan is data to be checked, never something to run: it holds no command, no path, and no address but those
of targets, which the reader must know already.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from enginetop.fleet.errors import ConfigError
from enginetop.fleet.frozen import frozen
from enginetop.fleet.knobs import KNOB_API

PLAN_SCHEMA = "enginetop.plan/1"
VIA_KNOB_API = KNOB_API
VIA_KUBERNETES = "kubernetes"
CANARY_LABEL = "enginetop/canary"
"""Label of the pods of a canary that a plan has made beside an owner in Kubernetes."""
VIA_GATEWAY = "gateway"
ENGINE_APIS = (
    "vllm_runtime",
    "sglang_cap",
    "vllm_switches",
    "lmdeploy_sleep",
    "llamacpp_router",
    "triton_load",
    "dynamo_busy",
    "dynamo_planner",
    "dynamo_taint",
)
"""The paths that are an engine's own API, named in the `engine_api` table of a target."""
VIAS = (VIA_KNOB_API, "process", "systemd", "file", VIA_KUBERNETES, *ENGINE_APIS, VIA_GATEWAY)
"""The paths that a plan may name: the knob API inside of an engine, and the restart of one that `enginetop
launch` started, of a systemd unit, of one whose settings stand in a file, of one that an object of Kubernetes
owns; those of engines themselves; and the hook of the gateway in front of them.
"""

MAX_PLAN_BYTES = 1024 * 1024
_PLAN_KEYS = ("schema", "id", "created", "expires", "tool_version", "evidence_hash", "scope", "changes")
_SCOPE_KEYS = ("model", "role", "canary")
_CHANGE_KEYS = ("target", "instance", "knob", "from", "to", "via", "rollback")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
_LARGEST = 1 << 40
_LONGEST_TEXT = 512


class PlanError(ConfigError):
    """A document is no plan that can be used; the text names the key and what is wrong with it."""


@frozen
class PlannedChange:
    """One knob of one engine instance: `before` and `after` are the contract's `from` and `to`.

    `before` None: the engine sets no value now. `rollback` is the value that undoes the change.
    """

    target: str
    instance: str
    knob: str
    before: int | None
    after: int
    via: str = VIA_KNOB_API

    @property
    def rollback(self) -> int | None:
        """The value to go back to."""
        return self.before


@frozen
class Scope:
    """Which replicas are compared: those that serve `model` in `role`; the change begins on `canary`."""

    model: str | None
    role: str
    canary: str


@frozen
class Plan:
    """A plan. Times are Unix seconds; the canary's change stands first in `changes`."""

    id: str
    created: float
    expires: float
    tool_version: str
    evidence_hash: str
    scope: Scope
    changes: tuple[PlannedChange, ...]

    @property
    def canary(self) -> PlannedChange:
        """The first change."""
        return self.changes[0]

    @property
    def targets(self) -> tuple[str, ...]:
        """Every target that the plan would change, the canary first."""
        return tuple(change.target for change in self.changes)

    def together(self, target: str) -> tuple[str, ...]:
        """The targets that a write of `target` changes at once, itself included: those that one object of
        Kubernetes owns, or that one gateway leads to.
        """
        change = next(one for one in self.changes if one.target == target)
        if change.via not in (VIA_KUBERNETES, VIA_GATEWAY):
            return (target,)
        whole = (change.via, change.instance)
        return tuple(one.target for one in self.changes if (one.via, one.instance) == whole)

    @property
    def reaches_all(self) -> bool:
        """Whether the first write reaches all targets, by its path's nature."""
        at_once = self.canary.via in (VIA_KUBERNETES, VIA_GATEWAY)
        return at_once and len(self.canaries) == len(self.changes)

    @property
    def canaries(self) -> tuple[str, ...]:
        """The targets on which the change begins: the canary, and what changes with it."""
        return self.together(self.canary.target)

    @property
    def followers(self) -> tuple[str, ...]:
        """The targets that are changed after the canaries."""
        first = self.canaries
        return tuple(target for target in self.targets if target not in first)


def plan_document(plan: Plan) -> dict[str, Any]:
    """The plan in the contract's form."""
    return {
        "schema": PLAN_SCHEMA,
        "id": plan.id,
        "created": plan.created,
        "expires": plan.expires,
        "tool_version": plan.tool_version,
        "evidence_hash": plan.evidence_hash,
        "scope": {"model": plan.scope.model, "role": plan.scope.role, "canary": plan.scope.canary},
        "changes": [
            {
                "target": change.target,
                "instance": change.instance,
                "knob": change.knob,
                "from": change.before,
                "to": change.after,
                "via": change.via,
                "rollback": {"from": change.after, "to": change.rollback},
            }
            for change in plan.changes
        ],
    }


def plan_text(plan: Plan) -> str:
    """The plan as the text of a file."""
    return json.dumps(plan_document(plan), indent=2, allow_nan=False) + "\n"


def parse_plan_text(text: str, origin: str) -> Plan:
    """Read a plan file's text. PlanError: `ORIGIN: KEY: what is wrong`, one line."""
    try:
        if len(text) > MAX_PLAN_BYTES:
            raise PlanError("larger than any plan")
        return parse_plan(json.loads(text, parse_constant=_no_constant))
    except (ValueError, RecursionError) as error:
        raise PlanError(f"{origin}: not JSON ({' '.join(str(error).split())[:120]})") from None
    except PlanError as error:
        raise PlanError(f"{origin}: {error}") from None


def parse_plan(document: object) -> Plan:
    """Read a plan, strictly: every key and no other. PlanError names the first that is wrong."""
    plan = _object(document, "plan", _PLAN_KEYS)
    if plan["schema"] != PLAN_SCHEMA:
        raise PlanError(f"schema: not {PLAN_SCHEMA}")
    scope = _object(plan["scope"], "scope", _SCOPE_KEYS)
    rows = plan["changes"]
    if not isinstance(rows, list) or not rows:
        raise PlanError("changes: not a list of at least one change")
    changes = tuple(_change(row, f"changes.{index}") for index, row in enumerate(rows))
    parsed = Plan(
        id=_word(plan, "id", ""),
        created=_time(plan, "created"),
        expires=_time(plan, "expires"),
        tool_version=_word(plan, "tool_version", ""),
        evidence_hash=_word(plan, "evidence_hash", ""),
        scope=Scope(
            model=None if scope["model"] is None else _text(scope, "model", "scope."),
            role=_word(scope, "role", "scope."),
            canary=_text(scope, "canary", "scope."),
        ),
        changes=changes,
    )
    _check_whole(parsed)
    return parsed


def _check_whole(plan: Plan) -> None:
    if plan.expires <= plan.created:
        raise PlanError("expires: not after created")
    if plan.canary.target != plan.scope.canary:
        raise PlanError("scope.canary: not the target of the first change")
    if len(set(plan.targets)) != len(plan.changes):
        raise PlanError("changes: a target stands twice")
    if len({(change.knob, change.after) for change in plan.changes}) != 1:
        raise PlanError("changes: not all of one knob and to one value")


def _change(document: object, where: str) -> PlannedChange:
    row = _object(document, where, _CHANGE_KEYS)
    prefix = f"{where}."
    if row["via"] not in VIAS:
        raise PlanError(f"{prefix}via: not one of {', '.join(VIAS)}")
    change = PlannedChange(
        target=_text(row, "target", prefix),
        instance=_text(row, "instance", prefix),
        knob=_word(row, "knob", prefix),
        before=None if row["from"] is None else _whole(row, "from", prefix),
        after=_whole(row, "to", prefix),
        via=row["via"],
    )
    if change.before == change.after:
        raise PlanError(f"{prefix}to: the same value as from")
    back = _object(row["rollback"], f"{prefix}rollback", ("from", "to"))
    if (back["from"], back["to"]) != (row["to"], row["from"]):
        raise PlanError(f"{prefix}rollback: does not undo the change")
    return change


def _object(document: object, where: str, keys: tuple[str, ...]) -> Mapping[str, Any]:
    if not isinstance(document, dict):
        raise PlanError(f"{where}: not an object")
    unknown = sorted(str(key) for key in document if key not in keys)
    if unknown:
        raise PlanError(f"{where}: unknown key {unknown[0][:64]!r}; known: {', '.join(keys)}")
    missing = [key for key in keys if key not in document]
    if missing:
        raise PlanError(f"{where}: the key {missing[0]!r} is missing")
    return document


def _text(document: Mapping[str, Any], key: str, prefix: str) -> str:
    value = document[key]
    if not isinstance(value, str) or not value or len(value) > _LONGEST_TEXT or not value.isprintable():
        raise PlanError(f"{prefix}{key}: not a plain text of at most {_LONGEST_TEXT} characters")
    return value


def _word(document: Mapping[str, Any], key: str, prefix: str) -> str:
    value = document[key]
    if not isinstance(value, str) or not _WORD.fullmatch(value):
        raise PlanError(f"{prefix}{key}: not one plain word")
    return value


def _whole(document: Mapping[str, Any], key: str, prefix: str) -> int:
    value = document[key]
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > _LARGEST:
        raise PlanError(f"{prefix}{key}: not a whole number of a size that a knob has")
    return value


def _time(document: Mapping[str, Any], key: str) -> float:
    value = document[key]
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= _LARGEST:
        raise PlanError(f"{key}: not a time in Unix seconds")
    return float(value)


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no number")
