"""From advice to a proven change by the owner, and every way back, on a cluster of simulated engines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from enginetop.fleet.change import ChangeState, Verdict
from tests.support.pod_world import VERSION, PodWorld, pod_world
from tuners.control.driver import run_change
from tuners.control.progress import Progress
from tuners.control.settings import ControlSettings
from tuners.control.store import MemoryJournal

SHORT = ControlSettings(
    warmup_seconds=60.0, restart_warmup_seconds=120.0, blocks=10, block_seconds=60.0, soak_seconds=30.0
)
OLD, NEW = 512, 2048


@pytest.fixture
def world(tmp_path: Path) -> Iterator[PodWorld]:
    with pod_world(tmp_path) as made:
        yield made


def run(world: PodWorld, to: int = NEW, journal: MemoryJournal | None = None) -> Progress:
    plan = world.plan(to)
    return run_change(
        plan,
        world.worlds(plan, world, False),
        settings=SHORT,
        tool_version=VERSION,
        approved_by="a test",
        journal=journal or MemoryJournal(),
    )


def test_a_good_change_goes_by_a_sibling_to_all_pods_of_the_owner(world: PodWorld) -> None:
    world.deploy("chat", OLD, 2)
    world.settle()
    before = set(world.running())
    journal = MemoryJournal()
    end = run(world, journal=journal)
    assert (end.state, end.verdict) == (ChangeState.DONE, Verdict.IMPROVED), end.detail
    assert end.plan.canary.target == "kubernetes://llm/Deployment/chat/canary"
    world.advance(60.0)
    assert list(world.running().values()) == [NEW, NEW]
    assert before.isdisjoint(world.running()), "every pod is another one"
    assert world.siblings() == []
