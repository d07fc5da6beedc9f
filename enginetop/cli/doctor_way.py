"""The way to a target, step by step and timed: name lookup, connection, TLS handshake. Asks for no page."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from urllib.parse import urlsplit

from collectors.fetch import Credentials, FetchError, connection_fault
from collectors.full_http import proxy_for, tls_context
from collectors.origin import Origin
from collectors.ssh.address import SCHEME as SSH_SCHEME
from collectors.ssh.address import ssh_address
from enginetop.doctor.facts import StageFacts
from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import Target, is_address
from enginetop.fleet.observation import FailureKind


@frozen
class Way:
    """The steps, the last of which may have failed; none where a proxy takes them, one where `ssh` does.

    `certificate_until` is the end of the server's certificate (Unix seconds), where it was verified.
    """

    stages: tuple[StageFacts, ...] = ()
    proxy: bool = False
    certificate_until: float | None = None


async def way_to(target: Target, credentials: Credentials, patience: float) -> Way:
    """Go the way once. `patience` bounds each step (seconds); faults of the target are among the steps."""
    if target.url.startswith(SSH_SCHEME):
        return Way((await _through_ssh(target),))
    origin = Origin.of(urlsplit(target.url))
    if proxy_for(origin.scheme, origin.host) is not None:
        return Way(proxy=True)
    loop = asyncio.get_running_loop()
    host, port = origin.lookup_name, origin.port
    stages: list[StageFacts] = []
    until: list[float] = []

    async def look_up() -> str:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return ", ".join(dict.fromkeys(str(address[4][0]) for address in found[:4]))

    async def connect() -> str:
        transport, _ = await loop.create_connection(asyncio.Protocol, host, port)
        transport.abort()
        return ""

    async def shake_hands() -> str:
        context = tls_context(credentials)
        transport, _ = await loop.create_connection(
            asyncio.Protocol, host, port, ssl=context, server_hostname=origin.host
        )
        try:
            connection = transport.get_extra_info("ssl_object")
            if end := (connection.getpeercert() or {}).get("notAfter"):
                until.append(ssl.cert_time_to_seconds(end))
            return str(connection.version())
        finally:
            transport.abort()

    steps = [("connection", connect)]
    if not is_address(host):
        steps.insert(0, ("name", look_up))
    if origin.scheme == "https":
        steps.append(("TLS", shake_hands))
    for name, step in steps:
        began = time.monotonic()
        try:
            async with asyncio.timeout(patience):
                detail = await step()
        except (TimeoutError, OSError, ValueError, FetchError) as error:
            fault = _fault(error, name, patience)
            stages.append(StageFacts(name, time.monotonic() - began, problem=fault.detail, kind=fault.kind))
            break
        stages.append(StageFacts(name, time.monotonic() - began, detail))
    return Way(tuple(stages), certificate_until=until[0] if until else None)


async def _through_ssh(target: Target) -> StageFacts:
    """The connection of `ssh` as one step; it has a time limit of its own."""
    from collectors.ssh.machines import SshMachines

    machines = SshMachines()
    began = time.monotonic()
    try:
        await machines.socket(ssh_address(target.url))
    except FetchError as fault:
        return StageFacts("ssh", time.monotonic() - began, problem=fault.detail, kind=fault.kind)
    finally:
        await machines.aclose()
    return StageFacts("ssh", time.monotonic() - began)


def _fault(error: Exception, name: str, patience: float) -> FetchError:
    if isinstance(error, FetchError):
        return error
    if isinstance(error, TimeoutError):
        return FetchError(FailureKind.TIMEOUT, f"{name}: nothing within {patience:.3g} s")
    try:
        return connection_fault(error)
    except (OSError, ValueError) as own:  # a fault of this machine, or of ours
        reason = getattr(own, "strerror", None) or type(own).__name__
        return FetchError(FailureKind.COLLECTOR, f"{name}: {reason}")
