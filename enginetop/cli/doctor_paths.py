"""The paths to the knobs of targets, for `doctor`: what each offers, or why it does not answer."""

from __future__ import annotations

from collections.abc import Iterator

from enginetop.cli import control
from enginetop.cli.settings import Settings
from enginetop.doctor.finding import Finding, Level
from enginetop.doctor.target import TargetFacts
from enginetop.fleet.model import Target
from tuners.control.paths import offer, own_paths, path_of

_AREA = "knobs"


def path_findings(settings: Settings, target: Target, facts: TargetFacts) -> Iterator[Finding]:
    """A look at the path that is configured or opened by itself on this machine; where there is none, the
    paths that the engine has by itself are named, and not tried.
    """
    if not control.has_path(settings, target):
        yield from _own_paths(facts)
        return
    client = control.knob_clients(settings, [target])(target.url)
    if client is None:
        return
    reply = client.read()
    if reply.sheet is None:
        why = reply.detail or reply.kind.value
        fix = "look at control_url, control_token_file, restart or engine_api of its [[targets]] entry"
        yield Finding(_AREA, Level.WARNING, f"its knobs cannot be read: {why}", fix)
        return
    path = path_of(reply.sheet)
    if path is None:
        yield Finding(
            _AREA, Level.WARNING, f"its knobs are changed by {reply.sheet.writer!r}, not known here", "update"
        )
        return
    offered = "; ".join(map(offer, reply.sheet.knobs)) or "no knob"
    yield Finding(_AREA, Level.OK, f"by {path.name}: {offered} (touches {path.touches})")
    for row in reply.sheet.knobs:
        if row.phase:
            told = f"{row.name} is {row.phase.replace('_', ' ')}"
            yield Finding(_AREA, Level.WARNING, told, row.note or "wait")
            return


def _own_paths(facts: TargetFacts) -> Iterator[Finding]:
    engine = facts.engine
    if engine is None or engine.simulated or engine.stack:
        return
    routes = (facts.admin.routes if facts.admin is not None else None) or frozenset()
    for path in own_paths(engine.kind, routes):
        how = f'engine_api = {{ path = "{path.name}" }} in its [[targets]] entry; see docs/control.md'
        yield Finding(_AREA, Level.INFO, f"{path.name} could write to it (touches {path.touches})", how)
