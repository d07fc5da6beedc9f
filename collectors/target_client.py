"""The client of one target: its address, its key, its redirects.

Its pages go over the lean client of `fast_http`; proxies and unusual answers go over httpx (`full_http`),
imported when the first of them is met. Redirects are followed within the target's own origin only, so that no
key ever reaches another host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote, urljoin, urlsplit

from collectors.connection import Arrivals, Outcome
from collectors.fast_http import LeanHttp
from collectors.fetch import (
    USER_AGENT,
    Asked,
    Credentials,
    FetchError,
    RawResponse,
    accept_for,
    one_line,
    without_keys,
)
from collectors.full_http import FullClient, proxy_of
from collectors.http_response import NeedsFullClient
from collectors.lean_tls import Tls, TlsContexts
from collectors.origin import Origin
from collectors.patience import Patience
from collectors.secrets import without_these
from enginetop.fleet.observation import FailureKind

MAX_REDIRECTS = 3
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_URL_PUNCTUATION = "%/:?#[]@!$&'()*+,;=-._~"


class Lean(NamedTuple):
    """What the lean clients of one event loop share."""

    arrivals: Arrivals
    contexts: TlsContexts


class TargetClient:
    """One target: its address, its key, its redirects, and the client that its answers need.

    `lean` is what all lean clients share; None: there is none, all goes through httpx. `unix_path`: its
    connections go to this socket instead.
    """

    def __init__(
        self,
        url: str,
        credentials: Credentials,
        max_body_bytes: int,
        lean: Lean | None,
        unix_path: str | None = None,
    ) -> None:
        parts = urlsplit(url)
        host = parts.hostname or ""
        self._base = Origin.of(parts)
        self._prefix = parts.path.rstrip("/")
        self._credentials = credentials
        self._moved: dict[str, str] = {}
        self._requests: dict[str, bytes] = {}
        """Requests without a key, by path; one with a key is made anew each time, since keys are rotated."""
        self._proxy = None if unix_path else proxy_of(credentials, parts.scheme, host)
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

    def ask(self, path: str, tell: Callable[[RawResponse | FetchError | None], None]) -> Asked | None:
        """As `get`, where a connection stands; what comes is told, from the event loop.

        None, returned or told: it takes a `get`. The caller bounds the time.
        """
        if self._fast is None:
            return None
        secrets: tuple[str, ...] = ()
        request = self._requests.get(path)
        if request is None:
            try:
                request, secrets = self._request(path)
            except FetchError:  # no key: `get` meets the same
                return None

        def take(outcome: Outcome) -> None:
            if isinstance(outcome, RawResponse):
                if outcome.status != 200:
                    if outcome.status in _REDIRECTS and "location" in outcome.headers:
                        tell(None)
                        return
                    self._note_moved(path, None)
                tell(without_keys(outcome, secrets) if secrets else outcome)
            elif isinstance(outcome, FetchError):
                tell(_without(outcome, secrets))
            else:
                if isinstance(outcome, NeedsFullClient):
                    self._give_up_the_lean_one()
                tell(None)

        return self._fast.ask(request, take)

    def _request(self, path: str) -> tuple[bytes, tuple[str, ...]]:
        """The bytes of a GET and the secrets in it."""
        headers, secrets = self._headers(accept_for(path))
        request = _as_bytes(self._address(path), headers)
        if not secrets:
            self._requests[path] = request
        return request, secrets

    async def leave(self) -> None:
        """The target is asked no more."""
        await self.aclose()

    async def _get(self, path: str) -> RawResponse:
        asked = self._address(path)
        accept = accept_for(path)
        response = await self._once(asked, accept)
        for _ in range(MAX_REDIRECTS):
            location = response.headers.get("location")
            if response.status not in _REDIRECTS or location is None:
                break
            asked = self._within_origin(asked, location)
            response = await self._once(asked, accept)
            self._note_moved(path, asked)
        else:
            if response.status in _REDIRECTS:
                raise FetchError(FailureKind.PROTOCOL, f"more than {MAX_REDIRECTS} redirects")
        if response.status != 200:
            self._note_moved(path, None)
        return response

    def _note_moved(self, path: str, to: str | None) -> None:
        self._requests.pop(path, None)
        if to is None:
            self._moved.pop(path, None)
        else:
            self._moved[path] = to

    def _address(self, path: str) -> str:
        return self._moved.get(path) or _on_the_wire(self._prefix + path)

    async def aclose(self) -> None:
        if self._fast is not None:
            self._fast.close()
        await self._full.aclose()

    def _headers(self, accept: str) -> tuple[Mapping[str, str], tuple[str, ...]]:
        """The headers of a request, and the secrets in them. Raises as `Credentials.authorization`."""
        headers = {
            "Host": self._base.authority,
            "User-Agent": USER_AGENT,
            "Accept": accept,
            # a compressed page costs the engine CPU that its scheduler needs, and saves nothing on a LAN
            "Accept-Encoding": "identity",
        }
        authorization = self._credentials.authorization()
        if authorization is None:
            return headers, ()
        headers["Authorization"], secrets = authorization
        return headers, secrets

    async def _once(self, asked: str, accept: str) -> RawResponse:
        headers, secrets = self._headers(accept)
        try:
            response = await self._ask(asked, headers)
        except FetchError as fault:
            if not secrets:
                raise
            raise _without(fault, secrets) from None
        return without_keys(response, secrets) if secrets else response

    async def _ask(self, asked: str, headers: Mapping[str, str]) -> RawResponse:
        if self._fast is not None:
            try:
                return await self._fast.get(_as_bytes(asked, headers))
            except NeedsFullClient:
                self._give_up_the_lean_one()
        return await self._full.get(asked, headers)

    def _give_up_the_lean_one(self) -> None:
        # for good: asking every page twice would double the target's load
        if self._fast is not None:
            self._fast.close()
            self._fast = None

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


def _as_bytes(asked: str, headers: Mapping[str, str]) -> bytes:
    lines = "".join([f"{name}: {text}\r\n" for name, text in headers.items()])
    return f"GET {asked} HTTP/1.1\r\n{lines}\r\n".encode("ascii")


def _without(fault: FetchError, secrets: Sequence[str]) -> FetchError:
    """The fault without keys: it may quote what a server said."""
    return FetchError(fault.kind, without_these(fault.detail, secrets)) if secrets else fault
