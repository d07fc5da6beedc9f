"""The GPUs of exporters as a Prometheus scraped them: joined, dated, gated, backfilled, recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collectors.prometheus.source import PrometheusLooks
from enginetop.cli.main import main
from enginetop.fleet.model import Quality
from enginetop.fleet.snapshot import FleetSnapshot, ReplicaSnapshot
from tests.support.fake_prometheus import FakePrometheus
from tests.support.small_fleet import vllm_page
from tests.unit.prometheus.test_looks import looking

ENGINE = {"job": "vllm", "instance": "10.1.0.1:8000", "pod": "vllm-0", "namespace": "serve"}
DCGM = {"job": "dcgm", "instance": "10.0.0.1:9400", "pod": "dcgm-x", "namespace": "gpu-operator"}


def dcgm_page(power: float = 300.0, pod: str = "vllm-0", host: str = "node-a") -> str:
    own = f'gpu="0",UUID="GPU-1",modelName="H200",hostname="{host}"'
    served = f',pod="{pod}",namespace="serve",container="vllm"' if pod else ""
    return (
        f"DCGM_FI_DEV_POWER_USAGE{{{own}{served}}} {power}\n"
        f"DCGM_FI_DEV_GPU_UTIL{{{own}{served}}} 50\n"
        "DCGM_FI_DEV_FB_USED{" + own + served + "} 2147483634\n"
    )


def engine(fake: FakePrometheus, at: float, labels: dict[str, str] = ENGINE) -> None:
    fake.scraped(labels, at, vllm_page(running=1, tokens=int(100 * (at - 800))).decode())


def only(snapshot: FleetSnapshot) -> ReplicaSnapshot:
    (replica,) = snapshot.replicas
    return replica


def step(fake: FakePrometheus, looks: PrometheusLooks, at: float, page: str | None) -> FleetSnapshot:
    fake.time = at
    engine(fake, at - 1)
    fake.scraped(DCGM, at - 0.5, page)
    return looks.look()


def test_a_gpu_is_joined_with_the_pod_that_it_serves_and_its_power_with_the_tokens() -> None:
    fake = FakePrometheus(time=960.0)
    for at in (900.0, 915.0, 930.0, 945.0, 959.0):
        engine(fake, at)
        fake.scraped(DCGM, at, dcgm_page())
    with looking(fake) as looks:
        replica = only(looks.look())
    (gpu,) = replica.gpus
    assert (gpu.uuid, gpu.source, gpu.pod, gpu.joined_by) == ("GPU-1", "dcgm", "serve/vllm-0", "pod")
    assert (gpu.utilization_ratio, gpu.memory_used_bytes, gpu.memory_total_bytes) == (0.5, None, None)
    assert replica.signals["power_watts"].value == 300.0  # type: ignore[union-attr]
    # 300 W by 100 tokens a second
    assert replica.signals["energy_joules_per_token"].value == pytest.approx(3.0)  # type: ignore[union-attr]


def test_a_value_is_as_old_as_its_change_by_the_servers_clock() -> None:
    fake = FakePrometheus()
    with looking(fake) as looks:
        pages = [(1000.0, 300.0), (1015.0, 300.0), (1030.0, 310.0)]
        seen = [only(step(fake, looks, at, dcgm_page(power))).gpus[0].changed_at for at, power in pages]
    assert seen == [999.5, 999.5, 1029.5]


def test_an_exporter_that_cannot_be_read_is_one_line_and_one_that_is_gone_is_gone() -> None:
    fake = FakePrometheus()
    with looking(fake) as looks:
        assert step(fake, looks, 1000.0, dcgm_page()).gpu_problem == ""
        seen = step(fake, looks, 1015.0, None)
        assert seen.gpu_problem == "GPU exporter 10.0.0.1:9400: its scraper cannot read it"
        assert only(seen).state == "ok"
        assert only(seen).signals["power_watts"].quality is Quality.STALE
        assert step(fake, looks, 1030.0, dcgm_page()).gpu_problem == ""
        fake.given_up(DCGM, 1031.0)
        fake.time = 1160.0
        engine(fake, 1159.0)
        last = looks.look()
    assert (only(last).gpus, last.gpu_problem) == ((), "")


def test_without_pods_the_exporters_host_counts() -> None:
    fake = FakePrometheus()
    labels = {"job": "vllm", "instance": "node-a:8000"}
    engine(fake, 999.0, labels)
    fake.scraped({"job": "dcgm", "instance": "10.0.0.1:9400"}, 999.5, dcgm_page(pod=""))
    with looking(fake) as looks:
        assert [gpu.joined_by for gpu in only(looks.look()).gpus] == ["host"]


def test_amd_and_others_of_any_prefix_are_found_by_their_names() -> None:
    fake = FakePrometheus()
    engine(fake, 999.0)
    page = 'amd_gpu_package_power{gpu_id="0",gpu_uuid="u",hostname="n",pod="vllm-0",namespace="serve"} 700\n'
    fake.scraped({"job": "amd", "instance": "10.0.0.2:5000"}, 999.5, page)
    with looking(fake) as looks:
        (gpu,) = only(looks.look()).gpus
    assert (gpu.source, gpu.power_watts) == ("amd", 700.0)


def test_no_query_is_asked_of_a_server_without_exporters() -> None:
    fake = FakePrometheus()
    engine(fake, 999.0)
    with looking(fake) as looks:
        looks.look()
        before = len(fake.asked)
        fake.time = 1015.0
        engine(fake, 1014.0)
        assert only(looks.look()).gpus == ()
    # the clock, the scrapes of the stretch, who is scraped now, the pages
    assert len(fake.asked) - before <= 4 + 3  # and the names, which were due


def test_the_past_has_its_gpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake = FakePrometheus(time=10_000.0)
    for n in range(40):
        at = 9000.0 + 15 * n
        engine(fake, at)
        fake.scraped(DCGM, at + 2, dcgm_page(power=200.0 + n))
    with fake.serving() as url:
        assert main(["snapshot", "--prometheus", url, "--at", "9303"]) == 0
    (replica,) = json.loads(capsys.readouterr().out)["replicas"]
    assert replica["gpus"][0]["power_watts"] == 220.0  # the twentieth, at 9302
