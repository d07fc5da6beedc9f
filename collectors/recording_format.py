"""The lines of a recording: what one scrape or GPU report looks like in a file, and back.

Written and read here alone, so that a replay sees what the wire brought. A recording may be handed to
strangers: no credential and no free text of a JSON page gets into it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from types import MappingProxyType
from typing import Any, TypeGuard

from collectors.answer import Answer
from collectors.fetch import KEPT_HEADERS, one_line
from collectors.gpu.items import gpus_from_items
from collectors.json_fields import number
from collectors.origin import METRICS_PATHS
from collectors.records.formats import ENGINETOP
from collectors.records.lines import RequestLine, read
from collectors.redact import Keep, public_body, public_url
from collectors.secrets import without_secrets
from enginetop.fleet.fleet_tracker import default_name
from enginetop.fleet.foreign_json import decoded
from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import Target
from enginetop.fleet.observation import FailureKind
from enginetop.fleet.request_records import RequestFigures
from enginetop.fleet.snapshot import GpuReport

VERSION = 1
GPU_SCHEME = "gpu://"
DEFAULT_HEADERS: Mapping[str, str] = MappingProxyType({"content-type": "text/plain; version=0.0.4"})

_LONGEST_ADDRESS = 2048
_ERROR_WORDS = frozenset(
    {
        FailureKind.TIMEOUT,
        FailureKind.REFUSED,
        FailureKind.TLS,
        FailureKind.DNS,
        FailureKind.TRUNCATED,
        FailureKind.TOO_LARGE,
        FailureKind.PROTOCOL,
    }
)


@frozen(eq=False)
class ScrapeRecord:
    """One page of one target. All pages of a scrape have the same `at`."""

    at: float
    url: str
    answer: Answer


@frozen(eq=False)
class GpuRecord:
    """The GPUs of one host at one instant."""

    at: float
    report: GpuReport


@frozen(eq=False)
class RequestRecord:
    """One request that the target `url` served: numbers only, never text."""

    at: float
    url: str
    figures: RequestFigures


Record = ScrapeRecord | GpuRecord | RequestRecord


class RecordError(ValueError):
    """A line that is no record; the text says why."""


def header_line(created: float, targets: Sequence[Target], interval_seconds: float) -> str:
    """The first line. Targets and interval are there for people and for the order and names in a replay."""
    known = [
        {"url": public_url(target.url), "name": target.name}
        | ({} if target.metrics_path is None else {"page": target.metrics_path})
        for target in targets
    ]
    return _line(
        {
            "enginetop_recording": VERSION,
            "created": created,
            "interval_seconds": interval_seconds,
            "targets": known,
        }
    )


def answer_line(url: str, at: float, answer: Answer, keep: Keep) -> str:
    """The line of one page; `at` is when its scrape was complete."""
    record: dict[str, Any] = {"t": at, "target": public_url(url), "path": answer.path}
    if answer.error in _ERROR_WORDS:
        return _line(
            {**record, "error": str(answer.error), "seconds": answer.seconds, "detail": answer.detail}
        )
    if answer.error is not None:
        # the only other error is a key that could not be had; a server would have said the same
        return _line({**record, "status": 401, "seconds": answer.seconds, "body": ""})
    record["status"] = answer.status
    record["headers"] = {
        name: without_secrets(text) for name, text in answer.headers.items() if name in KEPT_HEADERS
    }
    record["seconds"] = answer.seconds
    # undecodable bytes survive as lone surrogates, which JSON can escape: a broken page is replayed as broken
    record["body"] = public_body(answer, keep).decode("utf-8", "surrogateescape")
    return _line(record)


def gpu_line(report: GpuReport) -> str:
    """The line of one host's GPUs."""
    gpus = [asdict(device) for device in report.gpus]
    return _line(
        {
            "t": report.at,
            "target": GPU_SCHEME + report.host,
            "kind": "gpu",
            "gpus": gpus,
            "problem": report.problem,
            "exporter": public_url(report.exporter) if report.exporter else "",
            "host_names": report.host_names,
        }
    )


def request_line(url: str, at: float, request: RequestLine) -> str:
    """The line of one request that the target `url` served and that ended at `at`."""
    told = {
        name: int(figure) if figure.is_integer() else figure
        for name, paths in ENGINETOP.numbers.items()
        if name in paths and (figure := getattr(request, name)) is not None
    }
    record = {"t": at, "target": public_url(url), "kind": "request", **told}
    return _line({**record, "finish": request.finish} if request.finish else record)


def parse_header(line: str) -> tuple[Target, ...] | None:
    """The targets that a header line names; None when the line is no header."""
    document = decoded(line)
    if not isinstance(document, dict) or "enginetop_recording" not in document:
        return None
    listed = document.get("targets")
    return tuple(_header_targets(listed if isinstance(listed, list) else []))


def parse_record(line: str) -> Record | None:
    """The record of one line; None for a header and for kinds that this version does not know.

    Raises RecordError when the line is no record.
    """
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        raise RecordError("not JSON") from None
    if not isinstance(document, dict):
        raise RecordError("not a JSON object")
    if "enginetop_recording" in document:
        return None
    kind = document.get("kind", "page")
    if kind not in ("page", "gpu", "request"):
        return None
    at = number(document, "t")
    url = document.get("target")
    if at is None:
        raise RecordError("no time `t`")
    if not _is_address(url):
        raise RecordError("no `target`")
    url = _public(url)
    if kind == "request":
        return RequestRecord(at, url.rstrip("/"), read(document, ENGINETOP).figures(at))
    if kind == "gpu" or url.startswith(GPU_SCHEME):
        return GpuRecord(at, _gpu_report(document, url.removeprefix(GPU_SCHEME), at))
    return ScrapeRecord(at, url.rstrip("/"), _answer(document, at))


def _public(url: str) -> str:
    """The address of a record without what may be a credential: a recording need not be ours."""
    try:
        return public_url(url)
    except ValueError:
        raise RecordError("a `target` that is no address") from None


def _header_targets(listed: Sequence[object]) -> Iterator[Target]:
    for entry in listed:
        if isinstance(entry, dict) and _is_address(url := entry.get("url")):
            name, page = entry.get("name"), entry.get("page")
            with suppress(RecordError):
                target = target_of(url, name if isinstance(name, str) else None)
                yield replace(target, metrics_path=page) if page in METRICS_PATHS else target


def target_of(url: str, name: str | None = None) -> Target:
    """The target of a base URL, named after its address unless it has a name.

    Raises RecordError when the URL is none.
    """
    url = _public(url).rstrip("/")
    return Target(url, one_line(name or default_name(url)))


def _answer(document: Mapping[str, Any], at: float) -> Answer:
    path = document.get("path")
    if not _is_address(path) or not path.startswith("/"):
        raise RecordError("no `path`")
    path = path.partition("?")[0]
    seconds = number(document, "seconds") or 0.0
    error = document.get("error")
    if error is not None:
        if not isinstance(error, str) or error not in _ERROR_WORDS:
            raise RecordError("an unknown `error`")
        detail = document.get("detail")
        return Answer(
            path,
            at,
            seconds,
            error=FailureKind(error),
            detail=one_line(detail if isinstance(detail, str) else ""),
        )
    status = document.get("status", 200)
    if not isinstance(status, int) or isinstance(status, bool):
        raise RecordError("a `status` that is no number")
    headers, body = document.get("headers"), document.get("body", "")
    if not isinstance(body, str):
        raise RecordError("a `body` that is no text")
    named = DEFAULT_HEADERS
    if isinstance(headers, dict):
        named = {str(name).lower(): str(text) for name, text in headers.items()}
    return Answer(path, at, seconds, status, named, _encoded(body))


def _encoded(body: str) -> bytes:
    try:
        return body.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return body.encode("utf-8", "replace")  # surrogates that no page of ours left there


def _gpu_report(document: Mapping[str, Any], host: str, at: float) -> GpuReport:
    listed = document.get("gpus")
    if not isinstance(listed, list):
        raise RecordError("no list `gpus`")
    problem, exporter = document.get("problem"), document.get("exporter")
    names = document.get("host_names")
    return GpuReport(
        host,
        at,
        gpus_from_items(listed),
        one_line(problem) if isinstance(problem, str) else "",
        exporter if _is_address(exporter) else "",
        tuple(name for name in names if _is_address(name)) if isinstance(names, list) else (),
    )


def _is_address(text: object) -> TypeGuard[str]:
    """Whether it may be a URL or a path: both are shown, so that neither may hold what a terminal obeys."""
    return isinstance(text, str) and 0 < len(text) <= _LONGEST_ADDRESS and text.isprintable()


def _line(document: Mapping[str, Any]) -> str:
    # a NaN would be no JSON; figures that are not finite are not known
    return json.dumps(_without_nan(document), separators=(", ", ": ")) + "\n"


def _without_nan(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {name: _without_nan(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return value
