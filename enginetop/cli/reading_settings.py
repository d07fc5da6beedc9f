"""Where a fleet is read from, by flags and the config file: targets, lists, a Prometheus, exporters, logs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from collectors.fetch import NO_CREDENTIALS, Credentials
from enginetop.cli.discovering import LOCAL, DiscoverySetting, discovery_flag, discovery_table
from enginetop.cli.listen import Listen, parse_listen
from enginetop.cli.prometheus import PrometheusSetting, prometheus_url
from enginetop.cli.record_logs import LogSetting, flag_setting, table_settings
from enginetop.cli.settings import config_path
from enginetop.cli.targets import distinct, parse_target
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.model import Target

if TYPE_CHECKING:
    from enginetop.fleet.config import Config
    from enginetop.fleet.source_tables import DiscoveryTable, GpuExporterTable, PrometheusTable, TargetTable


def config_origin(args: argparse.Namespace) -> str:
    """The config file of a run, as messages name it."""
    return str(Path(args.config) if args.config else config_path())


def configured_targets(
    arguments: Sequence[str], config: Config | None, origin: str, *, only_named: bool
) -> tuple[tuple[Target, ...], dict[str, Credentials]]:
    """The named targets, else those of the config file `origin` (`only_named`: none), and how each is reached
    that needs more than a plain GET, by URL. ConfigError: two have one name.
    """
    tables = config.targets if config else ()
    configured = [(parse_target(table.url, table.name), _credentials(table)) for table in tables]
    named = [parse_target(text) for text in arguments]
    targets = distinct(named or ([] if only_named else [target for target, _ in configured]))
    _refuse_twin_names(targets, "" if named else f"{origin}: targets: ")
    wanted = {target.url for target in targets}
    credentials = {
        target.url: how for target, how in configured if target.url in wanted and how != NO_CREDENTIALS
    }
    return targets, credentials


def _refuse_twin_names(targets: Sequence[Target], origin: str) -> None:
    owner: dict[str, str] = {}
    for target in targets:
        other = owner.setdefault(target.name, target.url)
        if other != target.url:
            raise ConfigError(
                f"{origin}two targets are named {target.name!r} ({other}, {target.url}); name them apart"
            )


def _credentials(
    table: TargetTable | DiscoveryTable | PrometheusTable | GpuExporterTable,
) -> Credentials:
    told = {one.name: getattr(table, one.name) for one in fields(Credentials) if hasattr(table, one.name)}
    return Credentials(**told)


def prometheus_setting(args: argparse.Namespace, config: Config | None) -> PrometheusSetting | None:
    """The flag counts; the table of the config file adds how that server is reached, or stands alone.

    Targets that the command line names are read themselves. ConfigError: flags that exclude each other.
    """
    flag: str | None = getattr(args, "prometheus", None)
    table = config.prometheus if config is not None else None
    if flag is not None and (args.targets or args.discover or args.replay):
        raise ConfigError("--prometheus finds its targets itself; leave TARGETs, --discover and --replay out")
    if flag is None and (table is None or args.targets or getattr(args, "discover", ())):
        if getattr(args, "direct_knobs", False):
            raise ConfigError(
                "--direct-knobs goes with --prometheus: engines that are scraped tell themselves"
            )
        return None
    if flag is None and not hasattr(args, "prometheus"):
        return None
    told = "" if table is None else prometheus_url(table.url, f"{config_origin(args)}: prometheus.url")
    url = told if flag is None else prometheus_url(flag)
    direct: bool = getattr(args, "direct_knobs", False)
    if table is None or told != url:
        return PrometheusSetting(url, direct_knobs=direct)
    thanos = (("dedup", table.dedup), ("partial_response", table.partial_response))
    parameters = tuple((name, str(wish).lower()) for name, wish in thanos if wish is not None)
    return PrometheusSetting(url, _credentials(table), table.tenant, direct or table.direct_knobs, parameters)


def gpu_exporters(args: argparse.Namespace, config: Config | None) -> tuple[tuple[Target, Credentials], ...]:
    """What the command line names, with the keys that the config file has for it; else the config file's.

    ConfigError: no address, or a recording or a Prometheus that has GPUs of its own.
    """
    flags: Sequence[str] = getattr(args, "gpu_exporters", ())
    if flags and getattr(args, "replay", None):
        raise ConfigError("--replay has the GPUs of the recording; leave --gpu-exporter out")
    if flags and getattr(args, "prometheus", None):
        raise ConfigError("--prometheus reads exporters' series there; leave --gpu-exporter out")
    origin = config_origin(args)
    tables = config.gpu_exporters if config else ()
    known = [
        (_exporter(table.url, f"{origin}: gpu_exporters.{number}.url", table.name), _credentials(table))
        for number, table in enumerate(tables)
    ]
    ways = {exporter.url: how for exporter, how in known}
    named = [_exporter(flag, "--gpu-exporter") for flag in flags]
    chosen = distinct(named or [exporter for exporter, _ in known])
    return tuple((exporter, ways.get(exporter.url, NO_CREDENTIALS)) for exporter in chosen)


def _exporter(url: str, origin: str, name: str | None = None) -> Target:
    try:
        return parse_target(url, name)
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error}") from None


def discovery_settings(
    args: argparse.Namespace, config: Config | None, targets: Sequence[Target]
) -> tuple[DiscoverySetting, ...]:
    """What the command line names takes the place of the config file; nothing at all: this machine.

    ConfigError: a flag or an entry that names no place.
    """
    flags: Sequence[str] = getattr(args, "discover", ())
    if flags:
        return tuple(dict.fromkeys(map(discovery_flag, flags)))
    if config is not None and config.discovery and not args.targets:
        origin = config_origin(args)
        return tuple(discovery_table(table, origin, _credentials(table)) for table in config.discovery)
    return () if targets else LOCAL


def log_settings(
    args: argparse.Namespace, config: Config | None, targets: Sequence[Target]
) -> tuple[LogSetting, ...]:
    """The logs of the command line and those of the config file, for commands that read a fleet.

    A recording has records of its own: ConfigError where a flag names some besides.
    """
    flags: Sequence[str] | None = getattr(args, "records", None)
    if flags is None:
        return ()
    if args.replay:
        if flags:
            raise ConfigError("--replay takes its records from the recording; leave --records out")
        return ()
    origin = config_origin(args)
    configured = [parse_target(table.url, table.name) for table in (config.targets if config else ())]
    tables = config.records if config else ()
    budget: int | None = args.thinking_budget
    flagged = (flag_setting(flag, budget) for flag in flags)
    return (*flagged, *table_settings(tables, origin, configured, targets))


def listen_setting(args: argparse.Namespace, config: Config | None) -> Listen | None:
    """Where pages are served: the flag counts, else the config file; consent in either place is consent.

    ConfigError: no address, or one that other machines reach without consent.
    """
    flag: str | None = getattr(args, "listen", None)
    table = config.watch if config else None
    consent = getattr(args, "listen_any_address", False) or bool(table and table.listen_any_address)
    if flag is not None:
        return parse_listen(flag, "--listen", any_address=consent)
    if table is None or table.listen is None:
        return None
    return parse_listen(table.listen, f"{config_origin(args)}: watch.listen", any_address=consent)
