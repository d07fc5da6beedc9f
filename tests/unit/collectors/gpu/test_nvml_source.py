"""NVML through the real pynvml, against the compiled fake."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from collectors.gpu.processes import ProcessJoin
from collectors.gpu.source import JOIN_SECONDS, RETRY_SECONDS, NvmlSource
from enginetop.fleet.snapshot import GpuDevice
from tests.support.fake_nvml.driver import SENTINEL, WHOLE_GPU, FakeDriver, only

GIB = float(1024**3)
OpenSource = Callable[..., NvmlSource]


def gpus(source: NvmlSource, now: float = 0.0) -> tuple[GpuDevice, ...]:
    return only(source.read(now)).gpus


def test_two_gpus_in_our_units(driver: FakeDriver, open_source: OpenSource) -> None:
    driver.say("gpu 1 util 0", "gpu 1 used 0", "gpu 1 power 71500", "gpu 1 name NVIDIA H100 80GB HBM3")
    report = only(open_source(driver).read(7.0))
    assert (report.at, report.problem) == (7.0, "")
    assert report.gpus[0] == GpuDevice(
        index=0,
        uuid="GPU-00000000",
        name="NVIDIA H200",
        utilization_ratio=0.5,
        memory_used_bytes=40 * GIB,
        memory_total_bytes=141 * GIB,
        power_watts=350.0,
        power_limit_watts=700.0,
        temperature_celsius=55.0,
        sm_clock_mhz=1980.0,
        source="nvml",
    )
    idle = report.gpus[1]
    assert (idle.name, idle.utilization_ratio, idle.memory_used_bytes, idle.power_watts) == (
        "NVIDIA H100 80GB HBM3",
        0.0,
        0.0,
        71.5,
    )


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (9, "not loaded; run: modprobe nvidia"),
        (12, "no NVIDIA driver library (libnvidia-ml.so.1); install the driver"),
        (13, "stub or far too old"),
        (18, "differ in version"),
        (4, "no permission"),
        (999, "Unknown Error (NVML error 999)"),
        (77, "an error of the fake (NVML error 77)"),
    ],
)
def test_a_failing_start_is_one_line_and_is_tried_again_slowly(
    driver: FakeDriver, open_source: OpenSource, code: int, words: str
) -> None:
    driver.say(f"init {code}")
    source = open_source(driver)
    report = only(source.read(100.0))
    assert report.gpus == ()
    assert words in report.problem
    assert "\n" not in report.problem
    driver.say("init 0")
    assert only(source.read(100.0 + RETRY_SECONDS - 1)).problem == report.problem
    recovered = only(source.read(100.0 + RETRY_SECONDS))
    assert (recovered.problem, len(recovered.gpus)) == ("", 2)


@pytest.mark.parametrize("now", [50.0, 100.0 + RETRY_SECONDS])
def test_a_clock_set_back_does_not_delay_the_next_try(
    driver: FakeDriver, open_source: OpenSource, now: float
) -> None:
    driver.say("init 9")
    source = open_source(driver)
    source.read(100.0)
    driver.say("init 0")
    assert only(source.read(now)).problem == ""


def test_a_driver_without_gpus_says_so(driver: FakeDriver, open_source: OpenSource) -> None:
    driver.say("count 0")
    report = only(open_source(driver).read(0.0))
    assert (report.gpus, report.problem) == ((), "the NVIDIA driver is loaded but has no GPU")


def test_a_lost_gpu_keeps_its_row_and_the_others_go_on(driver: FakeDriver, open_source: OpenSource) -> None:
    source = open_source(driver)
    gpus(source)
    driver.say("gpu 0 lost 1")
    lost, other = gpus(source, 1.0)
    assert (lost.index, lost.uuid, lost.name, lost.state) == (0, "GPU-00000000", "NVIDIA H200", "lost")
    assert "fell off the bus" in lost.note
    assert (lost.utilization_ratio, lost.memory_used_bytes, lost.memory_total_bytes) == (None, None, None)
    assert (lost.power_watts, lost.temperature_celsius, lost.sm_clock_mhz) == (None, None, None)
    assert (other.state, other.power_watts) == ("ok", 350.0)
    driver.say("gpu 0 lost 0")
    assert [gpu.state for gpu in gpus(source, 2.0)] == ["ok", "ok"]


def test_a_gpu_lost_from_the_start_has_a_row_and_gets_its_name_later(
    driver: FakeDriver, open_source: OpenSource
) -> None:
    driver.say("gpu 1 lost 1")
    source = open_source(driver)
    other, lost = gpus(source)
    assert (other.state, lost.index, lost.uuid, lost.state) == ("ok", 1, "", "lost")
    driver.say("gpu 1 lost 0")
    back = gpus(source, 1.0)[1]
    assert (back.uuid, back.name, back.state) == ("GPU-00000001", "NVIDIA H200", "ok")


def test_a_gpu_that_stays_lost_is_sought_in_new_sessions_and_keeps_its_identity(
    driver: FakeDriver, open_source: OpenSource
) -> None:
    source = open_source(driver)
    gpus(source)
    driver.say("gpu 0 lost 1")
    gpus(source, 10.0)
    lost, other = gpus(source, RETRY_SECONDS + 10.0)
    assert (lost.uuid, lost.state, other.state) == ("GPU-00000000", "lost", "ok")
    assert driver.open_sessions == 1


@pytest.mark.parametrize(("code", "state"), [(16, "error"), (999, "error"), (15, "lost"), (28, "lost")])
def test_a_gpu_that_refuses_every_call_is_marked(
    driver: FakeDriver, open_source: OpenSource, code: int, state: str
) -> None:
    driver.say(f"fail 1 all {code}")
    fine, bad = gpus(open_source(driver))
    assert (fine.state, bad.state, bad.power_watts) == ("ok", state, None)
    assert bad.note


@pytest.mark.parametrize("code", [3, 4, 13, 21, 25, 27, 999])
@pytest.mark.parametrize(
    ("call", "fields"),
    [
        ("util", {"utilization_ratio"}),
        ("memory", {"memory_used_bytes", "memory_total_bytes"}),
        ("power", {"power_watts"}),
        ("limit", {"power_limit_watts"}),
        ("temp", {"temperature_celsius"}),
        ("clock", {"sm_clock_mhz"}),
    ],
)
def test_what_is_not_supported_is_none_and_only_that(
    driver: FakeDriver, open_source: OpenSource, call: str, fields: set[str], code: int
) -> None:
    values = {
        "utilization_ratio",
        "memory_used_bytes",
        "memory_total_bytes",
        "power_watts",
        "power_limit_watts",
        "temperature_celsius",
        "sm_clock_mhz",
    }
    driver.say(f"fail 0 {call} {code}")
    gpu = gpus(open_source(driver))[0]
    assert {name for name in values if getattr(gpu, name) is None} == fields
    assert gpu.state == "ok"


@pytest.mark.parametrize(
    ("line", "field"),
    [
        (f"gpu 0 util {WHOLE_GPU}", "utilization_ratio"),
        ("gpu 0 util 101", "utilization_ratio"),
        (f"gpu 0 used {SENTINEL}", "memory_used_bytes"),
        (f"gpu 0 total {SENTINEL}", "memory_total_bytes"),
        (f"gpu 0 power {WHOLE_GPU}", "power_watts"),
        (f"gpu 0 limit {WHOLE_GPU}", "power_limit_watts"),
        ("gpu 0 limit 0", "power_limit_watts"),
        (f"gpu 0 temp {WHOLE_GPU}", "temperature_celsius"),
        (f"gpu 0 clock {WHOLE_GPU}", "sm_clock_mhz"),
    ],
)
def test_sentinels_are_none(driver: FakeDriver, open_source: OpenSource, line: str, field: str) -> None:
    driver.say(line)
    assert getattr(gpus(open_source(driver))[0], field) is None


def test_a_sentinel_mask_is_no_throttling(driver: FakeDriver, open_source: OpenSource) -> None:
    driver.say(f"gpu 0 reasons {SENTINEL}")
    assert gpus(open_source(driver))[0].throttle_reasons == ()


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (0x0, ()),
        (0x1, ("idle",)),
        (0x4, ("sw_power_cap",)),
        (0x48, ("hw_slowdown", "hw_thermal")),
        (0xA0, ("sw_thermal", "hw_power_brake")),
        (0x112, ("app_clocks", "sync_boost", "display_clock")),
        (0x1004, ("sw_power_cap", "other_0x1000")),
    ],
)
def test_throttle_bits_become_words(
    driver: FakeDriver, open_source: OpenSource, mask: int, words: tuple[str, ...]
) -> None:
    driver.say(f"gpu 0 reasons {mask}")
    assert gpus(open_source(driver))[0].throttle_reasons == words


MEMINFO = "MemTotal:       131072 kB\nMemFree:           100 kB\nMemAvailable:    32768 kB\n"


@pytest.mark.parametrize("how", ["fail 0 memory 3", "gpu 0 total 0"])
@pytest.mark.parametrize(
    ("name", "unified"),
    [
        ("NVIDIA GB10", True),
        ("NVIDIA Thor", True),
        ("Orin (nvgpu)", True),
        ("NVIDIA GB100", False),
        ("NVIDIA GH200 480GB", False),
        ("NVIDIA H200", False),
    ],
)
def test_unified_memory_is_the_hosts_on_known_parts_only(
    driver: FakeDriver, open_source: OpenSource, tmp_path: Path, how: str, name: str, unified: bool
) -> None:
    (tmp_path / "meminfo").write_text(MEMINFO)
    driver.say(how, f"gpu 0 name {name}")
    gpu = gpus(open_source(driver, tmp_path))[0]
    found = (gpu.unified_memory, gpu.memory_used_bytes, gpu.memory_total_bytes)
    # 131072 kB - 32768 kB = 98304 kB = 100663296 bytes
    assert found == ((True, 100_663_296.0, 134_217_728.0) if unified else (False, None, None))


def test_an_integrated_part_whose_memory_is_reported_is_believed(
    driver: FakeDriver, open_source: OpenSource, tmp_path: Path
) -> None:
    (tmp_path / "meminfo").write_text(MEMINFO)
    driver.say("gpu 0 name NVIDIA GB10")
    gpu = gpus(open_source(driver, tmp_path))[0]
    assert (gpu.unified_memory, gpu.memory_total_bytes) == (False, 141 * GIB)


def test_an_old_driver_answers_through_the_older_calls(
    old_driver: FakeDriver, open_source: OpenSource
) -> None:
    old_driver.say("gpu 0 reasons 8")
    gpu = gpus(open_source(old_driver))[0]
    assert (gpu.state, gpu.temperature_celsius, gpu.throttle_reasons) == ("ok", 55.0, ("hw_slowdown",))
    # The first memory call counts the reserved half gigabyte as used.
    assert (gpu.memory_used_bytes, gpu.memory_total_bytes) == (40.5 * GIB, 141 * GIB)


MIG = (
    "count 1",
    "gpu 0 mig 1",
    f"instance 0 0 1 0 {5 * 1024**3} {35 * 1024**3} 2g.35gb",
    f"instance 0 3 9 0 {1 * 1024**3} {18 * 1024**3} 1g.18gb",
    f"instance 0 6 11 1 {2 * 1024**3} {18 * 1024**3} 1g.18gb+me",
)


def test_mig_instances_are_devices_of_their_own_with_gaps_between(
    driver: FakeDriver, open_source: OpenSource
) -> None:
    driver.say(*MIG, "gpu 0 reasons 64")
    whole, *instances = gpus(open_source(driver))
    assert (whole.mig, whole.utilization_ratio, whole.power_watts) == (None, None, 350.0)
    assert (whole.memory_used_bytes, whole.memory_total_bytes) == (None, None)
    assert "instances: 3" in whole.note
    assert [(gpu.mig, gpu.uuid, gpu.memory_used_bytes, gpu.memory_total_bytes) for gpu in instances] == [
        ("2g.35gb", "MIG-GPU-00000000-1-0", 5 * GIB, 35 * GIB),
        ("1g.18gb", "MIG-GPU-00000000-9-0", 1 * GIB, 18 * GIB),
        ("1g.18gb+me", "MIG-GPU-00000000-11-1", 2 * GIB, 18 * GIB),
    ]
    for gpu in instances:
        assert (gpu.index, gpu.name, gpu.state) == (0, "NVIDIA H200", "ok")
        assert (gpu.utilization_ratio, gpu.power_watts, gpu.power_limit_watts) == (None, None, None)
        assert (gpu.temperature_celsius, gpu.sm_clock_mhz, gpu.throttle_reasons) == (
            55.0,
            1980.0,
            ("hw_thermal",),
        )
    assert "GPU instance 9, compute instance 0" in instances[1].note


def test_a_mig_profile_without_a_name_comes_from_its_slices(
    driver: FakeDriver, open_source: OpenSource
) -> None:
    # 10 GiB of 80 GiB are one eighth; the profile of an eighth of an 80 GB board is 1g.10gb.
    driver.say("count 1", "gpu 0 mig 1", f"gpu 0 total {80 * 1024**3}", "fail 0 name 3")
    driver.say(f"instance 0 0 1 0 0 {10 * 1024**3} 1g.x")
    assert gpus(open_source(driver))[1].mig == "1g.10gb"


def test_mig_on_without_instances_leaves_the_memory_with_the_gpu(
    driver: FakeDriver, open_source: OpenSource
) -> None:
    driver.say("count 1", "gpu 0 mig 1")
    (whole,) = gpus(open_source(driver))
    assert (whole.utilization_ratio, whole.memory_total_bytes) == (None, 141 * GIB)


def test_instances_come_and_go_between_reads(driver: FakeDriver, open_source: OpenSource) -> None:
    source = open_source(driver)
    driver.say("count 1")
    assert [gpu.mig for gpu in gpus(source)] == [None]
    driver.say_instead(*MIG)
    assert [gpu.mig for gpu in gpus(source, 1.0)] == [None, "2g.35gb", "1g.18gb", "1g.18gb+me"]
    driver.say_instead(*MIG[:3])
    assert [gpu.mig for gpu in gpus(source, 2.0)] == [None, "2g.35gb"]


def wait_for_xid(source: NvmlSource, index: int, xid: int) -> tuple[GpuDevice, ...]:
    deadline = time.monotonic() + 20.0
    while True:
        found = gpus(source)
        if found[index].last_xid == xid or time.monotonic() > deadline:
            return found


def test_xid_events_reach_their_gpu_and_only_those_after_registration(
    driver: FakeDriver, open_source: OpenSource
) -> None:
    driver.say(f"xid 1 0 31 {WHOLE_GPU}")
    source = open_source(driver)
    assert [gpu.last_xid for gpu in gpus(source)] == [None, None]
    driver.say(f"xid 2 1 79 {WHOLE_GPU}", "gpu 1 lost 1")
    found = wait_for_xid(source, 1, 79)
    assert [(gpu.state, gpu.last_xid) for gpu in found] == [("ok", None), ("lost", 79)]
    driver.say(f"xid 3 0 94 {WHOLE_GPU}", f"xid 4 0 63 {WHOLE_GPU}")
    assert [gpu.last_xid for gpu in wait_for_xid(source, 0, 63)] == [63, 79]
    source.close()
    assert (driver.open_event_sets, driver.open_sessions) == (0, 0)


def test_an_xid_of_one_mig_instance_is_not_its_neighbours(
    driver: FakeDriver, open_source: OpenSource
) -> None:
    driver.say(*MIG)
    source = open_source(driver)
    gpus(source)
    driver.say("xid 1 0 43 9")
    assert [gpu.last_xid for gpu in wait_for_xid(source, 2, 43)] == [43, None, 43, None]
    driver.say(f"xid 2 0 79 {WHOLE_GPU}")
    assert [gpu.last_xid for gpu in wait_for_xid(source, 3, 79)] == [79, 79, 79, 79]


def test_without_event_support_there_is_no_xid_and_no_complaint(
    driver: FakeDriver, open_source: OpenSource
) -> None:
    driver.say("fail -1 events 3")
    source = open_source(driver)
    report = only(source.read(0.0))
    assert (report.problem, [gpu.last_xid for gpu in report.gpus]) == ("", [None, None])
    source.close()
    assert (driver.open_event_sets, driver.open_sessions) == (0, 0)


def test_after_a_driver_reload_the_gpus_are_found_again_by_uuid(
    driver: FakeDriver, open_source: OpenSource
) -> None:
    source = open_source(driver)
    gpus(source)
    driver.say(f"xid 1 0 13 {WHOLE_GPU}")
    wait_for_xid(source, 0, 13)
    # The driver comes back with its two GPUs the other way round.
    driver.say_instead("generation 1", "gpu 0 uuid GPU-00000001", "gpu 1 uuid GPU-00000000")
    over = only(source.read(RETRY_SECONDS))
    assert [(gpu.uuid, gpu.state) for gpu in over.gpus] == [
        ("GPU-00000000", "error"),
        ("GPU-00000001", "error"),
    ]
    assert over.problem
    back = only(source.read(2 * RETRY_SECONDS))
    assert (back.problem, [gpu.state for gpu in back.gpus]) == ("", ["ok", "ok"])
    assert [(gpu.index, gpu.uuid, gpu.last_xid) for gpu in back.gpus] == [
        (0, "GPU-00000001", None),
        (1, "GPU-00000000", 13),
    ]
    driver.say(f"xid 9 1 48 {WHOLE_GPU}")
    assert [gpu.last_xid for gpu in wait_for_xid(source, 1, 48)] == [None, 48]


def test_a_gpu_that_is_gone_after_a_reload_keeps_a_row(driver: FakeDriver, open_source: OpenSource) -> None:
    source = open_source(driver)
    gpus(source)
    # GPU 0 died: the driver counts one, and the other one has moved to its index.
    driver.say_instead("generation 1", "count 1", "gpu 0 uuid GPU-00000001")
    gpus(source, 1.0)
    found = gpus(source, RETRY_SECONDS + 1.0)
    assert sorted((gpu.uuid, gpu.index, gpu.state) for gpu in found) == [
        ("GPU-00000000", 0, "lost"),
        ("GPU-00000001", 0, "ok"),
    ]
    driver.say_instead("generation 2", "count 2")
    gpus(source, 3 * RETRY_SECONDS)
    found = gpus(source, 5 * RETRY_SECONDS)
    assert [(gpu.uuid, gpu.index, gpu.state) for gpu in found] == [
        ("GPU-00000000", 0, "ok"),
        ("GPU-00000001", 1, "ok"),
    ]


def test_a_gpu_added_while_we_watch_appears(driver: FakeDriver, open_source: OpenSource) -> None:
    source = open_source(driver)
    assert len(gpus(source)) == 2
    driver.say("count 3")
    gpus(source, 1.0)
    assert [gpu.index for gpu in gpus(source, RETRY_SECONDS + 1.0)] == [0, 1, 2]


def test_closing_releases_the_library_and_says_so(driver: FakeDriver, open_source: OpenSource) -> None:
    source = open_source(driver)
    gpus(source)
    assert (driver.open_sessions, driver.open_event_sets) == (1, 1)
    source.close()
    assert (driver.open_sessions, driver.open_event_sets) == (0, 0)
    assert only(source.read(1.0)).gpus == ()
    source.close()


def test_names_from_the_library_are_made_safe(driver: FakeDriver, open_source: OpenSource) -> None:
    driver.say("gpu 0 name NVIDIA \x1b[31mred")
    assert "\x1b" not in gpus(open_source(driver))[0].name


def test_the_join_is_asked_only_now_and_then(driver: FakeDriver, tmp_path: Path) -> None:
    asked: list[object] = []

    class Join(ProcessJoin):
        def __init__(self) -> None:
            self.possible = True

        def replicas(self, pids_of: object) -> dict[str, tuple[str, ...]]:
            asked.append(pids_of)
            return {"0/GPU-00000000": ("http://localhost:8000",), "1/GPU-00000001": ()}

    driver.say("pid 0 compute 77", "pid 0 graphics 5", "pid 0 mps 77", "fail 1 compute 3")
    source = NvmlSource(driver.load, tmp_path, lambda targets, proc: Join())
    source.open(())
    assert [gpu.replicas for gpu in gpus(source)] == [("http://localhost:8000",), ()]
    gpus(source, JOIN_SECONDS - 1)
    assert asked == [{"0/GPU-00000000": [5, 77], "1/GPU-00000001": None}]
    gpus(source, JOIN_SECONDS)
    assert len(asked) == 2
    source.close()
