"""The HTTP API of a Prometheus: queries and label values, one clean line for everything that fails.

`prometheus_api_client` does the talking, over a session whose rules are ours: keys are read at use, redirects
stay within the origin, no retries behind our back, and what a server says beside its result is heard. Not for
an event loop: every call waits for its answer.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from math import isfinite
from types import MappingProxyType
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException

from collectors.fetch import (
    NO_CREDENTIALS,
    USER_AGENT,
    Credentials,
    FetchError,
    connection_fault,
    one_line,
)
from collectors.full_http import tls_context
from collectors.origin import Origin
from collectors.prometheus.ahead import asked_ahead
from collectors.secrets import without_these
from enginetop.fleet.errors import EnginetopError
from enginetop.fleet.foreign_json import field_at
from enginetop.fleet.observation import FailureKind

TENANT_HEADER = "X-Scope-OrgID"

_NO_PARAMETERS: Mapping[str, str] = MappingProxyType({})
_HEAD_BYTES = 4096
_WARNINGS = re.compile(rb'"warnings"\s*:\s*\[\s*"((?:[^"\\]|\\.)*)"')
_PARTIAL = b'"isPartial":true'
_MOST_ERROR_BYTES = 65_536
_OTHER_FORM = "an answer of another form than expected; is this a Prometheus?"


class PrometheusError(EnginetopError):
    """No usable answer. `kind` says why; the text is one line that names the server."""

    def __init__(self, kind: FailureKind, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class PrometheusClient:
    """One server, by the base URL of its API (with a prefix where it has one: `https://host/prometheus`).

    Any thread may ask; `warning` is that of the thread's own newest result.
    """

    def __init__(
        self,
        url: str,
        credentials: Credentials = NO_CREDENTIALS,
        *,
        tenant: str | None = None,
        parameters: Mapping[str, str] = _NO_PARAMETERS,
        timeout_seconds: float = 30.0,
    ) -> None:
        """`parameters` go with every request (Thanos: `dedup`, `partial_response`)."""
        self.url = url.rstrip("/")
        self._shown = Origin.of(urlsplit(self.url)).url
        self._credentials = credentials
        self._timeout_seconds = timeout_seconds
        self._secrets: tuple[str, ...] = ()
        self._heard_here = threading.local()
        self._session = requests.Session()
        self._session.verify = not credentials.insecure_skip_verify and (credentials.ca_file or True)
        if credentials.client_cert_file is not None:
            own = (credentials.client_cert_file, credentials.client_key_file or credentials.client_cert_file)
            self._session.cert = own
        self._files_unread = self.url.startswith("https:")
        self._session.headers["User-Agent"] = USER_AGENT
        self._session.params = dict(parameters)
        if tenant is not None:
            self._session.headers[TENANT_HEADER] = tenant
        self._session.hooks["response"] = [self._heard]
        self._api = PrometheusConnect(
            self.url,
            session=self._session,
            retry=0,
            auth=self._with_key,
            timeout=timeout_seconds,
            method="POST",
        )

    @property
    def warning(self) -> str:
        """What the server said beside the newest result (a part of the data is missing); empty: nothing."""
        return str(getattr(self._heard_here, "warning", ""))

    def close(self) -> None:
        """Close every connection."""
        self._session.close()

    def now(self) -> float:
        """Unix time by the server's clock: that at which it evaluates a query without a time."""
        result = self._list(lambda: self._api.custom_query("time()"))
        try:
            sample = (
                result[0]["value"] if isinstance(result[0], dict) else result
            )  # a vector: VictoriaMetrics
            at, _ = sample
            return float(at)
        except (IndexError, KeyError, TypeError, ValueError):
            raise self._error(FailureKind.PROTOCOL, _OTHER_FORM) from None

    def matrix(self, query: str, at: float) -> Sequence[dict[str, Any]]:
        """Raw samples of a range selector at Unix time `at`: `{"metric": labels, "values": [[t, v], ...]}`.

        Also a part of the data may be all there is: `warning` then says so.
        """
        params = {"time": f"{at:.3f}"}
        return self._series(lambda: self._api.custom_query(query, params))

    def matrices(self, queries: Iterable[str], at: float) -> Iterator[tuple[Sequence[dict[str, Any]], str]]:
        """`matrix` of each query with its warning, the next ones asked for while the caller works on one."""
        return asked_ahead(partial(self._with_warning, query, at) for query in queries)

    def _with_warning(self, query: str, at: float) -> tuple[Sequence[dict[str, Any]], str]:
        return self.matrix(query, at), self.warning

    def over(self, query: str, start: float, end: float, step: float) -> Sequence[dict[str, Any]]:
        """A query at every `step` seconds from Unix time `start` (whole seconds) to `end`, as `matrix`."""
        times = (datetime.fromtimestamp(at, UTC) for at in (start, end))
        return self._series(lambda: self._api.custom_query_range(query, *times, str(round(step))))

    def label_values(self, label: str, start: float, end: float, match: str | None = None) -> Sequence[str]:
        """The values of a label between two times, of the series that `match` selects."""
        params = {"start": f"{start:.3f}", "end": f"{end:.3f}"}
        if match is not None:
            params["match[]"] = match
        values = self._list(lambda: self._api.get_label_values(label, params))
        return [value for value in values if isinstance(value, str)]

    def active_targets(self) -> Sequence[Any]:
        """What the server scrapes, with the error of the newest scrape; empty where it does not tell."""
        try:
            data = self._call(lambda: self._api.get_targets("active"))
        except PrometheusError as error:
            if error.kind in (FailureKind.NO_ENGINE_METRICS, FailureKind.PROTOCOL):
                return ()  # Thanos and Mimir have no targets of their own
            raise
        found = field_at(data, "activeTargets")
        return found if isinstance(found, list) else ()

    def _series(self, ask: Callable[[], Any]) -> list[dict[str, Any]]:
        found = self._list(ask)
        if not all(map(_is_series, found)):
            raise self._error(FailureKind.PROTOCOL, _OTHER_FORM)
        for one in found:
            one.setdefault("values", [])  # of an instant there is a `value`, which nobody reads
        return found

    def _list(self, ask: Callable[[], Any]) -> list[Any]:
        found = self._call(ask)
        if not isinstance(found, list):
            raise self._error(FailureKind.PROTOCOL, _OTHER_FORM)
        return found

    def _call(self, ask: Callable[[], Any]) -> Any:
        self._heard_here.warning = ""
        try:
            if self._files_unread:
                tls_context(self._credentials)  # says what is wrong with a file in better words than requests
                self._files_unread = False
            return ask()
        except PrometheusError:
            raise
        except FetchError as error:
            raise self._error(error.kind, error.detail) from None
        except requests.exceptions.Timeout:
            raise self._error(FailureKind.TIMEOUT, f"no answer within {self._timeout_seconds:g} s") from None
        except (PrometheusApiClientException, KeyError, TypeError, ValueError):
            raise self._error(
                FailureKind.PROTOCOL, "no answer of a Prometheus API; check the address"
            ) from None
        except OSError as error:  # all of requests' own are
            try:
                fault = connection_fault(error)
            except OSError as own:
                raise self._error(FailureKind.PROTOCOL, f"{type(own).__name__}") from None
            raise self._error(fault.kind, fault.detail) from None

    def _error(self, kind: FailureKind, detail: str) -> PrometheusError:
        said = without_these(detail, self._secrets)
        return PrometheusError(kind, one_line(f"prometheus {self._shown}: {said}"))

    def _with_key(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """The key is read at use, so that it can be rotated; no .netrc puts another one in its place."""
        authorization = self._credentials.authorization()
        if authorization is not None:
            request.headers["Authorization"], self._secrets = authorization
        return request

    def _heard(self, response: requests.Response, *_args: Any, **_kwargs: Any) -> None:
        """Look at an answer before anybody makes something of it."""
        if response.is_redirect:
            self._within_origin(response)
        elif response.status_code != 200:
            raise self._refused(response)
        else:
            at = response.content.rfind(b'"warnings"')  # the last of all keys, however many they are
            said = _WARNINGS.match(response.content, at) if at >= 0 else None
            if said is not None:
                words = without_these(said[1].decode("utf-8", "replace"), self._secrets)
                self._heard_here.warning = one_line(words)
            elif _PARTIAL in response.content[:_HEAD_BYTES].replace(b" ", b""):
                self._heard_here.warning = "a part of the data is missing"

    def _within_origin(self, response: requests.Response) -> None:
        try:
            other = Origin.of(urlsplit(urljoin(response.url, response.headers.get("location", ""))))
        except ValueError:
            response.close()
            raise self._error(FailureKind.PROTOCOL, "redirected to a malformed address") from None
        if other != Origin.of(urlsplit(self.url)):
            response.close()
            raise self._error(
                FailureKind.PROTOCOL, f"redirected to {other.url}, not followed: name that address"
            )

    def _refused(self, response: requests.Response) -> PrometheusError:
        status = response.status_code
        try:
            said = field_at(response.json(), "error") if len(response.content) < _MOST_ERROR_BYTES else None
        except ValueError:
            said = None
        words = f": {said}" if isinstance(said, str) and said.strip() else ""
        if status in (401, 403):
            hint = "; it needs a key, or another one: [prometheus] api_key_env, api_key_file or username"
            return self._error(FailureKind.UNAUTHORIZED, f"HTTP {status}{words}{hint}")
        if status in (404, 405):
            return self._error(
                FailureKind.NO_ENGINE_METRICS, f"HTTP {status}: no Prometheus API at that path"
            )
        kind = FailureKind.TIMEOUT if status in (408, 504) else FailureKind.SERVER_ERROR
        return self._error(kind if status != 400 else FailureKind.PROTOCOL, f"HTTP {status}{words}")


def _is_series(one: Any) -> bool:
    """Whether it has labels of text, and samples of a time and a number as text; quickly, there are many."""
    try:
        "".join(one["metric"].values())
        for at, value in one.get("values", ()):
            float("" + value)
            if not isfinite(at):
                return False
    except (AttributeError, KeyError, TypeError, ValueError):
        return False
    return True
