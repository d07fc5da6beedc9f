"""A simulated fleet without any socket: its replicas, and what goes from one to another."""

from __future__ import annotations

from enginetop.fleet.model import Role
from enginetop.simulator.load_meter import Load
from enginetop.simulator.pools import Relay
from enginetop.simulator.replica import SimulatedReplica
from enginetop.simulator.scenario import Scenario

WARM_UP_SECONDS = 60.0


class FleetModel:
    """The replicas of `scenario`: pure, driven by `advance` alone.

    Second 0 is the Unix time `epoch`. The engines have been running for `warm_up_seconds` by then, so that
    their first pages already hold numbers. Equal seeds give equal fleets.
    """

    def __init__(
        self,
        scenario: Scenario,
        replicas: int,
        seed: int,
        epoch: float,
        warm_up_seconds: float,
        *,
        keeps_steps: bool = True,
    ) -> None:
        self.replicas = tuple(
            SimulatedReplica(name, plan, scenario.slo, seed, epoch, -warm_up_seconds, keeps_steps=keeps_steps)
            for name, plan in scenario.plans(replicas)
        )
        self.loads: tuple[Load, ...] = ()
        decode = [replica for replica in self.replicas if replica.plan.engine.role is Role.DECODE]
        self._others = tuple(replica for replica in self.replicas if replica not in decode)
        self._decode = tuple(decode)
        prefill = [replica for replica in self._others if replica.plan.engine.role is Role.PREFILL]
        self._relay = Relay(prefill, decode, scenario.transfer_seconds) if decode else None
        self.advance(0.0)

    def advance(self, to: float) -> None:
        """Let every replica live until second `to`, and take their loads since the last call."""
        for replica in self._others:
            replica.advance(to)
        if self._relay is not None:
            self._relay.carry(to)
        for replica in self._decode:
            replica.advance(to)
        self.loads = tuple(replica.load() for replica in self.replicas)
