"""`--prometheus URL`: the server that a fleet is read from."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from collectors.fetch import NO_CREDENTIALS, Credentials
from collectors.ssh.address import BY_HAND
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import in_brackets

if TYPE_CHECKING:
    from collectors.prometheus.client import PrometheusClient

_TIMEOUT_SECONDS = 30.0


@frozen
class PrometheusSetting:
    """The server, how it is reached, and whose data of it are read.

    `direct_knobs`: the engines themselves are asked for what it does not keep (release, start flags, knobs).
    `parameters` go with every request.
    """

    url: str
    credentials: Credentials = NO_CREDENTIALS
    tenant: str | None = None
    direct_knobs: bool = False
    parameters: tuple[tuple[str, str], ...] = ()


def prometheus_url(text: str, origin: str = "--prometheus") -> str:
    """The base URL of a server. ConfigError, which begins with `origin`, when the text is none; it is not
    repeated: it may hold a key.
    """
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        port = parts.port
    except ValueError:
        raise ConfigError(f"{origin}: no address; write http(s)://host:port[/prefix]") from None
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ConfigError(
            f"{origin}: no credentials and no query in an address; name a variable or a file with "
            "api_key_env or api_key_file in the [prometheus] table of the config file"
        )
    if parts.scheme == "ssh":
        raise ConfigError(f"{origin}: {BY_HAND}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{origin}: no address; write http(s)://host:port[/prefix]")
    if "%" in parts.hostname:
        raise ConfigError(f"{origin}: an address with a zone is not asked; write another one of that server")
    host = in_brackets(parts.hostname)
    path = parts.path.rstrip("/").removesuffix("/api/v1")
    return f"{parts.scheme}://{host}{f':{port}' if port is not None else ''}{path}"


def client_of(setting: PrometheusSetting) -> PrometheusClient:
    """A client of the server."""
    from collectors.prometheus.client import PrometheusClient

    return PrometheusClient(
        setting.url,
        setting.credentials,
        tenant=setting.tenant,
        parameters=dict(setting.parameters),
        timeout_seconds=_TIMEOUT_SECONDS,
    )
