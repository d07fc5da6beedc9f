"""How targets are changed: the `[control]` table, and the paths to knobs that the config file names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING

from enginetop.cli.settings import KnobPath
from enginetop.cli.targets import parse_target
from enginetop.fleet.errors import ConfigError
from tuners.control.settings import ControlSettings

if TYPE_CHECKING:
    from enginetop.cli.gateways import GatewaySetting
    from enginetop.cli.restart_paths import RestartSetting
    from enginetop.fleet.config import Config
    from enginetop.fleet.restart_tables import EngineApiTable


def control_settings(config: Config | None) -> ControlSettings | None:
    """The `[control]` table; None: read-only."""
    if config is None or config.control is None:
        return None
    table = asdict(config.control)
    accepted = table.pop("accept_open_admin")
    if not isinstance(accepted, bool):
        accepted = frozenset(name for word in accepted for name in _names_of(word))
    return ControlSettings(**table, accept_open_admin=accepted)


def _names_of(word: str) -> Iterator[str]:
    """A target's name or address as it was written, and the address as targets have it."""
    yield word
    with suppress(ConfigError):
        yield parse_target(word).url


def knob_paths(config: Config | None) -> dict[str, KnobPath]:
    """Where the knob APIs of targets (by URL) are that name one."""
    tables = config.targets if config else ()
    return {
        parse_target(table.url).url: KnobPath(table.control_url, table.control_token_file)
        for table in tables
        if table.control_url is not None or table.control_token_file is not None
    }


def restart_settings(config: Config | None) -> dict[str, RestartSetting]:
    """How targets (by URL) are restarted for a new value. ConfigError: an entry that cannot be done."""
    tables = [table for table in config.targets if table.restart is not None] if config else []
    if config is None or not tables:
        return {}
    from enginetop.cli.restart_paths import restart_setting

    return {
        parse_target(table.url).url: restart_setting(table.restart, config)
        for table in tables
        if table.restart is not None
    }


def engine_apis(config: Config | None) -> dict[str, EngineApiTable]:
    """Which API of their own targets (by URL) are written by."""
    tables = config.targets if config else ()
    return {parse_target(table.url).url: table.engine_api for table in tables if table.engine_api is not None}


def gateway_settings(config: Config | None) -> tuple[GatewaySetting, ...]:
    """The gateways whose default thinking budget a hook sets."""
    if config is None or not config.gateways:
        return ()
    from enginetop.cli.gateways import gateway_setting

    return tuple(gateway_setting(table, config) for table in config.gateways)
