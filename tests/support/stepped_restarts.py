"""Simulated engines whose knobs are changed by restarts: the restart path in virtual time."""

from __future__ import annotations

from dataclasses import dataclass, field

from enginetop.fleet.snapshot import Slo
from enginetop.simulator.knob_api import KnobApi
from enginetop.simulator.replica import SimulatedReplica
from enginetop.simulator.stepped import SteppedWorld
from tests.support.stepped_control import SteppedTrial
from tuners.control.knob_api import HttpKnobClient
from tuners.control.restart_board import Load, Patience, RestartBoard, RestartError, StartKnob, Values

KNOBS = ("max_num_batched_tokens", "max_num_seqs", "num_speculative_tokens", "thinking_token_budget")
PATIENCE = Patience(drain_seconds=20.0, ready_seconds=120.0, cuts_requests=True)
"""Nobody takes traffic from simulated replicas: requests that run when draining is over are cut."""


@dataclass
class SteppedEngine:
    """A simulated replica as an engine to be restarted; with `stays_down` values it never comes back.

    One that `lies` says that it was restarted, and goes on as it was.
    """

    world: SteppedWorld
    replica: SimulatedReplica
    stays_down: set[int] = field(default_factory=set)
    starts: list[Values] = field(default_factory=list)
    failed: bool = False
    lies: bool = False

    def load(self) -> Load:
        """See `Restartable`."""
        here = bool(self.replica.engines) and self.replica.answers and not self.failed
        requests = sum(engine.requests_running + len(engine.waiting) for engine in self.replica.engines)
        return Load(here, requests if here else None)

    def begin(self, values: Values) -> None:
        """See `Restartable`."""
        self.starts.append(values)
        self.failed = bool(self.stays_down & set(values.values()))
        if self.lies:
            return
        known = {name: value for name, value in values.items() if value is not None}
        self.world.restart(self.replica.name, **known)

    def poll(self) -> bool:
        """See `Restartable`."""
        if self.failed:
            raise RestartError("it ended with exit code 1")
        return True

    def by_hand(self, values: Values) -> str:
        """See `Restartable`."""
        return f"restart {self.replica.name}"


class RestartedTrial(SteppedTrial):
    """A stepped world in which every knob of every replica needs a restart."""

    def __init__(self, stepped: SteppedWorld, patience: Patience = PATIENCE) -> None:
        super().__init__(stepped)
        self.engines: dict[str, SteppedEngine] = {}
        self._apis: dict[str, KnobApi] = {}
        for target in stepped.targets:
            replica = stepped.replica(target.name)
            engine = self.engines[target.url] = SteppedEngine(stepped, replica)
            settings = replica.plan.engine
            knobs = tuple(StartKnob(name, getattr(settings, name), -1, 1 << 20, "") for name in KNOBS)
            board = RestartBoard(
                engine,
                knobs,
                writer="process",
                instance=f"launch-{target.name}",
                engine_name=settings.kind.value,
                patience=patience,
            )
            self._apis[target.url] = KnobApi(board, stepped.now, Slo, lambda _: None)

    def client(self, target: str) -> HttpKnobClient | None:
        """See `World`."""
        api = self._apis.get(target)
        return None if api is None else HttpKnobClient(api)
