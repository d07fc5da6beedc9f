"""GPUs that Triton's own page tells of, from the page to the row of the replica and the fleet's power."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from collectors.answer import Answer
from collectors.engines.base import Look
from collectors.engines.triton import TritonReader
from collectors.engines.triton_gpus import MOST_GPUS
from collectors.feed import TargetFeed
from collectors.layout import LayoutCache
from enginetop.fleet.fleet_tracker import FleetTracker
from enginetop.fleet.gpu_device import GpuDevice, GpuReport
from enginetop.fleet.model import Target
from enginetop.fleet.snapshot import FleetSnapshot, Scalar, Slo
from tests.support.engine_pages import page_of

SERVED = 'nv_inference_request_success{model="m",version="1"} 1\n'
ONE, TWO = "http://h:8002", "http://h:9002"


def gpu(uuid: str, **values: object) -> str:
    return "".join(f'nv_gpu_{name}{{gpu_uuid="{uuid}"}} {value}\n' for name, value in values.items())


FULL = gpu(
    "GPU-b",
    utilization=0.75,
    memory_used_bytes=3e10,
    memory_total_bytes=8e10,
    power_usage=310.5,
    power_limit=700,
)


def devices(page: str) -> tuple[GpuDevice, ...]:
    return TritonReader().read(Look(at=1.0, page=page_of(SERVED + page))).gpus


def test_a_gpu_with_all_its_figures() -> None:
    (device,) = devices(FULL)
    assert device == GpuDevice(
        0,
        "GPU-b",
        "GPU-b",
        utilization_ratio=0.75,
        memory_used_bytes=3e10,
        memory_total_bytes=8e10,
        power_watts=310.5,
        power_limit_watts=700.0,
        source="triton",
    )


def test_several_gpus_and_none() -> None:
    assert [one.uuid for one in devices(FULL + gpu("GPU-a", utilization=0.0))] == ["GPU-a", "GPU-b"]
    assert devices("") == ()
    assert devices("nv_gpu_utilization 0.5\n") == ()  # of no known GPU


@pytest.mark.parametrize("value", ["NaN", "-1", "+Inf"])
def test_what_is_no_number_is_not_known(value: str) -> None:
    (device,) = devices(gpu("GPU-a", utilization=value, power_usage=100))
    assert (device.utilization_ratio, device.power_watts) == (None, 100.0)


def test_a_page_cannot_fill_the_memory_with_gpus() -> None:
    assert len(devices("".join(gpu(f"GPU-{n:04}", utilization=0) for n in range(200)))) == MOST_GPUS


def fleet(pages: Sequence[tuple[str, str]], *reports: GpuReport) -> FleetSnapshot:
    """The picture after one page of each target, and reports of hosts."""
    targets = [Target(url, url) for url in dict.fromkeys(url for url, _ in pages)]
    tracker = FleetTracker(
        targets,
        interval_seconds=2.0,
        window_seconds=60.0,
        slo_for=lambda model: Slo(),
        fixed_spacing_seconds=2.0,
    )
    for report in reports:
        tracker.observe_gpus(report)
    layouts = LayoutCache()
    for url, page in pages:
        body = (SERVED + page).encode()
        feed = TargetFeed(Target(url, url), layouts)
        tracker.observe(url, feed.take([Answer("/metrics", 100.0, 0.01, body=body)], 100.0, 0.01))
    return tracker.snapshot(100.0)


def watts(snapshot: FleetSnapshot, replica: int) -> Scalar:
    value = snapshot.replicas[replica].signals["power_watts"]
    assert isinstance(value, Scalar)
    return value


def test_they_are_the_gpus_of_the_replica() -> None:
    snapshot = fleet([(ONE, FULL)])
    assert [one.uuid for one in snapshot.replicas[0].gpus] == ["GPU-b"]
    assert watts(snapshot, 0).value == 310.5
    assert "triton" in watts(snapshot, 0).note


def test_another_replica_of_the_host_has_no_part_of_them() -> None:
    snapshot = fleet([(ONE, FULL), (TWO, gpu("GPU-c", power_usage=90))])
    assert [[one.uuid for one in replica.gpus] for replica in snapshot.replicas] == [["GPU-b"], ["GPU-c"]]
    assert [watts(snapshot, at).value for at in (0, 1)] == [310.5, 90.0]
    power = snapshot.fleet.signals["power_watts"]
    assert isinstance(power, Scalar)
    assert power.value == 400.5


def test_a_gpu_that_two_servers_tell_of_is_one_whose_power_cannot_be_split() -> None:
    snapshot = fleet([(ONE, FULL), (TWO, FULL)])
    assert watts(snapshot, 0).value is None
    assert "2 replicas share" in watts(snapshot, 0).note
    power = snapshot.fleet.signals["power_watts"]
    assert isinstance(power, Scalar)
    assert power.value == 310.5


def test_the_report_of_a_host_stands_where_both_tell_of_a_gpu() -> None:
    host = GpuReport("h", 100.0, (GpuDevice(3, "GPU-b", "H200", power_watts=300.0),))
    snapshot = fleet([(ONE, FULL)], host)
    (device,) = snapshot.replicas[0].gpus
    assert (device.name, device.index, device.source) == ("H200", 3, "nvml")
    assert watts(snapshot, 0).value == 300.0


def test_a_gpu_that_the_host_does_not_tell_of_is_added() -> None:
    host = GpuReport("h", 100.0, (GpuDevice(0, "GPU-a", "H200", power_watts=50.0),))
    snapshot = fleet([(ONE, FULL)], host)
    assert {one.uuid for one in snapshot.replicas[0].gpus} == {"GPU-a", "GPU-b"}
