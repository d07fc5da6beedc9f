"""The API server: lists, watches and writes over httpx, with the rules of its protocol that trip others up.

- A list comes in pages; a `continue` that expired (410) starts it again.
- A watch that ends without a word has ended well. An expired version comes as HTTP 200 and an ERROR event of
  code 410 inside the stream.
- A 401 with an exec plugin is asked once more, with new credentials.

Blocking: belongs to one thread that may wait. Source: https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import SplitResult, urlsplit

import httpx

from collectors.fetch import USER_AGENT, FetchError, connection_fault
from collectors.full_http import proxy_of, tls_context
from collectors.json_fields import integer, items, text, verbatim
from collectors.kubernetes.context import Context, KubernetesError
from collectors.kubernetes.identity import Identity
from collectors.origin import Origin
from collectors.secrets import bytes_without_these, without_these
from enginetop.fleet.foreign_json import Fields, decoded, field_at
from enginetop.fleet.frozen import frozen
from enginetop.fleet.observation import FailureKind

_PAGE_ITEMS = 500
_GONE = 410
_NO_PARAMETERS: Mapping[str, str] = MappingProxyType({})


class VersionGoneError(Exception):
    """The resource version that a watch asked for is forgotten there: list anew."""


@frozen
class Event:
    """One event of a watch: `ADDED`, `MODIFIED`, `DELETED` or `BOOKMARK`."""

    kind: str
    item: Fields


@frozen
class ItemList:
    """A whole list, and the version at which it was true."""

    items: tuple[Fields, ...]
    version: str


class KubernetesClient:
    """One API server, asked as one user."""

    def __init__(
        self,
        context: Context,
        identity: Identity | None = None,
        *,
        timeout_seconds: float = 15.0,
        page_items: int = _PAGE_ITEMS,
    ) -> None:
        self.context = context
        self.identity = identity or Identity(context)
        self._timeout_seconds = timeout_seconds
        self._page_items = page_items
        self._client: httpx.Client | None = None
        self._secrets: tuple[str, ...] = ()

    def close(self) -> None:
        """Close every connection."""
        if self._client is not None:
            client, self._client = self._client, None
            client.close()

    def get(self, path: str, parameters: Mapping[str, str] = _NO_PARAMETERS) -> dict[str, Any]:
        """One object. KubernetesError with the server's words."""
        return self.send("GET", path, parameters)

    def list(self, path: str, parameters: Mapping[str, str] = _NO_PARAMETERS) -> ItemList:
        """All items of a collection, however many pages they take."""
        found: list[Fields] = []
        following = ""
        restarted = False
        while True:
            asked = {
                **parameters,
                "limit": str(self._page_items),
                **({"continue": following} if following else {}),
            }
            try:
                page = self.get(path, asked)
            except KubernetesError as error:
                if error.status != _GONE or restarted:
                    raise
                found, following, restarted = [], "", True
                continue
            found.extend(item for item in items(page, "items") if isinstance(item, dict))
            following = verbatim(page, "metadata", "continue") or ""
            if not following:
                return ItemList(tuple(found), text(page, "metadata", "resourceVersion") or "")

    def watch(
        self, path: str, version: str, parameters: Mapping[str, str] = _NO_PARAMETERS, *, seconds: float
    ) -> Iterator[Event]:
        """What happens after `version`, for about `seconds`. VersionGoneError: list again."""
        asked = {
            **parameters,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(max(1, round(seconds))),
        }
        timeout = httpx.Timeout(self._timeout_seconds, read=seconds + self._timeout_seconds)
        try:
            with self._open().stream(
                "GET",
                self._url(path),
                params=asked,
                headers=self._headers(),
                timeout=timeout,
                extensions=self._sni(),
            ) as response:
                if response.status_code == _GONE:
                    raise VersionGoneError
                if response.status_code != httpx.codes.OK:
                    response.read()
                    raise self._refusal("GET", path, response)
                for line in response.iter_lines():
                    if line.strip():
                        yield _event(line)
        except httpx.RemoteProtocolError:
            return  # closed in mid-stream: what was lost comes again after the last version that was seen
        except httpx.TransportError as error:
            raise self._fault(error) from None

    def send(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, str] = _NO_PARAMETERS,
        body: Any = None,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        """One request and its JSON answer. KubernetesError: refused, or no answer."""
        response = self._asked(method, path, parameters, body, content_type)
        if response.status_code == httpx.codes.UNAUTHORIZED and self.identity.refused():
            self.close()  # a new client certificate may come with the new token
            response = self._asked(method, path, parameters, body, content_type)
        if not response.is_success:
            raise self._refusal(method, path, response)
        answer = decoded(response.content)
        if not isinstance(answer, dict):
            raise KubernetesError(f"{self._shown()}: no JSON; is this a Kubernetes API server?")
        return answer

    def _asked(
        self, method: str, path: str, parameters: Mapping[str, str], body: Any, content_type: str
    ) -> httpx.Response:
        headers = self._headers()
        content = None
        if body is not None:
            headers["Content-Type"] = content_type
            content = json.dumps(body).encode()
        try:
            return self._open().request(
                method,
                self._url(path),
                params=dict(parameters),
                content=content,
                headers=headers,
                extensions=self._sni(),
            )
        except httpx.TransportError as error:
            raise self._fault(error) from None
        except httpx.InvalidURL:
            raise KubernetesError(f"{self.context.name}: its server is no URL") from None

    def _open(self) -> httpx.Client:
        if self._client is None:
            credentials = self.identity.credentials()
            origin = Origin.of(_parts(self.context.server))
            try:
                self._client = httpx.Client(
                    verify=tls_context(credentials) if origin.scheme == "https" else False,
                    proxy=proxy_of(credentials, origin.scheme, origin.host),
                    trust_env=False,
                    timeout=self._timeout_seconds,
                )
            except FetchError as error:
                raise KubernetesError(f"{self._shown()}: {error.detail}") from None
            except (ValueError, ImportError):
                raise KubernetesError(f"{self._shown()}: its proxy-url cannot be used") from None
        return self._client

    def _url(self, path: str) -> str:
        return f"{self.context.server}{path}"

    def _headers(self) -> dict[str, str]:
        headers = {"User-Agent": USER_AGENT, "Accept": "application/json"}
        try:
            authorization = self.identity.credentials().authorization()
        except FetchError as error:
            raise KubernetesError(f"{self._shown()}: {error.detail}", 401) from None
        if authorization is not None:
            headers["Authorization"], self._secrets = authorization
        return headers

    def _sni(self) -> dict[str, Any]:
        name = self.context.tls_server_name
        return {} if name is None else {"sni_hostname": name}

    def _shown(self) -> str:
        return f"Kubernetes {self.context.name} ({Origin.of(_parts(self.context.server)).url})"

    def _fault(self, error: httpx.TransportError) -> KubernetesError:
        if isinstance(error, httpx.TimeoutException):
            return KubernetesError(f"{self._shown()}: no answer in time; {_OTHER_CONTEXT}")
        try:
            fault = connection_fault(error)
            said = fault.detail if fault.kind is FailureKind.TLS else f"{fault.detail}; {_OTHER_CONTEXT}"
        except httpx.TransportError:
            said = "the connection broke"
        for ours, theirs in _KUBECONFIG_WORDS:
            said = said.replace(ours, theirs)
        return KubernetesError(f"{self._shown()}: {said}")

    def _refusal(self, method: str, path: str, response: httpx.Response) -> KubernetesError:
        """What helps, and the server's own words, without what it was sent; these may be cut off."""
        answer = decoded(bytes_without_these(response.content, self._secrets))
        said = text(answer, "message") or without_these(response.reason_phrase, self._secrets)
        status = response.status_code
        helps = _HELP.get(status)
        asked = "" if status in _TELLS_ITSELF else f"{method} {path}: "
        told = f"{status}, {helps}" if helps else str(status)
        return KubernetesError(f"{self._shown()}: {told}: {asked}{said}", status)


_KUBECONFIG_WORDS = (
    ("name its CA with ca_file", "name its CA with certificate-authority in the kubeconfig"),
    ("ca_file", "certificate-authority"),
    ("client_cert_file", "client-certificate"),
)
"""What a file of credentials is called in a kubeconfig."""

_OTHER_CONTEXT = "is that the context you mean? Name one with --discover kubernetes:CONTEXT"
_HELP = {
    401: "log in to the cluster again",
    403: "ask for that verb in a Role of yours",
    404: "the kind or the object is not there",
    409: "somebody else changed it, or owns that field",
    415: "this kind does not take that form of a patch",
}
_TELLS_ITSELF = frozenset({401, 403})
"""Answers that name verb and resource, or have none."""


def _parts(url: str) -> SplitResult:
    """`url` split; a port that is none counts as none."""
    parts = urlsplit(url)
    try:
        _ = parts.port
    except ValueError:
        return urlsplit(f"{parts.scheme}://{parts.hostname or ''}")
    return parts


def _event(line: str) -> Event:
    event = decoded(line)
    kind, item = field_at(event, "type"), field_at(event, "object")
    if not isinstance(kind, str) or not isinstance(item, dict):
        raise KubernetesError("a watch with lines that are no events; is this a Kubernetes API server?")
    if kind == "ERROR":
        if integer(item, "code") == _GONE:
            raise VersionGoneError
        raise KubernetesError(f"the watch failed: {text(item, 'message') or 'no reason given'}")
    return Event(kind, item)
