"""Targets behind a name: every address of a host, or every server of an SRV record."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence

from collectors.discovery.listing import Listed, ListingError, target_at
from collectors.fetch import lookup_words
from enginetop.fleet.model import in_brackets

_LOOKUP_SECONDS = 5.0

LookUp = Callable[[str, int], Sequence[str]]
"""The addresses of a host (A and AAAA), for a port."""

LookUpServers = Callable[[str], Sequence[tuple[str, int]]]
"""Host and port of each server of an SRV name."""


class DnsNames:
    """The targets of `host:port` (A and AAAA records) or of `_service._proto.name` (SRV). A `Source`.

    The name is looked up again and again; a lookup that fails changes nothing.
    """

    every_seconds = 10.0
    note = ""

    def __init__(
        self,
        name: str,
        *,
        scheme: str = "http",
        addresses: LookUp | None = None,
        servers: LookUpServers | None = None,
    ) -> None:
        """`addresses` and `servers` do the lookups; None: this machine's resolver. ValueError: no name."""
        self.title = f"dns {name}"
        self._name = name
        self._scheme = scheme
        self._addresses = addresses or system_addresses
        self._servers = servers or system_servers
        if not is_srv(name) and target_at(name, scheme=scheme).url.count(":") < 2:
            raise ValueError("write host:port, or _service._tcp.name for SRV records")

    def look(self) -> Sequence[Listed]:
        """One target an address. ListingError when the lookup fails, or finds none."""
        try:
            if is_srv(self._name):
                found = [f"{host.rstrip('.')}:{port}" for host, port in self._servers(self._name)]
            else:
                target = target_at(self._name, scheme=self._scheme)
                found = [
                    f"{in_brackets(ip.partition('%')[0])}:{target.port}"
                    for ip in self._addresses(target.host, target.port)
                ]
        except OSError as error:
            words = lookup_words(error) if isinstance(error, socket.gaierror) else error.strerror or error
            raise ListingError(f"{self.title}: the lookup failed: {words}") from None
        if not found:
            raise ListingError(f"{self.title}: the name has no address")
        return [Listed(target_at(address, scheme=self._scheme)) for address in dict.fromkeys(found)]


def is_srv(name: str) -> bool:
    """Whether a name is that of a service: `_http._tcp.engines.example`."""
    return name.startswith("_") and "._" in name


def system_addresses(host: str, port: int) -> Sequence[str]:
    """The addresses of a host as the resolver of this machine tells them, in order."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return sorted({str(entry[4][0]) for entry in found})


def system_servers(name: str, nameserver: tuple[str, int] | None = None) -> Sequence[tuple[str, int]]:
    """Host and port of each server of an SRV name; `nameserver` None: this machine's. OSError: none found."""
    import dns.exception  # only who asks for SRV records pays for it
    import dns.resolver

    try:
        resolver = dns.resolver.Resolver(configure=nameserver is None)
        if nameserver is not None:
            resolver.nameservers, resolver.port = [nameserver[0]], nameserver[1]
        answer = resolver.resolve(name, "SRV", lifetime=_LOOKUP_SECONDS)
    except (dns.exception.DNSException, ValueError) as error:
        raise OSError(" ".join(str(error).split()) or type(error).__name__) from None
    return sorted((str(record.target), int(record.port)) for record in answer)
