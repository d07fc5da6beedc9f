"""The stored form of a change: enough to undo it after a crash, and to show it afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from enginetop.fleet.change import FINAL_STATES, OUT_OF_FORCE, ChangeState, Verdict
from enginetop.fleet.plan import Plan, PlanError, parse_plan, plan_document
from tuners.control.judge import Judgement
from tuners.control.progress import Ending, Progress, Written
from tuners.control.settings import ControlSettings

CHANGE_SCHEMA = "enginetop.change/1"


class StoredChangeError(ValueError):
    """A stored change that cannot be read; the text says what is wrong with it."""


def progress_document(progress: Progress) -> dict[str, Any]:
    """The stored form. Counts and answers are left out: after a crash a change is undone, not continued."""
    ending, judgement = progress.ending, progress.judgement
    return {
        "schema": CHANGE_SCHEMA,
        "plan": plan_document(progress.plan),
        "state": progress.state.value,
        "since": progress.since,
        "approved_by": progress.approved_by,
        "written": list(progress.changed),
        "baselines": list(progress.baselines),
        "ending": None
        if ending is None
        else {"to": ending.to.value, "why": ending.why, "asked": ending.asked},
        "verdict": judgement.verdict.value if judgement else None,
        "why": judgement.why if judgement else "",
        "detail": progress.detail,
    }


def stored_plan(document: object) -> tuple[Plan, ChangeState, float]:
    """The plan of a stored change, its state and since when. StoredChangeError when it is none."""
    if not isinstance(document, Mapping) or document.get("schema") != CHANGE_SCHEMA:
        raise StoredChangeError(f"not a stored change ({CHANGE_SCHEMA})")
    try:
        return parse_plan(document["plan"]), ChangeState(document["state"]), float(document["since"])
    except (KeyError, ValueError, TypeError, PlanError) as error:
        raise StoredChangeError(f"a damaged stored change: {error}") from None


def undo_refusal(document: object) -> str:
    """Why a stored change cannot be undone; empty: it can. StoredChangeError as in `stored_plan`."""
    plan, state, _ = stored_plan(document)
    return f"the change {plan.id} is {state}: nothing of it is in force" if state in OUT_OF_FORCE else ""


def resume_to_undo(
    document: Mapping[str, Any], *, now: float, why: str, settings: ControlSettings, tool_version: str
) -> Progress:
    """A stored change as one that is being undone; a finished one as if every target were still written.

    The decision that was stored (to hold, say) stands. StoredChangeError as in `stored_plan`.
    """
    plan, state, since = stored_plan(document)
    finished = state in FINAL_STATES
    listed = document.get("written")
    if not isinstance(listed, list):
        raise StoredChangeError("a damaged stored change: written")
    written = plan.targets if finished else tuple(map(str, listed))
    stored = document.get("ending")
    ending = Ending(ChangeState.ROLLED_BACK if written else ChangeState.REFUSED, why, now, asked=True)
    if isinstance(stored, Mapping) and not finished:
        try:
            before = str(stored["why"])
            ending = Ending(
                ChangeState(stored["to"]),
                before if why in before else f"{before} ({why})",
                now,
                asked=bool(stored.get("asked", False)),
            )
        except (KeyError, ValueError):
            raise StoredChangeError("a damaged stored change: ending") from None
    try:
        verdict = None if document.get("verdict") is None else Verdict(document["verdict"])
    except ValueError:
        raise StoredChangeError("a damaged stored change: verdict") from None
    return Progress(
        plan=plan,
        settings=settings,
        tool_version=tool_version,
        approved_by=str(document.get("approved_by", "")),
        state=ChangeState.VERIFY if finished else state,
        since=since,
        detail=f"going back: {ending.why}",
        written=MappingProxyType(
            {
                change.target: Written(change, None, now, now, float("-inf"), sent=True)
                for change in plan.changes
                if change.target in written
            }
        ),
        began=since,
        judgement=None
        if verdict is None
        else Judgement(verdict, None, None, None, None, str(document.get("why", ""))),
        ending=ending,
    )
