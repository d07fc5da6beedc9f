"""Addresses at which no engine is, but something that answers anybody: a cloud's metadata service above all.

Whoever can write into a list of targets (a DNS name, a file, a label of a pod) must not have us ask there.
Sources: RFC 3927, RFC 4291; the metadata addresses that the clouds document.
"""

from __future__ import annotations

import ipaddress
import socket
from functools import lru_cache
from urllib.parse import urlsplit

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_METADATA = frozenset(
    ipaddress.ip_address(text)
    for text in (
        "169.254.169.254",  # nearly all
        "169.254.170.2",  # AWS: credentials of a task
        "169.254.170.23",  # AWS: credentials of a pod
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",  # Google
        "100.100.100.200",  # Alibaba
        "192.0.0.192",  # Oracle, classic
    )
)

ASTRAY = "the name leads to the metadata service of a cloud"
"""The detail of an answer that `leads_astray` forbids to ask for."""


@lru_cache(maxsize=32_768)
def why_not_listed(url: str) -> str:
    """Why a listed address is left out, in a few words; empty when nothing speaks against it.

    ValueError: it is no URL. Lists come whole, once a second: of most of one it was said before.
    """
    address = _written(urlsplit(url).hostname or "")
    if address is None:
        return ""
    if address in _METADATA:
        return "the metadata service of a cloud"
    if address.is_link_local or address.is_multicast or address.is_unspecified:
        return "an address that no list of engines has"
    return ""


def leads_astray(host: str, peer: object) -> bool:
    """Whether a name led to a metadata service: `peer` is the socket's address. Who writes such an address
    out by himself is taken at his word.
    """
    if not isinstance(peer, tuple) or _written(host) is not None:
        return False
    return _written(str(peer[0])) in _METADATA


def _written(host: str) -> _Address | None:
    """The address that a host stands for in any spelling that resolvers take; None for a name."""
    bare = host.partition("%")[0].strip("[]")
    try:
        address = ipaddress.ip_address(bare)
    except ValueError:
        try:
            return ipaddress.IPv4Address(socket.inet_aton(bare))  # 2852039166, 0xa9.0xfe.43518
        except (OSError, ValueError):
            return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
