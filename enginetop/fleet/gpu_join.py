"""Whose a GPU is: the first of process, UUID, pod and host that tells. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from urllib.parse import urlsplit

from enginetop.fleet.gpu_device import GpuDevice, GpuReport
from enginetop.fleet.model import LOCAL_HOST, Target, is_address, same_host


class JoinedBy(StrEnum):
    """How a GPU found its replicas, the surest way first."""

    PROCESS = "process"
    PAGE = "page"
    """A replica's own page tells of it."""
    UUID = "uuid"
    POD = "pod"
    HOST = "host"


class Owners:
    """Finds the replicas of devices among `targets`.

    `told` are URLs by the UUID of a GPU that their own pages, or the processes on their host, name.
    """

    def __init__(self, targets: Sequence[Target], told: Mapping[str, Collection[str]]) -> None:
        self._told = told
        self._on_host: defaultdict[str, list[str]] = defaultdict(list)
        self._in_pod: defaultdict[str, list[Target]] = defaultdict(list)
        for target in targets:
            host = host_of(target.url)
            if host:
                for name in _names_of_host(host):
                    self._on_host[name].append(target.url)
            for pod in _pods_of(target, host):
                self._in_pod[_bare(pod)].append(replace(target, pod=pod))

    def of_report(self, report: GpuReport) -> Iterator[tuple[GpuDevice, Sequence[str]]]:
        """Each device with the URLs of its replicas; `joined_by` says how they were found.

        Where an exporter tells pods, a device without one is free. A GPU that is split belongs to whoever has
        one of its parts.
        """
        tells_pods = any(device.pod for device in report.gpus)
        joined = [self._joined(device, report, tells_pods) for device in report.gpus]
        parts: defaultdict[str, dict[str, JoinedBy | str]] = defaultdict(dict)
        for device, urls in joined:
            if device.mig is not None:
                parts[whole_uuid(device)].update(dict.fromkeys(urls, device.joined_by))
        for device, urls in joined:
            of_parts = parts.get(device.uuid) if device.mig is None and device.replicas is None else None
            if of_parts and not urls:
                yield replace(device, joined_by=next(iter(of_parts.values()))), tuple(of_parts)
            else:
                yield device, urls

    def _joined(
        self, device: GpuDevice, report: GpuReport, tells_pods: bool
    ) -> tuple[GpuDevice, Sequence[str]]:
        if device.replicas is not None:
            return replace(device, joined_by=device.joined_by or JoinedBy.PROCESS), device.replicas
        told = self._told.get(device.uuid) or self._told.get(whole_uuid(device)) if report.exporter else None
        if told:
            return replace(device, joined_by=JoinedBy.UUID), tuple(told)
        if tells_pods:
            return replace(device, joined_by=JoinedBy.POD), self._of_pod(device)
        return replace(device, joined_by=JoinedBy.HOST), self._of_host(report)

    def _of_pod(self, device: GpuDevice) -> Sequence[str]:
        if not device.pod:
            return ()
        inside = [one for one in self._in_pod.get(_bare(device.pod), ()) if _same_pod(one.pod, device.pod)]
        named = [one for one in inside if one.container and one.container == device.container]
        return tuple(dict.fromkeys(target.url for target in named or inside))

    def _of_host(self, report: GpuReport) -> Sequence[str]:
        names = [name.lower() for name in (report.host, *report.host_names) if name]
        keys = dict.fromkeys(key for name in names for key in (host_key(name), name.partition(".")[0]))
        return tuple(
            dict.fromkeys(
                url
                for key in keys
                for url in self._on_host.get(key, ())
                if any(_same_machine(host_of(url), name) for name in names)
            )
        )


def whole_uuid(device: GpuDevice) -> str:
    """The UUID of the GPU that a device is, or is a part of as exporters tell it."""
    return device.uuid.partition("/")[0]


def host_of(url: str) -> str:
    """Host of a URL in lower case, empty when there is none to be read (a recording may hold anything)."""
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""


def host_key(host: str) -> str:
    """One word for all names of one machine, as far as names can tell (`model.same_host`)."""
    return LOCAL_HOST if same_host(host, LOCAL_HOST) else host.lower()


def _same_machine(one: str, other: str) -> bool:
    """Whether two names may be one machine's: the same, or one is the other without its domain."""
    if same_host(one, other):
        return True
    if is_address(one) or is_address(other):
        return False
    short, long = sorted((one, other), key=len)
    return "." not in short and long.partition(".")[0] == short


def _names_of_host(host: str) -> Iterable[str]:
    short = host if is_address(host) else host.partition(".")[0]
    return dict.fromkeys((host_key(host), short))


def _pods_of(target: Target, host: str) -> Iterable[str]:
    """The pod that discovery names, else what may be a pod's name: the target's, or that in its DNS name."""
    if target.pod:
        return (target.pod,)
    labels = () if not host or is_address(host) else host.split(".")[:1]
    return dict.fromkeys(filter(None, (target.name, *labels)))


def _bare(pod: str) -> str:
    return pod.rpartition("/")[2]


def _same_pod(one: str, other: str) -> bool:
    """Whether two words name one pod; a namespace counts where both tell it."""
    return one == other or (("/" not in one or "/" not in other) and _bare(one) == _bare(other))
