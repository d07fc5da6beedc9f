"""What the config file says about alerts: rules, silences, and where they are delivered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from collectors.fetch import Credentials
from enginetop.alerts.configured import RuleTable, configured_rules
from enginetop.alerts.silence import Silence
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.frozen import frozen

if TYPE_CHECKING:
    from enginetop.fleet.config import Config, SinkTable


@frozen
class SinkSettings:
    """One sink. Of `path`, `url`, `url_env` and `url_file` exactly one is given."""

    kind: str
    name: str
    severity: str
    path: str | None
    url: str | None
    url_env: str | None
    url_file: str | None
    credentials: Credentials


@frozen
class AlertSettings:
    """Rules, silences and sinks; `origin` is the config file that they come from."""

    rules: tuple[RuleTable, ...] = ()
    silences: tuple[Silence, ...] = ()
    sinks: tuple[SinkSettings, ...] = ()
    origin: str = ""


def alert_settings(config: Config, origin: str, window_seconds: float) -> AlertSettings:
    """The settings of a config file, checked. ConfigError in one line: `FILE: KEY: what is wrong`."""
    rules = tuple(RuleTable(**asdict(table)) for table in config.alerts)
    try:
        configured_rules(rules, window_seconds)
        sinks = _sinks(config.sinks)
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error}") from None
    silences = tuple(
        Silence(table.until.timestamp(), table.rule, table.target, table.reason) for table in config.silences
    )
    return AlertSettings(rules, silences, sinks, origin)


def _sinks(tables: Sequence[SinkTable]) -> tuple[SinkSettings, ...]:
    sinks: dict[str, SinkSettings] = {}
    for place, table in enumerate(tables):
        name = table.name or _free_name(table.kind, sinks.__contains__)
        if name in sinks:
            raise ConfigError(f"sinks.{place}.name: another sink is named {name!r}; name them apart")
        if table.url is not None:
            _check_url(table.url, f"sinks.{place}.url")
        how = Credentials(table.token_env, table.token_file, table.ca_file, table.insecure_skip_verify)
        sinks[name] = SinkSettings(
            table.kind, name, table.severity, table.path, table.url, table.url_env, table.url_file, how
        )
    return tuple(sinks.values())


def _free_name(kind: str, taken: Callable[[str], bool]) -> str:
    number = 1
    while taken(kind if number == 1 else f"{kind}-{number}"):
        number += 1
    return kind if number == 1 else f"{kind}-{number}"


def _check_url(url: str, key: str) -> None:
    """An Alertmanager's base URL. The message does not repeat it: people put keys into addresses."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    else:
        if usable and ("@" in parts.netloc or parts.query or parts.fragment):
            raise ConfigError(f"{key}: no key in an address; name a token with token_env")
    if not usable:
        raise ConfigError(f"{key}: not an address; write http(s)://host:port[/path]")
