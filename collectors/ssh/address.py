"""`ssh://[user@]host[:port]/SERVER:PORT[/path]`: a server as it is seen from a machine that `ssh` reaches."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import in_brackets

SCHEME = "ssh://"
BY_HAND = "not through ssh; keep `ssh -N -L PORT:SERVER HOST` running and name http://127.0.0.1:PORT"
"""What helps where a program of others dials by itself."""

HOW = "write ssh://host[:port]/127.0.0.1:8000"

# Both become arguments of a program: neither may look like an option, nor hold what its config expands.
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*\$?")
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*|\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9_.-]+)?\]")
_SERVER = re.compile(rf"(?P<host>{_HOST.pattern}):(?P<port>\d{{1,5}})", re.ASCII)


@frozen
class SshHost:
    """Where `ssh` connects to. `user` empty and `port` 0: what its own config says."""

    host: str
    user: str = ""
    port: int = 0

    @property
    def name(self) -> str:
        """The machine as a line for people names it: without the user."""
        shown = in_brackets(self.host)
        return f"{shown}:{self.port}" if self.port else shown


@frozen
class SshAddress:
    """One server behind `ssh`. `server` is `host:port` as the far machine dials it; `path` is of its URL."""

    machine: SshHost
    server: str
    path: str = ""

    @property
    def url(self) -> str:
        """The base URL: the target's identity. It names a user where one was written, and no secret."""
        user = f"{self.machine.user}@" if self.machine.user else ""
        return f"{SCHEME}{user}{self.name}"

    @property
    def name(self) -> str:
        """What the screen calls it."""
        return f"{self.machine.name}/{self.server}{self.path}"

    @property
    def inner_url(self) -> str:
        """The URL that is asked at the far end."""
        return f"http://{self.server}{self.path}"


def ssh_address(text: str) -> SshAddress:
    """The address that `text` (with its scheme) is. ValueError says in a few words why it is none."""
    if any(c.isspace() or not c.isprintable() for c in text) or "?" in text or "#" in text:
        raise ValueError("no query, fragment or space in an address")
    authority, _, rest = text[len(SCHEME) :].partition("/")
    before, at, place = authority.rpartition("@")
    if ":" in before:
        raise ValueError("no password in an address; ssh takes a key or its agent")
    if at and not _USER.fullmatch(before):
        raise ValueError("no user name before the @")
    try:
        port = urlsplit(f"ssh://{place}").port or 0
    except ValueError:  # its text repeats what stands there
        raise ValueError("no host[:port] of a machine in it") from None
    host = place.removesuffix(f":{port}") if port else place.removesuffix(":")
    if not _HOST.fullmatch(host):
        raise ValueError("no host in it")
    server, slash, path = rest.partition("/")
    dialled = _SERVER.fullmatch(server)
    if dialled is None or not 0 < int(dialled["port"]) < 65536:
        raise ValueError("no host:port of a server after the machine")
    return SshAddress(SshHost(host.strip("[]"), before, port), server.lower(), f"{slash}{path}".rstrip("/"))
