"""Which GPUs belong to which replica, and whose power is whose."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from enginetop.fleet.frozen import frozen
from enginetop.fleet.gpu_join import JoinedBy, Owners, host_key, host_of, whole_uuid
from enginetop.fleet.model import Quality, Target
from enginetop.fleet.signals import SIGNALS
from enginetop.fleet.snapshot import GpuDevice, GpuReport, Scalar
from enginetop.fleet.spacing import Spacing

_WATTS = SIGNALS["power_watts"].unit
_NO_POWER = Scalar(None, _WATTS, Quality.UNKNOWN, "no GPU figures")


@frozen
class Placement:
    """One GPU, where it is and who uses it. `users` are URLs of replicas; `key` tells GPUs apart."""

    key: tuple[str, str]
    device: GpuDevice
    users: frozenset[str]
    old: bool


@frozen
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
    """The newest GPU report of each host and exporter, joined with the replicas (`gpu_join`).

    A device that several tell of counts once. Power of a device with several engine replicas cannot be split,
    so it is nobody's.
    """

    def __init__(self, fixed_spacing_seconds: float | None) -> None:
        self._fixed_spacing_seconds = fixed_spacing_seconds
        self._reports: dict[str, GpuReport] = {}
        self._spacings: dict[str, Spacing] = {}
        self._told_by: dict[str, set[str]] = {}
        self._joined_for: object = None
        self._shares: Mapping[str, GpuShare] = {}
        self._revision = 0
        self._known_owners: tuple[object, Owners] | None = None

    def observe(self, report: GpuReport) -> None:
        """Take the newest report of one host; it replaces the former one of the same source.

        All that one look at an exporter brought has one time: a host that is not in there is gone. One that
        tells of nothing and has no problem is gone altogether.
        """
        host = host_key(report.host)
        if not report.exporter:
            self._take(host, report)
            return
        source = f"{report.exporter} {host}"
        told = self._told_by.setdefault(report.exporter, set())
        for other in [one for one in told if one != source and self._reports[one].at < report.at]:
            told.discard(other)
            self.forget(other)
        told.add(source)
        self._take(source, report)
        if not report.gpus and not report.problem:
            for known in self._told_by.pop(report.exporter):
                self.forget(known)

    def observe_own(self, url: str, at: float, devices: Iterable[GpuDevice]) -> None:
        """Take the GPUs that a replica's own page tells of.

        A host's report knows more of a device than such a page: it stands where both tell of one.
        """
        own = tuple(replace(device, replicas=(url,), joined_by=JoinedBy.PAGE) for device in devices)
        self._take(url, GpuReport(host_of(url), at, own))

    def forget(self, source: str) -> None:
        """Nothing comes from there any more (a replica's URL, say): what it told goes with it."""
        if self._reports.pop(source, None) is not None:
            del self._spacings[source]
            self._revision += 1

    def _take(self, source: str, report: GpuReport) -> None:
        before = self._reports.get(source)
        self._reports[source] = report
        spacing = self._spacings.setdefault(source, Spacing(self._fixed_spacing_seconds))
        spacing.observe(report.at)
        if before is None or before.gpus or report.gpus:
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
        """What is wrong with GPU figures in one line, what was named (exporters) first; empty: nothing."""
        reports = sorted(self._reports.items(), key=lambda entry: not entry[1].exporter)
        found = [text for source, report in reports if (text := self._wrong(source, report, now))]
        more = f"; so {len(found) - 1} more" if len(found) > 1 else ""
        return f"{found[0]}{more}" if found else ""

    def _wrong(self, source: str, report: GpuReport, now: float) -> str:
        if report.problem:
            return report.problem
        # A replica that tells of its own GPUs no more has a state of its own for that.
        if not _is_page(source, report) and now > self._fresh_until(source):
            return f"no new GPU figures from {report.exporter or report.host}"
        return ""

    def _fresh_until(self, host: str) -> float:
        return self._reports[host].at + self._spacings[host].fresh_seconds

    def _join(
        self, targets: Sequence[Target], engines: frozenset[str], old: frozenset[str]
    ) -> Mapping[str, GpuShare]:
        owners = self._owners(targets)
        placed: dict[str, list[Placement]] = {}
        sharers = self._sharers()
        owner_of_uuid: dict[str, str] = {}
        for source, report in sorted(self._reports.items(), key=_precedence):
            host = host_key(report.host)
            for device, urls in owners.of_report(report):
                key = (host, device.uuid or f"{device.index}/{device.mig}")
                users = frozenset(urls)
                if _is_page(source, report):
                    if key not in sharers:
                        continue
                    users = sharers[key]
                elif report.exporter:
                    whole = whole_uuid(device)
                    if whole and owner_of_uuid.setdefault(whole, source) != source:
                        continue
                    key = ("", device.uuid) if device.uuid else key
                elif device.uuid:
                    owner_of_uuid.setdefault(device.uuid, source)
                if source in old:
                    device = replace(device, old=True, note=device.note or "old figures")
                placement = Placement(key, device, users & engines, device.old or bool(report.problem))
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

    def _owners(self, targets: Sequence[Target]) -> Owners:
        """Who may own a device; worked out anew when targets are others, or pages tell of other devices."""
        made_of = (tuple(targets), self._told())
        if self._known_owners is None or self._known_owners[0] != made_of:
            self._known_owners = (made_of, Owners(targets, made_of[1]))
        return self._known_owners[1]

    def _told(self) -> Mapping[str, tuple[str, ...]]:
        """The replicas by the UUIDs that their own pages tell."""
        found: dict[str, dict[str, None]] = {}
        for source, report in self._reports.items():
            if _is_page(source, report):
                for device in report.gpus:
                    found.setdefault(device.uuid, {})[source] = None
        return {uuid: tuple(urls) for uuid, urls in found.items() if uuid}

    def _sharers(self) -> Mapping[tuple[str, str], frozenset[str]]:
        """The replicas whose own pages tell of a device that no host and no exporter has reported."""
        reported = {
            ("" if report.exporter else host_key(report.host), whole_uuid(device))
            for source, report in self._reports.items()
            if not _is_page(source, report)
            for device in report.gpus
        }
        found: dict[tuple[str, str], set[str]] = {}
        for source, report in self._reports.items():
            if not _is_page(source, report):
                continue
            for device in report.gpus:
                key = (host_key(report.host), device.uuid)
                if key not in reported and ("", device.uuid) not in reported:
                    found.setdefault(key, set()).add(source)
        return {key: frozenset(urls) for key, urls in found.items()}


def _is_page(source: str, report: GpuReport) -> bool:
    """Whether a replica's own page told, rather than a host or an exporter."""
    return not report.exporter and source != host_key(report.host)


def _precedence(entry: tuple[str, GpuReport]) -> int:
    """A host knows more of its GPUs than an exporter of them, which knows more than an engine's page."""
    return 1 if entry[1].exporter else 2 if _is_page(*entry) else 0


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
