"""The paths to the knobs of targets, for `doctor`: what each offers, or why it does not answer."""

from __future__ import annotations

from collections.abc import Iterator

from enginetop.cli import knob_paths
from enginetop.cli.settings import Settings
from enginetop.doctor.facts import TargetFacts
from enginetop.doctor.finding import Finding, Level
from enginetop.fleet.change import value_text
from enginetop.fleet.knobs import split_command
from enginetop.fleet.model import Target
from enginetop.fleet.plan import VIA_GATEWAY, VIA_KNOB_API
from enginetop.fleet.restart_tables import NEEDS
from tuners.control.knob_api import KnobClient, KnobReply, by_path
from tuners.control.paths import PATHS, offer, own_paths, path_of

_AREA = "knobs"


def path_findings(settings: Settings, target: Target, facts: TargetFacts) -> Iterator[Finding]:
    """A look at the path that is configured or opened by itself on this machine; where there is none, the
    paths that the engine has by itself are named, and not tried. Then at the gateway before it.
    """
    known = knob_paths.has_path(settings, target)
    gateway = next((one for one in settings.gateways if one.leads_to(target)), None)
    if not known:
        yield from _own_paths(facts)
    if not known and gateway is None:
        return
    client = knob_paths.knob_clients(settings, [target])(target.url)
    if known and client is not None:
        yield from _path(by_path(client, VIA_KNOB_API))
    if gateway is not None and client is not None and settings.control is not None:
        yield _before(gateway.name, by_path(client, VIA_GATEWAY).read())


def _before(name: str, reply: KnobReply) -> Finding:
    """What a gateway's hook says."""
    if reply.sheet is None:
        why, _ = split_command(reply.detail or reply.kind.value)
        return Finding(
            _AREA, Level.WARNING, f"gateway {name}: {why}", "see docs/control.md, a gateway and a hook"
        )
    said = ", ".join(f"{row.name} is {value_text(row.value)}" for row in reply.sheet.knobs)
    return Finding(_AREA, Level.OK, f"gateway {name}: {said} (touches {PATHS[VIA_GATEWAY].touches})")


def _path(client: KnobClient) -> Iterator[Finding]:
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
        more = "".join(f', {key} = "..."' for key in NEEDS.get(path.name, ()))
        how = f'engine_api = {{ path = "{path.name}"{more} }} in its [[targets]] entry; see docs/control.md'
        yield Finding(_AREA, Level.INFO, f"{path.name} could write to it (touches {path.touches})", how)
