"""The screen from its start to its end: what is stopped then, what the process says, and its exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypedDict, Unpack

from enginetop.alerts.rule import Rule
from enginetop.alerts.silence import QuietDesk
from enginetop.fleet.change import FINAL_STATES
from enginetop.fleet.model import Target
from enginetop.fleet.ports import ChangeControl, FleetSource, Playback, RawPages
from tui.actions import Action
from tui.app import FleetApp
from tui.view.column_choice import ColumnStore


class Options(TypedDict, total=False):
    """The keyword arguments of `FleetApp`, for `run_app`."""

    title: str
    read_only: bool
    control: ChangeControl | None
    approver: str
    quiet: QuietDesk | None
    simulated: bool
    theme: str | None
    theme_folder: Path | None
    columns: ColumnStore | None
    ascii_only: bool
    mouse: bool
    targets: Sequence[Target]
    clock: Callable[[], float]
    playback: Playback | None
    actions: Sequence[Action] | None
    fault_log: Path | None
    pages: RawPages | None
    rules: Sequence[Rule] | None


def _stop_control(control: ChangeControl) -> None:
    for change in control.latest():
        if change.state not in FINAL_STATES:
            with suppress(OSError):  # the terminal may be gone; the change must be undone all the same
                print(f"enginetop: undoing change {change.id} first", file=sys.stderr)  # noqa: T201
    control.stop()


def run_app(source: FleetSource, **options: Unpack[Options]) -> int:
    """Run the terminal UI until the user leaves it; the options are those of `FleetApp`.

    Stops the control (which undoes what is under way) and the source afterwards, when the terminal is
    already restored. Returns 0, or 1 when the program itself failed (each failure is a line on stderr).
    ConfigError: the theme is not known.
    """
    app = FleetApp(source, **options)
    try:
        app.run(mouse=app.mouse)
    finally:
        try:
            control = options.get("control")
            if control is not None:
                _stop_control(control)
        finally:
            source.stop()
    with suppress(OSError):  # the terminal may be gone
        for failure in app.failures:
            print(f"enginetop: {failure}", file=sys.stderr)  # noqa: T201 - the terminal is ours again
        if app.failures and options.get("fault_log") is not None:
            print(f"enginetop: where it happened: {options['fault_log']}", file=sys.stderr)  # noqa: T201
    return 1 if app.failures else app.return_code or 0
