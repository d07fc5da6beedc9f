"""TARGET arguments and config entries to `Target` objects."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from urllib.parse import SplitResult, urlsplit

from collectors.fetch import one_line
from collectors.origin import METRICS_PATHS, url_host
from collectors.ssh.address import HOW, SCHEME, ssh_address
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.model import Target

_QUERY = re.compile("[?#]")
_HOW = "write http(s)://host:port[/path], host:port or ssh://host/127.0.0.1:8000"


def parse_target(text: str, name: str | None = None) -> Target:
    """The target that `text` names.

    A path that ends in a known page path names that page and the base is the URL without it; any other path
    is part of the base. Raises ConfigError with one line when the text is no such address.
    """
    return _parsed(text, name)


@lru_cache(maxsize=4096)
def _parsed(text: str, name: str | None) -> Target:
    """A config file of a thousand targets asks for each of them several times."""
    if text.lower().startswith(SCHEME):
        return _behind_ssh(text, name)
    parts = _split(text)
    path, page = _page_of(parts.path.rstrip("/"))
    host = parts.hostname or ""
    shown_host = url_host(host)
    port = f":{parts.port}" if parts.port is not None else ""
    url = f"{parts.scheme}://{shown_host}{port}{path}"
    shown_name = one_line(name or "") or f"{shown_host}{port}{path}"
    return Target(url=url, name=shown_name, metrics_path=page)


def _behind_ssh(text: str, name: str | None) -> Target:
    try:
        address = ssh_address(SCHEME + text[len(SCHEME) :])
    except ValueError as error:
        raise ConfigError(f"target {shown_address(text)!r}: {error}; {HOW}") from None
    path, page = _page_of(address.path)
    base = replace(address, path=path)
    return Target(url=base.url, name=one_line(name or "") or base.name, metrics_path=page)


def _page_of(path: str) -> tuple[str, str | None]:
    """The path of the base URL and the known page that the whole path ends in, if any."""
    # the longer of two endings comes first there
    page = next((known for known in METRICS_PATHS if path.endswith(known)), None)
    return (path, None) if page is None else (path[: -len(page)], page)


def distinct(targets: Iterable[Target]) -> tuple[Target, ...]:
    """The targets without repeats (same base URL), first mention first."""
    first: dict[str, Target] = {}
    for target in targets:
        first.setdefault(target.url, target)
    return tuple(first.values())


def shown_address(text: str) -> str:
    """The address as a message may repeat it: keys stand before an `@`, in a query or in a fragment."""
    before, at, text = text.rpartition("@")
    query = _QUERY.search(text)
    if query is not None:
        text = text[: query.end()] + "…"
    if at and _QUERY.search(before):
        return "…"  # an `@` in a query, or a query mark in a key: no part is safe
    return f"…@{text}" if at else text


def _lacks_zone(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return isinstance(address, ipaddress.IPv6Address) and address.is_link_local and not address.scope_id


def _split(text: str) -> SplitResult:
    shown = shown_address(text)
    written = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(written)
        port = parts.port
    except ValueError:  # its text repeats what stands there
        raise ConfigError(f"target {shown!r}: no address with a port; {_HOW}") from None
    if parts.scheme not in ("http", "https"):
        raise ConfigError(f"target {shown!r}: the scheme {parts.scheme!r} is not read; {_HOW}")
    if not parts.hostname or any(c.isspace() or not c.isprintable() for c in written):
        raise ConfigError(f"target {shown!r}: no host in it; {_HOW}")
    if _lacks_zone(parts.hostname):
        raise ConfigError(
            f"target {shown!r}: a link-local address; name its interface: [fe80::1%25eth0]:8000"
        )
    if "@" in parts.netloc:
        raise ConfigError(
            f"target {shown!r}: no credentials in an address; name an environment variable with "
            f"api_key_env in the config file"
        )
    if parts.query or parts.fragment:
        raise ConfigError(f"target {shown!r}: no query or fragment in an address; {_HOW}")
    if port is None and "://" not in text:
        raise ConfigError(f"target {shown!r}: not a command and no port in it; {_HOW}")
    return parts
