"""`enginetop rollback ID`."""

from __future__ import annotations

import argparse
import shlex
import time

from enginetop.cli import control, exit_codes
from enginetop.cli.diagnostics import tell
from enginetop.cli.live_targets import live_targets
from enginetop.cli.resolve import resolve
from enginetop.cli.settings import state_folder
from enginetop.cli.until_stopped import stop_event
from enginetop.fleet.change import FINAL_STATES, ChangeState, value_text
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.plan import Plan
from tuners.control.driver import ControlError
from tuners.control.recovery import StoredChangeError, stored_plan, undo_refusal
from tuners.control.store import ChangeStore

_LOOK_SECONDS = 0.5


def run(args: argparse.Namespace) -> int:
    """Run the command. A change that was brought back as asked is a success.

    The way back is open without a [control] table too: it only undoes what we did.
    """
    settings = resolve(args, tell)
    try:
        document = ChangeStore(state_folder()).load(args.change)
        plan, state, _ = stored_plan(document)
        refusal = undo_refusal(document)
    except StoredChangeError as error:
        refusal = str(error)
    if refusal:
        tell(refusal)
        return exit_codes.REFUSED
    try:
        targets = live_targets(settings)
    except ConfigError as error:
        raise ConfigError(f"{error}; or {_naming_them(plan)}") from None
    change = plan.canary
    tell(
        f"change {plan.id} ({state}): {change.knob} {change.after} -> {value_text(change.before)} "
        f"on {' '.join(plan.targets)}"
    )
    approved_by = control.approval(args.yes, args.change, "roll back")
    if approved_by is None:
        return exit_codes.REFUSED
    with control.at_work(settings, targets) as (_, controller):
        try:
            began = time.time()
            controller.roll_back(args.change, f"asked for by {approved_by}")
            if not controller.busy and not controller.latest():
                return _elsewhere(args.change)
            view = control.follow(controller, began)
        except ControlError as error:
            tell(str(error))
            return exit_codes.REFUSED
    code = control.conclude(view, args.format)
    return exit_codes.OK if view.state is ChangeState.ROLLED_BACK else code


def _naming_them(plan: Plan) -> str:
    return f"name the fleet of the change: {shlex.join(('enginetop', 'rollback', plan.id, *plan.targets))}"


def _elsewhere(change: str) -> int:
    """Wait for the process that carries the change out; it looks for our request at every tick."""
    tell(f"change {change} is carried out by another process, which was asked to undo it")
    store = ChangeStore(state_folder())
    with stop_event() as stopped:
        while not stopped.wait(_LOOK_SECONDS):
            _, state, _ = stored_plan(store.load(change))
            if state in FINAL_STATES:
                print(f"change {change}: {state}")
                return exit_codes.OK if state is ChangeState.ROLLED_BACK else control.exit_code(state)
    return exit_codes.INTERRUPTED
