"""Changes on the stepped simulator: the live plan, guards and judge in virtual time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from enginetop.fleet.change import ChangeState, Verdict
from enginetop.fleet.plan import Plan
from enginetop.fleet.snapshot import Advice, FleetSnapshot
from enginetop.simulator.builtin import scenario_named
from enginetop.simulator.faults import Fault, FaultKind
from enginetop.simulator.scenario import Scenario
from enginetop.simulator.stepped import SteppedWorld
from tests.support.memory_journal import MemoryJournal
from tuners.control.driver import run_change
from tuners.control.knob_api import HttpKnobClient
from tuners.control.planning import plan_from_advice
from tuners.control.settings import ControlSettings

VERSION = "0.1.0"
REPLICAS = 3
"""One canary and two baselines."""
NULL_KNOB = "max_num_seqs"
LOSS = 0.05


@dataclass(slots=True)
class SteppedTrial:
    """A stepped world as the `World` of a change."""

    stepped: SteppedWorld

    def now(self) -> float:
        """See `World`."""
        return self.stepped.now()

    def snapshot(self) -> FleetSnapshot:
        """See `World`."""
        return self.stepped.snapshot()

    def advance(self) -> None:
        """See `World`."""
        self.stepped.advance()

    def client(self, target: str) -> HttpKnobClient | None:
        """See `World`."""
        transport = self.stepped.transport(target)
        return None if transport is None else HttpKnobClient(transport)


@dataclass(frozen=True, slots=True)
class Trial:
    """How one change ended."""

    seed: int
    state: ChangeState
    verdict: Verdict | None
    detail: str


def one_pool() -> Scenario:
    """The healthy replicas of `steady`, of one kind so that they can be compared."""
    steady = scenario_named("steady")
    return replace(steady, pools=steady.pools[:1])


def plan_on(world: SteppedTrial, knob: str, to: int, *, canary: int = 0, promote: bool = True) -> Plan:
    """A plan as `tune` writes it: `knob` of the canary to `to`, then of its pool."""
    snapshot = world.snapshot()
    replica = snapshot.replicas[canary]
    sheets = {}
    for other in snapshot.replicas if promote else (replica,):
        client = world.client(other.target.url)
        reply = client.read() if client else None
        if reply is not None and reply.sheet is not None:
            sheets[other.target.url] = reply.sheet
    row = sheets[replica.target.url].knob(knob)
    assert row is not None
    assert row.value is not None
    action = "lower" if to < row.value else "raise"
    advice = Advice(knob, action, ("a trial",), current=row.value, proposed=to)
    return plan_from_advice(snapshot, replica, advice, sheets, now=world.now(), tool_version=VERSION)


def degrade(world: SteppedWorld, name: str, share: float) -> None:
    """Cost a replica `share` (0 to 1) of SLO attainment from now on: that much less of all requests is within
    the SLO, drawn one by one; nothing else changes.
    """
    attainment = world.truth(name).attainment_ratio or 1.0
    spoilt = min(1.0, share / attainment)
    world.inject(name, Fault(FaultKind.MISSES, 0.0, math.inf, ratio=spoilt))


def try_change(
    seed: int,
    *,
    loss: float = 0.0,
    settings: ControlSettings | None = None,
    scenario: Callable[[], Scenario] = one_pool,
) -> Trial:
    """A change of a cap that never binds, which costs the canary `loss` of attainment by decree."""
    world = SteppedTrial(SteppedWorld(scenario(), REPLICAS, seed))
    world.stepped.advance(120.0)
    plan = plan_on(world, NULL_KNOB, 250, promote=False)
    if loss:
        degrade(world.stepped, world.stepped.targets[0].name, loss)
    end = run_change(
        plan,
        world,
        settings=settings or ControlSettings(),
        tool_version=VERSION,
        approved_by="a trial",
        journal=MemoryJournal(),
    )
    return Trial(seed, end.state, end.verdict, end.detail)


def try_null(seed: int) -> Trial:
    """A change that does nothing, with the default settings."""
    return try_change(seed)


def try_loss(seed: int) -> Trial:
    """A change that costs five points, with the default settings."""
    return try_change(10_000 + seed, loss=LOSS)
