"""Plans that objects of Kubernetes carry out: the world of such a plan, and what is kept for the way back."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from enginetop.cli.kubernetes_owners import Cluster, engine_kind
from enginetop.fleet.errors import ClusterError
from enginetop.fleet.knobs import KnobRow, KnobSheet
from enginetop.fleet.model import Target
from enginetop.fleet.plan import VIA_KUBERNETES, Plan, PlannedChange
from tuners.control.driver import ControlError, World
from tuners.control.files import write_synced
from tuners.control.flags import FlagError
from tuners.control.knob_api import KnobClient, KnobReply, ReplyKind
from tuners.control.kubernetes.change_points import NoPlaceError
from tuners.control.kubernetes.owner import (
    Owner,
    RecordError,
    is_canary,
    owner_of,
    parse_record,
    record_document,
)
from tuners.control.kubernetes.owner_board import READY_SECONDS, OwnerBoard
from tuners.control.kubernetes.seats import SeatWorld
from tuners.control.kubernetes.sibling_board import SiblingBoard


class OwnerWorlds:
    """Gives a plan its world: the fleet's, with owners where the plan says so. Records lie in `folder`."""

    def __init__(self, cluster: Cluster, folder: Path, *, ready_seconds: float = READY_SECONDS) -> None:
        self._cluster, self._folder, self._ready_seconds = cluster, folder, ready_seconds

    def __call__(self, plan: Plan, world: World, undoing: bool) -> World:
        """See `WorldOf`. ControlError when the record of what was written cannot be read."""
        members = [
            change for change in plan.changes if change.via == VIA_KUBERNETES and not is_canary(change)
        ]
        if not members:
            return world
        record = self._folder / "kubernetes" / f"{plan.id}.json"
        kept = _read(record)
        if kept is None and undoing:
            return _Untouched(plan, world)  # records come before writes: nothing was written
        owners = kept or self._found(members, world)
        boards = self._boards(owners, plan, world, record, rolled=kept is not None)
        canary = next(
            (
                (plan.canary.target, SiblingBoard(board))
                for board in boards.values()
                if board.owner.canary_target == plan.canary.target
            ),
            None,
        )
        return SeatWorld(world, boards, canary)

    def _found(self, members: list[PlannedChange], world: World) -> dict[str, Owner]:
        """The owners of targets as they are now; a target without one is left out, and has no knobs then."""
        targets = {replica.target.url: replica.target for replica in world.snapshot().replicas}
        found: dict[str, Owner] = {}
        for change in members:
            target = targets.get(change.target, Target(change.target, change.target))
            try:
                flags = self._cluster.flags(target)
            except (ClusterError, NoPlaceError, FlagError):
                continue
            found[change.target] = owner_of(
                flags, engine_kind(flags), change.knob, change.before, change.after, 1
            )
        counts = Counter(map(_place, found.values()))
        return {target: replace(owner, count=counts[_place(owner)]) for target, owner in found.items()}

    def _boards(
        self, owners: dict[str, Owner], plan: Plan, world: World, record: Path, *, rolled: bool
    ) -> dict[str, OwnerBoard]:
        """One board an owner, for all of its targets."""
        document = json.dumps(record_document(owners), indent=1).encode() + b"\n"
        remember = _once(lambda: write_synced(record, document))
        boards: dict[_Place, OwnerBoard] = {}
        for owner in owners.values():
            boards.setdefault(
                _place(owner),
                OwnerBoard(
                    self._cluster,
                    owner,
                    plan.id,
                    now=world.now,
                    remember=remember,
                    rolled=rolled,
                    ready_seconds=self._ready_seconds,
                ),
            )
        return {target: boards[_place(owner)] for target, owner in owners.items()}


_Place = tuple[str, str, frozenset[tuple[str, str]]]


def _place(owner: Owner) -> _Place:
    """What one board is of: components of one object differ in the labels of their pods."""
    return owner.path, owner.container, frozenset(owner.selector.items())


class _Untouched:
    """The world of a plan of which nothing was written: its targets say so, whether they are there or not."""

    def __init__(self, plan: Plan, world: World) -> None:
        self._plan, self._world = plan, world
        self.now, self.snapshot, self.advance = world.now, world.snapshot, world.advance

    def client(self, target: str) -> KnobClient | None:
        """See `World`."""
        change = next((one for one in self._plan.changes if one.target == target), None)
        if change is None or change.via != VIA_KUBERNETES:
            return self._world.client(target)
        return _Former(change)


class _Former:
    """The knob of a target that was never written."""

    def __init__(self, change: PlannedChange) -> None:
        self._change = change

    def read(self) -> KnobReply:
        """See `KnobClient`."""
        change = self._change
        row = KnobRow(change.knob, change.rollback, change.rollback, 0, 0, "", 0, apply="restart")
        sheet = KnobSheet("", "", change.instance, 1, 1, (row,), writer=VIA_KUBERNETES)
        return KnobReply(ReplyKind.OK, sheet=sheet)

    examine = read

    def write(self, knob: str, value: int, **_: object) -> KnobReply:
        """See `KnobClient`: there is nothing to write."""
        return KnobReply(ReplyKind.MISSING, f"nothing of {knob} was written, and {value} is not either")

    def reset(self, knob: str) -> KnobReply:
        """See `KnobClient`."""
        return KnobReply(ReplyKind.MISSING, f"nothing of {knob} was written")


def _read(record: Path) -> dict[str, Owner] | None:
    try:
        return parse_record(json.loads(record.read_bytes()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        why = str(error) if isinstance(error, RecordError) else type(error).__name__
        raise ControlError(f"{record}: cannot be read ({why})") from None


def _once(action: Callable[[], None]) -> Callable[[], None]:
    done = False

    def act() -> None:
        nonlocal done
        if not done:
            action()
            done = True

    return act
