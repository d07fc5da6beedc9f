"""`enginetop [TARGET ...]`: the terminal UI, or a table where there is no terminal."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from collectors.raw_page import RawPageTap
from enginetop.alerts.silence import QuietDesk
from enginetop.cli import exit_codes
from enginetop.cli.alerting import alert_book, alert_rules, quiet_file
from enginetop.cli.column_file import ColumnFile
from enginetop.cli.diagnostics import tell
from enginetop.cli.late_source import LateSource
from enginetop.cli.live_targets import live_targets, local_gpus
from enginetop.cli.output import has_terminal, print_snapshot
from enginetop.cli.resolve import resolve
from enginetop.cli.settings import Settings, config_path
from enginetop.cli.settings import state_folder as user_state_folder
from enginetop.cli.user import user_name
from enginetop.fleet.model import Target
from enginetop.fleet.ports import ChangeControl, FleetSource, GpuSource, Playback, RawPages
from tui.keymap import with_keys
from tui.view.placing import read_choice

_SAMPLES = 2


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    settings = resolve(args, tell)
    if args.replay:
        return play(args, settings, Path(args.replay), speed=1.0, title=getattr(args, "past", ""))
    targets = live_targets(settings, may_come=True)
    return watch(args, settings, targets, local_gpus(targets), title=settings.banner)


def watch(
    args: argparse.Namespace,
    settings: Settings,
    targets: Sequence[Target],
    gpu_source: GpuSource | None,
    title: str = "",
    state_folder: Path | None = None,
) -> int:
    """Show live targets: the UI, or one table when there is no terminal.

    Changes can be made when the settings have a control table; they are kept in `state_folder`, None: the
    user's.
    """
    if not has_terminal():
        from enginetop.cli import wiring

        snapshot = wiring.sample(settings, targets, _SAMPLES, gpu_source)
        print_snapshot(snapshot, "table", title, read_only=settings.control is None)
        return exit_codes.OK
    quiet = quiet_file(state_folder)
    book, tap = alert_book(settings, targets, quiet), RawPageTap()

    def engine() -> FleetSource:
        from enginetop.cli import wiring  # with all that it takes to look at engines: after the first picture

        return wiring.live_engine(settings, targets, gpu_source, alert=book, tap=tap, in_turns=True)

    can_fail = settings.records or settings.prometheus  # told before there is a screen
    source = engine() if can_fail else LateSource(engine)
    if settings.control is None:
        return show(args, settings, source, targets, title, quiet=quiet, pages=tap)
    from enginetop.cli import control  # its HTTP client is imported only where changes can be made

    controller = control.controller(settings, source, targets, state_folder)
    with control.recovery(controller):
        return show(args, settings, source, targets, title, controller, quiet, pages=tap)


def play(args: argparse.Namespace, settings: Settings, recording: Path, speed: float, title: str = "") -> int:
    """Show a recording: played back in the UI, or its end as a table when there is no terminal."""
    from enginetop.cli import wiring

    title = title or f"replay of {recording.name}"
    if not has_terminal():
        print_snapshot(wiring.replay_to_end(settings, recording), "table", title)
        return exit_codes.OK
    tap = RawPageTap()
    source = wiring.replay_source(settings, recording, speed, tap)
    return show(args, settings, source, (), title, playback=source, pages=tap)


def show(
    args: argparse.Namespace,
    settings: Settings,
    source: FleetSource,
    targets: Sequence[Target],
    title: str,
    control: ChangeControl | None = None,
    quiet: QuietDesk | None = None,
    playback: Playback | None = None,
    pages: RawPages | None = None,
) -> int:
    """Run the UI on a source until the user leaves it; without `control` it only reads.

    Alerts are silenced and acknowledged through `quiet`; `playback` is the source when it plays a recording.
    `pages` are the pages behind the numbers.
    """
    actions, look = with_keys(settings.keys, f"{settings.origin}: keys"), settings.look
    configured = read_choice(look.columns, f"{settings.origin}: screen.columns") if look.columns else ()
    from tui.run import run_app  # textual is imported here and nowhere else in the command line

    return run_app(
        source,
        title=title,
        read_only=control is None,
        control=control,
        quiet=quiet,
        approver=user_name(),
        theme=args.theme or look.theme,
        theme_folder=config_path().parent / "themes",
        columns=ColumnFile(user_state_folder() / "columns.toml", configured),
        ascii_only=args.ascii or look.ascii_only,
        mouse=not args.no_mouse,
        targets=targets,
        playback=playback,
        pages=pages,
        actions=actions,
        fault_log=user_state_folder() / "faults.log",
        rules=alert_rules(settings),
    )
