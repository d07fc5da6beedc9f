"""What of an answer may be written to a recording: pages of numbers whole, of all else as little as possible.

Argument vectors, environment dumps and error texts of a server can hold keys. So of a JSON page only declared
fields are kept, and of other text only the start that tells what kind of page it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit, urlunsplit

from collectors.answer import Answer
from collectors.secrets import bytes_without_secrets

Keep = Mapping[str, Sequence[str]]
"""Fields of JSON pages that may be written, by path: dotted names, `[]` for each item of a list, `*` for each
value of a mapping whose keys nobody knows beforehand."""

_ANY = "*"

# What a server says when it refuses to serve a page ("Loading model"): it tells loading from broken.
_ERROR_FIELDS = ("error.message", "error.type", "error.code", "message", "status")
_OTHER_TEXT_BYTES = 512


def public_body(answer: Answer, keep: Keep) -> bytes:
    """The part of a body that may be kept."""
    return bytes_without_secrets(_kept_body(answer, keep))


def _kept_body(answer: Answer, keep: Keep) -> bytes:
    if answer.status in (401, 403):
        return b""  # such pages may echo the key
    kind = answer.headers.get("content-type", "").lower()
    start = answer.body[:256].lstrip().lower()
    if "json" in kind or start[:1] in (b"{", b"["):
        fields_kept = keep.get(answer.path, ()) if answer.status == 200 else _ERROR_FIELDS
        try:
            document = json.loads(answer.body)
        except (ValueError, RecursionError):
            # a server may call its metrics page JSON; what begins like JSON is a broken page of it
            metrics = answer.path.rstrip("/").endswith("/metrics") and start[:1] not in (b"{", b"[", b'"')
            if "json" in kind and not metrics:
                return b""
        else:
            return json.dumps(reduced(document, fields_kept), separators=(",", ":")).encode()
    if answer.status != 200 or "html" in kind or start.startswith((b"<!doctype", b"<html")):
        return answer.body[:_OTHER_TEXT_BYTES]
    return answer.body


def reduced(document: object, kept: Sequence[str]) -> object:
    """`document` with nothing but the scalars at the dotted paths `kept` (and the lists around them)."""
    if isinstance(document, list):
        inner = [path.removeprefix("[]").removeprefix(".") for path in kept if path.startswith("[]")]
        # Without a path into the list there is nothing to look for, however deep it goes.
        return [reduced(item, inner) for item in document] if inner else []
    if not isinstance(document, dict):
        return document if "" in kept and not isinstance(document, list | dict) else None
    found: dict[str, object] = {}
    heads = {_head(path) for path in kept}
    for name in document if _ANY in heads else heads:
        if name in document:
            inner = [_tail(path, head) for path in kept if (head := _head(path)) in (name, _ANY)]
            found[name] = reduced(document[name], inner)
    return found


def _head(path: str) -> str:
    return path.partition(".")[0].partition("[")[0]


def _tail(path: str, head: str) -> str:
    return path[len(head) :].removeprefix(".")


def public_url(url: str) -> str:
    """`url` without user information, query and fragment."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
