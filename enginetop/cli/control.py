"""Wiring of control: the state folder, the ways to the knobs, the controller, and who approves."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from collectors.clock import SteadyClock
from enginetop import __version__
from enginetop.cli import exit_codes, wiring
from enginetop.cli.diagnostics import tell
from enginetop.cli.knob_paths import knob_clients
from enginetop.cli.settings import Settings, state_folder
from enginetop.cli.until_stopped import stop_event
from enginetop.cli.user import user_name
from enginetop.fleet.change import ChangeState, ChangeView
from enginetop.fleet.durations import countdown
from enginetop.fleet.model import Target
from enginetop.fleet.plan import Plan
from enginetop.fleet.ports import FleetSource
from tuners.control.controller import Controller, WorldOf, the_fleet
from tuners.control.driver import ControlError
from tuners.control.recovery import StoredChangeError
from tuners.control.settings import ControlSettings
from tuners.control.store import ChangeStore

_LOOK_SECONDS = 0.5
_PROGRESS_SECONDS = 60.0
_EXIT_CODES = {
    ChangeState.DONE: exit_codes.OK,
    ChangeState.REFUSED: exit_codes.REFUSED,
    ChangeState.HELD: exit_codes.HELD,
    ChangeState.ROLLED_BACK: exit_codes.ROLLED_BACK,
    ChangeState.ROLLBACK_FAILED: exit_codes.ROLLBACK_FAILED,
}


def controller(
    settings: Settings,
    source: FleetSource,
    targets: Sequence[Target],
    folder: Path | None = None,
    *,
    accept_open_admin: bool = False,
) -> Controller:
    """A controller over a started source, for these targets only. Its state lies in `folder`, None: the
    user's. `accept_open_admin`: as in `ControlSettings`, whatever the config file says.
    """
    how = settings.control or ControlSettings()
    return Controller(
        source,
        knob_clients(settings, targets),
        ChangeStore(folder or state_folder()),
        settings=replace(how, accept_open_admin=True) if accept_open_admin else how,
        tool_version=__version__,
        clock=SteadyClock().now,
        world_of=_world_of(settings, folder or state_folder()),
    )


@contextmanager
def at_work(
    settings: Settings, targets: Sequence[Target], *, accept_open_admin: bool = False
) -> Iterator[tuple[FleetSource, Controller]]:
    """The fleet as it is scraped while the block runs, and a controller over it; what it has begun is undone
    at the end.
    """
    source = wiring.live_engine(settings, targets, None)
    source.start()
    try:
        made = controller(settings, source, targets, accept_open_admin=accept_open_admin)
        try:
            yield source, made
        finally:
            made.stop()
    finally:
        source.stop()


def _world_of(settings: Settings, folder: Path) -> WorldOf:
    """The world of a plan: owners of Kubernetes have one of their own."""
    if not any(one.kind == "kubernetes" for one in settings.discovery):
        return the_fleet
    from enginetop.cli.kubernetes_apply import OwnerWorlds  # of use to some
    from enginetop.cli.kubernetes_owners import cluster_of

    cluster = cluster_of(settings.discovery)
    return the_fleet if cluster is None else OwnerWorlds(cluster, folder)


def may_act(settings: Settings) -> bool:
    """Whether anything new may be written at all; says what is missing otherwise."""
    if settings.control is not None:
        return True
    tell("read-only: nothing is changed without a [control] table in the config file; an empty one will do")
    return False


def approval(yes: bool, word: str, what: str) -> str | None:
    """Who approves, in words; None: nobody does, and why was said. `word` has to be typed on a terminal."""
    user = user_name()
    if yes:
        return f"{user} (--yes)"
    if not all(end is not None and end.isatty() for end in (sys.stdin, sys.stderr)):
        tell(f"{what} needs a typed confirmation on a terminal, or --yes")
        return None
    print(f"type {word} to {what}: ", end="", file=sys.stderr, flush=True)
    try:
        typed = sys.stdin.readline().strip()
    except KeyboardInterrupt:
        print(file=sys.stderr)  # the shell's prompt begins a line of its own
        raise
    if typed != word:
        tell("not confirmed; nothing was changed")
        return None
    return f'{user} (typed "{word}")'


def follow(control: Controller, since: float) -> ChangeView:
    """Print each step of the change under way on stderr until it is over; ctrl+c undoes it. Its last view.

    While it is observed, a line a minute says how far that is. What was done before `since` (Unix seconds),
    by an earlier run, is for `audit` to tell. ControlError when the change ended without a view.
    """
    shown, told_at = 0, time.monotonic()
    with stop_event() as stopped:
        while True:
            view = control.wait(_LOOK_SECONDS)
            latest = view or next(iter(control.latest()), None)
            canary = None if latest is None else latest.canary_target
            for row in () if latest is None else latest.history[shown:]:
                shown += 1
                if row.at >= since:
                    whose = "" if row.target == canary else f"{row.target}: "
                    _tell_at(row.at, f"{row.state} {whose}{row.detail}")
                    told_at = time.monotonic()
            if (
                latest is not None
                and time.monotonic() - told_at >= _PROGRESS_SECONDS
                and (far := _how_far(latest))
            ):
                _tell_at(time.time(), far)
                told_at = time.monotonic()
            if view is not None:
                return view
            if not control.busy:
                raise ControlError("the change ended without a word")
            if stopped.is_set() and latest is not None:
                stopped.clear()
                tell("stopping: the change is undone first")
                control.roll_back(latest.id, "enginetop was told to stop")


def _tell_at(at: float, words: str) -> None:
    tell(f"{time.strftime('%H:%M:%S', time.localtime(at))} {words}")


def _how_far(view: ChangeView) -> str:
    """How far an observation is, in words; empty when there is none."""
    if view.state is not ChangeState.OBSERVE or not view.blocks:
        return ""
    left = f", {countdown(view.eta_seconds)} left" if view.eta_seconds is not None else ""
    return f"{view.state} block {view.block} of {view.blocks}{left}"


@contextmanager
def recovery(control: Controller) -> Iterator[threading.Thread]:
    """Undo what an earlier run left unfinished, beside what the caller does; trouble is told at the end.

    The controller refuses every new change until that is done, and says so where one is asked for.
    """
    troubles: list[str] = []

    def recover() -> None:
        try:
            control.recover()
        except (ControlError, StoredChangeError, OSError) as error:
            troubles.append(" ".join(str(error).split()))

    thread = threading.Thread(target=recover, name="enginetop-recovery", daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        for trouble in troubles:
            tell(trouble)


def conclude(view: ChangeView, form: str) -> int:
    """Print the outcome of a change on stdout; its exit code."""
    if form == "json":
        arms = {"canary": view.canary, "baseline": view.baseline}
        document = {
            **_document(view.id, view.state, view.knob, view.before, view.after, view.canary_target),
            "verdict": view.verdict.value if view.verdict else None,
            "promoted": [*view.together, *view.promote_targets] if view.state is ChangeState.DONE else [],
            "detail": view.detail,
            "arms": {name: asdict(arm) if arm else None for name, arm in arms.items()},
        }
        print(json.dumps(document, allow_nan=False))
    else:
        verdict = f" ({view.verdict})" if view.verdict else ""
        print(f"change {view.id}: {view.state}{verdict}: {view.detail}")
    return exit_code(view.state)


def unbegun_document(plan: Plan, state: ChangeState, detail: str) -> dict[str, Any]:
    """A plan that was not begun, in the form of `conclude`."""
    first = plan.canary
    return {
        **_document(plan.id, state, first.knob, first.before, first.after, first.target),
        "detail": detail,
    }


def _document(
    change: str, state: ChangeState, knob: str, before: int | None, after: int | None, canary: str
) -> dict[str, Any]:
    """A change as JSON; what came of it is not there yet."""
    return {
        "id": change,
        "state": state.value,
        "verdict": None,
        "knob": knob,
        "from": before,
        "to": after,
        "canary": canary,
        "promoted": [],
        "detail": "",
        "arms": {"canary": None, "baseline": None},
    }


def exit_code(state: ChangeState) -> int:
    """The exit code of a final state."""
    return _EXIT_CODES.get(state, exit_codes.INTERNAL)
