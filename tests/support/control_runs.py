"""Runs of one change on a virtual fleet, with short times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from enginetop.fleet.change import AuditRow
from enginetop.fleet.plan import Plan
from tests.support.memory_journal import MemoryJournal
from tests.support.virtual_fleet import START, VERSION, VirtualFleet, plan_for
from tuners.control.driver import run_change
from tuners.control.progress import Progress
from tuners.control.settings import ControlSettings
from tuners.control.store import Journal

SHORT = ControlSettings(
    warmup_seconds=120.0, blocks=10, block_seconds=60.0, ttl_seconds=180.0, soak_seconds=60.0
)


def gain(value: int) -> float:
    """Attainment of an engine that the smaller budget helps."""
    return 0.98 if value <= 512 else 0.88


def loss(value: int) -> float:
    """Attainment of an engine that the smaller budget hurts."""
    return 0.85 if value <= 512 else 0.95


def run(
    fleet: VirtualFleet,
    plan: Plan | None = None,
    *,
    settings: ControlSettings = SHORT,
    journal: Journal | None = None,
    stop: Callable[[], str] = lambda: "",
    publish: Callable[[Progress], None] = lambda _: None,
) -> tuple[Progress, list[AuditRow]]:
    """The final progress and the audit rows."""
    memory = MemoryJournal()
    end = run_change(
        plan or plan_for(fleet),
        fleet,
        settings=settings,
        tool_version=VERSION,
        approved_by="a test",
        journal=journal or memory,
        stop=stop,
        publish=publish,
    )
    return end, memory.rows


def values(fleet: VirtualFleet) -> list[Any]:
    """Value and what is left of its ttl, engine by engine."""
    return [
        (engine.value, None if engine.expires_at is None else engine.expires_at - START)
        for engine in fleet.engines.values()
    ]
