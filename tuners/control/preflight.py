"""Preflight: whether a plan still fits the fleet. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from enginetop.fleet.admin_surface import AdminSurface, Openness, admin_surface
from enginetop.fleet.change import value_text
from enginetop.fleet.frozen import frozen
from enginetop.fleet.knobs import KnobRow
from enginetop.fleet.plan import VIA_KNOB_API, VIA_KUBERNETES, Plan, PlannedChange
from enginetop.fleet.signals import KNOBS
from enginetop.fleet.snapshot import FleetSnapshot, ReplicaSnapshot
from tuners.control.concerns import concerns
from tuners.control.judge import FEWEST_BLOCKS
from tuners.control.knob_api import KnobReply, ReplyKind
from tuners.control.observe import JUDGED
from tuners.control.paths import path_of
from tuners.control.settings import ControlSettings
from tuners.control.sizing import Sizing, size
from tuners.limits import FRESH

PREFERRED_BASELINES = 2
NOT_WATCHED = "is not among the watched targets"
"""The end of a problem that naming more of the fleet solves."""
_ALONE = (
    "one change reaches all who serve this model: no canary, nothing to compare with, no verdict; they are "
    "counted before it and during it, then the value goes back, and a person decides"
)


@frozen
class Preflight:
    """The outcome. `problems` empty: the plan may go ahead."""

    problems: tuple[str, ...]
    baselines: tuple[str, ...]
    notes: tuple[str, ...]
    sizing: Sizing | None


def check_plan(
    plan: Plan,
    snapshot: FleetSnapshot,
    sheets: Mapping[str, KnobReply],
    *,
    now: float,
    tool_version: str,
    settings: ControlSettings,
) -> Preflight:
    """Hold a plan against the fleet as it is now. `sheets` holds a fresh read of every target's knobs."""
    problems = [*_plan_problems(plan, now, tool_version)]
    notes: list[str] = []
    for change in plan.changes:
        replica, reply = snapshot.replica(change.target), sheets.get(change.target)
        wrong, said = _change_findings(plan, change, replica, reply, settings)
        problems += [one for one in wrong if one not in problems]  # what several targets share is said once
        notes += [one for one in said if one not in notes]
    canary = snapshot.replica(plan.canary.target)
    if canary is None:
        return Preflight(tuple(problems), (), (), None)
    row = found_row(sheets, plan.canary)
    reached = row.reaches if row is not None else ()
    baselines = _baselines(plan, snapshot, reached)[: settings.baselines]
    if not baselines and not plan.reaches_all:
        problems.append(
            f"no baseline: no other fresh replica with exact counters serves "
            f"{plan.scope.model or 'this model'} as {plan.scope.role}"
        )
    notes.extend(_observation_notes(plan, baselines, settings))
    notes.extend(_unlike(plan, sheets, baselines))
    notes.extend(_reach_notes(plan, sheets.get(plan.canary.target), reached))
    notes.extend(concerns(plan.canary, canary, row))
    found = [replica for target in baselines if (replica := snapshot.replica(target))]
    sizing = size(canary, found, settings) if found else None
    return Preflight(tuple(problems), baselines, tuple(notes), sizing)


def _plan_problems(plan: Plan, now: float, tool_version: str) -> Iterator[str]:
    """What is wrong with a plan wherever it is carried out."""
    if now >= plan.expires:
        yield f"the plan expired {now - plan.expires:.0f} s ago; make a new one"
    if now < plan.created - 60:
        yield "the plan was made in the future; check the clocks"
    if plan.tool_version != tool_version:
        yield f"the plan was made by enginetop {plan.tool_version}, this is {tool_version}; make a new one"


def _change_findings(
    plan: Plan,
    change: PlannedChange,
    replica: ReplicaSnapshot | None,
    reply: KnobReply | None,
    settings: ControlSettings,
) -> tuple[list[str], list[str]]:
    """Problems and notes of one target."""
    problem = _replica_problem(plan, change, replica) or _knob_problem(change, reply)
    problems = [problem] if problem else []
    notes: list[str] = []
    if reply is not None:
        problems += reply.problems
        notes += reply.notes
    surface = None if replica is None or problem else _open_surface(replica, reply)
    if replica is not None and surface is not None:
        if settings.accepts_open(replica.target):
            notes.append(f"accepted: {change.target}: {surface.what}")
        else:
            problems.append(_open_problem(change, surface))
    return problems, notes


def _observation_notes(plan: Plan, baselines: Sequence[str], settings: ControlSettings) -> Iterator[str]:
    """What the observation lacks."""
    if not baselines and plan.reaches_all:
        minutes = 2 * settings.observation_seconds / 60
        twice = f"; all {len(plan.targets)} restart twice" if plan.canary.via == VIA_KUBERNETES else ""
        yield f"{_ALONE} (about {minutes:.0f} min){twice}"
    elif 0 < len(baselines) < PREFERRED_BASELINES:
        yield "one baseline only; two are preferred"
    if settings.blocks < FEWEST_BLOCKS:
        yield (
            f"control.blocks is {settings.blocks}: no verdict comes of fewer than {FEWEST_BLOCKS}, and the "
            f"change will go back as `inconclusive`"
        )


def _reach_notes(plan: Plan, reply: KnobReply | None, reached: Collection[str]) -> Iterator[str]:
    """What the path to the canary's knob touches beside the knob."""
    sheet = reply.sheet if reply is not None else None
    path = path_of(sheet, plan.canary.knob) if sheet is not None else None
    if path is not None and path.name != VIA_KNOB_API:
        yield f"by {path.name}: touches {path.touches}; read back from {path.read_back}; {path.undone}"
    if len(reached) > 1:
        yield f"reaches {len(reached)} targets at once: {', '.join(reached)}"


def _replica_problem(plan: Plan, change: PlannedChange, replica: ReplicaSnapshot | None) -> str:
    if replica is None:
        return f"{change.target} {NOT_WATCHED}"
    name = replica.target.name
    if replica.state not in FRESH:
        why = f": {replica.reasons[0]}" if replica.reasons else ""
        return f"{name} is {replica.state}{why}"
    if replica.model != plan.scope.model or replica.role != plan.scope.role:
        return (
            f"{name} serves {replica.model or 'no named model'} as {replica.role}, the plan is for "
            f"{plan.scope.model or 'no named model'} as {plan.scope.role}"
        )
    if JUDGED not in replica.totals:
        return (
            f"{name} has no exact counters (enginetop_requests_total), and verdicts come from those only; "
            f"its companion exports them"
        )
    return ""


def _knob_problem(change: PlannedChange, reply: KnobReply | None) -> str:
    where = f"{change.target}: "
    if reply is None:
        return f"{where}no path to its knobs is configured"
    if reply.kind is not ReplyKind.OK or reply.sheet is None:
        return f"{where}its knobs cannot be read: {reply.detail or reply.kind}"
    sheet = reply.sheet
    instance, writer = sheet.instance_of(change.knob), sheet.writer_of(change.knob)
    if instance != change.instance:
        return f"{where}the engine was restarted (instance {change.instance} is now {instance})"
    if sheet.applied != sheet.total:
        return f"{where}only {sheet.applied} of {sheet.total} ranks answer for their knobs"
    row = sheet.knob(change.knob)
    if row is None:
        known = ", ".join(known.name for known in sheet.knobs) or "none"
        return f"{where}no knob {change.knob} (it has: {known})"
    if path_of(sheet, change.knob) is None:
        return f"{where}its knobs are changed by {writer!r}, which this version does not know"
    if writer != change.via:
        return f"{where}its knobs are changed by {writer} now, the plan says by {change.via}"
    if row.phase:
        return f"{where}{change.knob} is {row.phase.replace('_', ' ')}{f' ({row.note})' if row.note else ''}"
    lent = next((one for one in sheet.knobs if one.expires_in_seconds is not None), None)
    if lent is not None and lent is not row:
        return (
            f"{where}{lent.name} {value_text(lent.value)} is on trial by another controller "
            f"(goes back by itself in {lent.expires_in_seconds:.0f} s)"
        )
    if row.value != change.before:
        return (
            f"{where}{change.knob} is {value_text(row.value)} now, "
            f"the plan changes it from {value_text(change.before)}"
        )
    if row.expires_in_seconds is not None:
        return (
            f"{where}{change.knob} is on trial by another controller "
            f"(goes back by itself in {row.expires_in_seconds:.0f} s)"
        )
    if not row.min <= change.after <= row.max:
        return f"{where}{change.knob} {change.after} is out of bounds ({row.min} to {row.max} {row.apply})"
    return ""


def _open_surface(replica: ReplicaSnapshot, reply: KnobReply | None) -> AdminSurface | None:
    """The control routes of a replica that are known to be open; None: none are known to be."""
    if reply is None or reply.admin is None:
        return None
    surface = admin_surface(replica.engine, replica.role, replica.stack, reply.admin)
    return surface if surface.openness is Openness.OPEN else None


def _open_problem(change: PlannedChange, surface: AdminSurface) -> str:
    return (
        f"{change.target}: {surface.what}; what is on trial could be changed by anybody: {surface.fix}, or "
        f'accept it (--accept-open-admin, or accept_open_admin = ["{change.target}"] under [control])'
    )


def found_row(sheets: Mapping[str, KnobReply], change: PlannedChange) -> KnobRow | None:
    """The row of a change's knob as it was read; None where it was not."""
    reply = sheets.get(change.target)
    return reply.sheet.knob(change.knob) if reply is not None and reply.sheet is not None else None


def _baselines(plan: Plan, snapshot: FleetSnapshot, reached: Collection[str]) -> tuple[str, ...]:
    """Who can be compared with: those of the plan, which run with the canary's former value; others only
    where it has none.
    """
    found = tuple(
        replica.target.url
        for replica in snapshot.replicas
        if replica.target.url not in (*plan.canaries, *reached)
        and replica.state in FRESH
        and replica.model == plan.scope.model
        and replica.role == plan.scope.role
        and JUDGED in replica.totals
    )
    return tuple(target for target in found if target in plan.followers) or found


def _unlike(plan: Plan, sheets: Mapping[str, KnobReply], baselines: Iterable[str]) -> Iterator[str]:
    """In what the baselines differ from the canary beside the knob of the plan."""
    canary = sheets.get(plan.canary.target)
    for target in baselines:
        reply = sheets.get(target)
        if target not in plan.targets:
            yield f"{target} is a baseline that the plan does not change: its settings may be others"
        elif (
            canary is not None and canary.sheet is not None and reply is not None and reply.sheet is not None
        ):
            for own in canary.sheet.knobs:
                row = reply.sheet.knob(own.name)
                if own.name in KNOBS and own.name != plan.canary.knob and row and row.value != own.value:
                    yield (
                        f"{target} is a baseline with {own.name} {value_text(row.value)}, the canary has "
                        f"{value_text(own.value)}: the verdict tells of that too"
                    )
