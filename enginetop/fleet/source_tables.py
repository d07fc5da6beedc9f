"""The tables of the config file that say where figures come from, and how that is reached.

Targets, discovery, a Prometheus, GPU exporters. Secrets are named (a variable or a file), never written here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal

from enginetop.fleet.frozen import frozen
from enginetop.fleet.restart_tables import EngineApiTable, RestartTable
from enginetop.fleet.strict_tables import Check

_VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_]*")


def _name_of_a_variable(name: str) -> str:
    if not _VARIABLE.fullmatch(name):
        raise ValueError("no name of a variable; write the name of the one that holds the key, not the key")
    return name


def _plain_name(name: str) -> str:
    if ":" in name or not name.isprintable() or not name:
        raise ValueError("a user's name has no colon and no control character in it")
    return name


_Variable = Annotated[str, Check(_name_of_a_variable)]


@frozen(kw_only=True)
class _ReachedTable:
    """How something is reached. Secrets are named (a variable or a file), never written here."""

    api_key_env: _Variable | None = None
    api_key_file: str | None = None
    ca_file: str | None = None
    insecure_skip_verify: bool = False
    username: Annotated[str, Check(_plain_name)] | None = None
    """Basic authentication, with the password that the next two name."""
    password_env: _Variable | None = None
    password_file: str | None = None
    client_cert_file: str | None = None
    """What we show of ourselves over TLS (PEM); its key is there too, or in `client_key_file`."""
    client_key_file: str | None = None

    def __post_init__(self) -> None:
        if self.api_key_env is not None and self.api_key_file is not None:
            raise ValueError("api_key_env and api_key_file exclude each other; keep one")
        passwords = (self.password_env is not None) + (self.password_file is not None)
        if passwords != (self.username is not None):
            raise ValueError("username needs one of password_env and password_file, and these a username")
        if self.username is not None and (self.api_key_env or self.api_key_file):
            raise ValueError("a username and an API key exclude each other; keep one")
        if self.client_key_file is not None and self.client_cert_file is None:
            raise ValueError("client_key_file belongs to a client_cert_file; name it too")


@frozen(kw_only=True)
class TargetTable(_ReachedTable):
    """One `[[targets]]` entry."""

    url: str
    name: str | None = None
    control_url: str | None = None
    """Where the knob API of its companion is: `unix:/path`, `http(s)://host:port`; none: at `url`."""
    control_token_file: str | None = None
    restart: RestartTable | None = None
    engine_api: EngineApiTable | None = None

    def __post_init__(self) -> None:
        _ReachedTable.__post_init__(self)  # `super()` does not know a class with slots
        ways = {key for key in ("control_url", "restart", "engine_api") if getattr(self, key) is not None}
        if len(ways) > 1:
            raise ValueError(f"{' and '.join(sorted(ways))} are paths to the same knobs; keep one")


DiscoveryKind = Literal["file_sd", "dns", "dynamo", "local", "prometheus", "kubernetes"]

PLACE_KEYS: Mapping[DiscoveryKind, str | None] = MappingProxyType(
    {
        "file_sd": "path",
        "dns": "name",
        "dynamo": "path",
        "local": None,
        "prometheus": "url",
        "kubernetes": None,
    }
)
"""The key that says where a source of each kind is; None: it needs none."""


@frozen(kw_only=True)
class DiscoveryTable(_ReachedTable):
    """One `[[discovery]]` entry: where targets are listed. The keys hold for the targets that it lists."""

    kind: DiscoveryKind
    path: str | None = None
    name: str | None = None
    url: str | None = None
    scheme: Literal["http", "https"] = "http"
    context: str = ""
    """Of the kubeconfig; empty: its current one."""
    namespace: str = ""
    """Empty: all namespaces that we may list."""
    reach: Literal["auto", "direct", "proxy"] = "auto"
    """How pods are read: directly, or through the API server; `auto` looks where we run."""
    knobs: Literal["engine", "owner"] = "engine"
    """Which knobs count of an engine in a pod that has a companion: the companion's, or its owner's flags."""

    def __post_init__(self) -> None:
        _ReachedTable.__post_init__(self)
        wanted = PLACE_KEYS[self.kind]
        given = [key for key in ("path", "name", "url") if getattr(self, key) is not None]
        if given != ([wanted] if wanted else []):
            needs = f"needs {wanted}, and no other place" if wanted else "needs no path, name or url"
            raise ValueError(f"discovery of kind {self.kind} {needs}")
        own = (self.context, self.namespace, self.reach, self.knobs)
        if self.kind != "kubernetes" and own != ("", "", "auto", "engine"):
            raise ValueError("context, namespace, reach and knobs are keys of kind kubernetes")

    @property
    def place(self) -> str:
        """Where it is, by the key of its kind; of a cluster `CONTEXT/NAMESPACE`, or empty."""
        if self.kind == "kubernetes":
            return f"{self.context}/{self.namespace}".rstrip("/")
        return self.path or self.name or self.url or ""


@frozen(kw_only=True)
class PrometheusTable(_ReachedTable):
    """The `[prometheus]` table: the fleet is read from there instead of from its engines."""

    url: str
    tenant: str | None = None
    """Sent as `X-Scope-OrgID`, where several tenants share a server (Mimir)."""
    dedup: bool | None = None
    """Thanos: whether replicas of a Prometheus are laid together; not said: as the server has it."""
    partial_response: bool | None = None
    """Thanos: whether an answer without some of its stores counts; not said: as the server has it."""
    direct_knobs: bool = False
    """Ask the engines themselves for settings that it does not keep."""


@frozen(kw_only=True)
class GpuExporterTable(_ReachedTable):
    """One `[[gpu_exporters]]` entry: a page that tells of the GPUs of another machine."""

    url: str
    name: str | None = None
