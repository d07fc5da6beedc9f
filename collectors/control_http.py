"""Requests to knob APIs: the one place of the collectors that sends anything but a GET.

Over TCP to the address that was configured, or over a unix socket. Redirects are not followed, so that
neither a token nor a write ever reaches another host. httpx is imported at the first request.
"""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from collectors.fetch import Credentials, FetchError, client_words, connection_fault, one_line
from collectors.full_http import proxy_of, server_name, tls_context
from collectors.origin import Origin
from collectors.secrets import bytes_without_these
from collectors.ssh.address import SCHEME as SSH_SCHEME
from enginetop.fleet.knobs import KnobAnswer

if TYPE_CHECKING:
    import httpx

UNIX_SCHEME = "unix:"
_MOST_BODY_BYTES = 1024 * 1024


class HttpKnobTransport:
    """A `KnobTransport` to one address: `http(s)://host:port[/path]` or `unix:/path/of/socket`.

    `credentials` name the token, which is read anew for every request. Each request has a connection of its
    own: they are seconds apart, and a kept one that the server just dropped would leave a write in doubt.
    """

    def __init__(self, address: str, credentials: Credentials, *, timeout_seconds: float = 5.0) -> None:
        self._credentials = credentials
        self._timeout_seconds = timeout_seconds
        self._socket = address.removeprefix(UNIX_SCHEME) if address.startswith(UNIX_SCHEME) else None
        self._base = "http://localhost" if self._socket else address.rstrip("/")

    def request(self, method: str, path: str, body: bytes | None = None) -> KnobAnswer:
        """See `KnobTransport`. The timeout bounds each of connecting, sending and reading."""
        import httpx

        if self._base.startswith(SSH_SCHEME):
            return KnobAnswer(
                None, detail="settings are not asked through ssh; name control_url in the config"
            )
        try:
            headers, secrets = self._headers(body)
            parts = urlsplit(self._base)
            origin = Origin.of(parts)
            headers["Host"], url = origin.authority, origin.dialled + parts.path
            named = server_name(origin, self._credentials)
            if self._socket:
                _knock(self._socket, self._timeout_seconds)
            with (
                self._open() as client,
                client.stream(
                    method, url + path, headers=headers, content=body, extensions=named
                ) as response,
            ):
                found = b""
                for part in response.iter_bytes():
                    found += part
                    if len(found) > _MOST_BODY_BYTES:
                        return KnobAnswer(None, detail=f"an answer of more than {_MOST_BODY_BYTES} bytes")
                return KnobAnswer(response.status_code, bytes_without_these(found, secrets))
        except ssl.SSLError as error:
            return KnobAnswer(None, detail=connection_fault(error).detail)
        except OSError as error:
            return KnobAnswer(None, detail=one_line(error.strerror or str(error)).lower())
        except ValueError:
            return KnobAnswer(None, detail="no address of a server; name host and port")
        except FetchError as fault:
            return KnobAnswer(None, detail=fault.detail)
        except httpx.TimeoutException:
            return KnobAnswer(None, detail=f"no answer within {self._timeout_seconds:g} s")
        except httpx.TransportError as error:
            try:
                return KnobAnswer(None, detail=connection_fault(error).detail)
            except (OSError, httpx.TransportError) as own:  # of this machine: no less a missing answer
                return KnobAnswer(None, detail=client_words(own) or type(own).__name__)
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            return KnobAnswer(None, detail=client_words(error) or type(error).__name__)

    def _headers(self, body: bytes | None) -> tuple[dict[str, str], tuple[str, ...]]:
        """The headers, and the secrets in them."""
        secrets: tuple[str, ...] = ()
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        authorization = self._credentials.authorization()
        if authorization is not None:
            headers["Authorization"], secrets = authorization
        if body is not None:
            headers["Content-Type"] = "application/json"
        return headers, secrets

    def _open(self) -> httpx.Client:
        import httpx

        parts = urlsplit(self._base)
        if self._socket:
            transport = httpx.HTTPTransport(uds=self._socket)
        else:
            transport = httpx.HTTPTransport(
                verify=tls_context(self._credentials) if parts.scheme == "https" else False,
                proxy=proxy_of(self._credentials, parts.scheme, parts.hostname or ""),
                trust_env=False,
            )
        return httpx.Client(
            transport=transport, timeout=self._timeout_seconds, trust_env=False, follow_redirects=False
        )


def _knock(path: str, timeout_seconds: float) -> None:
    """Connect and leave. httpcore loses, and leaves open, a unix socket whose connecting fails."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as own:
        own.settimeout(timeout_seconds)
        own.connect(path)
