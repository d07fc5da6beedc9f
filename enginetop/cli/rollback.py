"""`enginetop rollback ID`."""

from __future__ import annotations

import argparse
import time

from enginetop.cli import control, exit_codes, wiring
from enginetop.cli.diagnostics import tell
from enginetop.cli.resolve import resolve
from enginetop.cli.settings import state_folder
from enginetop.cli.until_stopped import stop_event
from enginetop.fleet.change import FINAL_STATES, ChangeState
from tuners.control.driver import ControlError
from tuners.control.recovery import StoredChangeError, stored_plan, undo_refusal
from tuners.control.store import ChangeStore

_LOOK_SECONDS = 0.5


def run(args: argparse.Namespace) -> int:
    """Run the command. A change that was brought back as asked is a success.

    The way back is open without a [control] table too: it only undoes what we did.
    """
    settings = resolve(args, tell)
    if refusal := _refusal(args.change):
        tell(refusal)
        return exit_codes.REFUSED
    approved_by = control.approval(args.yes, args.change, "roll back")
    if approved_by is None:
        return exit_codes.REFUSED
    with control.at_work(settings, wiring.live_targets(settings)) as (_, controller):
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


def _refusal(change: str) -> str:
    """Why a change cannot be undone, which nobody need confirm; empty: it can."""
    try:
        return undo_refusal(ChangeStore(state_folder()).load(change))
    except StoredChangeError as error:
        return str(error)


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
