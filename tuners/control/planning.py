"""From advice to a plan: pure, so that the same evidence gives the same plan."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace

from enginetop.fleet.changeable import CHANGEABLE
from enginetop.fleet.errors import EnginetopError
from enginetop.fleet.knobs import KnobSheet
from enginetop.fleet.model import EngineKind
from enginetop.fleet.plan import Plan, PlannedChange, Scope
from enginetop.fleet.snapshot import Advice, FleetSnapshot, ReplicaSnapshot
from tuners.limits import FRESH

PLAN_LIFE_SECONDS = 3600.0
_WAYS = {"per_request": "per request", "restart": "by a restart with other flags"}


class NoPlanError(EnginetopError):
    """The advice cannot be carried out live; the text says why."""


def plan_from_advice(
    snapshot: FleetSnapshot,
    replica: ReplicaSnapshot,
    advice: Advice,
    sheets: Mapping[str, KnobSheet],
    *,
    now: float,
    tool_version: str,
) -> Plan:
    """The plan that tries `advice` on `replica` first, then on its pool.

    The pool are the fresh replicas of the same model and role whose knob stands at the same value and may
    take the new one. `sheets` holds the knob sheets by target, of all replicas that can be reached.

    Raises NoPlanError when the advice proposes no value, or the replica's engine would not take it live.
    """
    if advice.proposed is None or advice.action not in ("raise", "lower", "disable"):
        raise NoPlanError(f"the advice on {advice.knob} is {advice.action}: nothing to try")
    after = int(advice.proposed)
    own = _change(replica, advice.knob, after, sheets)
    if isinstance(own, str):
        raise NoPlanError(own)
    canary = own
    if beside := sheets[replica.target.url].canary:  # an engine that is made for the trial
        canary = replace(own, target=beside, instance=f"{own.instance}/canary")
    others = (_change(other, advice.knob, after, sheets) for other in pool_of(snapshot, replica.target.url))
    pool = [
        other
        for other in others
        if not isinstance(other, str) and (other.before, other.via) == (canary.before, canary.via)
    ]
    evidence = evidence_hash(snapshot, replica, advice)
    changes = (canary, *pool) if canary is own else (canary, own, *pool)
    identity = json.dumps([evidence, now, [change.instance for change in changes]])
    return Plan(
        id=hashlib.sha256(identity.encode()).hexdigest()[:8],
        created=now,
        expires=now + PLAN_LIFE_SECONDS,
        tool_version=tool_version,
        evidence_hash=evidence,
        scope=Scope(model=replica.model, role=replica.role.value, canary=canary.target),
        changes=changes,
    )


def pool_of(snapshot: FleetSnapshot, target: str) -> tuple[ReplicaSnapshot, ...]:
    """The other fresh replicas of the same model and role; none when `target` is not known."""
    replica = snapshot.replica(target)
    if replica is None:
        return ()
    return tuple(
        other
        for other in snapshot.replicas
        if other is not replica
        and (other.model, other.role) == (replica.model, replica.role)
        and other.state in FRESH
    )


def evidence_hash(snapshot: FleetSnapshot, replica: ReplicaSnapshot, advice: Advice) -> str:
    """SHA-256 over what the advice rests on: where, when, and its figures."""
    evidence = {
        "at": snapshot.at,
        "target": replica.target.url,
        "knob": advice.knob,
        "action": advice.action,
        "from": advice.current,
        "to": advice.proposed,
        "bound_by": advice.bound_by,
        "because": list(advice.because),
        "expected": dict(advice.expected),
    }
    return hashlib.sha256(json.dumps(evidence, sort_keys=True).encode()).hexdigest()


def _change(
    replica: ReplicaSnapshot, knob: str, after: int, sheets: Mapping[str, KnobSheet]
) -> PlannedChange | str:
    """The change of one replica, or why there can be none."""
    name = replica.target.name
    sheet = sheets.get(replica.target.url)
    if sheet is None:
        return f"{name} has no path to its knobs"
    row = sheet.knob(knob)
    if row is None:
        return f"{name} has no knob {knob} by {sheet.writer}{_of_itself(replica.engine, knob)}"
    if row.value == after:
        return f"{knob} of {name} is {after} already"
    if not row.min <= after <= row.max:
        return f"{knob} {after} is out of bounds on {name} ({row.min} to {row.max} {row.apply})"
    instance, via = sheet.instance_of(knob), sheet.writer_of(knob)
    return PlannedChange(replica.target.url, instance, knob, row.value, after, via=via)


def _of_itself(engine: EngineKind, knob: str) -> str:
    """What an engine of that kind takes of itself, as the end of a refusal."""
    own = CHANGEABLE.get(engine, {}).get(knob)
    if own is None:
        return ""
    if own.apply == "none":
        return f"; {engine}: {own.how}"
    return f"; {engine} takes it {_WAYS.get(own.apply, own.apply)}: {own.how}"
