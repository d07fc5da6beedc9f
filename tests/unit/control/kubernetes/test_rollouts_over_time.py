"""When a rollout counts as stuck: the time without progress is that of now, not of one that is over."""

from __future__ import annotations

from pathlib import Path

import pytest

from enginetop.fleet.knobs import STUCK, KnobRow
from tests.support.pod_world import KNOB, PodWorld
from tuners.control.driver import World
from tuners.control.kubernetes.owner_board import READY_SECONDS

OLD, NEW = 512, 2048
CANARY = "kubernetes://llm/Deployment/chat/canary"


@pytest.fixture
def world(tmp_path: Path) -> PodWorld:
    found = PodWorld(tmp_path)
    found.deploy("chat", OLD, 2)
    found.settle()
    return found


def changed(world: PodWorld, seats: World, target: str) -> None:
    """The new value is written at a target, and its pods come up with it, which is watched."""
    client = seats.client(target)
    assert client is not None
    told = client.write(KNOB, NEW, if_version=None, ttl_seconds=9000.0, change="c", reason="a test")
    assert told.row is not None, told.detail
    for _ in range(20):
        world.advance()
        row_of(seats, target)
    assert (row_of(seats, target).value, row_of(seats, target).phase) == (NEW, "")


def row_of(seats: World, target: str) -> KnobRow:
    """What a read of the target says."""
    client = seats.client(target)
    assert client is not None
    sheet = client.read().sheet
    assert sheet is not None
    (row,) = sheet.knobs
    return row


def unready(world: PodWorld) -> None:
    """The newest pod fails its readiness probe."""
    key = max(world.fake.keys("pods"), key=lambda one: world.fake.get(one)["metadata"]["creationTimestamp"])
    pod = world.fake.get(key)
    pod["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    world.fake.put("v1", "pods", pod)


@pytest.mark.parametrize("whose", ["the sibling's", "the owner's"])
def test_a_pod_that_is_not_ready_long_after_the_rollout_has_its_time_as_well(
    world: PodWorld, whose: str
) -> None:
    plan = world.plan(NEW)
    seats = world.worlds(plan, world, False)
    target = CANARY if whose == "the sibling's" else plan.targets[-1]
    changed(world, seats, target)
    world.advance(READY_SECONDS)
    assert row_of(seats, target).phase == ""
    unready(world)
    world.advance()
    assert row_of(seats, target).phase == "restarting"
    world.advance(READY_SECONDS - 10.0)
    assert row_of(seats, target).phase == "restarting"
    world.advance()
    row = row_of(seats, target)
    assert (row.phase, row.note) == (STUCK, f"nothing became ready for {READY_SECONDS:.0f} s")
