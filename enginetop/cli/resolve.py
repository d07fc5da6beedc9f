"""The settings of a run: the config file, overlaid by the command line."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collectors.scrape import DEADLINE_SHARE
from enginetop.alerts.configured import rule_warnings
from enginetop.alerts.objective_checks import burn_warnings
from enginetop.cli.alert_settings import AlertSettings, alert_settings
from enginetop.cli.control_settings import (
    control_settings,
    engine_apis,
    gateway_settings,
    knob_paths,
    restart_settings,
)
from enginetop.cli.reading_settings import (
    config_origin,
    configured_targets,
    discovery_settings,
    gpu_exporters,
    listen_setting,
    log_settings,
    prometheus_setting,
)
from enginetop.cli.settings import Look, Settings, config_path
from enginetop.cli.slo_flag import ToldSlo
from enginetop.cli.targets import parse_target
from enginetop.fleet.efficiency import Price
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.snapshot import Slo
from enginetop.fleet.toml_text import parse_toml

if TYPE_CHECKING:
    from enginetop.fleet.config import Config

DEFAULT_INTERVAL_SECONDS = 2.0
DEFAULT_WINDOW_SECONDS = 60.0
_LONGEST_DEFAULT_TIMEOUT_SECONDS = 10.0


ConfigReader = Callable[[str | None], dict[str, Any] | None]
"""Tables of the config file that `--config` names, as `config_tables` reads them."""


def resolve(
    args: argparse.Namespace, warn: Callable[[str], None], read: ConfigReader | None = None
) -> Settings:
    """Settings from parsed arguments and the config file they lead to.

    `warn` receives one line for everything that is valid and cannot do what it is there for. Raises
    ConfigError when the file or an argument cannot be used. The targets may be empty: the caller decides what
    that means. `read` stands in for `config_tables`, for who has read the file.
    """
    if getattr(args, "replay", None) and args.targets:
        raise ConfigError("--replay takes its targets from the recording; leave the TARGETs out")
    origin = config_origin(args)
    config, doubts = _read_config((read or config_tables)(args.config), origin)
    interval = args.interval or (config.interval_seconds if config else DEFAULT_INTERVAL_SECONDS)
    timeout = args.timeout or (config.timeout_seconds if config else None)
    window = args.window or (config.window_seconds if config else DEFAULT_WINDOW_SECONDS)
    targets, credentials = configured_targets(
        args.targets, config, origin, only_named=bool(getattr(args, "discover", ()))
    )
    if args.slo is not None:
        doubts = [args.slo.doubt] if args.slo.doubt else []
    for doubt in doubts:
        warn(doubt)
    for double in _doubles(config, origin):
        warn(double)
    slos = _slos(args.slo, config)
    for _, slo in slos:
        for warning in burn_warnings(slo):
            warn(warning)
    alerts = AlertSettings() if config is None else alert_settings(config, origin, window)
    for warning in rule_warnings(alerts.rules):
        warn(warning)
    settings = Settings(
        targets=targets,
        credentials=credentials,
        interval_seconds=interval,
        timeout_seconds=timeout or min(interval * DEADLINE_SHARE, _LONGEST_DEFAULT_TIMEOUT_SECONDS),
        window_seconds=window,
        slos=slos,
        doubtful_slo=bool(doubts),
        control=control_settings(config),
        knob_paths=knob_paths(config),
        restarts=restart_settings(config),
        engine_apis=engine_apis(config),
        gateways=gateway_settings(config),
        alerts=alerts,
        price=_price(config),
        listen=listen_setting(args, config),
        records=log_settings(args, config, targets),
        discovery=discovery_settings(args, config, targets),
        prometheus=prometheus_setting(args, config),
        gpu_exporters=gpu_exporters(args, config),
        keys=user_keys(config),
        look=user_look(config),
        origin=origin,
    )
    if settings.unverified:
        warn(settings.unverified)
    if settings.prometheus is not None and settings.gpu_exporters:
        warn(
            f"{settings.origin}: [[gpu_exporters]] are not asked: with a Prometheus, GPUs are those that it "
            "scrapes; add the exporters to its jobs"
        )
    return settings


def _doubles(config: Config | None, origin: str) -> Iterator[str]:
    """A line for each entry whose address another one has too: which of their keys counts nobody can say."""
    owners: dict[str, int] = {}
    for number, table in enumerate(config.targets if config else ()):
        url = parse_target(table.url).url
        first = owners.setdefault(url, number)
        if first != number:
            yield f"{origin}: targets.{number}: {url} is targets.{first} too, and read once; keep one of them"


def user_look(config: Config | None) -> Look:
    """The `[screen]` table."""
    return Look(config.screen.theme, config.screen.columns, config.screen.ascii) if config else Look()


def user_keys(config: Config | None) -> dict[str, tuple[str, ...]]:
    """The `[keys]` table."""
    table = config.keys if config else {}
    return {word: (keys,) if isinstance(keys, str) else keys for word, keys in table.items()}


def _price(config: Config | None) -> Price | None:
    if config is None or config.cost is None:
        return None
    from enginetop.fleet.config import price_of

    return price_of(config.cost)


def config_tables(named: str | None) -> dict[str, Any] | None:
    """What is in the config file, unchecked; None: none is named, and none in the usual place.

    Raises ConfigError where it cannot be read or is no TOML.
    """
    path = Path(named) if named else config_path()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        if not named and isinstance(error, FileNotFoundError | NotADirectoryError):
            return None
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ConfigError(f"{path}: {reason}; name a readable TOML file with --config") from error
    return parse_toml(text, str(path))


def _read_config(tables: dict[str, Any] | None, origin: str) -> tuple[Config | None, list[str]]:
    """The config file `origin` with these tables, and what speaks against its objectives."""
    if tables is None:
        return None, []
    # what checks the file takes more CPU to import than a scrape: only who has one pays it
    from enginetop.fleet.config import parse_config, slo_doubts

    config = parse_config(tables, origin)
    for problem in address_problems(config, origin):
        raise ConfigError(problem)
    return config, slo_doubts(tables, origin)


def address_problems(config: Config, origin: str) -> Iterator[str]:
    """A line for each address of a target that is none."""
    for number, table in enumerate(config.targets):
        api = None if table.engine_api is None else table.engine_api.url
        for key, url in (("url", table.url), ("engine_api.url", api)):
            try:
                if url is not None:
                    parse_target(url)
            except ConfigError as error:
                yield f"{origin}: targets.{number}.{key}: {error}"


def _slos(flag: ToldSlo | None, config: Config | None) -> tuple[tuple[str, Slo], ...]:
    if flag is not None:
        return (("*", flag.slo),)
    if config is None:
        return ()
    from enginetop.fleet.config import slo_of

    return tuple((table.model, slo_of(table)) for table in config.slo)
