"""Seats: pods come and go, what the machine sees goes on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from enginetop.fleet.model import EngineKind, Role, Target
from enginetop.fleet.snapshot import FleetSnapshot, ReplicaSnapshot
from tests.support.virtual_fleet import VirtualFleet, three
from tuners.control.kubernetes.owner import Owner, canary_target
from tuners.control.kubernetes.owner_board import OwnerBoard
from tuners.control.kubernetes.rollout import Member
from tuners.control.kubernetes.seats import SeatWorld
from tuners.control.kubernetes.sibling_board import SiblingBoard

OWNER = Owner(
    "/apis/apps/v1/namespaces/llm/deployments/chat",
    "llm/Deployment/chat",
    EngineKind.VLLM,
    "main",
    Role.AGGREGATED,
    {},
    2,
    "max_num_seqs",
    64,
    32,
    True,
    canary=True,
)
CANARY = canary_target(OWNER.instance)


class World:
    """A fleet whose replicas are as a test puts them."""

    def __init__(self) -> None:
        fleet: VirtualFleet = three()
        self._fleet = fleet
        self._snapshot = fleet.snapshot()
        self.replicas: tuple[ReplicaSnapshot, ...] = ()
        self.now = fleet.now

    def pod(self, name: str, judged: float, **target: Any) -> ReplicaSnapshot:
        """A replica in a pod."""
        first = self._snapshot.replicas[0]
        url = target.pop("url", f"http://10.0.0.1/{name}")
        place = Target(url, name, **{"pod": f"llm/{name}", **target})
        return replace(first, target=place, totals={"requests_judged": judged})

    def snapshot(self) -> FleetSnapshot:
        return replace(self._snapshot, replicas=self.replicas)

    def advance(self) -> None:
        raise AssertionError("time stands still")

    def client(self, target: str) -> None:
        return None


@pytest.fixture
def world() -> World:
    return World()


def seats(world: World, *targets: str) -> tuple[SeatWorld, OwnerBoard, SiblingBoard]:
    board = OwnerBoard(None, OWNER, "c1", now=world.now, remember=lambda: None)  # type: ignore[arg-type]
    canary = SiblingBoard(board)
    return SeatWorld(world, dict.fromkeys(targets, board), (CANARY, canary)), board, canary


def member(name: str, address: str = "") -> Member:
    return Member(name, address, 64, True, "")


def judged(world: SeatWorld) -> dict[str, float]:
    return {one.target.url: one.totals["requests_judged"] for one in world.snapshot().replicas}


def test_a_seat_keeps_its_pod_and_after_our_rollout_gets_a_new_one_whose_totals_go_on(world: World) -> None:
    a, b = world.pod("a", 100), world.pod("b", 200)
    world.replicas = (a, b)
    seated, board, _ = seats(world, a.target.url, b.target.url)
    board.members = (member("a"), member("b"))
    assert judged(seated) == {a.target.url: 100, b.target.url: 200, CANARY: 100}
    board.rolled = True
    board.members = (member("b"), member("new"))
    world.replicas = (replace(a, gone_at=1.0), b, world.pod("new", 7))
    new = world.replicas[2].target.url
    assert judged(seated) == {new: 7, a.target.url: 100, b.target.url: 200, CANARY: 100}
    world.replicas = (b, world.pod("new", 12))
    assert judged(seated)[a.target.url] == 105, "100 of the former pod, 5 since the new one was seen"


def test_a_pod_that_vanishes_without_us_leaves_its_seat_as_it_is(world: World) -> None:
    a, b = world.pod("a", 100), world.pod("b", 200)
    world.replicas = (a, b)
    seated, board, _ = seats(world, a.target.url, b.target.url)
    board.members = (member("a"), member("b"))
    seated.snapshot()
    board.members = (member("b"), member("c"))
    world.replicas = (replace(a, gone_at=1.0), b, world.pod("c", 1))
    gone = next(one for one in seated.snapshot().replicas if one.target.url == a.target.url)
    assert gone.gone_at == 1.0, "the guards see it"


def test_the_canarys_totals_do_not_jump_when_a_member_stands_for_it_again(world: World) -> None:
    """Else all that a member ever counted would seem to have happened in one window."""
    a = world.pod("a", 5000)
    sibling = world.pod("canary", 3)
    world.replicas = (a, sibling)
    seated, board, canary = seats(world, a.target.url)
    board.members = (member("a"),)
    canary.there, canary.members = True, (member("canary"),)
    assert judged(seated)[CANARY] == 3
    canary.there, canary.members = False, ()
    world.replicas = (world.pod("a", 5004),)
    assert judged(seated)[CANARY] == 3
    world.replicas = (world.pod("a", 5010),)
    assert judged(seated)[CANARY] == 9


def test_a_sibling_without_a_pod_is_not_there(world: World) -> None:
    a = world.pod("a", 1)
    world.replicas = (a,)
    seated, board, canary = seats(world, a.target.url)
    board.members = (member("a"),)
    canary.there = True
    assert CANARY not in judged(seated)


@pytest.mark.parametrize(
    ("url", "pod"),
    [
        ("http://10.1.0.7:8000", ""),
        ("https://api/api/v1/namespaces/llm/pods/a:8000/proxy", ""),
        ("https://api/api/v1/namespaces/llm/pods/https:a:8000/proxy", ""),
        ("http://elsewhere:8000", "llm/a"),
    ],
)
def test_a_replica_is_known_by_its_pod_by_the_proxys_path_or_by_its_address(
    world: World, url: str, pod: str
) -> None:
    world.replicas = (world.pod("a", 1, url=url, pod=pod),)
    seated, board, _ = seats(world, url)
    board.members = (member("a", "10.1.0.7"),)
    board.rolled = True
    seated.snapshot()
    board.members = (member("b", "10.1.0.8"),)
    world.replicas = (*world.replicas, world.pod("b", 9, url="http://10.1.0.8:8000", pod=""))
    world.replicas = (replace(world.replicas[0], gone_at=1.0), world.replicas[1])
    assert judged(seated)[url] == 1, "the seat's totals go on"
    assert len(judged(seated)) == 3
