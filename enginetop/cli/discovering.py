"""Sources of targets: from flags and config tables to a membership that follows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from collectors.fetch import NO_CREDENTIALS, Credentials
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import Target

if TYPE_CHECKING:
    from collectors.discovery.listing import Source
    from collectors.discovery.membership import Membership
    from enginetop.fleet.source_tables import DiscoveryTable

KINDS = ("file_sd", "dns", "dynamo", "local", "prometheus", "kubernetes")

_PLACE_LEFT_OUT = {"local": (True,), "kubernetes": (True, False)}
"""Whether a kind may, or has to, come without a place; all others need one."""


@frozen
class DiscoverySetting:
    """One source: its kind, where it is, and how the targets that it lists are reached."""

    kind: str
    place: str
    scheme: str = "http"
    credentials: Credentials = NO_CREDENTIALS
    reach: str = "auto"
    knobs: str = "engine"


LOCAL = (DiscoverySetting("local", ""),)
"""Where nothing is named: the engines of this machine."""


def discovery_flag(text: str) -> DiscoverySetting:
    """`KIND:WHAT` of `--discover`. ConfigError when it is none."""
    kind, _, place = text.partition(":")
    if kind not in KINDS or (not place) not in _PLACE_LEFT_OUT.get(kind, (False,)):
        raise ConfigError(
            f"--discover {_shown(text)!r}: write file_sd:FILE, dns:HOST:PORT, dns:_SERVICE._tcp.NAME, "
            f"dynamo:FOLDER, prometheus:URL, kubernetes:[CONTEXT][/NAMESPACE] or local"
        )
    setting = DiscoverySetting(kind, place)
    _source(setting, "--discover")
    return setting


def discovery_table(table: DiscoveryTable, origin: str, credentials: Credentials) -> DiscoverySetting:
    """A `[[discovery]]` table as a setting. ConfigError names the file and the key."""
    setting = DiscoverySetting(table.kind, table.place, table.scheme, credentials, table.reach, table.knobs)
    _source(setting, origin)
    return setting


def membership(
    settings: Sequence[DiscoverySetting], fixed: Sequence[Target], credentials: Mapping[str, Credentials]
) -> Membership | None:
    """The members of a fleet whose targets are listed somewhere; None where all are named."""
    if not settings:
        return None
    from collectors.discovery.membership import Membership
    from collectors.discovery.watcher import SourceWatcher

    sources = [_source(setting, "discovery") for setting in settings]
    of_source = {source.title: setting.credentials for source, setting in zip(sources, settings, strict=True)}
    return Membership(SourceWatcher(sources), fixed, credentials, of_source)


def _source(setting: DiscoverySetting, origin: str) -> Source:
    try:
        match setting.kind:
            case "file_sd":
                from collectors.discovery.file_sd import FileSd

                return FileSd(setting.place)
            case "dns":
                from collectors.discovery.dns import DnsNames

                return DnsNames(setting.place, scheme=setting.scheme)
            case "dynamo":
                from collectors.discovery.dynamo_folder import DynamoFolder

                return DynamoFolder(setting.place)
            case "prometheus":
                from collectors.prometheus.targets import PrometheusTargets

                return PrometheusTargets(setting.place, setting.credentials)
            case "kubernetes":
                from collectors.kubernetes.source import KubernetesPods, Reach

                return KubernetesPods(setting.place, Reach(setting.reach))
            case _:
                from collectors.discovery.local import LocalProcesses

                return LocalProcesses()
    except ValueError as error:
        raise ConfigError(f"{origin}: {setting.kind} {_shown(setting.place)!r}: {error}") from None


def _shown(place: str) -> str:
    """A place as a message may repeat it: what stands before an `@` or in a query may be a key."""
    before, at, rest = place.rpartition("@")
    return f"…@{rest}" if at else before + rest.partition("?")[0]
