"""What a source of targets tells: a list of them, or why there is none just now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from urllib.parse import urlsplit

from collectors.fetch import Credentials, one_line
from collectors.origin import METRICS_PATHS, url_host
from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import Role, Target

MAX_LISTED = 20_000
"""Targets that one source may list; a longer list is a mistake."""

_ROLE_WORDS = {role.value: role for role in Role if role is not Role.UNKNOWN}


@frozen
class Listed:
    """One target of a list. `identity` stays with a replica that moves to another address; empty: its URL.

    `credentials` are those that the source has for it; None: those that its setting names.
    """

    target: Target
    identity: str = ""
    credentials: Credentials | None = None


class ListingError(Exception):
    """A source that cannot tell now: the last good list stays in force. The text is one line for people."""

    def __init__(self, text: str) -> None:
        super().__init__(one_line(text))


class Source(Protocol):
    """A place where targets are listed. Used from one thread of its own, and may wait there."""

    @property
    def title(self) -> str:
        """What people call it: kind and place. It is the source's identity too."""

    @property
    def every_seconds(self) -> float:
        """How often it is worth a look."""

    def look(self) -> Sequence[Listed]:
        """The whole list as it is now. ListingError: it cannot be told."""

    @property
    def note(self) -> str:
        """What is wrong with a part of the newest list, in one line; empty when nothing is."""


def role_of(word: str | None) -> Role | None:
    """The role that a label names, None when it names none that we know."""
    return _ROLE_WORDS.get((word or "").strip().lower())


def target_at(
    address: str,
    *,
    scheme: str = "http",
    metrics_path: str | None = None,
    name: str = "",
    model: str | None = None,
    role: Role | None = None,
    pod: str = "",
    container: str = "",
) -> Target:
    """The target at `host[:port]`, whose page is at `metrics_path` (None: to be found).

    ValueError with a few words when that is no address of one.
    """
    if scheme not in ("http", "https"):
        raise ValueError(f"the scheme {scheme!r} is not read")
    authority = _authority(scheme, address)
    path, page = "", metrics_path
    if metrics_path is not None:
        if not metrics_path.startswith("/") or any(c.isspace() or not c.isprintable() for c in metrics_path):
            raise ValueError("a metrics path that is none")
        path, page = _page_of(metrics_path)
    return Target(
        url=f"{scheme}://{authority}{path}",
        name=one_line(name) or f"{authority}{path}",
        metrics_path=page,
        model=one_line(model) if model else None,
        role=role,
        pod=one_line(pod),
        container=one_line(container),
    )


def _authority(scheme: str, address: str) -> str:
    """`host[:port]` as a URL writes it; ValueError when it is none."""
    if any(c.isspace() or not c.isprintable() or c in "/?#@\\" for c in address):
        raise ValueError("no host:port")
    parts = urlsplit(f"{scheme}://{address}")
    if not parts.hostname:
        raise ValueError("no host in it")
    port = parts.port  # ValueError when it is none
    host = url_host(parts.hostname)
    return host if port is None else f"{host}:{port}"


def _page_of(metrics_path: str) -> tuple[str, str]:
    """The path of the base URL, and the page below it, without a query: an engine's page has none."""
    bare = metrics_path.partition("?")[0]
    for known in METRICS_PATHS:
        if bare.rstrip("/").endswith(known):
            return bare.rstrip("/").removesuffix(known), known
    return "", bare
