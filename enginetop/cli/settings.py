"""What a run works with: the config file, overlaid by the command line."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from collectors.fetch import NO_CREDENTIALS, Credentials
from collectors.scrape import DEADLINE_SHARE
from enginetop.alerts.configured import rule_warnings
from enginetop.alerts.objective_checks import burn_warnings
from enginetop.cli.alert_settings import AlertSettings, alert_settings
from enginetop.cli.discovering import LOCAL, DiscoverySetting, discovery_flag, discovery_table
from enginetop.cli.listen import Listen, parse_listen
from enginetop.cli.prometheus import PrometheusSetting, prometheus_url
from enginetop.cli.record_logs import LogSetting, flag_setting, table_settings
from enginetop.cli.targets import distinct, parse_target
from enginetop.fleet.efficiency import Price
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.model import Target
from enginetop.fleet.snapshot import Slo
from enginetop.fleet.toml_text import parse_toml
from tuners.control.settings import ControlSettings

if TYPE_CHECKING:
    from enginetop.cli.gateways import GatewaySetting
    from enginetop.cli.restart_paths import RestartSetting
    from enginetop.fleet.config import Config, DiscoveryTable, GpuExporterTable, PrometheusTable, TargetTable
    from enginetop.fleet.restart_tables import EngineApiTable

DEFAULT_INTERVAL_SECONDS = 2.0
DEFAULT_WINDOW_SECONDS = 60.0
_LONGEST_DEFAULT_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class KnobPath:
    """Where a knob API is and the file of its token; None: not said."""

    address: str | None
    token_file: str | None


@dataclass(frozen=True, slots=True)
class Look:
    """The `[screen]` table: a theme's name, keys of columns, ASCII only."""

    theme: str | None = None
    columns: tuple[str, ...] = ()
    ascii_only: bool = False


@dataclass(frozen=True, slots=True)
class Settings:
    """The resolved settings of a run.

    `credentials` holds the targets (by URL) that need more than a plain GET; those that discovery finds at
    the start are added.
    """

    targets: tuple[Target, ...]
    credentials: dict[str, Credentials]
    interval_seconds: float
    timeout_seconds: float
    window_seconds: float
    slos: tuple[tuple[str, Slo], ...]
    control: ControlSettings | None = None
    """The `[control]` table; None: read-only."""
    knob_paths: Mapping[str, KnobPath] = field(default_factory=dict)
    """Where the knob API of a target (by URL) is, where the config file says so."""
    restarts: Mapping[str, RestartSetting] = field(default_factory=dict)
    """How targets (by URL) are restarted for a new value, where the config file says so."""
    engine_apis: Mapping[str, EngineApiTable] = field(default_factory=dict)
    """Which API of their own targets (by URL) are written by, where the config file says so."""
    gateways: tuple[GatewaySetting, ...] = ()
    """Gateways whose default thinking budget a hook sets."""
    alerts: AlertSettings = field(default_factory=AlertSettings)
    """Rules, silences and sinks of the config file."""
    price: Price | None = None
    """What GPU hours cost, where the config file says so."""
    listen: Listen | None = None
    """Where `watch` serves its own pages; None: nowhere."""
    records: tuple[LogSetting, ...] = ()
    """Logs of single requests that are followed."""
    prometheus: PrometheusSetting | None = None
    """Where the fleet is read from instead of from its engines."""
    discovery: tuple[DiscoverySetting, ...] = ()
    """Where targets are listed that come and go."""
    gpu_exporters: tuple[tuple[Target, Credentials], ...] = ()
    """Pages that tell of GPUs of other machines."""
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The user's own keys on the screen, by word of the action."""
    look: Look = Look()
    """How the screen looks."""
    origin: str = ""
    """The config file."""

    @property
    def unverified(self) -> str:
        """A warning that names what is reached without a look at its certificate; empty when nothing is."""
        ways = [(target.name, self.credentials.get(target.url)) for target in self.targets]
        ways += [(f"{one.kind} {one.place}".strip(), one.credentials) for one in self.discovery]
        ways += [(exporter.name, how) for exporter, how in self.gpu_exporters]
        if self.prometheus is not None:
            ways.append((self.prometheus.url, self.prometheus.credentials))
        open_ways = [name for name, how in ways if how is not None and how.insecure_skip_verify]
        return f"TLS NOT VERIFIED: {', '.join(open_ways)}" if open_ways else ""

    @property
    def banner(self) -> str:
        """What has to be seen all the time: what is not verified, and where the fleet is read from."""
        source = f"prometheus {self.prometheus.url}" if self.prometheus is not None else ""
        return " · ".join(filter(None, (self.unverified, source)))

    def slo_for(self, model: str | None) -> Slo:
        """The first objective whose pattern matches the model's name, else the default one."""
        name = model or ""
        return next((slo for pattern, slo in self.slos if fnmatchcase(name, pattern)), Slo())


def config_path() -> Path:
    """Where the config file is looked for when `--config` is not given."""
    try:
        base = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    except RuntimeError:  # a user without a home, as in many containers
        base = Path("~") / ".config"
    return base / "enginetop" / "config.toml"


def state_folder() -> Path:
    """Where changes, the audit and undelivered alerts are kept."""
    try:
        base = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    except RuntimeError:  # no home
        base = Path("~") / ".local" / "state"
    return base / "enginetop"


def resolve(args: argparse.Namespace, warn: Callable[[str], None]) -> Settings:
    """Settings from parsed arguments and the config file they lead to.

    `warn` receives one line for everything that is valid and cannot do what it is there for. Raises
    ConfigError when the file or an argument cannot be used. The targets may be empty: the caller decides what
    that means.
    """
    config = _read_config(args.config)
    interval = args.interval or (config.interval_seconds if config else DEFAULT_INTERVAL_SECONDS)
    timeout = args.timeout or (config.timeout_seconds if config else None)
    window = args.window or (config.window_seconds if config else DEFAULT_WINDOW_SECONDS)
    targets, credentials = _targets(args.targets, config, only_named=bool(getattr(args, "discover", ())))
    slos = _slos(args.slo, config)
    for _, slo in slos:
        for warning in burn_warnings(slo):
            warn(warning)
    alerts = _alerts(args.config, config, window)
    for warning in rule_warnings(alerts.rules):
        warn(warning)
    settings = Settings(
        targets=targets,
        credentials=credentials,
        interval_seconds=interval,
        timeout_seconds=timeout or min(interval * DEADLINE_SHARE, _LONGEST_DEFAULT_TIMEOUT_SECONDS),
        window_seconds=window,
        slos=slos,
        control=_control(config),
        knob_paths=_knob_paths(config),
        restarts=_restarts(config),
        engine_apis=_engine_apis(config),
        gateways=_gateways(config),
        alerts=alerts,
        price=_price(config),
        listen=_listen(args, config),
        records=_records(args, config, targets),
        discovery=_discovery(args, config, targets),
        prometheus=_prometheus(args, config),
        gpu_exporters=_gpu_exporters(args, config),
        keys=_keys(config),
        look=_look(config),
        origin=str(Path(args.config) if args.config else config_path()),
    )
    if settings.unverified:
        warn(settings.unverified)
    if settings.prometheus is not None and settings.gpu_exporters:
        warn(
            f"{settings.origin}: [[gpu_exporters]] are not asked: with a Prometheus, GPUs are those that it "
            "scrapes; add the exporters to its jobs"
        )
    return settings


def _look(config: Config | None) -> Look:
    return Look(config.screen.theme, config.screen.columns, config.screen.ascii) if config else Look()


def _keys(config: Config | None) -> dict[str, tuple[str, ...]]:
    table = config.keys if config else {}
    return {word: (keys,) if isinstance(keys, str) else keys for word, keys in table.items()}


def _prometheus(args: argparse.Namespace, config: Config | None) -> PrometheusSetting | None:
    """The flag counts; the table of the config file adds how that server is reached, or stands alone.

    Targets that are named on the command line are read themselves.
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
    url = prometheus_url(flag if flag is not None else table.url if table is not None else "")
    direct: bool = getattr(args, "direct_knobs", False)
    if table is None or prometheus_url(table.url) != url:
        return PrometheusSetting(url, direct_knobs=direct)
    thanos = (("dedup", table.dedup), ("partial_response", table.partial_response))
    parameters = tuple((name, str(wish).lower()) for name, wish in thanos if wish is not None)
    return PrometheusSetting(url, _credentials(table), table.tenant, direct or table.direct_knobs, parameters)


def _gpu_exporters(args: argparse.Namespace, config: Config | None) -> tuple[tuple[Target, Credentials], ...]:
    """What the command line names, with the keys that the config file has for it; else the config file's."""
    flags: Sequence[str] = getattr(args, "gpu_exporters", ())
    if flags and getattr(args, "replay", None):
        raise ConfigError("--replay has the GPUs of the recording; leave --gpu-exporter out")
    if flags and getattr(args, "prometheus", None):
        raise ConfigError("--prometheus reads exporters' series there; leave --gpu-exporter out")
    origin = str(Path(args.config) if args.config else config_path())
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


def _discovery(
    args: argparse.Namespace, config: Config | None, targets: Sequence[Target]
) -> tuple[DiscoverySetting, ...]:
    """What the command line names takes the place of the config file; nothing at all: this machine."""
    flags: Sequence[str] = getattr(args, "discover", ())
    if flags:
        return tuple(dict.fromkeys(map(discovery_flag, flags)))
    if config is not None and config.discovery and not args.targets:
        origin = str(Path(args.config) if args.config else config_path())
        return tuple(discovery_table(table, origin, _credentials(table)) for table in config.discovery)
    return () if targets else LOCAL


def _records(
    args: argparse.Namespace, config: Config | None, targets: Sequence[Target]
) -> tuple[LogSetting, ...]:
    """The logs of the command line and those of the config file, for commands that read a fleet.

    A recording has records of its own.
    """
    flags: Sequence[str] | None = getattr(args, "records", None)
    if flags is None:
        return ()
    if args.replay:
        if flags:
            raise ConfigError("--replay takes its records from the recording; leave --records out")
        return ()
    origin = str(Path(args.config) if args.config else config_path())
    configured = [parse_target(table.url, table.name) for table in (config.targets if config else ())]
    tables = config.records if config else ()
    budget: int | None = args.thinking_budget
    flagged = (flag_setting(flag, budget) for flag in flags)
    return (*flagged, *table_settings(tables, origin, configured, targets))


def _listen(args: argparse.Namespace, config: Config | None) -> Listen | None:
    """The flag counts, else the config file; consent given in either place is consent."""
    flag: str | None = getattr(args, "listen", None)
    table = config.watch if config else None
    consent = getattr(args, "listen_any_address", False) or bool(table and table.listen_any_address)
    if flag is not None:
        return parse_listen(flag, "--listen", any_address=consent)
    if table is None or table.listen is None:
        return None
    origin = f"{Path(args.config) if args.config else config_path()}: watch.listen"
    return parse_listen(table.listen, origin, any_address=consent)


def _price(config: Config | None) -> Price | None:
    if config is None or config.cost is None:
        return None
    from enginetop.fleet.config import price_of

    return price_of(config.cost)


def _read_config(named: str | None) -> Config | None:
    path = Path(named) if named else config_path()
    if not named and not path.exists():
        return None
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ConfigError(f"{path}: {reason}; name a readable TOML file with --config") from error
    # pydantic costs more CPU to import than a whole scrape: only who has a config file pays it
    from enginetop.fleet.config import parse_config

    config = parse_config(parse_toml(text, str(path)), str(path))
    for number, table in enumerate(config.targets):
        try:
            parse_target(table.url)
        except ConfigError as error:
            raise ConfigError(f"{path}: targets.{number}.url: {error}") from error
        try:
            if table.engine_api is not None and table.engine_api.url is not None:
                parse_target(table.engine_api.url)
        except ConfigError as error:
            raise ConfigError(f"{path}: targets.{number}.engine_api.url: {error}") from error
    return config


def _targets(
    arguments: Sequence[str], config: Config | None, *, only_named: bool
) -> tuple[tuple[Target, ...], dict[str, Credentials]]:
    tables = config.targets if config else ()
    configured = [(parse_target(table.url, table.name), _credentials(table)) for table in tables]
    named = [parse_target(text) for text in arguments]
    targets = distinct(named or ([] if only_named else [target for target, _ in configured]))
    _refuse_twin_names(targets)
    wanted = {target.url for target in targets}
    credentials = {
        target.url: how for target, how in configured if target.url in wanted and how != NO_CREDENTIALS
    }
    return targets, credentials


def _credentials(
    table: TargetTable | DiscoveryTable | PrometheusTable | GpuExporterTable,
) -> Credentials:
    told = {one.name: getattr(table, one.name) for one in fields(Credentials) if hasattr(table, one.name)}
    return Credentials(**told)


def _refuse_twin_names(targets: Sequence[Target]) -> None:
    owner: dict[str, str] = {}
    for target in targets:
        other = owner.setdefault(target.name, target.url)
        if other != target.url:
            raise ConfigError(
                f"two targets are named {target.name!r} ({other}, {target.url}); name them apart"
            )


def _control(config: Config | None) -> ControlSettings | None:
    if config is None or config.control is None:
        return None
    table = config.control.model_dump()
    accepted = table.pop("accept_open_admin")
    if not isinstance(accepted, bool):
        accepted = frozenset(name for word in accepted for name in _names_of(word))
    return ControlSettings(**table, accept_open_admin=accepted)


def _names_of(word: str) -> Iterator[str]:
    """A target's name or address as it was written, and the address as targets have it."""
    yield word
    with suppress(ConfigError):
        yield parse_target(word).url


def _alerts(named: str | None, config: Config | None, window_seconds: float) -> AlertSettings:
    if config is None:
        return AlertSettings()
    return alert_settings(config, str(Path(named) if named else config_path()), window_seconds)


def _knob_paths(config: Config | None) -> dict[str, KnobPath]:
    tables = config.targets if config else ()
    return {
        parse_target(table.url).url: KnobPath(table.control_url, table.control_token_file)
        for table in tables
        if table.control_url is not None or table.control_token_file is not None
    }


def _restarts(config: Config | None) -> dict[str, RestartSetting]:
    tables = [table for table in config.targets if table.restart is not None] if config else []
    if config is None or not tables:
        return {}
    from enginetop.cli.restart_paths import restart_setting

    return {
        parse_target(table.url).url: restart_setting(table.restart, config)
        for table in tables
        if table.restart is not None
    }


def _engine_apis(config: Config | None) -> dict[str, EngineApiTable]:
    tables = config.targets if config else ()
    return {parse_target(table.url).url: table.engine_api for table in tables if table.engine_api is not None}


def _gateways(config: Config | None) -> tuple[GatewaySetting, ...]:
    if config is None or not config.gateways:
        return ()
    from enginetop.cli.gateways import gateway_setting

    return tuple(gateway_setting(table, config) for table in config.gateways)


def _slos(flag: Slo | None, config: Config | None) -> tuple[tuple[str, Slo], ...]:
    if flag is not None:
        return (("*", flag),)
    if config is None:
        return ()
    from enginetop.fleet.config import slo_of

    return tuple((table.model, slo_of(table)) for table in config.slo)
