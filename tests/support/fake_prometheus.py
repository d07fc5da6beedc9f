"""A small Prometheus for tests: it was given pages at times, and answers what enginetop asks of one.

It knows range selectors and instant selectors over `__name__`, `job` and `server`, as the real one answers
them (a test holds it against Debian's): a range holds raw samples, an instant the newest one of the last five
minutes unless the target was given up before, `up` has a sample for every scrape, failed ones included.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from prometheus_client.parser import text_string_to_metric_families

Labels = Mapping[str, str]
Reply = tuple[int, bytes]

_MATCHER = re.compile(r'(\w+)(=~|=|!=)"((?:[^"\\]|\\.)*)"')
_RANGE = re.compile(r"\[(\d+)s\]$")
_SUM = re.compile(r"sum by \(([^)]*)\) \((.*)\)")
_LOOKBACK_SECONDS = 300.0


@dataclass
class FakePrometheus:
    """Series in memory. `fault` answers in its place where it has something to say to a path."""

    time: float = 1000.0
    warnings: list[str] = field(default_factory=list)
    fault: Callable[[str], Reply | None] = lambda path: None
    active: list[Any] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    queries: list[Mapping[str, list[str]]] = field(default_factory=list)
    _samples: dict[tuple[tuple[str, str], ...], list[tuple[float, str]]] = field(default_factory=dict)
    _ended: dict[tuple[tuple[str, str], ...], float] = field(default_factory=dict)

    def scraped(self, labels: Labels, at: float, page: str | None, *, late: bool = False) -> None:
        """One scrape of the target with these labels; None: it failed. `late`: only its `up` has arrived."""
        self._add("up", labels, at, "0" if page is None else "1")
        self._add("scrape_duration_seconds", labels, at, "0.25")
        if page is not None and not late:
            self.arrived(labels, at, page)

    def arrived(self, labels: Labels, at: float, page: str) -> None:
        """The series of one scrape, without its `up`."""
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                own = {f"exported_{n}" if n in labels else n: v for n, v in sample.labels.items()}
                self._add(sample.name, {**own, **labels}, at, _number(sample.value))

    def given_up(self, labels: Labels, at: float) -> None:
        """The target is scraped no more: its series end."""
        for key in self._samples:
            if labels.items() <= dict(key).items():
                self._ended[key] = at

    def _add(self, name: str, labels: Labels, at: float, value: str) -> None:
        key = tuple(sorted({"__name__": name, **labels}.items()))
        self._samples.setdefault(key, []).append((at, value))
        self._ended.pop(key, None)

    def answer(self, path: str, query: Mapping[str, list[str]]) -> Reply:
        """Status and body of one request."""
        self.asked.append(path)
        self.queries.append(query)
        fault = self.fault(path)
        if fault is not None:
            return fault
        if path == "/api/v1/query":
            return self._ok(self._query(query["query"][0], float(query.get("time", [str(self.time)])[0])))
        if path == "/api/v1/query_range":
            return self._ok(self._over(*(query[name][0] for name in ("query", "start", "end", "step"))))
        if path == "/api/v1/targets":
            return self._ok({"activeTargets": self.active})
        found = re.fullmatch(r"/api/v1/label/(\w+)/values", path)
        if found is None:
            return 404, b"404 page not found\n"
        start, end = float(query["start"][0]), float(query["end"][0])
        match = query.get("match[]", ["{}"])[0]
        keys = [key for key, samples in self._selected(match) if any(start <= t <= end for t, _ in samples)]
        return self._ok(sorted({dict(key)[found[1]] for key in keys if found[1] in dict(key)}))

    def _ok(self, data: Any) -> Reply:
        document: dict[str, Any] = {"status": "success", "data": data}
        if self.warnings:
            document["warnings"] = self.warnings
        return 200, json.dumps(document).encode()

    def _query(self, query: str, at: float) -> Any:
        if query == "time()":
            return {"resultType": "scalar", "result": [at, str(at)]}
        span = _RANGE.search(query)
        result: list[Any] = []
        for key, samples in self._selected(query.removesuffix(span[0]) if span else query):
            if span:
                values = [[t, v] for t, v in samples if at - int(span[1]) < t <= at]
                if values:
                    result.append({"metric": dict(key), "values": values})
            else:
                newest = next(((t, v) for t, v in reversed(samples) if t <= at), None)
                ended = self._ended.get(key, at + 1) <= at
                if newest is not None and at - newest[0] < _LOOKBACK_SECONDS and not ended:
                    result.append({"metric": dict(key), "value": [at, newest[1]]})
        return {"resultType": "matrix" if span else "vector", "result": result}

    def _over(self, query: str, start: str, end: str, step: str) -> Any:
        """`sum by (LABELS) (SELECTOR)` at each step, by the newest samples of at most five minutes before."""
        found = _SUM.fullmatch(query)
        assert found is not None, query
        labels = [label for label in found[1].split(", ") if label]
        sums: dict[tuple[tuple[str, str], ...], dict[float, float]] = {}
        at = float(start)
        while at <= float(end):
            for key, samples in self._selected(found[2]):
                newest = next(((t, v) for t, v in reversed(samples) if t <= at), None)
                if newest is not None and at - newest[0] < _LOOKBACK_SECONDS:
                    group = tuple((label, dict(key).get(label, "")) for label in labels)
                    points = sums.setdefault(group, {})
                    points[at] = points.get(at, 0.0) + float(newest[1])
            at += float(step)
        result = [
            {"metric": dict(group), "values": [[t, repr(v)] for t, v in points.items()]}
            for group, points in sums.items()
        ]
        return {"resultType": "matrix", "result": result}

    def recorded(self, name: str, labels: Labels, at: float, value: float) -> None:
        """A sample of a recording rule."""
        self._add(name, labels, at, repr(value))

    def _selected(
        self, selector: str
    ) -> Iterator[tuple[tuple[tuple[str, str], ...], list[tuple[float, str]]]]:
        name = selector.partition("{")[0]
        matchers = [
            (label, how, re.sub(r"\\(.)", r"\1", text)) for label, how, text in _MATCHER.findall(selector)
        ]
        for key, samples in self._samples.items():
            labels = dict(key)
            if name and labels["__name__"] != name:
                continue
            if all(_matches(labels.get(label, ""), how, text) for label, how, text in matchers):
                yield key, samples

    @contextmanager
    def serving(self) -> Iterator[str]:
        """The base URL while it is served on loopback."""
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                length = int(self.headers.get("content-length") or 0)
                body = self.rfile.read(length).decode()
                parts = urlsplit(self.path)
                fake.headers.append({name.lower(): text for name, text in self.headers.items()})
                status, data = fake.answer(parts.path, parse_qs(parts.query + ("&" + body if body else "")))
                self.send_response(status)
                if status in (301, 302, 307):
                    self.send_header("Location", data.decode())
                    data = b""
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = _serve  # noqa: N815

            def log_message(self, *_: Any) -> None:
                return

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


def _matches(value: str, how: str, text: str) -> bool:
    if how == "=~":
        return re.fullmatch(text, value) is not None
    return (value == text) is (how == "=")


def _number(value: float) -> str:
    text = repr(value)
    return {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}.get(text, text)
