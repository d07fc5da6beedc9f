"""A simulated fleet with its companions: each process has a knob API that dies with it."""

from __future__ import annotations

import math

from enginetop.simulator.fleet_model import FleetModel
from enginetop.simulator.knob_api import KnobApi
from enginetop.simulator.knob_board import KnobBoard
from enginetop.simulator.replica import SimulatedReplica
from enginetop.simulator.server_info import ENGINE_VERSIONS


class Companion:
    """The companion of one process of a replica: its knobs, and the API to them."""

    def __init__(self, fleet: KnobbedFleet, replica: SimulatedReplica, run: str, token: str | None) -> None:
        settings = replica.plan.engine
        self.life = replica.lives
        self.instance = f"{replica.name}-{run}-{replica.lives}"
        self.board = KnobBoard(
            replica,
            self.instance,
            engine_name=settings.kind.value,
            engine_version=ENGINE_VERSIONS.get(settings.kind, ""),
            ranks=settings.ranks,
        )
        self.api = KnobApi(
            self.board, lambda: fleet.second, lambda: replica.slo, replica.set_slo, token=token
        )


class KnobbedFleet:
    """`model` and the companions of its replicas; `second` is how far it has come.

    `run` tells its instances from those of another run. With a `token` every request to a knob API must bear
    it.
    """

    def __init__(self, model: FleetModel, run: str = "0", token: str | None = None) -> None:
        self.model = model
        self.second = 0.0
        self._run = run
        self._token = token
        self._companions: dict[str, Companion] = {}

    def advance(self, to: float) -> None:
        """Let the fleet live until second `to`; values on loan go back at their exact times on the way."""
        while True:
            expiries = (companion.board.next_expiry for companion in self._companions.values())
            expiry = min((moment for moment in expiries if moment is not None), default=math.inf)
            stop = min(to, expiry)
            self.second = max(self.second, stop)
            self.model.advance(self.second)
            for replica in self.model.replicas:
                companion = self._present(replica)
                if companion is not None:
                    companion.board.tick(self.second)
            if stop >= to:
                return

    def companion(self, replica: SimulatedReplica) -> Companion | None:
        """The companion of the replica's present process; None while it is down."""
        companion = self._present(replica)
        if companion is None and replica.engines:
            companion = Companion(self, replica, self._run, self._token)
            self._companions[replica.name] = companion
        return companion

    def _present(self, replica: SimulatedReplica) -> Companion | None:
        """The companion if it has been asked for and its process lives; else it is forgotten."""
        companion = self._companions.get(replica.name)
        if companion is not None and (not replica.engines or companion.life != replica.lives):
            del self._companions[replica.name]
            return None
        return companion
