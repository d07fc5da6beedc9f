"""Fetching pages over HTTP: the rules that hold for every request, whichever client carries it.

A target's pages go over the lean client of `fast_http`; proxies and unusual answers go over httpx
(`full_http`), imported when the first of them is met. A server behind `ssh` is reached through a socket that
leads there. Redirects are followed within the target's own origin only, so that no key ever reaches another
host.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, urljoin, urlsplit

from collectors.answer import Answer
from collectors.fast_http import Arrivals, LeanHttp
from collectors.fetch import (
    KEPT_HEADERS,
    MAX_BODY_BYTES,
    NO_CREDENTIALS,
    Credentials,
    FetchError,
    RawResponse,
    accept_for,
    one_line,
    without_keys,
)
from collectors.full_http import FullClient, proxy_for
from collectors.http_response import NeedsFullClient
from collectors.lean_tls import Tls, TlsContexts
from collectors.origin import Origin
from collectors.patience import Patience
from collectors.secrets import without_these
from collectors.ssh.address import SCHEME as SSH_SCHEME
from collectors.ssh.address import ssh_address
from enginetop.fleet.observation import FailureKind

if TYPE_CHECKING:
    from collectors.ssh.client import SshClient
    from collectors.ssh.machines import SshMachines

USER_AGENT = "enginetop"
MAX_REDIRECTS = 3
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_URL_PUNCTUATION = "%/:?#[]@!$&'()*+,;=-._~"


class HttpFetcher:
    """A `Fetcher` for any number of targets, each with a client of its own. Belongs to one event loop.

    `credentials` are by base URL. `clock` gives the Unix time that answers carry. `fast_path` False sends
    everything through httpx. `kept_headers` are the headers that leave the fetcher. `machines`: what `ssh`
    reaches, closed with the fetcher; None: as the system's `ssh` does.
    """

    def __init__(
        self,
        credentials: Mapping[str, Credentials] = MappingProxyType({}),
        *,
        max_body_bytes: int = MAX_BODY_BYTES,
        clock: Callable[[], float] = time.time,
        fast_path: bool = True,
        kept_headers: Collection[str] = KEPT_HEADERS,
        machines: SshMachines | None = None,
    ) -> None:
        self._credentials = credentials
        self._max_body_bytes = max_body_bytes
        self._clock = clock
        self._lean = _Lean(Arrivals(), TlsContexts()) if fast_path else None
        self._kept_headers = kept_headers
        self._clients: dict[str, _TargetClient | SshClient] = {}
        self._machines = machines

    async def fetch(self, url: str, path: str, *, timeout_seconds: float) -> Answer:
        """See `Fetcher.fetch`; `timeout_seconds` (of `patient_time`) bounds name lookup, redirects and body
        together.
        """
        client = self._clients.get(url)
        if client is None:
            client = self._clients[url] = self._new_client(url)
        asked = path.partition("?")[0]
        began = time.monotonic()
        try:
            response = await client.get(path, timeout_seconds)
        except TimeoutError:
            fault = FetchError(FailureKind.TIMEOUT, f"no answer within {timeout_seconds:.3g} s")
        except FetchError as raised:
            fault = raised
        else:
            return Answer(
                path=asked,
                at=self._clock(),
                seconds=time.monotonic() - began,
                status=response.status,
                headers={name: text for name, text in response.headers.items() if name in self._kept_headers},
                body=response.body,
            )
        seconds = time.monotonic() - began
        return Answer(path=asked, at=self._clock(), seconds=seconds, error=fault.kind, detail=fault.detail)

    async def forget(self, url: str) -> None:
        """See `Fetcher.forget`."""
        client = self._clients.pop(url, None)
        if client is not None:
            await client.leave()

    async def aclose(self) -> None:
        """Close every connection."""
        clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            await client.aclose()
        machines, self._machines = self._machines, None
        if machines is not None:
            await machines.aclose()

    def _new_client(self, url: str) -> _TargetClient | SshClient:
        credentials = self._credentials.get(url, NO_CREDENTIALS)
        if not url.startswith(SSH_SCHEME):
            return _TargetClient(url, credentials, self._max_body_bytes, self._lean)
        from collectors.ssh.client import SshClient
        from collectors.ssh.machines import SshMachines

        self._machines = self._machines or SshMachines()
        address = ssh_address(url)

        def through(socket: str) -> _TargetClient:
            return _TargetClient(address.inner_url, credentials, self._max_body_bytes, self._lean, socket)

        return SshClient(address, self._machines, through)


class _Lean(NamedTuple):
    """What the lean clients of one event loop share."""

    arrivals: Arrivals
    contexts: TlsContexts


class _TargetClient:
    """One target: its address, its key, its redirects, and the client that its answers need.

    `lean` is what all lean clients share; None: there is none, all goes through httpx. `unix_path`: its
    connections go to this socket instead.
    """

    def __init__(
        self,
        url: str,
        credentials: Credentials,
        max_body_bytes: int,
        lean: _Lean | None,
        unix_path: str | None = None,
    ) -> None:
        parts = urlsplit(url)
        host = parts.hostname or ""
        self._base = Origin.of(parts)
        self._prefix = parts.path.rstrip("/")
        self._credentials = credentials
        self._moved: dict[str, str] = {}
        self._proxy = None if unix_path else credentials.proxy_url or proxy_for(parts.scheme, host)
        self._full = FullClient(self._base, credentials, self._proxy, max_body_bytes, unix_path)
        self._fast: LeanHttp | None = None
        if lean is not None and self._proxy is None:
            name = credentials.tls_server_name or self._base.server_name
            self._fast = LeanHttp(
                self._base.lookup_name,
                self._base.port,
                max_body_bytes,
                lean.arrivals,
                unix_path,
                Tls(lean.contexts, credentials, name) if parts.scheme == "https" else None,
            )

    async def get(self, path: str, timeout_seconds: float) -> RawResponse:
        """The response to a GET of `path` below the base URL, redirects within the origin followed.

        TimeoutError, FetchError: there is none.
        """
        async with Patience(timeout_seconds):
            return await self._get(path)

    async def leave(self) -> None:
        """The target is asked no more."""
        await self.aclose()

    async def _get(self, path: str) -> RawResponse:
        asked = self._moved.get(path) or _on_the_wire(self._prefix + path)
        accept = accept_for(path)
        response = await self._once(asked, accept)
        for _ in range(MAX_REDIRECTS):
            location = response.headers.get("location")
            if response.status not in _REDIRECTS or location is None:
                break
            asked = self._within_origin(asked, location)
            response = await self._once(asked, accept)
            self._moved[path] = asked
        else:
            if response.status in _REDIRECTS:
                raise FetchError(FailureKind.PROTOCOL, f"more than {MAX_REDIRECTS} redirects")
        if response.status != 200:
            self._moved.pop(path, None)
        return response

    async def aclose(self) -> None:
        if self._fast is not None:
            self._fast.close()
        await self._full.aclose()

    async def _once(self, asked: str, accept: str) -> RawResponse:
        headers = {
            "Host": self._base.authority,
            "User-Agent": USER_AGENT,
            "Accept": accept,
            # a compressed page costs the engine CPU that its scheduler needs, and saves nothing on a LAN
            "Accept-Encoding": "identity",
        }
        authorization = self._credentials.authorization()
        if authorization is None:
            return await self._ask(asked, headers)
        headers["Authorization"], secrets = authorization
        try:
            return without_keys(await self._ask(asked, headers), secrets)
        except FetchError as fault:  # it may quote what a server said
            raise FetchError(fault.kind, without_these(fault.detail, secrets)) from None

    async def _ask(self, asked: str, headers: Mapping[str, str]) -> RawResponse:
        if self._fast is not None:
            lines = "".join(f"{name}: {text}\r\n" for name, text in headers.items())
            try:
                return await self._fast.get(f"GET {asked} HTTP/1.1\r\n{lines}\r\n".encode("ascii"))
            except NeedsFullClient:
                # for good: asking every page twice would double the target's load
                self._fast.close()
                self._fast = None
        return await self._full.get(asked, headers)

    def _within_origin(self, asked: str, location: str) -> str:
        try:
            parts = urlsplit(urljoin(self._base.url + asked, location))
            origin = Origin.of(parts)
        except ValueError:
            raise FetchError(FailureKind.PROTOCOL, "redirected to a malformed address") from None
        if origin != self._base:
            where = one_line(origin.url)
            raise FetchError(FailureKind.PROTOCOL, f"redirected to {where}, not followed: name that target")
        return _on_the_wire((parts.path or "/") + (f"?{parts.query}" if parts.query else ""))


def _on_the_wire(path: str) -> str:
    """A path and query as plain ASCII without spaces or control characters, whatever they held."""
    return quote(path, safe=_URL_PUNCTUATION)
