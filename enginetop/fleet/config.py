"""The config file: its schema, strict, with errors that name the key and the fix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from typing import Annotated, Any, Literal

from enginetop.fleet.durations import LONGEST_PLAIN_SECONDS, doubt_of, plain_seconds
from enginetop.fleet.efficiency import Price
from enginetop.fleet.frozen import frozen
from enginetop.fleet.restart_tables import GatewayTable, HookTable
from enginetop.fleet.snapshot import Slo
from enginetop.fleet.source_tables import DiscoveryTable, GpuExporterTable, PrometheusTable, TargetTable
from enginetop.fleet.strict_tables import Check, Float, Int, Key, Within, read_table

_Seconds = Annotated[Float, Within(gt=0, allow_inf_nan=False)]
_Ratio = Annotated[Float, Within(gt=0, lt=1)]
_DEFAULT_SLO = Slo()


def _seconds_of(told: object) -> object:
    if not isinstance(told, str):
        return told
    seconds = plain_seconds(told)
    if seconds is None:
        raise ValueError(f'{told!r} is no time; write seconds (0.3), or a unit with it ("300ms")')
    return seconds


_Latency = Annotated[_Seconds, Check(_seconds_of, first=True)]


@frozen(kw_only=True)
class SloTable:
    """One `[[slo]]` entry; `model` is a shell pattern, the first entry that matches counts."""

    model: str = "*"
    ttft_seconds: _Latency = _DEFAULT_SLO.ttft_seconds
    tpot_seconds: _Latency = _DEFAULT_SLO.tpot_seconds
    target: _Ratio = _DEFAULT_SLO.target


def _all_or_some(accepted: object) -> bool | tuple[str, ...]:
    if isinstance(accepted, bool):
        return accepted
    if isinstance(accepted, list | tuple) and all(isinstance(one, str) for one in accepted):
        return tuple(accepted)
    raise ValueError("write true, or a list of names or addresses of targets")


@frozen(kw_only=True)
class ControlTable:
    """The `[control]` table: how changes are tried out. Without it nothing is ever written to an engine."""

    warmup_seconds: Annotated[Float, Within(ge=0, le=86400)] = 120.0
    blocks: Annotated[Int, Within(ge=2, le=1000)] = 30
    block_seconds: Annotated[Float, Within(ge=1, le=3600)] = 60.0
    alpha: Annotated[Float, Within(ge=0.001, le=0.25)] = 0.05
    margin: _Ratio = 0.01
    ttl_seconds: Annotated[Float, Within(ge=30, le=3600)] = 180.0
    restart_warmup_seconds: Annotated[Float, Within(ge=0, le=86400)] = 300.0
    most_at_once: Annotated[Int, Within(ge=1, le=1000)] | None = None
    """Replicas that one wave of a promotion changes, at most; None: a quarter of them."""
    accept_open_admin: Annotated[bool | tuple[str, ...], Check(_all_or_some, first=True)] = False
    """Targets (names or addresses; true: all) that are changed though anybody who reaches them can do so."""


_LONGEST_CURRENCY = 16


def _short_text(currency: str) -> str:
    if len(currency) > _LONGEST_CURRENCY or not currency.isprintable():
        raise ValueError(f"a currency is at most {_LONGEST_CURRENCY} printable characters, like EUR or $")
    return currency


@frozen(kw_only=True)
class CostTable:
    """The `[cost]` table: what an hour of one GPU costs; `currency` is only shown."""

    per_gpu_hour: Annotated[Float, Within(gt=0, le=1e9, allow_inf_nan=False)]
    currency: Annotated[str, Check(_short_text)] = ""


_Hold = Annotated[Float, Within(ge=0, le=7 * 86400, allow_inf_nan=False)]
_Word = Annotated[str, Within(min_length=1, max_length=100)]


@frozen(kw_only=True)
class AlertTable:
    """One `[[alerts]]` entry: a rule of the user's (with `when`), or how a built-in one is to be held."""

    rule: _Word
    when: str | None = None
    for_seconds: _Hold | None = None
    keep_firing_seconds: _Hold | None = None
    severity: Literal["info", "warning", "critical"] | None = None
    enabled: bool = True
    summary: str = ""


@frozen(kw_only=True)
class SilenceTable:
    """One `[[silences]]` entry: alerts that are not told until a time. Patterns are shell patterns."""

    until: datetime
    """With its time zone."""
    rule: str = "*"
    target: str = "*"
    reason: str = ""


@frozen(kw_only=True)
class SinkTable:
    """One `[[sinks]]` entry: where `watch` delivers alerts besides stdout.

    The address of a webhook is a secret by itself: it is named (a variable or a file), never written here.
    """

    kind: Literal["file", "webhook", "slack", "alertmanager"]
    name: _Word | None = None
    severity: Literal["info", "warning", "critical"] = "info"
    """The least severity that is told."""
    path: str | None = None
    url: str | None = None
    url_env: str | None = None
    url_file: str | None = None
    token_env: str | None = None
    token_file: str | None = None
    ca_file: str | None = None
    insecure_skip_verify: bool = False

    def __post_init__(self) -> None:
        wanted = {"file": ("path",), "alertmanager": ("url",)}.get(self.kind, ("url_env", "url_file"))
        given = [key for key in ("path", "url", "url_env", "url_file") if getattr(self, key) is not None]
        if len(given) != 1 or given[0] not in wanted:
            raise ValueError(f"a sink of kind {self.kind} needs {' or '.join(wanted)}, and no other address")
        if self.token_env is not None and self.token_file is not None:
            raise ValueError("token_env and token_file exclude each other; keep one")


@frozen(kw_only=True)
class RecordsTable:
    """One `[[records]]` entry: a log of single requests to be followed.

    `target` is the URL or the name of the target whose requests they are; none: as each record says. `from`
    end (the default of commands that go on) or start: whether what is in the file already counts.
    """

    path: Annotated[str, Within(min_length=1)]
    format: Literal["auto", "enginetop", "sglang", "litellm", "openai"] = "auto"
    target: str | None = None
    begin: Annotated[Literal["start", "end"] | None, Key("from")] = None
    thinking_token_budget: Annotated[Int, Within(ge=0, le=10**9)] | None = None
    """What the reasoning of these requests is limited to, where a record names no limit of its own."""


@frozen(kw_only=True)
class WatchTable:
    """The `[watch]` table: what a headless run serves itself."""

    listen: str | None = None
    listen_any_address: bool = False


@frozen(kw_only=True)
class ScreenTable:
    """The `[screen]` table: how the terminal UI looks. `--theme` and columns saved there outrank it."""

    theme: str | None = None
    columns: tuple[str, ...] = ()
    ascii: bool = False


@frozen(kw_only=True)
class Config:
    """The whole file. Every key may be missing."""

    interval_seconds: Annotated[Float, Within(ge=0.1, le=3600)] = 2.0
    timeout_seconds: _Seconds | None = None
    window_seconds: _Seconds = 60.0
    targets: tuple[TargetTable, ...] = ()
    discovery: tuple[DiscoveryTable, ...] = ()
    prometheus: PrometheusTable | None = None
    gpu_exporters: tuple[GpuExporterTable, ...] = ()
    slo: tuple[SloTable, ...] = ()
    alerts: tuple[AlertTable, ...] = ()
    silences: tuple[SilenceTable, ...] = ()
    sinks: tuple[SinkTable, ...] = ()
    control: ControlTable | None = None
    cost: CostTable | None = None
    records: tuple[RecordsTable, ...] = ()
    watch: WatchTable = WatchTable()
    screen: ScreenTable = ScreenTable()
    keys: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    """The user's own keys on the screen: word of an action = key, or keys."""
    hooks: Mapping[str, HookTable] = field(default_factory=dict)
    """Commands of this machine by name; whoever refers to one knows no more than its name."""
    gateways: tuple[GatewayTable, ...] = ()

    def __post_init__(self) -> None:
        restarts = (target.restart for target in self.targets if target.restart is not None)
        for hook in (*(restart.hook for restart in restarts), *(gateway.hook for gateway in self.gateways)):
            if hook is not None and hook not in self.hooks:
                known = ", ".join(self.hooks) or "none"
                raise ValueError(f"the hook {hook!r} is not there; write [hooks.NAME] (there are: {known})")
        names = [gateway.name for gateway in self.gateways]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"two gateways are named {twice!r}; name them apart")


def parse_config(data: Mapping[str, Any], origin: str) -> Config:
    """Check the tables of a config file.

    Raises ConfigError with one line: `FILE: KEY: what is wrong and how to mend it`.
    """
    return read_table(Config, data, origin)


def price_of(table: CostTable) -> Price:
    """The price of the `[cost]` table."""
    return Price(table.per_gpu_hour, table.currency)


def slo_of(table: SloTable) -> Slo:
    """The objective of one `[[slo]]` entry."""
    return Slo(table.ttft_seconds, table.tpot_seconds, table.target, source="config")


def slo_doubts(data: Mapping[str, Any], origin: str) -> list[str]:
    """What speaks against the objectives of a file that `parse_config` took: one line each, with the fix."""
    return [
        f"{origin}: slo.{number}.{key}_seconds: {doubt}"
        for number, table in enumerate(data.get("slo", ()))
        for key in LONGEST_PLAIN_SECONDS
        if f"{key}_seconds" in table and (doubt := doubt_of(key, table[f"{key}_seconds"], '"'))
    ]
