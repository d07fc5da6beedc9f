"""A simulated fleet in virtual time: no sockets, no threads, no clock, as fast as the machine allows.

Snapshots come from the real tracker, fed with readings of the exact counters; the knob API is the served one
without its wire.
"""

from __future__ import annotations

from enginetop.fleet.fleet_tracker import FleetTracker
from enginetop.fleet.knobs import KnobAnswer, KnobTransport
from enginetop.fleet.model import Target
from enginetop.fleet.observation import Failure, FailureKind, Observation
from enginetop.fleet.reading import Identity
from enginetop.fleet.snapshot import FleetSnapshot
from enginetop.simulator.faults import Fault
from enginetop.simulator.fleet_model import WARM_UP_SECONDS, FleetModel
from enginetop.simulator.gpus import SimulatedGpus
from enginetop.simulator.knobbed_fleet import KnobbedFleet
from enginetop.simulator.readings import ReadingShape
from enginetop.simulator.replica import SimulatedReplica
from enginetop.simulator.scenario import Scenario
from enginetop.simulator.server_info import ENGINE_VERSIONS
from enginetop.simulator.truth import Truth

EPOCH = 1_750_000_000.0
"""The Unix time of second 0, unless the caller names another."""
_SCRAPE_SECONDS = 0.001
_HOST = "simulated"


class SteppedWorld:
    """`replicas` engines of `scenario`, from second 0 on; time moves by `advance` alone.

    Every `tick_seconds` each replica is looked at and a snapshot is drawn. Equal seeds and equal calls give
    equal worlds. Replicas are named as in the scenario; a target's URL tells its knobs and its pages.
    """

    def __init__(
        self,
        scenario: Scenario,
        replicas: int | None = None,
        seed: int = 1,
        *,
        tick_seconds: float = 10.0,
        window_seconds: float = 60.0,
        epoch: float = EPOCH,
        warm_up_seconds: float = WARM_UP_SECONDS,
    ) -> None:
        self.scenario = scenario
        self._epoch = epoch
        self._tick_seconds = tick_seconds
        self._second = 0.0
        self._ticks = 0
        self._fleet = FleetModel(
            scenario, replicas or scenario.replicas, seed, epoch, warm_up_seconds, keeps_steps=False
        )
        self._targets = tuple(
            Target(f"http://{_HOST}:{9000 + place}", replica.name)
            for place, replica in enumerate(self._fleet.replicas)
        )
        self._by_url = {t.url: r for t, r in zip(self._targets, self._fleet.replicas, strict=True)}
        self._by_name = {replica.name: replica for replica in self._fleet.replicas}
        self._knobbed = KnobbedFleet(self._fleet)
        self._shapes: dict[object, ReadingShape] = {}
        self._gpus = SimulatedGpus(
            _HOST,
            list(self._by_url),
            [replica.plan.engine for replica in self._fleet.replicas],
            lambda: self._fleet.loads,
        )
        self._tracker = FleetTracker(
            self._targets,
            interval_seconds=tick_seconds,
            window_seconds=window_seconds,
            slo_for=lambda _: scenario.slo,
            fixed_spacing_seconds=tick_seconds,
        )
        self._latest = self._look()

    @property
    def targets(self) -> tuple[Target, ...]:
        """The replicas in order, by URL and name."""
        return self._targets

    def now(self) -> float:
        """The virtual time in Unix seconds."""
        return self._epoch + self._second

    def snapshot(self) -> FleetSnapshot:
        """The picture of the last tick."""
        return self._latest

    def advance(self, seconds: float | None = None) -> None:
        """Let time pass (None: until the next tick), with a snapshot at every tick on the way."""
        end = (self._ticks + 1) * self._tick_seconds if seconds is None else self._second + seconds
        while (tick := (self._ticks + 1) * self._tick_seconds) <= end:
            self._live(tick)
            self._ticks += 1
            self._latest = self._look()
        self._live(end)

    def replica(self, name: str) -> SimulatedReplica:
        """A replica by name (KeyError)."""
        return self._by_name[name]

    def truth(self, name: str) -> Truth:
        """The exact truth about a replica's requests since its begin, warm-up included."""
        return self._by_name[name].truth

    def page(self, url: str) -> bytes | None:
        """The metrics page of a target now; None: it does not answer."""
        replica = self._by_url[url]
        return replica.page() if replica.answers else None

    def transport(self, url: str) -> KnobTransport | None:
        """The way to the knobs of a target; None: there is no such target."""
        replica = self._by_url.get(url)
        return None if replica is None else _Transport(self, replica)

    def inject(self, name: str, fault: Fault) -> None:
        """Let a fault happen to a replica, at `fault.at_seconds` or at once if that has passed."""
        self._by_name[name].inject(fault)

    def restart(self, name: str, **start_values: int) -> None:
        """Restart a replica now with other start values; see `SimulatedReplica.restart`."""
        self._by_name[name].restart(**start_values)

    def _live(self, second: float) -> None:
        self._knobbed.advance(second)
        self._second = max(self._second, second)

    def _look(self) -> FleetSnapshot:
        now = self.now()
        for url, replica in self._by_url.items():
            self._tracker.observe(url, self._observation(replica, now))
        for report in self._gpus.read(now):
            self._tracker.observe_gpus(report)
        return self._tracker.snapshot(now)

    def _observation(self, replica: SimulatedReplica, now: float) -> Observation:
        if not replica.engines:
            failure = Failure(FailureKind.REFUSED, now, "connection refused")
            return Observation(now, _SCRAPE_SECONDS, failure=failure)
        if not replica.answers:
            failure = Failure(FailureKind.TIMEOUT, now, "no answer")
            return Observation(now, self._tick_seconds, failure=failure)
        shape = self._shape(replica)
        reading = shape.read(replica.engines, now, self._epoch + replica.life_at)
        return Observation(now, _SCRAPE_SECONDS, reading=reading)

    def _shape(self, replica: SimulatedReplica) -> ReadingShape:
        settings, slo = replica.plan.engine, replica.slo
        shape = self._shapes.get((settings, slo))
        if shape is None:
            version = ENGINE_VERSIONS.get(settings.kind, "")
            identity = Identity(settings.kind, version, settings.model, settings.role, simulated=True)
            shape = self._shapes[settings, slo] = ReadingShape.of(replica.engines, slo, identity)
        return shape

    def ask(self, replica: SimulatedReplica, method: str, path: str, body: bytes | None) -> KnobAnswer:
        """One request to a replica's knob API."""
        companion = self._knobbed.companion(replica)
        if companion is None:
            return KnobAnswer(None, detail="connection refused")
        if not replica.answers:
            return KnobAnswer(None, detail="no answer in time")
        return companion.api.request(method, path, body)


class _Transport:
    """The way to one replica's knobs, through all of its lives."""

    def __init__(self, world: SteppedWorld, replica: SimulatedReplica) -> None:
        self._world = world
        self._replica = replica

    def request(self, method: str, path: str, body: bytes | None = None) -> KnobAnswer:
        """See `KnobTransport`."""
        return self._world.ask(self._replica, method, path, body)
