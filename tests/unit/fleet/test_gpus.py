"""GPUs find their replicas, and watts are never counted for two."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import pytest

from enginetop.fleet.gpu_join import Owners, host_key, host_of
from enginetop.fleet.gpus import NO_GPUS, GpuBoard, total_power
from enginetop.fleet.model import Quality, Target
from enginetop.fleet.snapshot import GpuDevice, GpuReport

A1 = Target("http://a:8000", "a1")
A2 = Target("http://a:8001", "a2")
B1 = Target("http://b:8000", "b1")


def gpu(index: int, watts: float | None = None, *, replicas: tuple[str, ...] | None = None) -> GpuDevice:
    return GpuDevice(index, f"GPU-{index}", "H100", power_watts=watts, replicas=replicas)


def board(*reports: GpuReport, spacing: float | None = 2.0) -> GpuBoard:
    made = GpuBoard(spacing)
    for report in reports:
        made.observe(report)
    return made


def urls(*targets: Target) -> frozenset[str]:
    return frozenset(target.url for target in targets)


def test_without_a_process_table_all_gpus_of_the_host_belong_to_its_replica() -> None:
    shares = board(
        GpuReport("a", 10.0, (gpu(0, 300.0), gpu(1, 200.5))), GpuReport("c", 10.0, (gpu(0, 90.0),))
    ).shares([A1, B1], urls(A1, B1), 10.0)
    assert set(shares) == {A1.url}
    assert [device.index for device in shares[A1.url].gpus] == [0, 1]
    power = shares[A1.url].power
    assert (power.value, power.unit, power.quality, power.note) == (500.5, "W", Quality.OK, "2 GPUs, nvml")


def test_a_process_table_gives_each_replica_its_own() -> None:
    devices = (
        gpu(0, 300.0, replicas=(A1.url,)),
        gpu(1, 200.0, replicas=(A2.url,)),
        gpu(2, 50.0, replicas=()),
    )
    shares = board(GpuReport("a", 10.0, devices)).shares([A1, A2], urls(A1, A2), 10.0)
    assert [shares[url].power.value for url in (A1.url, A2.url)] == [300.0, 200.0]
    assert total_power(shares.values()).value == 500.0  # the third GPU serves none of ours


@pytest.mark.parametrize("replicas", [None, (A1.url, A2.url)])
def test_power_of_a_shared_gpu_is_nobodys_but_counts_once_for_the_fleet(
    replicas: tuple[str, ...] | None,
) -> None:
    shares = board(GpuReport("a", 10.0, (gpu(0, 300.0, replicas=replicas),))).shares(
        [A1, A2], urls(A1, A2), 10.0
    )
    for url in (A1.url, A2.url):
        assert len(shares[url].gpus) == 1
        assert (shares[url].power.value, shares[url].power.quality) == (None, Quality.UNKNOWN)
        assert shares[url].power.note == "2 replicas share the GPUs"
    total = total_power(shares.values())
    assert (total.value, total.note) == (300.0, "1 GPU, nvml")


def test_a_router_beside_one_engine_takes_no_part_of_its_power() -> None:
    shares = board(GpuReport("a", 10.0, (gpu(0, 300.0),))).shares([A1, A2], urls(A1), 10.0)
    assert shares[A1.url].power.value == 300.0
    assert len(shares[A2.url].gpus) == 1
    assert shares[A2.url].power.value is None


def test_one_gpu_without_power_makes_the_sum_unknown() -> None:
    shares = board(GpuReport("a", 10.0, (gpu(0, 300.0), gpu(1)))).shares([A1], urls(A1), 10.0)
    power = shares[A1.url].power
    assert (power.value, power.quality) == (None, Quality.UNKNOWN)
    assert power.note == "GPU 1 does not report its power"
    assert total_power(shares.values()).value is None


def mig(index: int, watts: float | None = None, *, replicas: tuple[str, ...] | None = None) -> GpuDevice:
    return replace(gpu(index, watts, replicas=replicas), uuid=f"MIG-{index}", mig="1g.10gb")


@pytest.mark.parametrize("watts", [None, 300.0])
def test_the_power_of_mig_instances_is_the_whole_gpus_and_counts_once(watts: float | None) -> None:
    devices = (gpu(0, 300.0), mig(0, watts), mig(0, watts))
    shares = board(GpuReport("a", 10.0, devices)).shares([A1], urls(A1), 10.0)
    assert shares[A1.url].gpus == tuple(replace(one, joined_by="host") for one in devices)  # each its row
    power = shares[A1.url].power
    assert (power.value, power.quality, power.note) == (300.0, Quality.OK, "1 GPU, nvml")
    assert total_power(shares.values()).value == 300.0


def test_mig_instances_without_their_gpu_have_no_power_that_is_known() -> None:
    shares = board(GpuReport("a", 10.0, (mig(0, 300.0),))).shares([A1], urls(A1), 10.0)
    power = shares[A1.url].power
    assert (power.value, power.quality) == (None, Quality.UNKNOWN)
    assert power.note == "the power of MIG instances alone is not told"


def test_no_gpus_is_not_zero_watts() -> None:
    assert (NO_GPUS.power.value, NO_GPUS.power.quality) == (None, Quality.UNKNOWN)
    assert total_power([]).value is None


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1", "LOCALHOST"])
def test_names_of_this_machine_are_one(host: str) -> None:
    local = Target("http://127.0.0.1:8000", "l")
    shares = board(GpuReport(host, 10.0, (gpu(0, 70.0),))).shares([local], urls(local), 10.0)
    assert shares[local.url].power.value == 70.0
    assert host_key(host) == host_key("localhost")


def test_a_newer_report_of_a_host_replaces_the_older() -> None:
    gpus = board(GpuReport("a", 10.0, (gpu(0, 300.0), gpu(1, 300.0))))
    assert gpus.shares([A1], urls(A1), 10.0)[A1.url].power.value == 600.0
    gpus.observe(GpuReport("a", 12.0, (gpu(0, 100.0),)))
    assert gpus.shares([A1], urls(A1), 12.0)[A1.url].power.value == 100.0


def test_shares_are_joined_anew_only_when_something_changed() -> None:
    gpus = board(GpuReport("a", 10.0, (gpu(0, 300.0),)))
    first = gpus.shares([A1], urls(A1), 10.0)
    assert gpus.shares([A1], urls(A1), 11.0) is first
    both = gpus.shares([A1, A2], urls(A1, A2), 11.0)
    assert set(both) == {A1.url, A2.url}


def test_figures_that_stopped_coming_are_old() -> None:
    """Asked every 2 s: fresh until 6 s after the last report."""
    gpus = board(GpuReport("a", 10.0, (gpu(0, 300.0),)))
    assert gpus.problem(16.0) == ""
    assert gpus.shares([A1], urls(A1), 16.0)[A1.url].power.quality is Quality.OK
    share = gpus.shares([A1], urls(A1), 16.1)[A1.url]
    assert (share.power.value, share.power.quality) == (300.0, Quality.STALE)
    assert (share.gpus[0].note, share.gpus[0].old) == ("old figures", True)
    assert gpus.problem(16.1) == "no new GPU figures from a"


def test_one_gpu_record_of_a_recording_is_never_old() -> None:
    gpus = board(GpuReport("a", 10.0, (gpu(0, 300.0),)), spacing=None)
    assert gpus.shares([A1], urls(A1), 9999.0)[A1.url].power.quality is Quality.OK
    assert gpus.problem(9999.0) == ""


def test_a_problem_is_told_and_its_figures_are_old() -> None:
    gpus = board(GpuReport("a", 10.0, (gpu(0, 300.0),), problem="driver and library differ"))
    assert gpus.problem(10.0) == "driver and library differ"
    assert gpus.shares([A1], urls(A1), 10.0)[A1.url].power.quality is Quality.STALE


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://A.example:8000", "a.example"),
        ("http://[::1]:8000", "::1"),
        ("http://[bad", ""),
        ("nonsense", ""),
        ("http://h:notaport", "h"),
    ],
)
def test_the_host_of_any_url(url: str, host: str) -> None:
    assert host_of(url) == host


def test_a_url_without_a_host_joins_nothing() -> None:
    odd = Target("nonsense", "odd")
    assert board(GpuReport("", 10.0, (gpu(0, 300.0),))).shares([odd], urls(odd), 10.0) == {}


def test_what_a_page_told_goes_with_its_replica() -> None:
    made = board()
    made.observe_own(A1.url, 10.0, (gpu(0, 300.0),))
    made.observe_own(B1.url, 10.0, (gpu(0, 90.0),))
    assert set(made.shares([A1, B1], urls(A1, B1), 10.0)) == urls(A1, B1)
    made.forget(A1.url)
    made.forget("http://nobody:1")
    assert set(made.shares([A1, B1], urls(A1, B1), 10.0)) == urls(B1)


def test_another_router_in_the_place_of_one_is_another_fleet() -> None:
    made = board(GpuReport("a", 10.0, (gpu(0, 300.0),)))
    one, other = Target("http://a:9000", "r1"), Target("http://a:9001", "r2")
    assert set(made.shares([A1, one], urls(A1), 10.0)) == urls(A1, one)
    assert set(made.shares([A1, other], urls(A1), 10.0)) == urls(A1, other)


def test_owners_are_sought_again_only_where_somebody_or_something_is_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Reports come every second, and a thousand names are not to be taken apart for each."""
    sought: list[int] = []

    def counted(targets: Sequence[Target], told: Mapping[str, Collection[str]]) -> Owners:
        sought.append(len(targets))
        return Owners(targets, told)

    monkeypatch.setattr("enginetop.fleet.gpus.Owners", counted)
    made = board(GpuReport("a", 10.0, (gpu(0, 300.0),)))
    for at, watts in ((11.0, 310.0), (12.0, 310.0), (13.0, 320.0)):
        made.observe(GpuReport("a", at, (gpu(0, watts),)))
        shares = made.shares([A1, B1], urls(A1, B1), at)
        assert shares[A1.url].power.value == watts
    assert sought == [2]
    assert made.shares([A1, B1], urls(A1, B1), 13.5) is shares
    made.shares([A1, A2, B1], urls(A1, A2, B1), 14.0)
    assert sought == [2, 3]


def test_hosts_without_gpus_change_nothing() -> None:
    made = board(GpuReport("a", 10.0, ()))
    shares = made.shares([A1], urls(A1), 10.0)
    made.observe(GpuReport("a", 12.0, ()))
    assert made.shares([A1], urls(A1), 12.0) is shares
    made.observe(GpuReport("a", 14.0, (gpu(0, 300.0),)))
    assert made.shares([A1], urls(A1), 14.0)[A1.url].power.value == 300.0
    made.observe(GpuReport("a", 16.0, ()))
    assert made.shares([A1], urls(A1), 16.0) == {}
