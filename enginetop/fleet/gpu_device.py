"""GPUs as they are reported: by a host for all that run on it, or by an engine's page for itself."""

from __future__ import annotations

from enginetop.fleet.frozen import frozen


@frozen
class GpuDevice:
    """One GPU, or one MIG instance, at one instant. None is "not known" or "not supported", never zero.

    `replicas` holds the target URLs whose processes run on it, when the process table told; None: join by
    host. An exporter tells more of whom it serves: `pod` (`namespace/name`) and `container`. `joined_by` says
    how the replicas were found (`gpu_join.JoinedBy`). `changed_at` is when the figures of an exporter last
    changed (Unix seconds): they are as old as that, however often they are read; None: they were read just
    now. `old`: no figures have come for too long.
    """

    index: int
    uuid: str
    name: str
    mig: str | None = None
    utilization_ratio: float | None = None
    memory_used_bytes: float | None = None
    memory_total_bytes: float | None = None
    unified_memory: bool = False
    power_watts: float | None = None
    power_limit_watts: float | None = None
    temperature_celsius: float | None = None
    sm_clock_mhz: float | None = None
    throttle_reasons: tuple[str, ...] = ()
    last_xid: int | None = None
    state: str = "ok"
    source: str = "nvml"
    note: str = ""
    replicas: tuple[str, ...] | None = None
    pod: str = ""
    container: str = ""
    changed_at: float | None = None
    joined_by: str = ""
    old: bool = False


@frozen(eq=False)
class GpuReport:
    """All GPUs of one host at one instant. `problem` says why there are none, or why they are old.

    `exporter` is the URL of the exporter that told; empty: the host itself did. `host_names` are other names
    of the host.
    """

    host: str
    at: float
    gpus: tuple[GpuDevice, ...]
    problem: str = ""
    exporter: str = ""
    host_names: tuple[str, ...] = ()
