"""Simulated engines whose knobs are changed by restarts: the restart path in virtual time."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from enginetop.fleet.model import EngineKind
from enginetop.fleet.signals import KNOBS
from enginetop.fleet.snapshot import Slo
from enginetop.simulator.knob_api import KnobApi
from enginetop.simulator.replica import SimulatedReplica
from enginetop.simulator.scenario import EngineSettings
from enginetop.simulator.stepped import SteppedWorld
from tests.support.stepped_control import SteppedTrial
from tuners.control.flags import FLAGS, edited, value_of
from tuners.control.knob_api import HttpKnobClient
from tuners.control.restart_board import RestartBoard
from tuners.control.restart_move import Patience
from tuners.control.restartable import Load, RestartError, Values
from tuners.control.start_values import start_knobs

_PROGRAMS = {EngineKind.VLLM: ("vllm", "serve", "m"), EngineKind.LLAMACPP: ("llama-server", "-m", "m")}
PATIENCE = Patience(drain_seconds=20.0, ready_seconds=120.0, cuts_requests=True)
"""Nobody takes traffic from simulated replicas: requests that run when draining is over are cut."""


def command_of(settings: EngineSettings, kind: EngineKind) -> tuple[str, ...]:
    """A command line of an engine of `kind` that sets the knobs of a simulated one."""
    argv = list(_PROGRAMS[kind])
    for knob, flag in FLAGS[kind].items():
        value = getattr(settings, knob, None)
        if knob in KNOBS and value != flag.without:
            argv += [flag.names[0], json.dumps({flag.key: value}) if flag.key else str(value)]
    return tuple(argv)


@dataclass
class SteppedEngine:
    """A simulated replica as an engine of `kind` that `argv` started and that is restarted with other flags;
    with `stays_down` values it never comes back.

    One that `lies` says that it was restarted, and goes on as it was.
    """

    world: SteppedWorld
    replica: SimulatedReplica
    argv: tuple[str, ...]
    kind: EngineKind
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
        argv = edited(self.argv, self.kind, values)
        started = {knob: value_of(argv, flag) for knob, flag in FLAGS[self.kind].items() if knob in values}
        self.world.restart(self.replica.name, **{name: n for name, n in started.items() if n is not None})

    def poll(self) -> bool:
        """See `Restartable`."""
        if self.failed:
            raise RestartError("it ended with exit code 1")
        return True

    def by_hand(self, values: Values) -> str:
        """See `Restartable`."""
        return f"restart {self.replica.name}"


class RestartedTrial(SteppedTrial):
    """A stepped world in which each knob that a flag of `kind` sets needs a restart, and no other can be
    changed.
    """

    def __init__(
        self, stepped: SteppedWorld, kind: EngineKind = EngineKind.VLLM, patience: Patience = PATIENCE
    ) -> None:
        super().__init__(stepped)
        self.engines: dict[str, SteppedEngine] = {}
        self.most_out_of_service = 0
        self._apis: dict[str, KnobApi] = {}
        for target in stepped.targets:
            replica = stepped.replica(target.name)
            argv = command_of(replica.plan.engine, kind)
            engine = self.engines[target.url] = SteppedEngine(stepped, replica, argv, kind)
            board = RestartBoard(
                engine,
                start_knobs(argv, kind),
                writer="process",
                instance=f"launch-{target.name}",
                engine_name=kind.value,
                patience=patience,
            )
            self._apis[target.url] = KnobApi(board, stepped.now, Slo, lambda _: None)

    def advance(self) -> None:
        """See `World`."""
        super().advance()
        out = sum(not engine.replica.engines for engine in self.engines.values())
        self.most_out_of_service = max(self.most_out_of_service, out)

    def client(self, target: str) -> HttpKnobClient | None:
        """See `World`."""
        api = self._apis.get(target)
        return None if api is None else HttpKnobClient(api)
