"""`enginetop tune [TARGET ...]`: watch until the evidence suffices, print advice or what-ifs, plan."""

from __future__ import annotations

import argparse
import errno
import json
import os
import shlex
import stat
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from enginetop import __version__
from enginetop.cli import exit_codes, knob_paths, wiring
from enginetop.cli.diagnostics import tell
from enginetop.cli.live_targets import live_targets
from enginetop.cli.output import print_lines
from enginetop.cli.resolve import resolve
from enginetop.cli.settings import Settings
from enginetop.cli.slo_flag import slo_flag
from enginetop.cli.stdout import open_stdout
from enginetop.cli.tune_report import report_lines
from enginetop.cli.until_stopped import stop_event
from enginetop.cli.what_if import Asked, answer_document, answer_lines, answers
from enginetop.fleet.document import pool_document, replica_document
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.knobs import KnobSheet
from enginetop.fleet.model import Target
from enginetop.fleet.plan import Plan, plan_text
from enginetop.fleet.ports import FleetSource
from enginetop.fleet.snapshot import FleetSnapshot
from tui.view.advice import Suggestion, suggestions_of
from tuners.advice import is_undecided
from tuners.control.live_world import Clients
from tuners.control.planning import NoPlanError, plan_from_advice, pool_of
from tuners.limits import SUSTAINED_SECONDS

SCHEMA = "enginetop.advice/1"

_SHOWN = ("target", "name", "engine", "model", "state", "goodput", "advice")
_LOOK_SECONDS = 0.5


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    settings = resolve(args, tell)
    open_stdout("the advice")
    if args.replay:
        return _replay(args, settings)
    if args.plan:
        _writable(Path(args.plan))
    targets = live_targets(settings)
    source = wiring.live_engine(settings, targets, None)
    source.start()
    try:
        tell(f"watching {settings.watched(len(targets))} for up to {args.observe:g} s")
        snapshot, stopped = _observe(source, args.observe, settings.window_seconds)
        plan = None
        if args.plan and not stopped:
            plan = _plan_for(settings, targets, snapshot)
    finally:
        source.stop()
    if snapshot.collector.told:
        tell(snapshot.collector.told)
    _print(snapshot, args.format, plan, args.what_if)
    if plan is not None:
        _write(Path(args.plan), plan, _fleet_words(args))
    if stopped:
        return exit_codes.INTERRUPTED
    return exit_codes.HELD if args.plan and plan is None else exit_codes.OK


def _plan_for(settings: Settings, targets: Sequence[Target], snapshot: FleetSnapshot) -> Plan | None:
    """The plan, with the knobs of the targets; those of a Prometheus are asked only where that is wanted."""
    if settings.prometheus is None:
        return _plan(snapshot, knob_paths.knob_clients(settings, targets))
    if not settings.prometheus.direct_knobs:
        tell("no plan was written: with --prometheus, --direct-knobs reads the knobs that a plan needs")
        return None
    return _plan(
        snapshot, knob_paths.knob_clients(settings, tuple(replica.target for replica in snapshot.replicas))
    )


def _replay(args: argparse.Namespace, settings: Settings) -> int:
    if args.plan:
        raise ConfigError("--plan needs live engines: a recording's knobs cannot be read; leave --replay out")
    _print(wiring.replay_to_end(settings, Path(args.replay)), args.format, None, args.what_if)
    return exit_codes.OK


def suffices(snapshot: FleetSnapshot, watched_seconds: float, window_seconds: float) -> bool:
    """Whether the evidence is worth ending the watch for: a whole window and the time that a suggestion has
    to hold were seen, there is a suggestion, and nothing is undecided. That nothing has to be changed is
    never sure before the time is over.
    """
    seen = watched_seconds >= window_seconds + SUSTAINED_SECONDS
    return seen and bool(suggestions_of(snapshot)) and not any(map(is_undecided, snapshot.replicas))


def _observe(source: FleetSource, seconds: float, window_seconds: float) -> tuple[FleetSnapshot, bool]:
    """Watch until the evidence suffices, or `seconds` are over; whether a person ended it."""
    news = threading.Event()
    leave = source.subscribe(news.set)
    begun = time.monotonic()
    try:
        with stop_event() as stopped:
            while True:
                snapshot = source.latest()
                watched = time.monotonic() - begun
                if snapshot is not None and (
                    stopped.is_set() or watched >= seconds or suffices(snapshot, watched, window_seconds)
                ):
                    return snapshot, stopped.is_set()
                news.clear()
                news.wait(max(0.0, min(_LOOK_SECONDS, seconds - watched)))
    finally:
        leave()


def _plan(snapshot: FleetSnapshot, clients: Clients) -> Plan | None:
    """The plan of the surest suggestion that can be carried out live; None, with the reason on stderr."""
    found = suggestions_of(snapshot)
    if not found:
        tell("no plan was written: nothing is suggested")
        return None
    for suggestion in found:
        try:
            return _plan_of(snapshot, suggestion, clients)
        except NoPlanError as error:
            tell(f"no plan for {suggestion.replica.target.name}: {error}")
    return None


def _plan_of(snapshot: FleetSnapshot, suggestion: Suggestion, clients: Clients) -> Plan:
    replica = suggestion.replica
    urls = (replica.target.url, *(other.target.url for other in pool_of(snapshot, replica.target.url)))
    return plan_from_advice(
        snapshot,
        replica,
        suggestion.advice,
        _sheets(urls, clients),
        now=snapshot.at,
        tool_version=__version__,
    )


def _sheets(urls: tuple[str, ...], clients: Clients) -> Mapping[str, KnobSheet]:
    """The knobs of these targets, asked now."""
    replies = {url: client.read() for url in urls if (client := clients(url)) is not None}
    return {url: reply.sheet for url, reply in replies.items() if reply.sheet is not None}


def _fleet_words(args: argparse.Namespace) -> list[str]:
    """The arguments that name the fleet of this run and its objective, as `apply` takes them too."""
    words = [*args.targets, *(["--config", args.config] if args.config else [])]
    words += ["--slo", slo_flag(args.slo.slo)] if args.slo else []
    return [*words, *(word for one in args.discover or () for word in ("--discover", one))]


def _writable(path: Path) -> None:
    """ConfigError where a plan cannot be written: before minutes are spent on it."""
    try:
        is_folder, where = stat.S_ISDIR(path.stat().st_mode), path
    except FileNotFoundError:
        is_folder, where = False, path.parent
    except OSError as error:
        raise _unwritable(path, error.strerror) from None
    if is_folder or not os.access(where, os.W_OK):
        why = errno.EISDIR if is_folder else errno.EACCES if where.exists() else errno.ENOENT
        raise _unwritable(path, os.strerror(why))


def _unwritable(path: Path, why: str | None) -> ConfigError:
    return ConfigError(f"{path}: {why}; name a file that can be written with --plan")


def _write(path: Path, plan: Plan, fleet: Sequence[str]) -> None:
    try:
        path.write_text(plan_text(plan), encoding="utf-8")
    except OSError as error:
        raise _unwritable(path, error.strerror) from error
    tell(f"plan {plan.id} is in {path}: {shlex.join(['enginetop', 'apply', str(path), *fleet])}")


def _print(snapshot: FleetSnapshot, form: str, plan: Plan | None, asked: Sequence[Asked]) -> None:
    found = answers(snapshot, asked)
    if form == "json":
        replicas = [replica_document(replica) for replica in snapshot.replicas]
        document: dict[str, Any] = {
            "schema": SCHEMA,
            "at": snapshot.at,
            "replicas": [{key: replica[key] for key in _SHOWN} for replica in replicas],
            "pools": [pool_document(pool) for pool in snapshot.pools],
            "plan": plan.id if plan is not None else None,
        }
        if asked:
            document["what_if"] = [answer_document(answer) for answer in found]
        print(json.dumps(document, allow_nan=False))
        return
    print_lines(answer_lines(found) if asked else report_lines(snapshot))
