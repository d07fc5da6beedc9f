"""Which GPUs belong to which replica, and whose power is whose."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from enginetop.fleet.model import LOCAL_HOST, Quality, Target, same_host
from enginetop.fleet.signals import SIGNALS
from enginetop.fleet.snapshot import GpuDevice, GpuReport, Scalar
from enginetop.fleet.spacing import Spacing

_WATTS = SIGNALS["power_watts"].unit
_NO_POWER = Scalar(None, _WATTS, Quality.UNKNOWN, "no GPU figures")


@dataclass(frozen=True, slots=True)
class Placement:
    """One GPU, where it is and who uses it. `users` are URLs of replicas; `key` tells GPUs apart."""

    key: tuple[str, str]
    device: GpuDevice
    users: frozenset[str]
    old: bool


@dataclass(frozen=True, slots=True)
class GpuShare:
    """The GPUs of one replica, and the power that it alone draws.

    `whole` is the number of GPUs that it alone uses; None: not known, as where GPUs are shared or split.
    """

    placements: tuple[Placement, ...] = ()
    gpus: tuple[GpuDevice, ...] = ()
    power: Scalar = _NO_POWER
    whole: int | None = None


NO_GPUS = GpuShare()


class GpuBoard:
    """The newest GPU report of each host, joined with the replicas.

    A device whose process table told names its replicas; any other belongs to every replica on the report's
    host. Power of a device with several engine replicas cannot be split, so it is nobody's.
    """

    def __init__(self, fixed_spacing_seconds: float | None) -> None:
        self._fixed_spacing_seconds = fixed_spacing_seconds
        self._reports: dict[str, GpuReport] = {}
        self._spacings: dict[str, Spacing] = {}
        self._joined_for: object = None
        self._shares: Mapping[str, GpuShare] = {}
        self._revision = 0

    def observe(self, report: GpuReport) -> None:
        """Take the newest report of one host; it replaces the former one."""
        self._take(host_key(report.host), report)

    def observe_own(self, url: str, at: float, devices: Iterable[GpuDevice]) -> None:
        """Take the GPUs that a replica's own page tells of.

        A host's report knows more of a device than such a page: it stands where both tell of one.
        """
        own = tuple(replace(device, replicas=(url,)) for device in devices)
        self._take(url, GpuReport(host_of(url), at, own))

    def forget(self, url: str) -> None:
        """Nobody is at this URL any more: what its page told of GPUs goes with it."""
        if self._reports.pop(url, None) is not None:
            del self._spacings[url]
            self._revision += 1

    def _take(self, source: str, report: GpuReport) -> None:
        self._reports[source] = report
        spacing = self._spacings.setdefault(source, Spacing(self._fixed_spacing_seconds))
        spacing.observe(report.at)
        self._revision += 1

    def shares(
        self, targets: Sequence[Target], engines: frozenset[str], now: float
    ) -> Mapping[str, GpuShare]:
        """The share of each target by URL; a target without GPUs is missing.

        `engines` are the URLs that can use a GPU: a router beside an engine takes no part of its power.
        """
        old = frozenset(host for host in self._reports if now > self._fresh_until(host))
        joined_for = (self._revision, tuple(target.url for target in targets), engines, old)
        if joined_for != self._joined_for:
            self._joined_for = joined_for
            self._shares = self._join(targets, engines, old)
        return self._shares

    def problem(self, now: float) -> str:
        """What is wrong with the hosts' GPU figures, in one line; empty when nothing is."""
        for source, report in self._reports.items():
            if report.problem:
                return report.problem
            # A replica that tells of its own GPUs no more has a state of its own for that.
            if source == host_key(report.host) and now > self._fresh_until(source):
                return f"no new GPU figures from {report.host}"
        return ""

    def _fresh_until(self, host: str) -> float:
        return self._reports[host].at + self._spacings[host].fresh_seconds

    def _join(
        self, targets: Sequence[Target], engines: frozenset[str], old: frozenset[str]
    ) -> Mapping[str, GpuShare]:
        on_host: dict[str, list[str]] = {}
        for target in targets:
            if host := host_of(target.url):
                on_host.setdefault(host_key(host), []).append(target.url)
        placed: dict[str, list[Placement]] = {}
        sharers = self._sharers()
        for source, report in self._reports.items():
            host = host_key(report.host)
            neighbours = on_host.get(host, [])
            for device in report.gpus:
                urls = neighbours if device.replicas is None else device.replicas
                users = frozenset(urls)
                key = (host, device.uuid or f"{device.index}/{device.mig}")
                if source != host:
                    if key not in sharers:
                        continue
                    users = sharers[key]
                placement = Placement(
                    key,
                    replace(device, note=device.note or "old figures") if source in old else device,
                    users & engines,
                    source in old or bool(report.problem),
                )
                for url in urls:
                    placed.setdefault(url, []).append(placement)
        return {
            url: GpuShare(
                tuple(placements),
                tuple(placement.device for placement in placements),
                _power_of_one(url, placements),
                whole_gpus(placements) if all(p.users == {url} for p in placements) else None,
            )
            for url, placements in placed.items()
        }

    def _sharers(self) -> Mapping[tuple[str, str], frozenset[str]]:
        """The replicas whose own pages tell of a device that no host has reported."""
        reported = {
            (host, device.uuid)
            for host, report in self._reports.items()
            if host == host_key(report.host)
            for device in report.gpus
        }
        found: dict[tuple[str, str], set[str]] = {}
        for source, report in self._reports.items():
            for device in report.gpus:
                key = (host_key(report.host), device.uuid)
                if source != key[0] and key not in reported:
                    found.setdefault(key, set()).add(source)
        return {key: frozenset(urls) for key, urls in found.items()}


def whole_gpus(placements: Iterable[Placement]) -> int | None:
    """How many GPUs these are, each one once; None where parts of one (MIG) are among them."""
    distinct = {placement.key: placement for placement in placements}
    return None if any(one.device.mig is not None for one in distinct.values()) else len(distinct)


def total_power(shares: Iterable[GpuShare]) -> Scalar:
    """Watts of all GPUs of these shares, each GPU once."""
    distinct = {placement.key: placement for share in shares for placement in share.placements}
    return _sum_power(distinct.values())


def _power_of_one(url: str, placements: Sequence[Placement]) -> Scalar:
    if any(url not in placement.users for placement in placements):
        return Scalar(None, _WATTS, Quality.UNKNOWN, "a router's own use of a GPU is not known")
    most = max(len(placement.users) for placement in placements)
    if most > 1:
        return Scalar(None, _WATTS, Quality.UNKNOWN, f"{most} replicas share the GPUs")
    return _sum_power(placements)


def _sum_power(placements: Collection[Placement]) -> Scalar:
    """Watts of these GPUs. The power of MIG instances stands with the GPU that they are part of."""
    if not placements:
        return _NO_POWER
    placements = [placement for placement in placements if placement.device.mig is None]
    if not placements:
        return Scalar(None, _WATTS, Quality.UNKNOWN, "the power of MIG instances alone is not told")
    watts = 0.0
    for placement in placements:
        if placement.device.power_watts is None:
            note = f"GPU {placement.device.index} does not report its power"
            return Scalar(None, _WATTS, Quality.UNKNOWN, note)
        watts += placement.device.power_watts
    sources = ", ".join(sorted({placement.device.source for placement in placements}))
    gpus = "1 GPU" if len(placements) == 1 else f"{len(placements)} GPUs"
    quality = Quality.STALE if any(placement.old for placement in placements) else Quality.OK
    return Scalar(watts, _WATTS, quality, f"{gpus}, {sources}")


def host_of(url: str) -> str:
    """Host of a URL in lower case, empty when there is none to be read (a recording may hold anything)."""
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""


def host_key(host: str) -> str:
    """One word for all names of one machine, as far as names can tell (`model.same_host`)."""
    return LOCAL_HOST if same_host(host, LOCAL_HOST) else host.lower()
