"""Where a request goes: scheme, host and port, in comparable form, and the paths of metrics."""

from __future__ import annotations

from dataclasses import field
from urllib.parse import SplitResult, quote, unquote

from enginetop.fleet.frozen import frozen

METRICS_PATHS: tuple[str, ...] = ("/prometheus/metrics", "/metrics")
"""Asked in this order: TensorRT-LLM drains a queue when its `/metrics` is read."""

_DEFAULT_PORTS = {"http": 80, "https": 443}


@frozen
class Origin:
    """One origin. Two are equal when a browser would say so; the final dot of a host does not count.

    `rooted`: the host was written with that dot, which keeps the resolver from trying search domains.
    """

    scheme: str
    host: str
    port: int
    rooted: bool = field(default=False, compare=False)

    @classmethod
    def of(cls, parts: SplitResult) -> Origin:
        """The origin of a split URL; ValueError when its port is none."""
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)
        host = parts.hostname or ""
        return cls(parts.scheme, host.removesuffix("."), port, host.endswith("."))

    @property
    def lookup_name(self) -> str:
        """The host as the resolver gets it."""
        return unquote(self.host) + ("." if self.rooted else "")

    @property
    def server_name(self) -> str:
        """The host as a certificate names it: without the zone, which is this machine's alone."""
        return self.host.partition("%")[0]

    @property
    def dialled(self) -> str:
        """The URL that a connection is made by: with the zone and the final dot, which no server is sent."""
        name = self.lookup_name
        return f"{self.scheme}://{f'[{name}]' if ':' in name else _ascii(name)}:{self.port}"

    @property
    def authority(self) -> str:
        """What the Host header says."""
        host = self.server_name
        shown = f"[{host}]" if ":" in host else _ascii(host)
        return shown if self.port == _DEFAULT_PORTS.get(self.scheme) else f"{shown}:{self.port}"

    @property
    def url(self) -> str:
        """Scheme and authority, never user information."""
        return f"{self.scheme}://{self.authority}"


def url_host(host: str) -> str:
    """A host as a URL writes it: IPv6 in brackets, with its zone spelled `%25` (RFC 6874)."""
    if ":" not in host:
        return host
    address, _, zone = host.partition("%")
    return f"[{address}%25{zone.removeprefix('25')}]" if zone else f"[{address}]"


def _ascii(host: str) -> str:
    try:
        return host.encode("idna").decode("ascii")
    except UnicodeError:
        return quote(host, safe="")  # no name that anybody could look up; still safe to send and to show
