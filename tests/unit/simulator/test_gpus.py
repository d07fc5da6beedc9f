"""Simulated GPUs follow the load of their replica."""

from __future__ import annotations

import pytest

from enginetop.fleet.model import Target
from enginetop.fleet.ports import GpuSource
from enginetop.fleet.snapshot import GpuDevice
from enginetop.fleet.throttle import ALARMING_THROTTLE_WORDS
from enginetop.simulator.builtin import SCENARIOS
from enginetop.simulator.gpus import SimulatedGpus
from enginetop.simulator.load_meter import Load

QWEN = SCENARIOS["steady"].pools[0].members[0].engine
LLAMA = SCENARIOS["steady"].pools[1].members[0].engine
THROTTLED = SCENARIOS["demo"].pools[1].members[3].engine
IDLE = Load(up=True, busy_ratio=0.0, compute_ratio=0.0)
DECODING = Load(up=True, busy_ratio=1.0, compute_ratio=0.1)
COMPUTING = Load(up=True, busy_ratio=1.0, compute_ratio=0.9)
DEAD = Load(up=False, busy_ratio=0.0, compute_ratio=0.0)


class Fleet:
    """Three replicas on 2 + 4 + 4 GPUs whose load a test sets."""

    def __init__(self) -> None:
        self.loads = [DECODING, DECODING, DECODING]
        self.source = SimulatedGpus(
            "127.0.0.1", ["http://q", "http://l", "http://t"], [QWEN, LLAMA, THROTTLED], lambda: self.loads
        )

    def devices(self, now: float = 100.0) -> list[tuple[GpuDevice, ...]]:
        """The GPUs of each replica."""
        (report,) = self.source.read(now)
        assert report.at == now
        assert report.problem == ""
        return [report.gpus[:2], report.gpus[2:6], report.gpus[6:]]


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


def test_it_is_a_gpu_source(fleet: Fleet) -> None:
    source: GpuSource = fleet.source
    source.open([Target("http://q", "q")])
    assert source.read(1.0)[0].host == "127.0.0.1"
    source.close()


def test_every_gpu_is_its_own_and_names_its_replica(fleet: Fleet) -> None:
    groups = fleet.devices()
    every = [gpu for group in groups for gpu in group]
    assert [gpu.index for gpu in every] == list(range(10))
    assert len({gpu.uuid for gpu in every}) == 10
    assert {gpu.source for gpu in every} == {"simulated"}
    assert all("imulated" in gpu.name for gpu in every)
    assert [{gpu.replicas for gpu in group} for group in groups] == [
        {("http://q",)},
        {("http://l",)},
        {("http://t",)},
    ]


def test_power_follows_the_load_and_stays_under_its_limit(fleet: Fleet) -> None:
    watts = []
    for load in (IDLE, DECODING, COMPUTING):
        fleet.loads = [load] * 3
        gpu = fleet.devices()[0][0]
        assert gpu.power_watts is not None
        assert gpu.power_limit_watts is not None
        assert gpu.power_watts <= gpu.power_limit_watts
        watts.append(gpu.power_watts)
    assert watts[0] < 120 < 300 < watts[1] < 500 < watts[2]


def test_temperature_drifts_after_the_power(fleet: Fleet) -> None:
    fleet.loads = [IDLE] * 3
    celsius = [fleet.devices(0.0)[0][0].temperature_celsius or 0.0]
    fleet.loads = [COMPUTING] * 3
    celsius += [fleet.devices(at)[0][0].temperature_celsius or 0.0 for at in (1.0, 20.0, 60.0, 300.0)]
    assert celsius == sorted(celsius)
    assert celsius[1] - celsius[0] < 3 < 25 < celsius[-1] - celsius[0]
    assert fleet.devices(200.0)[0][0].temperature_celsius == celsius[-1], "a clock that jumps back"


def test_one_replica_throttles_for_a_reason_that_alarms(fleet: Fleet) -> None:
    cool, _, hot = fleet.devices()
    assert {gpu.throttle_reasons for gpu in cool} == {()}
    for gpu in hot:
        assert len(gpu.throttle_reasons) == 1
        assert set(gpu.throttle_reasons) <= ALARMING_THROTTLE_WORDS
        assert (gpu.sm_clock_mhz or 0.0) < 0.5 * (cool[0].sm_clock_mhz or 0.0)
        assert (gpu.temperature_celsius or 0.0) > 85.0


def test_a_dead_replica_leaves_its_gpus_empty(fleet: Fleet) -> None:
    fleet.loads = [DECODING, DECODING, DEAD]
    _, busy, dead = fleet.devices()
    for gpu in dead:
        assert gpu.replicas == ()
        assert gpu.utilization_ratio == 0.0
        assert gpu.throttle_reasons == ()
        assert (gpu.memory_used_bytes or 0.0) < 0.05 * (busy[0].memory_used_bytes or 0.0)
