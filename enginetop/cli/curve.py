"""`enginetop curve [TARGET ...]`: goodput and TTFT p99 against load, and the knee where it was seen."""

from __future__ import annotations

import argparse
import json
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

from collectors.load_results import LoadResults, read_load_results
from enginetop.cli import exit_codes, wiring
from enginetop.cli.diagnostics import tell
from enginetop.cli.live_targets import live_targets
from enginetop.cli.output import print_lines
from enginetop.cli.resolve import resolve
from enginetop.cli.settings import Settings
from enginetop.cli.stdout import open_stdout
from enginetop.cli.until_stopped import stop_event
from enginetop.fleet.durations import duration_text
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.load_curve import load_curve
from enginetop.fleet.load_document import NamedCurve, curves_document, curves_of
from enginetop.fleet.model import Target
from enginetop.fleet.snapshot import FleetSnapshot
from tui.view.cells import EMPTY_LINE, Line, Span
from tui.view.load_curve import curve_lines

_FIRST_LOOK_SECONDS = 30.0


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    settings = resolve(args, tell)
    open_stdout("the curves")
    results = [read_load_results(Path(name)) for name in args.overlay]
    if args.replay:
        snapshot = wiring.replay_to_end(settings, Path(args.replay))
    else:
        snapshot = _watch(settings, live_targets(settings), args.duration)
    if snapshot.collector.told:
        tell(snapshot.collector.told)
    curves = [*curves_of(snapshot), *(_overlay(one, settings) for one in results)]
    if args.format == "json":
        document = curves_document(snapshot.at, snapshot.window_seconds, curves)
        print(json.dumps(document, allow_nan=False))
    else:
        print_lines(_lines(curves))
    return exit_codes.OK


def _overlay(results: LoadResults, settings: Settings) -> NamedCurve:
    """The runs of a load generator; each is a bin's worth by itself."""
    slo = settings.slo_for(None)
    runs, without = len(results.runs), len(results.runs) - len(results.points())
    if without:
        tell(f"{results.path}: {without} of {runs} runs without goodput; give {results.tool} an SLO")
    curve = load_curve(results.points(), slo.ttft_seconds, least_points=1)
    return NamedCurve("overlay", f"{results.tool} {Path(results.path).name}", curve, slo, target=results.path)


def _lines(curves: Iterable[NamedCurve]) -> Iterable[Line]:
    """A block for each curve; a replica without a whole bin is left to its pool."""
    for named in curves:
        if named.scope == "replica" and not named.curve.bins:
            continue
        of = f", load of one of {named.replicas}" if named.replicas > 1 else ""
        yield (Span(f"{named.scope} {named.name}", "title"), Span(of, "dim"))
        yield from curve_lines(named.curve, named.slo.ttft_seconds)
        yield EMPTY_LINE


def _watch(settings: Settings, targets: Sequence[Target], seconds: float) -> FleetSnapshot:
    """The fleet after `seconds`, or when somebody stops it."""
    engine = wiring.live_engine(settings, targets, None)
    watched = settings.watched(len(targets))
    tell(f"watching {watched} for {duration_text(seconds)}; ctrl+c ends it with what was seen")
    seen = threading.Event()
    engine.subscribe(seen.set)
    with stop_event() as stopped:
        engine.start()
        try:
            if not stopped.wait(seconds):
                seen.wait(_FIRST_LOOK_SECONDS)  # however short the time, it sees the fleet once
        finally:
            engine.stop()
    found = engine.latest()
    if found is None:
        raise ConfigError("nothing was seen of the fleet; try again")
    return found
