"""A small Kubernetes API server for tests, over real HTTP, that behaves as a real one (1.20) was seen to.

Lists in pages whose `continue` can expire (410); watches with bookmarks, an expired version as an ERROR event
of code 410 inside a stream of status 200, and an end without a word; 401, 403 naming verb and resource, 404,
409 for a stale version and for a field that another manager owns, 415 for a strategic patch of a custom
resource, 422 for a failed `test`; dry runs that change nothing; fields that the schema does not know are
pruned in silence; a pod proxy that wants a number for a port.
"""

from __future__ import annotations

import copy
import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

Item = dict[str, Any]
Key = tuple[str, str, str, str]
"""Group and version (`v1`, `apps/v1`), plural, namespace, name."""

TOKEN = "fake-cluster-token"
_OPAQUE = "." + "A" * 600
"""A `continue` token is as long as its server likes."""


class RefusedError(Exception):
    """An answer that is a Status."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message

    @property
    def status(self) -> Item:
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }


@dataclass
class FakeKubernetes:
    """Objects in memory.

    `forbidden` holds (verb, resource, namespace or `*`). `known` are the fields that a kind's schema has, by
    plural: others are pruned. `owned` has the manager of a field path of an object, for server-side apply.
    `changed` is called after each write, as a controller would be. `pages` are those of pods, by namespace,
    name and port.
    """

    tokens: set[str] = field(default_factory=lambda: {TOKEN})
    forbidden: set[tuple[str, str, str]] = field(default_factory=set)
    known: dict[str, Callable[[Item], Item]] = field(default_factory=dict)
    owned: dict[tuple[Key, str], str] = field(default_factory=dict)
    changed: list[Callable[[FakeKubernetes, Key], None]] = field(default_factory=list)
    pages: dict[tuple[str, str, int], Callable[[str], tuple[int, bytes]]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    compacted: int = 0
    """Versions before this one are forgotten."""
    continues_expire: int = 0
    """So many more pages after the first answer 410."""
    cut_watches: int = 0
    """So many watches are closed in the middle."""
    bookmarks: bool = True
    trusts_all: bool = False
    """As behind a `kubectl proxy`: who sends no credentials is known."""
    _items: dict[Key, Item] = field(default_factory=dict)
    _events: list[tuple[int, str, Key, Item]] = field(default_factory=list)
    _version: int = 100
    _happened: threading.Condition = field(default_factory=threading.Condition)

    def put(self, api: str, plural: str, item: Item) -> Key:
        """Create or replace an object, as any other client would."""
        meta = item["metadata"]
        key = (api, plural, meta.get("namespace", ""), meta["name"])
        self._store(key, copy.deepcopy(item))
        return key

    def get(self, key: Key) -> Item:
        """The object now."""
        return copy.deepcopy(self._items[key])

    def remove(self, key: Key) -> None:
        """Delete an object."""
        with self._happened:
            gone = self._items.pop(key)
            self._log("DELETED", key, gone)

    def keys(self, plural: str) -> list[Key]:
        """All objects of a kind."""
        return [key for key in self._items if key[1] == plural]

    def _store(self, key: Key, item: Item) -> Item:
        with self._happened:
            kind = "MODIFIED" if key in self._items else "ADDED"
            item.setdefault("apiVersion", key[0])
            item["metadata"].setdefault("uid", f"uid-{key[1]}-{key[3]}")
            if kind == "MODIFIED" and _changed(key[1], self._items[key], item):
                item["metadata"]["generation"] = self._items[key]["metadata"].get("generation", 1) + 1
            item["metadata"].setdefault("generation", 1)
            self._items[key] = item
            self._log(kind, key, item)
        return item

    def _log(self, kind: str, key: Key, item: Item) -> None:
        self._version += 1
        item["metadata"]["resourceVersion"] = str(self._version)
        self._events.append((self._version, kind, key, copy.deepcopy(item)))
        self._happened.notify_all()

    def listed(self, api: str, plural: str, namespace: str, query: Mapping[str, str]) -> Item:
        """A page of a list."""
        found = [
            item
            for key, item in sorted(self._items.items())
            if key[:2] == (api, plural) and namespace in ("", key[2]) and _selected(item, query)
        ]
        start = int(query.get("continue", "0").removesuffix(_OPAQUE))
        if start and self.continues_expire:
            self.continues_expire -= 1
            raise RefusedError(410, "Expired", "The provided continue parameter is too old")
        end = start + int(query.get("limit", "100000"))
        meta = {"resourceVersion": str(self._version)}
        if end < len(found):
            meta["continue"] = f"{end}{_OPAQUE}"
        return {"kind": "List", "apiVersion": api, "metadata": meta, "items": found[start:end]}

    def events(self, api: str, plural: str, namespace: str, query: Mapping[str, str]) -> Iterator[Item]:
        """The lines of a watch."""
        after = int(query["resourceVersion"])
        if after < self.compacted:
            said = RefusedError(410, "Expired", f"too old resource version: {after} ({self.compacted})")
            yield {"type": "ERROR", "object": said.status}
            return
        cut = self.cut_watches > 0
        self.cut_watches -= cut
        left = float(query.get("timeoutSeconds", "1"))
        while True:
            with self._happened:
                news = [
                    event
                    for event in self._events
                    if event[0] > after and event[2][:2] == (api, plural) and namespace in ("", event[2][2])
                ]
                if not news:
                    if not self._happened.wait(left):
                        break
                    continue
            for version, kind, _, item in news:
                after = version
                if _selected(item, query):
                    yield {"type": kind, "object": item}
                if cut:
                    return
            left = 0.05
        if self.bookmarks and query.get("allowWatchBookmarks") == "true":
            mark = {"kind": "Pod", "apiVersion": api, "metadata": {"resourceVersion": str(self._version)}}
            yield {"type": "BOOKMARK", "object": mark}

    def review(self, verb: str, plural: str, namespace: str) -> bool:
        """Whether a verb is allowed."""
        return not any((verb, plural, where) in self.forbidden for where in ("*", namespace))

    def patch(self, key: Key, kind: str, body: Any, query: Mapping[str, str]) -> Item:
        """A write to an object. The answer is the object as it would be."""
        if key not in self._items:
            raise RefusedError(404, "NotFound", f'{key[1]} "{key[3]}" not found')
        before = self._items[key]
        custom = key[0] not in ("v1", "apps/v1")
        if kind == "application/strategic-merge-patch+json" and custom:
            raise RefusedError(
                415, "UnsupportedMediaType", "the body of the request was in an unknown format"
            )
        if kind == "application/json-patch+json":
            after = _json_patched(copy.deepcopy(before), body)
        else:
            version = body.get("metadata", {}).get("resourceVersion")
            if version is not None and version != before["metadata"]["resourceVersion"]:
                raise RefusedError(409, "Conflict", "the object has been modified; please apply your changes")
            if kind == "application/apply-patch+yaml" and query.get("force") != "true":
                self._conflicts(key, body, query.get("fieldManager", ""))
            after = _merged(copy.deepcopy(before), body)
        after = self.known.get(key[1], _whole)(after)
        if query.get("dryRun") == "All":
            return after
        if kind == "application/apply-patch+yaml":
            self.owned |= {(key, path): query.get("fieldManager", "") for path, _ in _leaves(body)}
        stored = self._store(key, after)
        for controller in self.changed:
            controller(self, key)
        return stored

    def create(self, api: str, plural: str, namespace: str, body: Item, query: Mapping[str, str]) -> Item:
        """A new object."""
        body["metadata"].setdefault("namespace", namespace)
        key = (api, plural, namespace, body["metadata"]["name"])
        if key in self._items:
            raise RefusedError(409, "AlreadyExists", f'{plural} "{key[3]}" already exists')
        body = self.known.get(plural, _whole)(body)
        if query.get("dryRun") == "All":
            return body
        stored = self._store(key, body)
        for controller in self.changed:
            controller(self, key)
        return stored

    def answer(
        self, method: str, path: str, query: Mapping[str, str], body: Any, content_type: str = ""
    ) -> Item | Iterator[Item]:
        """The answer to a request; the lines of a watch. RefusedError."""
        steps = [unquote(step) for step in path.strip("/").split("/")]
        if steps[0] == "api":
            api, rest = steps[1], steps[2:]
        else:
            api, rest = "/".join(steps[1:3]), steps[3:]
        if not rest:
            versions = sorted({key[0] for key in self._items if key[0].startswith(f"{steps[1]}/")})
            if not versions:
                raise RefusedError(404, "NotFound", "404 page not found")
            return {"kind": "APIGroup", "versions": [{"groupVersion": version} for version in versions]}
        if rest == ["selfsubjectaccessreviews"]:
            asked = body["spec"]["resourceAttributes"]
            allowed = self.review(asked["verb"], asked["resource"], asked.get("namespace", ""))
            return {"kind": "SelfSubjectAccessReview", "status": {"allowed": allowed}}
        namespace, rest = (rest[1], rest[2:]) if rest[0] == "namespaces" else ("", rest)
        plural, name = rest[0], rest[1] if len(rest) > 1 else ""
        watching = query.get("watch") == "true"
        verb = {"POST": "create", "PATCH": "patch", "DELETE": "delete"}.get(
            method, "get" if name else "watch" if watching else "list"
        )
        if not self.review(verb, plural, namespace):
            where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
            raise RefusedError(
                403,
                "Forbidden",
                f'{plural} is forbidden: User "sre" cannot {verb} resource "{plural}" in API group '
                f'"{api.rpartition("/")[0]}" {where}',
            )
        if verb == "watch":
            return self.events(api, plural, namespace, query)
        if verb == "list":
            return self.listed(api, plural, namespace, query)
        if verb == "create":
            return self.create(api, plural, namespace, body, query)
        key = (api, plural, namespace, name)
        if verb == "patch":
            return self.patch(key, content_type, body, query)
        if key not in self._items:
            raise RefusedError(404, "NotFound", f'{plural} "{name}" not found')
        if verb == "delete":
            uid = ((body or {}).get("preconditions") or {}).get("uid")
            if uid is not None and uid != self._items[key]["metadata"]["uid"]:
                raise RefusedError(409, "Conflict", f"the UID in the precondition ({uid}) does not match")
            if query.get("dryRun") != "All":
                self.remove(key)
                for controller in self.changed:
                    controller(self, key)
            return {"kind": "Status", "status": "Success"}
        return self.get(key)

    def _conflicts(self, key: Key, body: Item, manager: str) -> None:
        there = dict(_leaves(self._items[key]))
        for path, value in _leaves(body):
            other = self.owned.get((key, path))
            if other is not None and other != manager and there.get(path) != value:
                raise RefusedError(
                    409,
                    "Conflict",
                    f'Apply failed with 1 conflict: conflict with "{other}": .{path}',
                )


def _changed(plural: str, before: Item, after: Item) -> bool:
    """Whether the generation moves: with the spec, and with the annotations of a Deployment."""
    annotations = [one["metadata"].get("annotations") for one in (before, after)]
    return before.get("spec") != after.get("spec") or (
        plural == "deployments" and annotations[0] != annotations[1]
    )


def _whole(item: Item) -> Item:
    return item


def _selected(item: Item, query: Mapping[str, str]) -> bool:
    for one in filter(None, query.get("fieldSelector", "").split(",")):
        path, differs, wanted = one.partition("!=") if "!=" in one else one.partition("=")
        value: Any = item
        for step in path.split("."):
            value = value.get(step, {}) if isinstance(value, dict) else {}
        if (value == wanted) is (differs == "!="):
            return False
    labels = item["metadata"].get("labels", {})
    asked = (one.partition("=") for one in filter(None, query.get("labelSelector", "").split(",")))
    return all(
        labels.get(name) == value.lstrip("=") if equals else name in labels for name, equals, value in asked
    )


def _merged(target: Item, patch: Item) -> Item:
    """RFC 7386."""
    for name, value in patch.items():
        if value is None:
            target.pop(name, None)
        elif isinstance(value, dict):
            inner = target.get(name)
            target[name] = _merged(inner if isinstance(inner, dict) else {}, value)
        else:
            target[name] = value
    return target


def _json_patched(target: Item, operations: list[Item]) -> Item:
    """RFC 6902: `test`, `replace`, `add` and `remove`."""
    for operation in operations:
        steps = [one.replace("~1", "/").replace("~0", "~") for one in operation["path"].split("/")[1:]]
        at: Any = target
        for step in steps[:-1]:
            at = at[int(step)] if isinstance(at, list) else at[step]
        last: Any = int(steps[-1]) if isinstance(at, list) and steps[-1] != "-" else steps[-1]
        match operation["op"]:
            case "test":
                found = at.get(last) if isinstance(at, dict) else at[last]
                if found != operation["value"]:
                    raise RefusedError(422, "Invalid", f"the test of {operation['path']} failed")
            case "remove":
                del at[last]
            case "add" if isinstance(at, list):
                at.insert(len(at) if last == "-" else last, operation["value"])
            case _:
                at[last] = operation["value"]
    return target


def _leaves(item: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value that is no mapping, with its path. Lists are atomic, as in custom resources."""
    if isinstance(item, dict):
        for name, value in item.items():
            yield from _leaves(value, f"{path}.{name}" if path else name)
    else:
        yield path, item


@contextmanager
def serving(fake: FakeKubernetes) -> Iterator[str]:
    """The fake on a free port of loopback; its URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_: object) -> None:
            return

        def _answer(self) -> None:
            parts = urlsplit(self.path)
            fake.asked.append(f"{self.command} {self.path}")
            size = int(self.headers.get("content-length") or 0)
            body = json.loads(self.rfile.read(size)) if size else None
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            try:
                known = {f"Bearer {one}" for one in fake.tokens} | ({""} if fake.trusts_all else set())
                if self.headers.get("authorization", "") not in known:
                    raise RefusedError(401, "Unauthorized", "Unauthorized")
                if "/proxy" in parts.path:
                    self._proxied(parts.path)
                    return
                kind = self.headers.get("content-type", "")
                answer = fake.answer(self.command, parts.path, query, body, kind)
            except RefusedError as refused:
                self._json(refused.code, refused.status)
                return
            if isinstance(answer, dict):
                self._json(200, answer)
            else:
                self._stream(answer)

        do_GET = do_POST = do_PATCH = do_DELETE = _answer  # noqa: N815 - names that the base class calls

        def _proxied(self, path: str) -> None:
            steps = path.strip("/").split("/")
            namespace, pod = unquote(steps[3]), unquote(steps[5]).removeprefix("https:")
            if not fake.review("get", "pods/proxy", namespace):
                raise RefusedError(
                    403, "Forbidden", f'pods "{pod}" is forbidden: cannot get resource "pods/proxy"'
                )
            name, _, port = pod.partition(":")
            if not port.isdecimal():
                raise RefusedError(400, "BadRequest", "address not allowed")
            page = fake.pages.get((namespace, name, int(port)))
            if page is None:
                raise RefusedError(
                    503, "ServiceUnavailable", "error trying to reach service: dial tcp: timeout"
                )
            status, body = page("/" + "/".join(steps[7:]))
            self.send_response(status)
            self.send_header("content-type", "text/plain; version=0.0.4")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _json(self, status: int, answer: Item) -> None:
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _stream(self, lines: Iterator[Item]) -> None:
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            try:
                for line in lines:
                    data = json.dumps(line).encode() + b"\n"
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
                    self.wfile.flush()
                self.wfile.write(b"0\r\n\r\n")
            except OSError:
                self.close_connection = True  # the client has heard enough

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            if not isinstance(sys.exc_info()[1], OSError):  # who asked was killed, or has heard enough
                super().handle_error(request, client_address)

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
