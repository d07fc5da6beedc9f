"""What exporters of GPUs say: one table for each, from its series to the fields of a `GpuDevice`.

Read in upstream's sources and documents as of 2026; the names are facts, no page of ours made them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType

from enginetop.fleet.frozen import frozen

_MIB = 1024.0**2
_PERCENT = 0.01
_HOTTEST_CELSIUS = 200.0
_MOST_WATTS = 20_000.0
_MOST_MEGAHERTZ = 20_000.0


@frozen
class Figure:
    """Series that tell one field of a device. Several figures of a field: the first that has a number counts.

    `names` are added: all of them have to be there, those of `may_add` need not. `scale` turns their unit
    into ours; a result above `most` is a marker for "not known", as is a negative one. `where`: of a device's
    samples the ones whose label has the first of these words count, else the second, and so on; of several
    alike the largest.
    """

    field: str
    names: tuple[str, ...]
    scale: float = 1.0
    most: float = math.inf
    may_add: tuple[str, ...] = ()
    where: tuple[str, tuple[str, ...]] | None = None


@frozen
class Fault:
    """A series that says of a device that it is broken: at `value`, where its label has one of the words."""

    name: str
    value: float
    note: str
    where: tuple[str, tuple[str, ...]] | None = None


@frozen
class DeviceLabels:
    """Which labels name a device and whom it serves; of several names the first that is there counts.

    `part` tells the parts of one GPU apart (MIG, compute partitions) and `profile` is their size; a profile
    in `whole_profiles` is no part.
    """

    uuid: tuple[str, ...]
    index: tuple[str, ...] = ()
    name: tuple[str, ...] = ()
    host: tuple[str, ...] = ()
    pod: tuple[str, ...] = ()
    namespace: tuple[str, ...] = ()
    container: tuple[str, ...] = ()
    part: tuple[str, ...] = ()
    profile: tuple[str, ...] = ()
    whole_profiles: frozenset[str] = frozenset()


@frozen
class GpuExporter:
    """One exporter. `prefixes` begin its names; `any_prefix`: another one may have been put before them.

    `sentinels` are numbers (in the series' own unit, from each to the next) that mean "not known". What has
    none of the series `telling` is no GPU, where names are shared with other hardware; empty: all are.
    """

    title: str
    source: str
    page: str
    prefixes: tuple[str, ...]
    labels: DeviceLabels
    figures: tuple[Figure, ...]
    faults: tuple[Fault, ...] = ()
    sentinels: tuple[tuple[float, float], ...] = ()
    any_prefix: bool = False
    telling: tuple[str, ...] = ()
    remarks: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """What a reader of the table has to know of a field."""

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that is read, once."""
        told = (name for one in self.figures for name in (*one.names, *one.may_add))
        return tuple(dict.fromkeys((*told, *(fault.name for fault in self.faults))))


DCGM = GpuExporter(
    title="dcgm-exporter",
    source="dcgm",
    page=":9400/metrics",
    prefixes=("DCGM_FI_",),
    labels=DeviceLabels(
        uuid=("UUID", "uuid"),
        index=("gpu",),
        name=("modelName",),
        host=("hostname", "Hostname"),
        pod=("pod", "pod_name"),
        namespace=("namespace", "pod_namespace"),
        container=("container", "container_name"),
        part=("GPU_I_ID",),
        profile=("GPU_I_PROFILE",),
    ),
    figures=(
        Figure("utilization_ratio", ("DCGM_FI_DEV_GPU_UTIL",), _PERCENT, most=1.0),
        Figure("utilization_ratio", ("DCGM_FI_PROF_GR_ENGINE_ACTIVE",), most=1.0),
        Figure("memory_used_bytes", ("DCGM_FI_DEV_FB_USED",), _MIB),
        Figure("memory_total_bytes", ("DCGM_FI_DEV_FB_TOTAL",), _MIB),
        Figure(
            "memory_total_bytes",
            ("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"),
            _MIB,
            may_add=("DCGM_FI_DEV_FB_RESERVED",),
        ),
        Figure("power_watts", ("DCGM_FI_DEV_POWER_USAGE",), most=_MOST_WATTS),
        Figure("power_limit_watts", ("DCGM_FI_DEV_ENFORCED_POWER_LIMIT",), most=_MOST_WATTS),
        Figure("power_limit_watts", ("DCGM_FI_DEV_POWER_MGMT_LIMIT",), most=_MOST_WATTS),
        Figure("temperature_celsius", ("DCGM_FI_DEV_GPU_TEMP",), most=_HOTTEST_CELSIUS),
        Figure("sm_clock_mhz", ("DCGM_FI_DEV_SM_CLOCK",), most=_MOST_MEGAHERTZ),
        Figure("throttle_reasons", ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS",)),
        Figure("throttle_reasons", ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS",)),
        Figure("last_xid", ("DCGM_FI_DEV_XID_ERRORS",), most=1e6),
    ),
    # DCGM_INT32_BLANK and its kin (not found, not supported, not permissioned), FP64_BLANK, INT64_BLANK
    sentinels=((0x7FFF_FFF0, 0x7FFF_FFFF), (2.0**47, 2.0**47 + 15), (2.0**63 - 1024, 2.0**63)),
    remarks=MappingProxyType(
        {
            "utilization_ratio": "`GPU_UTIL` is missing under MIG",
            "last_xid": "the last Xid, which stays",
            "power_watts": "with MIG the whole GPU's, told beside each instance; counted once",
        }
    ),
)

AMD = GpuExporter(
    title="AMD device-metrics-exporter",
    source="amd",
    page=":5000/metrics",
    prefixes=("gpu_",),
    any_prefix=True,
    labels=DeviceLabels(
        uuid=("gpu_uuid", "serial_number"),
        index=("gpu_id",),
        name=("card_model", "card_series"),
        host=("hostname",),
        pod=("pod",),
        namespace=("namespace",),
        container=("container",),
        part=("gpu_partition_id",),
        profile=("gpu_compute_partition_type",),
        whole_profiles=frozenset({"", "spx", "none"}),
    ),
    figures=(
        Figure("utilization_ratio", ("gpu_gfx_activity",), _PERCENT, most=1.0),
        Figure("memory_used_bytes", ("gpu_used_vram",), _MIB, most=2.0**50),
        Figure("memory_total_bytes", ("gpu_total_vram",), _MIB, most=2.0**50),
        Figure("power_watts", ("gpu_package_power",), most=_MOST_WATTS),
        Figure("power_watts", ("gpu_average_package_power",), most=_MOST_WATTS),
        Figure("power_watts", ("gpu_power_usage",), most=_MOST_WATTS),
        Figure("temperature_celsius", ("gpu_junction_temperature",), most=_HOTTEST_CELSIUS),
        Figure("temperature_celsius", ("gpu_edge_temperature",), most=_HOTTEST_CELSIUS),
        Figure(
            "sm_clock_mhz",
            ("gpu_clock",),
            most=_MOST_MEGAHERTZ,
            where=("clock_type", ("GPU_CLOCK_TYPE_SYSTEM",)),
        ),
    ),
    faults=(Fault("gpu_health", 0.0, "its exporter calls it unhealthy"),),
    # 16, 32 and 64 bits of ones; a used memory of 65535 MiB is a number like any other
    sentinels=((2.0**32 - 1, 2.0**32 - 1), (2.0**64 - 4096, 2.0**64)),
    remarks=MappingProxyType(
        {
            "sm_clock_mhz": "the fastest of the dies",
            "memory_used_bytes": "its MB are MiB",
        }
    ),
)

INTEL = GpuExporter(
    title="Intel XPU Manager",
    source="intel",
    page=":9273/metrics",
    prefixes=("hw_",),
    telling=("hw_gpu_utilization_ratio", "hw_memory_usage_bytes", "hw_memory_size_bytes"),
    labels=DeviceLabels(
        uuid=("hw_id", "pci_bdf"),
        name=("hw_model", "com_intel_device_name"),
        host=("host_name", "node"),
        pod=("pod",),
        namespace=("namespace",),
        container=("container",),
    ),
    figures=(
        Figure(
            "utilization_ratio",
            ("hw_gpu_utilization_ratio",),
            most=1.0,
            where=("hw_gpu_task", ("compute-all", "all", "")),
        ),
        Figure("memory_used_bytes", ("hw_memory_usage_bytes",), where=("hw_memory_location", ("device", ""))),
        Figure("memory_total_bytes", ("hw_memory_size_bytes",), where=("hw_memory_location", ("device", ""))),
        Figure(
            "power_watts",
            ("hw_power_watts",),
            most=_MOST_WATTS,
            where=("hw_sensor_location", ("card", "package", "gpu", "")),
        ),
        Figure(
            "temperature_celsius",
            ("hw_temperature_celsius",),
            most=_HOTTEST_CELSIUS,
            where=("hw_sensor_location", ("gpu", "package", "card", "")),
        ),
        Figure(
            "sm_clock_mhz",
            ("hw_frequency_hertz",),
            1e-6,
            most=_MOST_MEGAHERTZ,
            where=("hw_frequency_domain", ("gpu", "")),
        ),
    ),
    faults=(
        Fault("hw_status", 1.0, "its exporter calls it failed", where=("hw_state", ("failed",))),
        Fault("hw_status", 1.0, "it needs a reset", where=("hw_state", ("reset_needed",))),
    ),
    remarks=MappingProxyType({"utilization_ratio": "of its compute engines where they are told apart"}),
)

TRITON = GpuExporter(
    title="Triton",
    source="triton",
    page=":8002/metrics",
    prefixes=("nv_gpu_",),
    labels=DeviceLabels(uuid=("gpu_uuid",)),
    figures=(
        Figure("utilization_ratio", ("nv_gpu_utilization",), most=1.0),
        Figure("memory_used_bytes", ("nv_gpu_memory_used_bytes",)),
        Figure("memory_total_bytes", ("nv_gpu_memory_total_bytes",)),
        Figure("power_watts", ("nv_gpu_power_usage",), most=_MOST_WATTS),
        Figure("power_limit_watts", ("nv_gpu_power_limit",), most=_MOST_WATTS),
    ),
)

EXPORTERS: tuple[GpuExporter, ...] = (DCGM, AMD, INTEL, TRITON)
