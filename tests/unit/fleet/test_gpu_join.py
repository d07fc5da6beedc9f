"""Whose the GPUs of an exporter are: by UUID, pod or host, in that order, and never twice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from enginetop.fleet.gpu_device import GpuDevice, GpuReport
from enginetop.fleet.gpus import GpuBoard, total_power
from enginetop.fleet.model import Quality, Target

EXPORTER = "http://10.0.0.9:9400"
V0 = Target("http://10.1.0.1:8000", "v0", pod="serve/vllm-0")
V1 = Target("http://10.1.0.2:8000", "v1", pod="serve/vllm-1")
HOSTED = Target("http://node-a:8000", "h")


def gpu(index: int, pod: str = "", watts: float | None = 100.0, container: str = "") -> GpuDevice:
    return GpuDevice(
        index, f"GPU-{index}", "H200", power_watts=watts, source="dcgm", pod=pod, container=container
    )


def report(*gpus: GpuDevice, at: float = 10.0, problem: str = "", host: str = "node-a") -> GpuReport:
    return GpuReport(host, at, gpus, problem, EXPORTER, ("10.0.0.9",))


def joined(board: GpuBoard, *targets: Target, now: float = 10.0) -> dict[str, list[tuple[int, str]]]:
    shares = board.shares(targets, frozenset(target.url for target in targets), now)
    found = {target.name: shares.get(target.url) for target in targets}
    return {
        name: [(device.index, device.joined_by) for device in share.gpus] if share else []
        for name, share in found.items()
    }


def board_of(*reports: GpuReport) -> GpuBoard:
    board = GpuBoard(2.0)
    for one in reports:
        board.observe(one)
    return board


def test_by_pod_and_free_gpus_belong_to_nobody() -> None:
    board = board_of(report(gpu(0, "serve/vllm-0"), gpu(1, "serve/vllm-1"), gpu(2, "serve/other"), gpu(3)))
    assert joined(board, V0, V1, HOSTED) == {"v0": [(0, "pod")], "v1": [(1, "pod")], "h": []}


def test_by_host_where_the_exporter_tells_no_pods() -> None:
    board = board_of(report(gpu(0), gpu(1)))
    assert joined(board, HOSTED, V0) == {"h": [(0, "host"), (1, "host")], "v0": []}


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("http://NODE-A:8000", True),
        ("http://node-a.example.com:8000", True),
        ("http://10.0.0.9:8000", True),  # the exporter's own address
        ("http://10.0.0.90:8000", False),
        ("http://10:8000", False),
        ("http://node-ab:8000", False),
        ("http://node-b:8000", False),
    ],
)
def test_names_of_a_host(url: str, found: bool) -> None:
    assert bool(joined(board_of(report(gpu(0))), Target(url, "t"))["t"]) is found


def test_two_domains_are_two_hosts() -> None:
    board = board_of(report(gpu(0), host="node-a.east"))
    assert joined(board, Target("http://node-a.west:1", "w"), Target("http://node-a.east:1", "e")) == {
        "w": [],
        "e": [(0, "host")],
    }


def test_a_namespace_counts_where_both_tell_it() -> None:
    board = board_of(report(gpu(0, "test/vllm-0"), gpu(1, "vllm-1")))
    assert joined(board, V0, V1) == {"v0": [], "v1": [(1, "pod")]}


def test_a_pods_dns_name_or_a_targets_name_is_its_pod() -> None:
    board = board_of(report(gpu(0, "serve/vllm-0"), gpu(1, "serve/sg-1")))
    dns = Target("http://vllm-0.vllm.serve.svc:8000", "dns")
    named = Target("http://10.1.0.7:30000", "sg-1")
    assert joined(board, dns, named) == {"dns": [(0, "pod")], "sg-1": [(1, "pod")]}


def test_containers_of_one_pod_are_told_apart() -> None:
    both = [replace(V0, url=f"http://10.1.0.1:{8000 + n}", name=f"c{n}", container=f"c{n}") for n in (0, 1)]
    board = board_of(report(gpu(0, "serve/vllm-0", container="c0"), gpu(1, "serve/vllm-0", container="c1")))
    assert joined(board, *both) == {"c0": [(0, "pod")], "c1": [(1, "pod")]}


def test_a_uuid_that_an_engines_page_names_goes_before_pod_and_host() -> None:
    """Triton tells the UUIDs of its GPUs; the exporter knows more of them, and each is shown once."""
    board = board_of(report(gpu(0, "serve/vllm-0"), gpu(1)))
    board.observe_own(V1.url, 10.0, [GpuDevice(0, "GPU-0", "GPU-0", power_watts=7.0, source="triton")])
    assert joined(board, V0, V1, HOSTED) == {"v0": [], "v1": [(0, "uuid")], "h": []}
    shares = board.shares([V0, V1], frozenset({V0.url, V1.url}), 10.0)
    assert (shares[V1.url].power.value, shares[V1.url].power.note) == (100.0, "1 GPU, dcgm")


def test_what_this_machines_driver_tells_goes_before_its_exporter() -> None:
    local = Target("http://localhost:8000", "l")
    own = GpuReport("localhost", 10.0, (replace(gpu(0, watts=50.0), source="nvml"),))
    board = board_of(replace(report(gpu(0), gpu(1)), host="127.0.0.1"), own)
    shares = board.shares([local], frozenset({local.url}), 10.0)
    assert [(device.index, device.source) for device in shares[local.url].gpus] == [(0, "nvml"), (1, "dcgm")]
    assert total_power(shares.values()).value == 150.0


def test_two_exporters_of_one_gpu_count_once() -> None:
    other = replace(report(gpu(0)), exporter="http://10.0.0.9:9401")
    board = board_of(report(gpu(0)), other)
    assert joined(board, HOSTED) == {"h": [(0, "host")]}


def test_a_split_gpu_belongs_to_whoever_has_a_part_of_it() -> None:
    whole = gpu(0, watts=300.0)
    parts = [replace(gpu(0, f"serve/vllm-{n}", None), uuid=f"GPU-0/{n}", mig="1g.18gb") for n in (0, 1)]
    board = board_of(report(whole, *parts))
    assert joined(board, V0, V1) == {"v0": [(0, "pod"), (0, "pod")], "v1": [(0, "pod"), (0, "pod")]}
    shares = board.shares([V0, V1], frozenset({V0.url, V1.url}), 10.0)
    assert shares[V0.url].power.note == "2 replicas share the GPUs"
    assert total_power(shares.values()).value == 300.0


def test_an_exporter_that_fails_is_one_line_and_its_figures_are_old() -> None:
    board = board_of(report(gpu(0)), replace(report(gpu(5), host="node-b"), exporter="http://b:9400"))
    board.observe(report(gpu(0), at=12.0, problem="GPU exporter 10.0.0.9:9400: connection refused"))
    other = Target("http://node-b:8000", "b")
    shares = board.shares([HOSTED, other], frozenset({HOSTED.url, other.url}), 12.0)
    assert [shares[t.url].power.quality for t in (HOSTED, other)] == [Quality.STALE, Quality.OK]
    assert board.problem(12.0) == "GPU exporter 10.0.0.9:9400: connection refused"
    board.observe(replace(report(host="", at=12.0, problem="x"), exporter="http://c:9400"))
    assert board.problem(12.0) == "GPU exporter 10.0.0.9:9400: connection refused; so 1 more"


def test_a_host_that_an_exporter_tells_of_no_more_is_gone() -> None:
    board = board_of(replace(report(host="", problem="refused"), at=8.0))
    board.observe(report(gpu(0), at=10.0))
    assert board.problem(10.0) == ""
    board.observe(report(gpu(1), at=12.0, host="node-b"))
    assert joined(board, HOSTED, Target("http://node-b:1", "b"), now=12.0) == {"h": [], "b": [(1, "host")]}


def test_hosts_without_gpus_make_no_difference_to_what_is_gone() -> None:
    bare = replace(report(host="node-b", problem="no driver"), at=10.0)
    board = board_of(report(gpu(0)), bare)
    assert joined(board, HOSTED) == {"h": [(0, "host")]}
    board.observe(replace(bare, at=12.0))
    assert joined(board, HOSTED, now=12.0) == {"h": []}
