"""The world of a plan whose targets are seats: pods come and go, the machine sees the same targets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from types import MappingProxyType
from urllib.parse import urlsplit

from enginetop.fleet.model import Target
from enginetop.fleet.snapshot import FleetSnapshot, ReplicaSnapshot
from tuners.control.driver import World
from tuners.control.knob_api import KnobClient, KnobReply
from tuners.control.kubernetes.owner_board import OwnerBoard
from tuners.control.kubernetes.rollout import Member
from tuners.control.kubernetes.sibling_board import SiblingBoard


@dataclass(slots=True)
class _Seat:
    """The pod that sits at a target, and the one that was shown last. Running totals go on from one to the
    next: `shown` as they were shown last, `began` those of the present one when it came, `until` those of the
    seat then.
    """

    target: str
    pod: str = ""
    last: str = ""
    shown: Mapping[str, float] = field(default_factory=dict)
    began: Mapping[str, float] = field(default_factory=dict)
    until: Mapping[str, float] = field(default_factory=dict)

    def show(self, pod: str, replica: ReplicaSnapshot) -> ReplicaSnapshot:
        """The replica of a pod as that of this seat."""
        if self.last and self.last != pod:
            self.began, self.until = replica.totals, self.shown
        self.last = pod
        self.shown = MappingProxyType(
            {
                name: total - self.began.get(name, 0.0) + self.until.get(name, 0.0)
                for name, total in replica.totals.items()
            }
        )
        target = replace(replica.target, url=self.target)
        return replace(replica, target=target, totals=self.shown)


class SeatWorld:
    """A `World` over `world`. `boards` has the owner of each member's target, `canary` the sibling of its."""

    def __init__(
        self, world: World, boards: Mapping[str, OwnerBoard], canary: tuple[str, SiblingBoard] | None
    ) -> None:
        self._world = world
        self._boards, self._canary = dict(boards), canary
        self._seats = {target: _Seat(target) for target in boards}
        self._beside = _Seat(canary[0] if canary is not None else "")

    def now(self) -> float:
        """See `World`."""
        return self._world.now()

    def advance(self) -> None:
        """See `World`."""
        self._world.advance()

    def client(self, target: str) -> KnobClient | None:
        """See `World`."""
        if self._canary is not None and target == self._canary[0]:
            return self._canary[1]
        board, engine = self._boards.get(target), self._world.client(target)
        if board is None or engine is None:
            return board or engine
        return _SeatClient(board, engine)

    def snapshot(self) -> FleetSnapshot:
        """The newest picture, in which each seat is the pod that sits there now."""
        inner = self._world.snapshot()
        found = _ByPod(inner.replicas)
        for board in {id(board): board for board in self._boards.values()}.values():
            self._assign(board, found)
        seated = {
            seat.target: replica
            for seat in self._seats.values()
            if seat.pod
            for replica in self._at(seat, found)
        }
        taken = {seat.target for seat in self._seats.values() if seat.pod}
        kept = [replica for replica in inner.replicas if replica.target.url not in taken]
        return replace(inner, replicas=(*kept, *seated.values(), *self._canarys(found, seated)))

    def _assign(self, board: OwnerBoard, found: _ByPod) -> None:
        """Pods to the seats of an owner: the one that was there, else, after a rollout of ours, a new one."""
        namespace = board.owner.namespace
        seats = [seat for seat in self._seats.values() if self._boards[seat.target] is board]
        live = {member.name: member for member in board.members}
        for seat in seats:
            if not seat.pod:
                here = (name for name in live if _url(found.at(namespace, live[name])) == seat.target)
                seat.pod = next(here, "")
        if not board.rolled:
            return
        taken = {seat.pod for seat in seats if seat.pod in live}
        free = [name for name in live if name not in taken]
        for seat in seats:
            if seat.pod not in live and free:
                seat.pod = free.pop(0)

    def _at(self, seat: _Seat, found: _ByPod) -> Iterator[ReplicaSnapshot]:
        """The replica at a member's seat."""
        board = self._boards[seat.target]
        member = next((one for one in board.members if one.name == seat.pod), None)
        replica = (
            found.at(board.owner.namespace, member) if member is not None else found.known.get(seat.target)
        )
        if replica is not None:
            yield seat.show(seat.pod, replica)

    def _canarys(self, found: _ByPod, seated: Mapping[str, ReplicaSnapshot]) -> Iterator[ReplicaSnapshot]:
        """The sibling's pod; before there is one, and once it has gone, a member stands for it."""
        if self._canary is None:
            return
        _, sibling = self._canary
        namespace = sibling.board.owner.namespace
        if sibling.there:
            pods = ((one.name, found.at(namespace, one)) for one in sibling.members)
        else:
            own = (seat for seat, board in self._boards.items() if board is sibling.board)
            pods = ((seat, seated.get(seat) or found.known.get(seat)) for seat in own)
        yield from (self._beside.show(pod, one) for pod, one in islice(_there(pods), 1))


class _SeatClient:
    """The knobs of an owner as those of one engine, which tells who else may change it."""

    def __init__(self, board: OwnerBoard, engine: KnobClient) -> None:
        self._board, self._engine = board, engine
        self.read, self.write, self.reset = board.read, board.write, board.reset

    def examine(self) -> KnobReply:
        """See `KnobClient`."""
        return replace(self._board.examine(), admin=self._engine.examine().admin)


class _ByPod:
    """Replicas by the pod that they are read from."""

    def __init__(self, replicas: Sequence[ReplicaSnapshot]) -> None:
        self.known = {replica.target.url: replica for replica in replicas}
        self._by: dict[str, ReplicaSnapshot] = {}
        for replica in replicas:
            if replica.gone_at is None:
                self._by.setdefault(_pod_of(replica.target), replica)

    def at(self, namespace: str, member: Member | None) -> ReplicaSnapshot | None:
        """The replica of a pod; None: it is not watched."""
        if member is None:
            return None
        found = self._by.get(f"{namespace}/{member.name}")
        return found if found is not None else self._by.get(f"host {member.address.lower()}")


def _pod_of(target: Target) -> str:
    """`namespace/name` where it is known, else the host."""
    if target.pod:
        return target.pod
    steps = urlsplit(target.url).path.split("/")
    if "pods" in steps[:-1] and "namespaces" in steps:
        name = steps[steps.index("pods") + 1].removeprefix("https:").partition(":")[0]
        return f"{steps[steps.index('namespaces') + 1]}/{name}"
    return f"host {target.host}"


def _there(
    pods: Iterable[tuple[str, ReplicaSnapshot | None]],
) -> Iterator[tuple[str, ReplicaSnapshot]]:
    """Those that are watched."""
    return ((pod, replica) for pod, replica in pods if replica is not None)


def _url(replica: ReplicaSnapshot | None) -> str:
    return replica.target.url if replica is not None else ""
