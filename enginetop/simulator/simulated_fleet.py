"""The simulated fleet: replicas that are served over real HTTP on loopback, and their GPUs."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from enginetop.fleet.errors import ConfigError
from enginetop.fleet.model import Target
from enginetop.simulator.fleet_model import WARM_UP_SECONDS, FleetModel
from enginetop.simulator.frontend import Frontend, Pulse
from enginetop.simulator.gpus import SimulatedGpus
from enginetop.simulator.http_server import LOOPBACK, HttpServer, Port
from enginetop.simulator.knobbed_fleet import KnobbedFleet
from enginetop.simulator.scenario import Scenario

_TICK_SECONDS = 0.5
_HIGHEST_PORT = 65535


class SimulatedFleet:
    """`replicas` engines of `scenario` on loopback ports, until `stop`.

    `start_time` is the Unix time that the fleet takes for now when it is made (None: the real one). While
    started its time follows `clock`, a monotonic clock in seconds; while stopped it stands still. `start` and
    `stop` belong to one thread; what `gpus` offers may be used from any. With a `token` the knob APIs ask for
    it.
    """

    def __init__(
        self,
        scenario: Scenario,
        replicas: int = 12,
        seed: int = 1,
        start_time: float | None = None,
        *,
        warm_up_seconds: float = WARM_UP_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        token: str | None = None,
    ) -> None:
        self._epoch = time.time() if start_time is None else start_time
        self.scenario = scenario
        self.model = FleetModel(scenario, replicas, seed, self._epoch, warm_up_seconds)
        self._fleet = KnobbedFleet(self.model, run=f"{self._epoch:.3f}", token=token)
        self._clock = clock
        self._started_at = 0.0
        self._served_seconds = 0.0
        self._ports: list[Port] = []
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._gpus: SimulatedGpus | None = None
        self._problem: OSError | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def urls(self) -> list[str]:
        """The base URL of each replica; empty unless started."""
        return [f"http://{LOOPBACK}:{port.number}" for port in self._ports]

    @property
    def gpus(self) -> SimulatedGpus:
        """The GPUs that the replicas run on. Only of a started fleet (RuntimeError)."""
        if self._gpus is None:
            raise RuntimeError("the simulated fleet is not started")
        return self._gpus

    def targets(self) -> list[Target]:
        """What to scrape, with the replicas' names; empty unless started."""
        return [
            Target(url, replica.name) for url, replica in zip(self.urls, self.model.replicas, strict=False)
        ]

    def start(self, port: int = 0) -> list[str]:
        """Serve on `port` and those after it (0: any free ones); returns the base URLs once all listen.

        Raises:
            ConfigError: a port, or a file descriptor for it, cannot be had.
            RuntimeError: it was started before.
        """
        if self._thread is not None:
            raise RuntimeError("the simulated fleet is already started")
        self._ports = _take_ports(port, len(self.model.replicas))
        self._gpus = SimulatedGpus(
            LOOPBACK,
            self.urls,
            [replica.plan.engine for replica in self.model.replicas],
            lambda: self.model.loads,
        )
        self._started_at = self._clock() - self._served_seconds
        listening = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(listening,), name="simulated-fleet", daemon=True
        )
        self._thread.start()
        listening.wait()
        problem = self._problem
        if problem is not None:
            self.stop()
            raise ConfigError(f"cannot serve the simulated fleet: {problem.strerror}") from problem
        return self.urls

    def stop(self) -> None:
        """Cut all connections and let the ports go; nothing happens if the fleet is not started."""
        if self._thread is None:
            return
        if self._loop is not None and self._stopping is not None:
            # The loop is closed already if its thread ended by an error.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        self._served_seconds = self._now()
        for port in self._ports:
            port.close()
        self._ports = []
        self._problem = None
        self._thread = self._loop = self._stopping = self._gpus = None

    def _run(self, listening: threading.Event) -> None:
        try:
            asyncio.run(self._serve(listening))
        except OSError as error:
            self._problem = error
        finally:
            listening.set()

    async def _serve(self, listening: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = stopping = asyncio.Event()
        pulse = Pulse(lambda: self._fleet.advance(self._now()))
        servers = [
            HttpServer(port, Frontend(self._fleet, replica, self._now, self._epoch, pulse))
            for port, replica in zip(self._ports, self.model.replicas, strict=True)
        ]
        try:
            while not stopping.is_set():
                self._fleet.advance(self._now())
                for server, replica in zip(servers, self.model.replicas, strict=True):
                    if not replica.engines:
                        server.close()
                    elif not server.is_open:
                        server.open()
                listening.set()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stopping.wait(), _TICK_SECONDS)
        finally:
            for server in servers:
                server.close()
                await server.wait_closed()

    def _now(self) -> float:
        return self._clock() - self._started_at


def serve_until(
    stopped: threading.Event, fleet: SimulatedFleet, announce: Callable[[str], None], port: int = 0
) -> None:
    """Run `fleet` until `stopped` is set (or the wait is interrupted), telling each base URL to `announce`.

    Raises:
        ConfigError: a port cannot be had.
    """
    try:
        for url in fleet.start(port):
            announce(url)
        stopped.wait()
    finally:
        fleet.stop()


def _take_ports(first: int, number: int) -> list[Port]:
    if first and not 1 <= first <= _HIGHEST_PORT - number + 1:
        raise ConfigError(
            f"--port {first}: {number} replicas need ports up to {first + number - 1}; take a lower one"
        )
    ports: list[Port] = []
    try:
        for index in range(number):
            ports.append(Port(first + index if first else 0))  # noqa: PERF401 - those taken are closed below
    except OSError as error:
        for port in ports:
            port.close()
        if not first:
            raise ConfigError(f"cannot listen on {LOOPBACK}: {error.strerror}") from error
        taken = first + len(ports)
        raise ConfigError(
            f"cannot listen on {LOOPBACK}, port {taken}: {error.strerror}; try another --port"
        ) from error
    return ports
