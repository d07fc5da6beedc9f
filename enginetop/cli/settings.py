"""What a run works with, and where its files are."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from collectors.fetch import Credentials
from enginetop.cli.alert_settings import AlertSettings
from enginetop.cli.discovering import DiscoverySetting
from enginetop.cli.listen import Listen
from enginetop.cli.prometheus import PrometheusSetting
from enginetop.cli.record_logs import LogSetting
from enginetop.fleet.efficiency import Price
from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import Target
from enginetop.fleet.snapshot import Slo
from tuners.control.settings import ControlSettings

if TYPE_CHECKING:
    from enginetop.cli.gateways import GatewaySetting
    from enginetop.cli.restart_paths import RestartSetting
    from enginetop.fleet.restart_tables import EngineApiTable


NO_HOME = Path("/nonexistent")
"""The home of a user who has none: nothing is found there, and nothing kept, which whoever has to keep
something says. A relative path would lead to whatever folder a command is run in.
"""


@frozen
class KnobPath:
    """Where a knob API is and the file of its token; None: not said."""

    address: str | None
    token_file: str | None


@frozen
class Look:
    """The `[screen]` table: a theme's name, keys of columns, ASCII only."""

    theme: str | None = None
    columns: tuple[str, ...] = ()
    ascii_only: bool = False


@frozen
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
    doubtful_slo: bool = False
    """Whether one of them looks like milliseconds taken for seconds."""
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
        """What has to be seen all the time: what is not verified, what is in doubt, and the source."""
        doubt = "SLO IN SECONDS, NOT MS?" if self.doubtful_slo else ""
        source = f"prometheus {self.prometheus.url}" if self.prometheus is not None else ""
        return " · ".join(filter(None, (self.unverified, doubt, source)))

    def watched(self, targets: int) -> str:
        """What is watched, in words, of which there are so many."""
        if self.prometheus is not None:
            return f"what {self.prometheus.url} scrapes"
        return f"{targets} target{'s' * (targets != 1)}"

    def slo_for(self, model: str | None) -> Slo:
        """The first objective whose pattern matches the model's name, else the default one."""
        name = model or ""
        return next((slo for pattern, slo in self.slos if fnmatchcase(name, pattern)), Slo())


def config_path() -> Path:
    """Where the config file is looked for when `--config` is not given."""
    return _folder("XDG_CONFIG_HOME", ".config") / "enginetop" / "config.toml"


def state_folder() -> Path:
    """Where changes, the audit and undelivered alerts are kept."""
    return _folder("XDG_STATE_HOME", ".local/state") / "enginetop"


def _folder(variable: str, usual: str) -> Path:
    """The folder that a variable names, else the usual one of the user's home."""
    try:
        return Path(os.environ.get(variable) or Path.home() / usual)
    except RuntimeError:  # as in many containers
        return NO_HOME / usual
