"""The complete HTTP client behind the lean one: TLS, proxies, and every legal form of an answer.

The only module that imports httpx, and only at the first request that needs it.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from collectors.fetch import (
    CUT_SHORT,
    UNANSWERED,
    Credentials,
    FetchError,
    RawResponse,
    body_too_large,
    client_words,
    connection_fault,
)
from collectors.no_engine_there import ASTRAY, leads_astray
from collectors.origin import Origin
from enginetop.fleet.observation import FailureKind

if TYPE_CHECKING:
    import httpcore
    import httpx


class FullClient:
    """The httpx client of one target, made at first use. `unix_path`: it goes to this socket instead."""

    def __init__(
        self,
        origin: Origin,
        credentials: Credentials,
        proxy: str | None,
        max_body_bytes: int,
        unix_path: str | None = None,
    ) -> None:
        self._unix_path = unix_path
        self._origin = origin
        self._credentials = credentials
        self._proxy = proxy
        self._max_body_bytes = max_body_bytes
        self._client: httpx.AsyncClient | None = None
        self._answered = False
        self._ever_answered = False
        self._unfinished: httpcore.AsyncNetworkStream | None = None

    async def get(self, asked: str, headers: Mapping[str, str]) -> RawResponse:
        """The response, redirects not followed."""
        import httpx

        if self._client is None:
            self._client = self._open()
        try:
            return await self._read(self._client, asked, headers)
        except (httpx.TransportError, ssl.SSLError) as error:
            fault = self._fault(error)
            if not (self._answered and fault.detail == UNANSWERED):
                raise fault from error
        # the connection had been kept, and the server dropped it just then
        self._answered = False
        try:
            return await self._read(self._client, asked, headers)
        except (httpx.TransportError, ssl.SSLError) as error:
            raise self._fault(error) from error

    def _fault(self, error: httpx.TransportError | ssl.SSLError) -> FetchError:
        fault = _httpx_fault(error)
        if self._origin.scheme != "https" or self._ever_answered:
            return fault
        return perhaps_unwanted(fault, self._credentials)

    async def aclose(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            await client.aclose()

    def _open(self) -> httpx.AsyncClient:
        import httpx

        try:
            return httpx.AsyncClient(
                verify=tls_context(self._credentials) if self._origin.scheme == "https" else False,
                proxy=self._proxy,
                transport=httpx.AsyncHTTPTransport(uds=self._unix_path) if self._unix_path else None,
                trust_env=False,  # the environment's proxies were weighed by `proxy_for`
                timeout=None,  # noqa: S113 - one deadline spans the whole request, see HttpFetcher
                limits=httpx.Limits(max_keepalive_connections=1, keepalive_expiry=None),
            )
        except (ValueError, ImportError):
            raise FetchError(FailureKind.PROTOCOL, "the proxy cannot be used") from None

    async def _read(self, client: httpx.AsyncClient, asked: str, headers: Mapping[str, str]) -> RawResponse:
        import httpx

        extensions = {"trace": self._on_event, **server_name(self._origin, self._credentials)}
        parts: list[bytes] = []
        size = 0
        try:
            async with client.stream(
                "GET",
                self._origin.dialled + asked,
                headers=dict(headers),
                extensions=extensions,
            ) as response:
                declared = response.headers.get("content-length", "")
                if declared.isdecimal() and int(declared) > self._max_body_bytes:
                    raise body_too_large(self._max_body_bytes)
                try:
                    async for part in response.aiter_bytes():
                        size += len(part)
                        if size > self._max_body_bytes:
                            raise body_too_large(self._max_body_bytes)
                        parts.append(part)
                except httpx.ReadError as error:
                    raise FetchError(FailureKind.TRUNCATED, CUT_SHORT) from error
                self._answered = self._ever_answered = True
                found = {name.lower(): text for name, text in response.headers.items()}
                return RawResponse(response.status_code, found, b"".join(parts))
        except (httpx.DecodingError, httpx.InvalidURL):
            raise FetchError(FailureKind.PROTOCOL, "the answer cannot be decoded") from None
        finally:
            parts.clear()  # a failure's traceback may keep this frame until the next garbage collection
            if self._unfinished is not None:
                stream, self._unfinished = self._unfinished, None
                await stream.aclose()

    async def _on_event(self, name: str, info: Mapping[str, Any]) -> None:
        """Follow a connection from its opening to the end of its handshake.

        httpx loses, and leaves open for ever, a connection whose handshake is cut off by a timeout. Raises
        FetchError where no engine is.
        """
        if name.endswith("connect_tcp.complete"):
            self._unfinished = stream = info["return_value"]
            if self._proxy is None and leads_astray(
                self._origin.lookup_name, stream.get_extra_info("server_addr")
            ):
                raise FetchError(FailureKind.REFUSED, ASTRAY)
        elif name.endswith("start_tls.complete") or self._origin.scheme == "http":
            self._unfinished = None


def _httpx_fault(error: httpx.TransportError | ssl.SSLError) -> FetchError:
    import httpx

    if isinstance(error, ssl.SSLError):  # what comes after the handshake comes as it is
        return connection_fault(error)
    text = str(error)
    if isinstance(error, httpx.TimeoutException):
        return FetchError(FailureKind.TIMEOUT, "the connection timed out")
    if isinstance(error, httpx.RemoteProtocolError):
        if "without sending a response" in text:
            return FetchError(FailureKind.REFUSED, UNANSWERED)
        if "without sending complete" in text or "incomplete" in text:
            return FetchError(FailureKind.TRUNCATED, CUT_SHORT)
        return FetchError(FailureKind.PROTOCOL, f"malformed answer: {client_words(error)}")
    if isinstance(error, httpx.ReadError | httpx.WriteError | httpx.CloseError):
        return FetchError(FailureKind.REFUSED, UNANSWERED)
    if isinstance(error, httpx.ProxyError):
        return FetchError(FailureKind.REFUSED, f"the proxy refused: {text}")
    if isinstance(error, httpx.ConnectError):
        return connection_fault(error)
    return FetchError(FailureKind.PROTOCOL, text or type(error).__name__)


def perhaps_unwanted(fault: FetchError, credentials: Credentials) -> FetchError:
    """A fault of a server over TLS that has never answered.

    Since TLS 1.3 a client certificate is looked at after the handshake, and many servers just hang up.
    """
    if fault.detail != UNANSWERED:
        return fault
    shown = credentials.client_cert_file is not None
    perhaps = "it may refuse our client certificate" if shown else "it may want a client certificate"
    return FetchError(fault.kind, f"{UNANSWERED}; {perhaps} (client_cert_file)")


def tls_context(credentials: Credentials) -> ssl.SSLContext:
    """The TLS settings of a target: the system's roots, or only those of its `ca_file`, and our certificate.

    Raises FetchError(TLS) when a file cannot be used.
    """
    try:
        context = ssl.create_default_context(cafile=credentials.ca_file)
    except (OSError, ssl.SSLError) as error:
        reason = error.strerror or "no certificates in it"
        raise FetchError(FailureKind.TLS, f"the CA file {credentials.ca_file}: {reason}") from None
    if credentials.client_cert_file is not None:
        try:
            # An empty password: without one OpenSSL would ask for it on the terminal.
            context.load_cert_chain(credentials.client_cert_file, credentials.client_key_file, lambda: "")
        except (OSError, ssl.SSLError) as error:
            files = " and ".join(filter(None, (credentials.client_cert_file, credentials.client_key_file)))
            missing = error.strerror if isinstance(error, FileNotFoundError) else None
            reason = missing or "no certificate with its key, in PEM and without a password"
            raise FetchError(FailureKind.TLS, f"the client certificate {files}: {reason}") from None
    if credentials.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def server_name(origin: Origin, credentials: Credentials) -> dict[str, object]:
    """An extension of a request of httpx: the name that the certificate has to be for.

    Of what is dialled a final dot and a zone are no part of it.
    """
    if origin.scheme != "https":
        return {}
    return {"sni_hostname": credentials.tls_server_name or origin.server_name}


def proxy_of(credentials: Credentials, scheme: str, host: str) -> str | None:
    """The proxy to a host: the one that is named for it, else the environment's."""
    return credentials.proxy_url or proxy_for(scheme, host)


def proxy_for(scheme: str, host: str) -> str | None:
    """The proxy that the environment wants for a host, None for direct. Loopback is always direct.

    `no_proxy` may hold networks (`10.0.0.0/8`) besides names, as Go programs read it.
    """
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return None
    import urllib.request

    proxies = urllib.request.getproxies_environment()
    proxy = proxies.get(scheme) or proxies.get("all")
    if not proxy or host == "localhost" or host.endswith(".localhost"):
        return None
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        address = None
    if address is not None:
        if address.is_loopback:
            return None
        for entry in proxies.get("no", "").split(","):
            try:
                if address in ipaddress.ip_network(entry.strip(), strict=False):
                    return None
            except ValueError:
                continue
    return None if urllib.request.proxy_bypass(host, proxies) else proxy
