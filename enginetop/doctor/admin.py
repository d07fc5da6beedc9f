"""Who may change an engine, as a finding."""

from __future__ import annotations

from enginetop.doctor.finding import Finding, Level
from enginetop.fleet.admin_surface import AdminSurface, Openness

_AREA = "control"
_LEVELS = {Openness.GUARDED: Level.OK, Openness.NOTHING: Level.OK}


def admin_finding(surface: AdminSurface) -> Finding:
    """What is known of an engine's control routes."""
    level = Level.WARNING if surface.grave else _LEVELS.get(surface.openness, Level.INFO)
    fix = surface.fix
    if surface.openness is Openness.OPEN:
        fix = f"{fix}; `apply` refuses it unless accept_open_admin under [control] names it"
    return Finding(_AREA, level, surface.what, fix)
