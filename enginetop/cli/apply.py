"""`enginetop apply PLAN`."""

from __future__ import annotations

import argparse
import json
import shlex
import threading
import time
from pathlib import Path

from enginetop.cli import control, exit_codes
from enginetop.cli.diagnostics import tell
from enginetop.cli.live_targets import live_targets
from enginetop.cli.resolve import resolve
from enginetop.cli.settings import Settings
from enginetop.fleet.change import ChangeState, value_text
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.plan import Plan
from enginetop.fleet.ports import FleetSource
from enginetop.fleet.snapshot import number_of
from tuners.control.controller import Controller
from tuners.control.driver import ControlError
from tuners.control.preflight import NOT_WATCHED
from tuners.control.store import read_plan

_PATIENCE_INTERVALS = 5
_SHORTEST_PATIENCE_SECONDS = 10.0


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    settings = resolve(args, tell)
    plan = read_plan(Path(args.plan))
    if args.emit_patch:
        return _emit(settings, plan)
    if not args.dry_run and not control.may_act(settings):
        return _unbegun(args, plan, "read-only: there is no [control] table")
    try:
        targets = live_targets(settings)
    except ConfigError as error:
        raise ConfigError(f"{error}; or {_naming_it(args.plan, plan)}") from None
    with control.at_work(settings, targets, accept_open_admin=args.accept_open_admin) as (source, controller):
        _wait_for_rates(source, plan, settings.interval_seconds)
        try:
            return _carry_out(args, controller, plan)
        except ControlError as error:
            tell(str(error))
            return exit_codes.REFUSED


def _emit(settings: Settings, plan: Plan) -> int:
    from enginetop.cli.kubernetes_owners import Cluster, cluster_of, patch_lines  # of use to some

    cluster = cluster_of(settings.discovery) or Cluster()
    for line in patch_lines(plan, settings.targets, cluster):
        print(line)
    return exit_codes.OK


def _tell_of_recovery(change: str) -> None:
    tell(f"change {change} was left unfinished: it is undone first; this waits for its engines")


def _carry_out(args: argparse.Namespace, controller: Controller, plan: Plan) -> int:
    if not args.dry_run:
        try:
            recovered = controller.recover(begins=_tell_of_recovery)
        except ControlError as error:
            controller.refuse(plan, str(error))
            return _refused(args, plan, error)
        for left in recovered:
            tell(f"change {left.id} had been left unfinished: {left.state}: {left.detail}")
            if left.state is ChangeState.ROLLBACK_FAILED:
                detail = f"the change {left.id} could not be rolled back"
                controller.refuse(plan, detail)
                _unbegun(args, plan, detail)
                return exit_codes.ROLLBACK_FAILED
    change = plan.canary
    what = f"plan {plan.id}: {change.knob} {value_text(change.before)} -> {change.after} on {change.target}"
    tell(what)
    for when, targets in (("at once on", plan.canaries[1:]), ("then on", plan.followers)):
        for target in targets:
            tell(f"  {when} {target}")
    outcome = controller.preflight(plan)
    for note in (*outcome.notes, *((outcome.sizing.words,) if outcome.sizing else ())):
        tell(note)
    for problem in outcome.problems:
        tell(f"refused: {problem}")
    if any(problem.endswith(NOT_WATCHED) for problem in outcome.problems):
        tell(_naming_it(args.plan, plan))
    if outcome.problems:
        detail = "; ".join(outcome.problems)
        if not args.dry_run:
            controller.refuse(plan, detail)
        return _unbegun(args, plan, detail)
    if args.dry_run:
        fits = "fits: nothing was changed (--dry-run)"
        if args.format == "text":
            print(f"plan {plan.id} {fits}")
        _unbegun(args, plan, fits, ChangeState.PREFLIGHT)
        return exit_codes.OK
    approved_by = control.approval(args.yes, _word(change.target), "begin")
    if approved_by is None:
        controller.refuse(plan, "not confirmed")
        return _unbegun(args, plan, "not confirmed")
    if args.accept_open_admin:
        approved_by = f"{approved_by}, with --accept-open-admin"
    began = time.time()
    try:
        controller.begin(plan, approved_by)
    except ControlError as error:
        return _refused(args, plan, error)
    view = control.follow(controller, began)
    code = control.conclude(view, args.format)
    if view.state is ChangeState.DONE:
        tell(f"the way back: {way_back(args, plan)}")
    return code


def _refused(args: argparse.Namespace, plan: Plan, error: ControlError) -> int:
    """Say why the controller does not begin a plan; the exit code of a refusal."""
    tell(str(error))
    return _unbegun(args, plan, str(error))


def _unbegun(
    args: argparse.Namespace, plan: Plan, detail: str, state: ChangeState = ChangeState.REFUSED
) -> int:
    """Print what became of a plan that was not begun, for who asked for JSON; the exit code of a refusal."""
    if args.format == "json":
        print(json.dumps(control.unbegun_document(plan, state, detail), allow_nan=False))
    return exit_codes.REFUSED


def way_back(args: argparse.Namespace, plan: Plan) -> str:
    """The command that undoes what was kept, on the fleet as named; one that was found: by its URLs."""
    found = plan.targets if args.discover else ()
    fleet = args.targets or [url for url in found if url.startswith("http")]
    config = ("--config", args.config) if args.config else ()
    return shlex.join(("enginetop", "rollback", plan.id, *fleet, *config))


def _naming_it(file: str, plan: Plan) -> str:
    return f"name the fleet of the plan: {shlex.join(('enginetop', 'apply', file, *plan.targets))}"


def _word(target: str) -> str:
    """What has to be typed: the canary's address without its scheme."""
    return target.partition("://")[2]


def _wait_for_rates(source: FleetSource, plan: Plan, interval_seconds: float) -> None:
    """Wait, not for ever, for two pages of each watched target of the plan, and until a request of its canary
    ended (where it counts them): then rates are known, and what the observation can show.
    """
    fresh = threading.Event()
    leave = source.subscribe(fresh.set)
    until = time.monotonic() + max(_SHORTEST_PATIENCE_SECONDS, _PATIENCE_INTERVALS * interval_seconds)
    latest = source.latest()
    watched = {replica.target.url for replica in latest.replicas} if latest else set()
    seen: dict[str, set[float]] = {target: set() for target in plan.targets if target in watched}
    idle = False
    try:
        while time.monotonic() < until:
            fresh.clear()
            snapshot = source.latest()
            for replica in snapshot.replicas if snapshot else ():
                if replica.target.url in seen and replica.scraped_at is not None:
                    seen[replica.target.url].add(replica.scraped_at)
                if replica.target.url == plan.canary.target:
                    idle = number_of(replica.signals, "requests_finished_per_second") == 0
            if not idle and all(len(times) >= 2 for times in seen.values()):
                return
            fresh.wait(interval_seconds)
    finally:
        leave()
