"""`enginetop watch [TARGET ...]`: the same engine and the same rules as the screen, without one."""

from __future__ import annotations

import argparse
import queue
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum, auto
from pathlib import Path

from enginetop.alerts.book import AlertBook
from enginetop.alerts.sinks.desk import Desk, SinkHealth
from enginetop.cli import wiring
from enginetop.cli.alert_settings import AlertSettings
from enginetop.cli.alerting import alert_book, alert_rules, open_desk, quiet_file
from enginetop.cli.diagnostics import tell
from enginetop.cli.line_writer import stdout_writer
from enginetop.cli.listen import Listen
from enginetop.cli.live_targets import live_targets, local_gpus
from enginetop.cli.resolve import resolve
from enginetop.cli.sd_notify import Supervisor
from enginetop.cli.settings import Settings
from enginetop.cli.status_server import StatusServer
from enginetop.cli.until_stopped import on_signals
from enginetop.cli.watch_lines import NdjsonLines, PlainLines
from enginetop.cli.watch_pages import WatchPages
from enginetop.cli.watch_printer import Look, Printer
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.model import Target
from enginetop.fleet.ports import FleetSource
from enginetop.fleet.snapshot import Alert, FleetSnapshot

_SUMMARY_SECONDS = 60.0
"""How often the plain form sums up when no heartbeat is asked for."""
_LOOK_SECONDS = 0.5
_FOREVER_SECONDS = 1e6
_MOST_UNPRINTED = 100
"""Snapshots that wait, each with its whole fleet, before those in which no alert changes are left out."""


class _Wish(Enum):
    STOP = auto()
    RELOAD = auto()


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    settings = resolve(args, tell)
    plain = args.format == "table"
    heartbeat = args.heartbeat or (_SUMMARY_SECONDS if plain else None)
    printer = Printer(stdout_writer(tell), PlainLines() if plain else NdjsonLines(), heartbeat)
    if args.replay:
        if args.listen:
            raise ConfigError("--listen serves a living watch; a replay is over before anybody asks")
        return _replay(settings, Path(args.replay), printer)
    return _Watch(args, settings, printer).run()


def _replay(settings: Settings, path: Path, printer: Printer) -> int:
    """The events of a recording, as they would have been live. Nothing is delivered to sinks."""
    if settings.alerts.sinks:
        tell("a replay is not delivered to the sinks of the config file")
    book = alert_book(settings)

    def alert(snapshot: FleetSnapshot) -> FleetSnapshot:
        snapshot = book(snapshot)
        printer.take((snapshot, book.take_events()), None)
        printer.flush(_FOREVER_SECONDS)
        return snapshot

    last = wiring.replay_to_end(settings, path, alert)
    if last.collector.problem:
        tell(last.collector.problem)
    return printer.end()


class _Watch:
    """A live watch: engine, book, desk and printer, until somebody says stop."""

    def __init__(self, args: argparse.Namespace, settings: Settings, printer: Printer) -> None:
        self._args = args
        self._settings = settings
        self._printer = printer
        self._supervisor = Supervisor()
        self._looks: queue.SimpleQueue[Look | _Wish] = queue.SimpleQueue()
        self._book: AlertBook | None = None
        self._desk: Desk | None = None
        self._ready = False
        self._server: StatusServer | None = None
        self._quiet = quiet_file()
        self._pages = WatchPages(self._sinks)
        self._alive_at = float("-inf")
        self._problem = ""

    def run(self) -> int:
        """Watch; returns the exit code."""
        targets = live_targets(self._settings, may_come=True)
        engine: FleetSource | None = None
        with on_signals(self._wish):
            try:
                self._listen(self._settings.listen)
                engine = self._begin(self._settings, targets, self._open_desk(self._settings.alerts))
                tell(f"watching {self._settings.watched(len(targets))}; ctrl+c ends it")
                while (wish := self._turn()) is not _Wish.STOP:
                    if wish is _Wish.RELOAD:
                        engine = self._reload(engine)
            finally:
                self._supervisor.stopping()
                if engine is not None:
                    engine.stop()
                self._close_desk()
                self._listen(None)
            self._print_rest()
        return self._printer.end()

    def _wish(self, signal_number: int) -> None:
        self._looks.put(_Wish.RELOAD if signal_number == signal.SIGHUP else _Wish.STOP)

    def _begin(self, settings: Settings, targets: Sequence[Target], alerts: Sequence[Alert]) -> FleetSource:
        """An engine that works on these targets, with a book that goes on with these alerts."""
        book = self._book = alert_book(settings, targets, self._quiet)
        book.restore(alerts)

        def alert(snapshot: FleetSnapshot) -> FleetSnapshot:
            snapshot = book(snapshot)
            if self._desk is not None:
                self._desk.take(snapshot)
            events = book.take_events()
            if events or self._looks.qsize() < _MOST_UNPRINTED:
                self._looks.put((snapshot, events))
            return snapshot

        engine = wiring.live_engine(settings, targets, local_gpus(targets), alert=alert, in_turns=True)
        engine.start()
        return engine

    def _turn(self) -> _Wish | None:
        """Wait for the next thing that happens and deal with it; a wish is the caller's to deal with."""
        try:
            found = self._looks.get(timeout=_LOOK_SECONDS)
        except queue.Empty:
            self._printer.flush()
        else:
            if isinstance(found, _Wish):
                return found
            self._pages.take(found[0])
            self._printer.take(found, self._desk)
            self._printer.flush()
            self._report(found[0])
        self._show_life()
        return None

    def _show_life(self) -> None:
        """Tell the watchdog that we live while the engine ticks; one that stands still is to be restarted."""
        every, now = self._supervisor.watchdog_seconds, time.monotonic()
        if every is not None and not self._pages.late and now - self._alive_at >= every / 3:
            self._alive_at = now
            self._supervisor.alive()

    def _listen(self, where: Listen | None) -> None:
        """Serve our pages there, and no longer where we did; ConfigError: it stays as it was."""
        former = self._server
        self._server = None if where is None else StatusServer(where, self._pages.pages)
        if self._server is not None:
            tell(f"/metrics and /healthz at http://{self._server.address}")
        if former is not None:
            former.close()

    def _report(self, snapshot: FleetSnapshot) -> None:
        """That we are ready, and trouble on stderr, once each."""
        if not self._ready:
            self._ready = True
            self._supervisor.ready(f"watching {self._settings.watched(snapshot.fleet.replicas)}")
        troubles = [f"{sink.name}: {sink.problem}" for sink in self._sinks() if sink.problem]
        problem = "; ".join(filter(None, [snapshot.collector.told, self._quiet.problem, *troubles]))
        if problem and problem != self._problem:
            tell(problem)
        self._problem = problem

    def _sinks(self) -> Sequence[SinkHealth]:
        desk = self._desk
        return desk.health() if desk is not None else ()

    def _print_rest(self) -> None:
        """Print what the engine still found before it stopped."""
        while True:
            try:
                found = self._looks.get_nowait()
            except queue.Empty:
                return
            if not isinstance(found, _Wish):
                self._printer.take(found, self._desk)

    def _reload(self, engine: FleetSource) -> FleetSource:
        """Read the config file again. One that cannot be used changes nothing."""
        try:
            settings = resolve(self._args, tell)
            targets = live_targets(settings, may_come=True)
            if self._book is None:
                return engine
            if settings.listen != self._settings.listen:
                self._listen(settings.listen)
            former, self._settings = self._settings, settings
        except ConfigError as error:
            tell(f"{error}; the former configuration stays in force")
            return engine
        self._supervisor.reloading()
        self._ready = False
        tell("configuration read again")
        if settings.alerts.sinks != former.alerts.sinks or settings.alerts.origin != former.alerts.origin:
            self._close_desk()
            self._open_desk(settings.alerts)
        if replace(settings, alerts=former.alerts, listen=former.listen) == former:
            self._book.set_rules(alert_rules(settings, targets), settings.alerts.silences)
            return engine
        engine.stop()
        known = {target.url for target in targets}
        comes_and_goes = settings.prometheus is not None or bool(settings.discovery)
        told = self._book.current()
        still = [alert for alert in told if comes_and_goes or alert.target in known | {"fleet"}]
        return self._begin(settings, targets, still)

    def _open_desk(self, settings: AlertSettings) -> Sequence[Alert]:
        opened = open_desk(settings)
        if opened is None:
            return ()
        self._desk, told = opened
        self._desk.start()
        return told

    def _close_desk(self) -> None:
        desk, self._desk = self._desk, None
        if desk is not None and (behind := desk.stop()):
            tell(f"not delivered yet, and kept for the next start: alerts for {', '.join(behind)}")
