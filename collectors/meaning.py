"""What an answer means that is no good metrics page: a kind of failure, and one clean line for people."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from collectors.answer import Answer
from collectors.engines.base import EngineTable
from collectors.page import Page
from collectors.sanitise import clean_text
from collectors.secrets import without_secrets
from enginetop.fleet.foreign_json import decoded, field_at
from enginetop.fleet.frozen import frozen
from enginetop.fleet.observation import FailureKind

_QUOTE_CHARACTERS = 120
_HEAD_BYTES = 4096
_TITLE = re.compile(r"<title[^>]*>([^<]*)", re.IGNORECASE)
_LOADING = re.compile(r"loading|starting|initiali[sz]ing|warming up|not ready yet", re.IGNORECASE)
_EXPOSITION = re.compile(r"\bversion=[01]\.", re.IGNORECASE)
"""What the types of metrics pages have in common, and others have not."""
_END_OF_PAGE = b"# EOF"
_NO_BEGIN_OF_A_PAGE = b"<[{\xef\xbb\xbf \t\r\n"
"""With one of these a web page or JSON may begin; a long body that begins otherwise is neither."""
_PROCESS_PREFIXES = ("python_", "process_", "http_", "go_", "promhttp_", "scrape_")

_TELLING: tuple[FailureKind, ...] = (
    FailureKind.UNAUTHORIZED,
    FailureKind.LOADING,
    FailureKind.DISABLED,
    FailureKind.SERVER_ERROR,
    FailureKind.TRUNCATED,
    FailureKind.TOO_LARGE,
    FailureKind.PROTOCOL,
    FailureKind.TIMEOUT,
    FailureKind.REFUSED,
    FailureKind.DNS,
    FailureKind.TLS,
    FailureKind.NO_ENGINE_METRICS,
    FailureKind.COLLECTOR,
)
"""The most telling of several failures is reported: the first of these kinds that occurs."""


@frozen
class Miss:
    """Why an answer is no good page; `detail` is empty where there is nothing to add to the kind.

    `absent`: nothing is at that path, so that another may be tried. `queue`: what was read was taken from a
    queue, and is missing to others now. `exposition`: a metrics page, as its type says, without series.
    """

    kind: FailureKind
    detail: str
    absent: bool = False
    queue: bool = False
    exposition: bool = False


def miss_of(answer: Answer, table: EngineTable | None = None) -> Miss | None:
    """What the answer means before its body is parsed; None when the body may be a metrics page."""
    if answer.error is None and answer.status == 200:
        return _miss_of_body(answer)
    at = f"at {answer.path}"
    if answer.error is not None:
        return Miss(answer.error, quoted(answer.detail))
    status = answer.status
    if status in (401, 403):
        helps = "needs an API key, or another one: api_key_env or api_key_file in the config file"
        return Miss(FailureKind.UNAUTHORIZED, f"HTTP {status} {at}: {helps}")
    if status == 501:
        return Miss(FailureKind.DISABLED, f"HTTP 501 {at}: switched off{_hint(table)}", absent=True)
    if status >= 500:
        loading = status == 503 and _LOADING.search(_head(answer)) is not None
        kind = FailureKind.LOADING if loading else FailureKind.SERVER_ERROR
        return Miss(kind, f"HTTP {status} {at}{_said(answer)}")
    if 300 <= status < 400:
        return _no_metrics(f"HTTP {status} {at}: a redirect{_redirected_to(answer)}, not followed")
    if status in (404, 410):
        return Miss(FailureKind.NO_ENGINE_METRICS, f"HTTP {status} {at}{_hint(table)}", absent=True)
    if not 200 <= status < 300:
        return _no_metrics(f"HTTP {status} {at}{_said(answer)}")
    return _miss_of_body(answer)


def miss_of_page(answer: Answer, page: Page, table: EngineTable | None = None) -> Miss:
    """Why a page that was parsed is no engine's."""
    at = f"at {answer.path}"
    if page.problem:
        return Miss(FailureKind.TOO_LARGE, f"no engine's series {at}: {quoted(page.problem)}")
    if "html" in answer.headers.get("content-type", "").lower():
        return _no_metrics(f"a web page {at}")
    names = page.layout.names
    if not names:
        return _no_metrics(f"not a metrics page {at}")
    foreign = next((name for name in names if not name.startswith(_PROCESS_PREFIXES)), None)
    if foreign is not None:
        return _no_metrics(f"no engine's series {at}; it begins with {quoted(foreign)}")
    cause = _hint(table) or "; the port of another process, or an engine started without statistics"
    return _no_metrics(f"only process metrics {at}{cause}")


def most_telling(misses: Sequence[tuple[Answer, Miss]]) -> Miss:
    """Of one or more misses the one that is reported; where paths are absent it names all of them."""
    _, miss = min(misses, key=lambda item: (_TELLING.index(item[1].kind), item[1].absent))
    paths = [answer.path for answer, other in misses if other.absent and other.kind is miss.kind]
    if not miss.absent or len(paths) < 2:
        return miss
    detail = miss.detail.replace(f"at {paths[0]}", f"at {' and '.join(paths)}", 1)
    return replace(miss, detail=detail)


def quoted(text: str) -> str:
    """Foreign text as part of one line."""
    return clean_text(without_secrets(" ".join(text.split())), _QUOTE_CHARACTERS)


def _miss_of_body(answer: Answer) -> Miss | None:
    if len(answer.body) >= _HEAD_BYTES and answer.body[:1] not in _NO_BEGIN_OF_A_PAGE:
        return None
    at = f"at {answer.path}"
    start = answer.body[:_HEAD_BYTES].lstrip(b"\xef\xbb\xbf \t\r\n")
    if not start or _is_end_alone(answer.body):
        if not _EXPOSITION.search(answer.headers.get("content-type", "")):
            return _no_metrics(f"an empty page {at}")
        detail = f"an empty metrics page {at}: nothing was counted since the start"
        return Miss(FailureKind.NO_ENGINE_METRICS, detail, exposition=True)
    if start.startswith(b"<"):
        title = _TITLE.search(_head(answer))
        shown = quoted(_unescaped(title[1])) if title else ""
        return _no_metrics(f'a web page {at}: "{shown}"' if shown else f"a web page {at}")
    # A Prometheus line may begin with a brace too, so only what decodes is JSON.
    if start[:1] in b"[{" and (body := decoded(answer.body)) is not None:
        if isinstance(body, list):
            detail = (
                f"a JSON array {at}, as TensorRT-LLM's queue of iterations: "
                "its Prometheus page is /prometheus/metrics (return_perf_metrics)"
            )
            return Miss(FailureKind.NO_ENGINE_METRICS, detail, queue=True)
        return _no_metrics(f"JSON {at}{_said(answer)}")
    return None


def _unescaped(title: str) -> str:
    from html import unescape  # a table of all entities: half a megabyte for whoever never meets a web page

    return unescape(title)


def _is_end_alone(body: bytes) -> bool:
    return len(body) < _HEAD_BYTES and body.strip() == _END_OF_PAGE


def _no_metrics(detail: str) -> Miss:
    return Miss(FailureKind.NO_ENGINE_METRICS, detail)


def _hint(table: EngineTable | None) -> str:
    return f"; {table.enable_hint}" if table and table.enable_hint else ""


def _head(answer: Answer) -> str:
    return answer.body[:_HEAD_BYTES].decode("utf-8", "replace")


def _said(answer: Answer) -> str:
    """The message of an error body, where engines put it."""
    body = decoded(answer.body[: 16 * _HEAD_BYTES])
    for path in (("error", "message"), ("error",), ("message",), ("detail",)):
        if isinstance(said := field_at(body, *path), str) and said.strip():
            return f": {quoted(said)}"
    return ""


def _redirected_to(answer: Answer) -> str:
    """Where to, without what a query or credentials in the URL might tell."""
    try:
        parts = urlsplit(answer.headers.get("location", ""))
        return f" to {quoted((parts.hostname or '') + parts.path)}" if parts.path or parts.hostname else ""
    except ValueError:
        return ""
