"""A change as a screen asks for it: from the present advice to a plan that was held against the fleet."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from enginetop.fleet.change import Proposal
from enginetop.fleet.plan import Plan
from enginetop.fleet.snapshot import FleetSnapshot
from tuners.control.knob_api import KnobReply
from tuners.control.paths import PATHS
from tuners.control.planning import NoPlanError, plan_from_advice
from tuners.control.preflight import Preflight
from tuners.control.settings import ControlSettings


def work_out(
    snapshot: FleetSnapshot,
    target: str,
    knob: str,
    replies: Mapping[str, KnobReply],
    *,
    now: float,
    tool_version: str,
    settings: ControlSettings,
    check: Callable[[Plan], Preflight],
) -> tuple[Plan | None, Proposal]:
    """The plan that the advice on `knob` of `target` leads to, and what a screen shows of it.

    `replies` holds a fresh read of the knobs of the target and its pool; `check` holds the plan against the
    fleet. No plan: the refusals say why.
    """
    replica = snapshot.replica(target)
    advice = next((row for row in replica.advice if row.knob == knob), None) if replica else None
    if replica is None or advice is None:
        why = f"{target} is not watched" if replica is None else f"there is no advice on {knob}"
        return None, Proposal("", knob, None, None, target, refusals=(why,))
    sheets = {url: reply.sheet for url, reply in replies.items() if reply.sheet is not None}
    try:
        plan = plan_from_advice(snapshot, replica, advice, sheets, now=now, tool_version=tool_version)
    except NoPlanError as error:
        why = str(error)
        reply = replies.get(target)
        if reply is not None and reply.sheet is None:
            why = f"{why} ({reply.detail or reply.kind})"
        return None, Proposal("", knob, None, None, target, refusals=(why,))
    outcome = check(plan)
    notes = (*outcome.notes, outcome.sizing.words) if outcome.sizing else outcome.notes
    proposal = Proposal(
        id=plan.id,
        knob=knob,
        before=plan.canary.before,
        after=plan.canary.after,
        canary_target=plan.canary.target,
        promote_targets=plan.followers,
        baseline_targets=outcome.baselines,
        observation_seconds=settings.observation_seconds if outcome.baselines else None,
        ttl_seconds=settings.ttl_seconds if PATHS[plan.canary.via].counts_down else None,
        notes=notes,
        refusals=outcome.problems,
        together=plan.canaries[1:],
    )
    return (None if outcome.problems else plan), proposal
