"""What GPU exporters say, by their tables: units, markers for "not known", parts, pods. Values by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.exposition import LayoutCache, PageParser
from collectors.gpu.exporter_page import HostGpus, hosts_of
from collectors.gpu.exporter_tables import DCGM, EXPORTERS
from collectors.sanitise import clean_text
from enginetop.fleet.gpu_device import GpuDevice
from tests.support.engine_pages import fixture

UUID = "GPU-aaaaaaaa-0000-0000-0000-000000000000"


def read(text: str | bytes, own_labels: Mapping[str, str] | None = None) -> Sequence[HostGpus]:
    page = PageParser(LayoutCache()).parse(text.encode() if isinstance(text, str) else text)
    return hosts_of(zip(page.layout.names, page.layout.labels, page.values, strict=True), own_labels)


def only(text: str, own_labels: Mapping[str, str] | None = None) -> GpuDevice:
    (host,) = read(text, own_labels)
    (device,) = host.gpus
    return device


def dcgm(series: str, **labels: str) -> str:
    """`NAME VALUE` a line, as dcgm-exporter writes them for one GPU."""
    own = {"gpu": "3", "UUID": UUID, "modelName": "NVIDIA H200", "hostname": "node-a", **labels}
    inner = ",".join(f'{name}="{value}"' for name, value in own.items())
    return "".join(f"{n}{{{inner}}} {v}\n" for n, v in (line.split() for line in series.strip().splitlines()))


def test_dcgm_of_one_gpu() -> None:
    device = only(
        dcgm(
            """
            DCGM_FI_DEV_GPU_UTIL 97
            DCGM_FI_PROF_GR_ENGINE_ACTIVE 0.5
            DCGM_FI_DEV_FB_USED 1000
            DCGM_FI_DEV_FB_FREE 500
            DCGM_FI_DEV_FB_RESERVED 36
            DCGM_FI_DEV_POWER_USAGE 612.5
            DCGM_FI_DEV_POWER_MGMT_LIMIT 700
            DCGM_FI_DEV_GPU_TEMP 71
            DCGM_FI_DEV_SM_CLOCK 1830
            DCGM_FI_DEV_CLOCKS_EVENT_REASONS 68
            DCGM_FI_DEV_XID_ERRORS 79
            """,
            pod="vllm-0",
            namespace="serve",
            container="vllm",
        )
    )
    assert device == GpuDevice(
        3,
        UUID,
        "NVIDIA H200",
        utilization_ratio=0.97,
        memory_used_bytes=1000 * 1048576.0,
        memory_total_bytes=1536 * 1048576.0,  # no series of the total: used + free + reserved
        power_watts=612.5,
        power_limit_watts=700.0,
        temperature_celsius=71.0,
        sm_clock_mhz=1830.0,
        throttle_reasons=("sw_power_cap", "hw_thermal"),  # 4 + 64
        last_xid=79,
        source="dcgm",
        pod="serve/vllm-0",
        container="vllm",
    )


@pytest.mark.parametrize(
    "blank",
    [
        "2147483632",  # DCGM_INT32_BLANK
        "2147483634",  # not supported
        "140737488355328",  # DCGM_FP64_BLANK
        "140737488355330",
        "9223372036854775792",  # DCGM_INT64_BLANK
        "9223372036854775794",
        "NaN",
        "+Inf",
        "-1",
    ],
)
def test_a_marker_for_not_known_is_missing_in_every_field(blank: str) -> None:
    names = dict.fromkeys((*DCGM.names, "DCGM_FI_DEV_GPU_UTIL"))
    device = only(dcgm("".join(f"{name} {blank}\n" for name in names)))
    assert device == GpuDevice(3, UUID, "NVIDIA H200", source="dcgm")


def test_no_memory_total_without_the_free_part() -> None:
    device = only(dcgm("DCGM_FI_DEV_FB_USED 1000"))
    assert (device.memory_used_bytes, device.memory_total_bytes) == (1048576000.0, None)
    assert only(dcgm("DCGM_FI_DEV_FB_USED 1\nDCGM_FI_DEV_FB_FREE 2")).memory_total_bytes == 3 * 1048576.0


def test_zero_is_zero_and_no_xid_is_none() -> None:
    device = only(dcgm("DCGM_FI_DEV_GPU_UTIL 0\nDCGM_FI_DEV_XID_ERRORS 0\nDCGM_FI_DEV_POWER_USAGE 0"))
    assert (device.utilization_ratio, device.power_watts, device.last_xid) == (0.0, 0.0, None)


def test_mig_instances_are_rows_and_power_stands_with_their_gpu_once() -> None:
    parts = [
        dcgm(
            f"DCGM_FI_PROF_GR_ENGINE_ACTIVE {busy}\nDCGM_FI_DEV_FB_USED {used}\nDCGM_FI_DEV_FB_FREE 100\n"
            "DCGM_FI_DEV_POWER_USAGE 300\nDCGM_FI_DEV_GPU_TEMP 60",
            GPU_I_ID=part,
            GPU_I_PROFILE="1g.18gb",
            pod=f"vllm-{part}",
            namespace="serve",
        )
        for part, busy, used in (("7", 0.25, 10), ("11", 0.75, 20))
    ]
    (host,) = read("".join(parts))
    whole, first, second = host.gpus
    assert (whole.uuid, whole.mig, whole.power_watts, whole.temperature_celsius) == (UUID, None, 300.0, 60.0)
    assert (whole.memory_used_bytes, whole.utilization_ratio, whole.pod) == (None, None, "")
    assert [(one.uuid, one.mig, one.pod) for one in (first, second)] == [
        (f"{UUID}/7", "1g.18gb", "serve/vllm-7"),
        (f"{UUID}/11", "1g.18gb", "serve/vllm-11"),
    ]
    assert [one.utilization_ratio for one in (first, second)] == [0.25, 0.75]
    assert [one.memory_total_bytes for one in (first, second)] == [110 * 1048576.0, 120 * 1048576.0]
    assert [one.power_watts for one in (first, second)] == [None, None]


def test_the_capture() -> None:
    (host,) = read(fixture("dcgm/4.5/dcgm-exporter-4.5-reconstructed.prom"))
    assert host.host == "node-a"
    first, part, second = host.gpus
    assert (first.index, first.utilization_ratio, first.pod) == (0, 0.97, "serve/vllm-0")
    assert first.memory_used_bytes == 128511 * 1048576.0
    assert (part.mig, part.utilization_ratio, part.pod) == ("1g.18gb", 0.83, "serve/vllm-mig-0")
    assert (second.index, second.utilization_ratio, second.last_xid) == (1, 0.0, 79)


@pytest.mark.parametrize("prefix", ["", "amd_", "lab_amd_"])
def test_amd_whatever_is_put_before_its_names(prefix: str) -> None:
    labels = (
        'gpu_id="2",gpu_uuid="88ff-74a5",serial_number="S1",card_model="MI300X",hostname="node-b",'
        'gpu_partition_id="0",gpu_compute_partition_type="spx",pod="sglang-1",namespace="serve"'
    )
    device = only(
        f"""
{prefix}gpu_gfx_activity{{{labels}}} 88
{prefix}gpu_used_vram{{{labels}}} 183265
{prefix}gpu_total_vram{{{labels}}} 196592
{prefix}gpu_package_power{{{labels}}} 748
{prefix}gpu_power_usage{{{labels}}} 65535
{prefix}gpu_junction_temperature{{{labels}}} 76
{prefix}gpu_clock{{{labels},clock_type="GPU_CLOCK_TYPE_SYSTEM",clock_index="0"}} 1533
{prefix}gpu_clock{{{labels},clock_type="GPU_CLOCK_TYPE_SYSTEM",clock_index="1"}} 2100
{prefix}gpu_clock{{{labels},clock_type="GPU_CLOCK_TYPE_MEMORY",clock_index="8"}} 9000
{prefix}gpu_health{{{labels}}} 1
"""
    )
    assert device == GpuDevice(
        2,
        "88ff-74a5",
        "MI300X",
        utilization_ratio=0.88,
        memory_used_bytes=183265 * 1048576.0,
        memory_total_bytes=196592 * 1048576.0,
        power_watts=748.0,
        temperature_celsius=76.0,
        sm_clock_mhz=2100.0,
        source="amd",
        pod="serve/sglang-1",
    )


@pytest.mark.parametrize("ones", ["65535", "4294967295", "18446744073709551615"])
def test_amd_all_ones_are_not_known(ones: str) -> None:
    labels = 'gpu_id="0",gpu_uuid="u"'
    names = ("gpu_gfx_activity", "gpu_package_power", "gpu_junction_temperature", "gpu_power_usage")
    device = only("".join(f"{name}{{{labels}}} {ones}\n" for name in names))
    assert device == GpuDevice(0, "u", "u", source="amd")


def test_amd_partitions_and_an_unhealthy_one() -> None:
    labels = 'gpu_id="0",gpu_uuid="u",gpu_compute_partition_type="cpx",gpu_partition_id'
    (host,) = read(
        f'gpu_gfx_activity{{{labels}="0"}} 10\ngpu_gfx_activity{{{labels}="1"}} 20\n'
        f'gpu_package_power{{{labels}="0"}} 500\ngpu_health{{{labels}="1"}} 0\n'
    )
    assert [(one.uuid, one.mig, one.power_watts, one.state) for one in host.gpus] == [
        ("u", None, 500.0, "ok"),
        ("u/0", "cpx", None, "ok"),
        ("u/1", "cpx", None, "error"),
    ]
    assert host.gpus[2].note == "its exporter calls it unhealthy"


INTEL = """
hw_gpu_utilization_ratio{hw_id="g0",pci_bdf="0000:03:00.0",hw_gpu_task="all"} 0.125
hw_gpu_utilization_ratio{hw_id="g0",pci_bdf="0000:03:00.0",hw_gpu_task="compute-all"} 1
hw_gpu_utilization_ratio{hw_id="g0",pci_bdf="0000:03:00.0",hw_gpu_task="copy-all"} 0
hw_memory_usage_bytes{hw_id="g0",pci_bdf="0000:03:00.0",hw_memory_location="device",hw_name="m"} 8589934592
hw_memory_usage_bytes{hw_id="g0",pci_bdf="0000:03:00.0",hw_memory_location="system"} 1
hw_memory_size_bytes{hw_id="g0",pci_bdf="0000:03:00.0",hw_memory_location="device",hw_name="m"} 25669140480
hw_power_watts{hw_id="g0",hw_sensor_location="gpu",pci_bdf="0000:03:00.0"} 20
hw_power_watts{hw_id="g0",hw_sensor_location="card",pci_bdf="0000:03:00.0"} 31.5
hw_temperature_celsius{hw_id="g0",hw_sensor_location="gpu",pci_bdf="0000:03:00.0"} 55
hw_temperature_celsius{hw_id="g0",hw_sensor_location="memory",pci_bdf="0000:03:00.0"} 90
hw_frequency_hertz{hw_id="g0",aggregation="avg",hw_frequency_domain="gpu",pci_bdf="0000:03:00.0"} 960000000
hw_frequency_hertz{hw_id="g0",aggregation="avg",hw_frequency_domain="memory",pci_bdf="0000:03:00.0"} 1e9
hw_status{hw_id="g0",hw_type="gpu",hw_state="reset_needed",pci_bdf="0000:03:00.0"} 0
"""


def test_intel() -> None:
    assert only(INTEL) == GpuDevice(
        0,
        "g0",
        "g0",
        utilization_ratio=1.0,
        memory_used_bytes=8589934592.0,
        memory_total_bytes=25669140480.0,
        power_watts=31.5,
        temperature_celsius=55.0,
        sm_clock_mhz=960.0,
        source="intel",
    )
    assert only(INTEL[:-3] + " 1\n").note == "it needs a reset"


def test_other_hardware_under_the_same_names_is_no_gpu() -> None:
    assert read('hw_temperature_celsius{hw_id="cpu0"} 60\nhw_power_watts{hw_id="psu"} 300\n') == []


def test_triton_and_pages_without_gpus() -> None:
    device = only('nv_gpu_utilization{gpu_uuid="GPU-1"} 0.5\nnv_gpu_power_usage{gpu_uuid="GPU-1"} 99.5\n')
    assert (device.uuid, device.utilization_ratio, device.power_watts, device.source) == (
        "GPU-1",
        0.5,
        99.5,
        "triton",
    )
    assert read(fixture("vllm/0.32.0/vllm-0.32.0-loaded.prom")) == []
    assert read("") == []


def test_labels_that_a_scraper_added_are_the_exporters_own_pod() -> None:
    """Without honor_labels the pod is the exporter's, and whom it serves stands in `exported_pod`."""
    own = {"pod": "dcgm-x", "namespace": "gpu-operator", "job": "dcgm", "instance": "10.0.0.1:9400"}
    series = "DCGM_FI_DEV_GPU_UTIL 5"
    kept = only(dcgm(series, exported_pod="vllm-0", exported_namespace="serve", **own), own)
    assert kept.pod == "serve/vllm-0"
    assert only(dcgm(series, **own), own).pod == ""
    honoured = only(dcgm(series, **{**own, "pod": "vllm-0", "namespace": "serve"}), own)
    assert honoured.pod == "serve/vllm-0"


def test_the_mark_changes_with_any_number_of_the_exporter_and_with_nothing_else() -> None:
    base = dcgm("DCGM_FI_DEV_GPU_UTIL 5\nDCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION 100")
    (first,), (again,) = read(base), read(base + "go_goroutines 7\n")
    assert first.mark == again.mark
    (moved,) = read(base.replace(" 100", " 101"))
    assert moved.mark != first.mark
    assert moved.gpus == first.gpus


NAMES = [name for exporter in EXPORTERS for name in exporter.names]
LABELS = ["gpu", "UUID", "gpu_uuid", "gpu_id", "hw_id", "hostname", "pod", "GPU_I_ID", "GPU_I_PROFILE", "x"]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(NAMES),
            st.dictionaries(st.sampled_from(LABELS), st.text(max_size=12), max_size=6),
            st.one_of(st.floats(), st.integers(-5, 2**64).map(float)),
        ),
        max_size=30,
    )
)
def test_whatever_an_exporter_says_the_devices_are_clean(
    samples: list[tuple[str, dict[str, str], float]],
) -> None:
    for host in hosts_of(samples):
        for device in host.gpus:
            for text in (host.host, device.uuid, device.name, device.pod, device.mig or "", device.note):
                assert text == clean_text(text, 300)
            for number in (device.utilization_ratio, device.power_watts, device.memory_total_bytes):
                assert number is None or (math.isfinite(number) and number >= 0)
            assert device.utilization_ratio is None or device.utilization_ratio <= 1
