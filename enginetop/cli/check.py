"""`enginetop check [TARGET ...]`: one line and an exit code, for cron and probes."""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

from enginetop.alerts.builtin import AT_ONCE
from enginetop.alerts.rule import FIRING, Severity
from enginetop.cli import exit_codes, wiring
from enginetop.cli.diagnostics import tell
from enginetop.cli.live_targets import live_targets, local_gpus
from enginetop.cli.resolve import resolve
from enginetop.cli.settings import Settings
from enginetop.fleet.document import alert_document
from enginetop.fleet.durations import duration_text
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import ReplicaState, Target
from enginetop.fleet.snapshot import Alert, FleetSnapshot, ReplicaSnapshot
from tui.view.condition import conditions_of
from tui.view.severity import Severity as Loudness

SCHEMA = "enginetop.check/1"

_SAMPLES = 2
_MOST_PROBLEMS = 12
_MOST_ASIDES = 4
"""So many stand in the line; the JSON has all of them."""
_WORDS = {
    exit_codes.OK: "OK",
    exit_codes.WARNING: "WARNING",
    exit_codes.CRITICAL: "CRITICAL",
    exit_codes.UNKNOWN: "UNKNOWN",
}
_GRAVITY = (exit_codes.OK, exit_codes.UNKNOWN, exit_codes.WARNING, exit_codes.CRITICAL)
"""From the least to the gravest: a replica that could not be looked at does not hide one that is down."""
_CODE_OF = {
    Severity.INFO: exit_codes.OK,
    Severity.WARNING: exit_codes.WARNING,
    Severity.CRITICAL: exit_codes.CRITICAL,
}
_SAID = {
    "TargetDown": "down",
    "NoProgress": "no progress",
    "NoEngineMetrics": "no engine metrics",
    "Unauthorized": "unauthorized",
}
_SAID_WHY = frozenset({"NoEngineMetrics", "Unauthorized"})
"""Of these the state says nothing without its reason: whose key is missing, what answers there instead."""


@frozen
class Problem:
    """Something about one target, or about the fleet, and the exit code that it alone gives."""

    code: int
    target: str
    text: str


@frozen
class Verdict:
    """What a check comes to. `asides` are of code 0: what the screen says of replicas without a problem."""

    code: int
    summary: str
    problems: tuple[Problem, ...]
    asides: tuple[Problem, ...] = ()


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    snapshot = _picture(args)
    if snapshot.collector.told:
        tell(snapshot.collector.told)
    verdict = judge(snapshot)
    print(
        json.dumps(_document(snapshot, verdict), allow_nan=False)
        if args.format == "json"
        else verdict.summary
    )
    return verdict.code


def _picture(args: argparse.Namespace) -> FleetSnapshot:
    settings = resolve(args, tell)
    if args.replay:
        return wiring.replay_to_end(settings, Path(args.replay))
    return _look(settings, live_targets(settings), args.duration)


def judge(snapshot: FleetSnapshot) -> Verdict:
    """The verdict on a snapshot.

    Alerts count when they fire and nothing keeps them quiet; those of states that need no hold count as soon
    as they are pending. A replica of which nothing is known yet is unknown.
    """
    names = snapshot.names
    problems = [
        Problem(_CODE_OF[Severity(alert.severity)], alert.target, _text(alert, names, snapshot.at))
        for alert in snapshot.alerts
        if _counts(alert)
    ]
    problems += [
        Problem(
            exit_codes.UNKNOWN,
            replica.target.url,
            f"{replica.target.name} {replica.state.value}: {'; '.join(replica.reasons) or 'no answer yet'}",
        )
        for replica in snapshot.replicas
        if _nothing_known(replica) and replica.gone_at is None
    ]
    if not snapshot.replicas:
        problems.append(
            Problem(exit_codes.UNKNOWN, "fleet", snapshot.collector.told or "no replica was seen")
        )
    problems = [problem for problem in problems if problem.code != exit_codes.OK]
    problems.sort(key=lambda problem: -_GRAVITY.index(problem.code))
    code = problems[0].code if problems else exit_codes.OK
    asides = _asides(snapshot, {problem.target for problem in problems})
    return Verdict(code, _summary(code, problems, asides, snapshot), tuple(problems), tuple(asides))


def _nothing_known(replica: ReplicaSnapshot) -> bool:
    """Also of one that answers, but never with a page: a metrics page that fails since the first look."""
    return replica.state is ReplicaState.UNKNOWN or (
        replica.state is ReplicaState.STALE and replica.scraped_at is None
    )


def _counts(alert: Alert) -> bool:
    return not alert.silenced_by and _matters(alert)


def _matters(alert: Alert) -> bool:
    """Whether it would count if nobody had silenced it."""
    if alert.inhibited_by:
        return False
    return alert.state == FIRING or (alert.state == "pending" and alert.rule in AT_ONCE)


def _text(alert: Alert, names: Mapping[str, str], at: float) -> str:
    name = names.get(alert.target, alert.target)
    word = _SAID.get(alert.rule)
    if word is not None and alert.rule in _SAID_WHY and alert.summary:
        return f"{name} {word}: {alert.summary}"
    if word is not None:
        return f"{name} {word} {duration_text(at - alert.since)}"
    return f"{name} {alert.rule}: {alert.summary}"


def _summary(
    code: int, problems: Sequence[Problem], asides: Sequence[Problem], snapshot: FleetSnapshot
) -> str:
    total = snapshot.fleet.replicas
    touched = len({problem.target for problem in problems})
    count = f"{touched} of {total}" if problems else f"{total} of {total}"
    said = "; ".join([*_some(problems, _MOST_PROBLEMS), *_some(asides, _MOST_ASIDES)]) or "nothing to report"
    silenced = sum(bool(alert.silenced_by) and _matters(alert) for alert in snapshot.alerts)
    if silenced:
        said += f"; {silenced} silenced"
    goodput = _goodput(snapshot)
    line = f"{_WORDS[code]} {count}: {said}{f' | goodput {goodput} req/s' if goodput else ''}"
    return " ".join("".join(c if c.isprintable() else " " for c in line).split())


def _some(found: Sequence[Problem], most: int) -> list[str]:
    """The texts of the first ones, and how many more there are: monitoring systems cut long lines."""
    more = len(found) - most
    return [one.text for one in found[:most]] + ([f"and {more} more"] if more > 0 else [])


def _asides(snapshot: FleetSnapshot, told: set[str]) -> list[Problem]:
    """What the screen says of the other replicas, gravest first: no problem, or none yet."""
    conditions = conditions_of(snapshot)
    found = []
    for replica in snapshot.replicas:
        url, name = replica.target.url, replica.target.name
        condition = conditions[url]
        if url in told or replica.gone_at is not None or condition.handled:
            continue
        if replica.in_doubt:
            text = f"{name} {replica.state.value}, {'; '.join(replica.reasons)}"
        elif condition.severity > Loudness.QUIET:
            short, because = condition.short, condition.because
            said = because if because.startswith(short) else ": ".join(filter(None, (short, because)))
            text = f"{name} {said}"
        else:
            continue
        found.append((-condition.severity, Problem(exit_codes.OK, url, text)))
    return [aside for _, aside in sorted(found, key=itemgetter(0))]


def _goodput(snapshot: FleetSnapshot) -> str:
    goodput = snapshot.fleet.goodput
    good, offered = goodput.good_per_second, goodput.offered_per_second
    return f"{good:.1f} of {offered:.1f}" if good is not None and offered is not None else ""


def _document(snapshot: FleetSnapshot, verdict: Verdict) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "at": snapshot.at,
        "status": _WORDS[verdict.code].lower(),
        "code": verdict.code,
        "summary": verdict.summary,
        "replicas": snapshot.fleet.replicas,
        "states": {state.value: count for state, count in snapshot.fleet.states.items()},
        "problems": [
            {"status": _WORDS[problem.code].lower(), "target": problem.target, "text": problem.text}
            for problem in verdict.problems
        ],
        "asides": [{"target": aside.target, "text": aside.text} for aside in verdict.asides],
        "alerts": [alert_document(alert) for alert in snapshot.alerts],
    }


def _look(settings: Settings, targets: Sequence[Target], duration: float | None) -> FleetSnapshot:
    """Two samples, or as many as `duration` seconds hold after the second one, and one more.

    What is a breach by the second sample has held so long only on a picture of after that.
    """
    gpus = local_gpus(targets)
    if duration is None:
        return wiring.sample(settings, targets, _SAMPLES, gpus)
    news = threading.Event()
    engine = wiring.live_engine(settings, targets, gpus)
    engine.subscribe(news.set)
    engine.start()
    try:
        begun = time.monotonic()
        latest_start = begun + settings.timeout_seconds
        deadline: float | None = None
        while deadline is None or time.monotonic() < deadline:
            left = (latest_start if deadline is None else deadline) - time.monotonic()
            news.wait(max(left, 0.0))
            news.clear()
            snapshot = engine.latest()
            seen = snapshot is not None and all(
                replica.scraped_at is not None or replica.last_failure is not None
                for replica in snapshot.replicas
            )
            if deadline is None and (seen or time.monotonic() >= latest_start):
                deadline = time.monotonic() + 2 * settings.interval_seconds + duration
    finally:
        engine.stop()
    found = engine.latest()
    if found is None:
        raise ConfigError("nothing was seen of the fleet; try again")
    return found
