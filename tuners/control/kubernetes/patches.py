"""A change of flags as what an API server takes, and whether its answer is what was meant. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from enginetop.fleet.foreign_json import Fields
from enginetop.fleet.model import EngineKind
from tuners.control.kubernetes.arguments import written
from tuners.control.kubernetes.change_points import ChangePoint, Pointer

JSON_PATCH = "application/json-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
MANAGER = "enginetop"


Value = Sequence[str] | str
Also = Sequence[tuple[ChangePoint, Value]]
"""Other places, and what they say then."""


def written_at(
    point: ChangePoint, kind: EngineKind, values: Mapping[str, int | None]
) -> tuple[list[str] | str, Also]:
    """What a place says with these values of knobs, and what the others say then. FlagError: not possible."""
    also = tuple((other, written(other.present, other.style, kind, values)) for other in point.others)
    return written(point.present, point.style, kind, values), also


def json_patch(
    owner: Fields,
    point: ChangePoint,
    value: Value,
    change: str,
    *,
    guarded: bool = True,
    also: Also = (),
) -> list[dict[str, Any]]:
    """The change as JSON Patch. It is refused (422) when the words around it are others by then, and with
    `guarded` when the object is another one at all. Only the words that differ are in it.

    `change` names it in the annotation where one has to move.
    """
    version = owner.get("metadata", {}).get("resourceVersion")
    operations: list[dict[str, Any]] = []
    if guarded:
        operations.append({"op": "test", "path": "/metadata/resourceVersion", "value": version})
    for place, words in ((point, value), *also):
        operations += _changed(owner, place, words)
    if point.bump is not None:
        operations += _put(owner, point.bump, change)
    return operations


def _changed(owner: Fields, point: ChangePoint, value: Value) -> Iterator[dict[str, Any]]:
    if point.there and not isinstance(value, str):
        yield from _words_changed(pointer(point.place), list(point.present), list(value))
        return
    if point.there:
        yield {"op": "test", "path": pointer(point.place), "value": _plain(point.present)}
    yield from _put(owner, point.place, _plain(value))


def _words_changed(at: str, before: list[str], after: list[str]) -> Iterator[dict[str, Any]]:
    """From one list to the other: the flag before a changed word is tested with it."""
    if len(after) < len(before):
        yield {"op": "test", "path": at, "value": before}
        yield {"op": "replace", "path": at, "value": after}
        return
    for place, (old, new) in enumerate(zip(before, after, strict=False)):
        if old != new:
            if place:
                yield {"op": "test", "path": f"{at}/{place - 1}", "value": before[place - 1]}
            yield {"op": "test", "path": f"{at}/{place}", "value": old}
            yield {"op": "replace", "path": f"{at}/{place}", "value": new}
    for word in after[len(before) :]:
        yield {"op": "add", "path": f"{at}/-", "value": word}


def apply_body(owner: Fields, point: ChangePoint, value: Value) -> dict[str, Any]:
    """The first place of it for a server-side apply: a dry run without force names who owns it (409)."""
    meta = owner.get("metadata", {})
    body: dict[str, Any] = {
        "apiVersion": owner.get("apiVersion"),
        "kind": owner.get("kind"),
        "metadata": {"name": meta.get("name"), "namespace": meta.get("namespace")},
    }
    at: Any = body
    source: Any = owner
    for step, following in zip(point.place, (*point.place[1:], None), strict=True):
        source = source[step] if _has(source, step) else None
        if following is None:
            at[step if isinstance(step, str) else 0] = _plain(value)
        elif isinstance(following, int):
            named = source[following] if _has(source, following) else {}
            at[step] = [{"name": named["name"]} if isinstance(named, dict) and "name" in named else {}]
            at = at[step]
        elif isinstance(step, int):
            at = at[0]
        else:
            at[step] = {}
            at = at[step]
    return body


def missing(meant: Pointer, value: Sequence[str] | str, answer: Fields) -> str:
    """What of a change the server's answer does not have, in words; empty: it is all there.

    A field that the installed CRD does not know is dropped in silence (pruned).
    """
    at: Any = answer
    for step in meant:
        if not _has(at, step):
            return f"{pointer(meant)} was dropped: the CRD that is installed does not know it"
        at = at[step]
    return "" if at == _plain(value) else f"{pointer(meant)} would be {at!r}"


def pointer(place: Pointer) -> str:
    """RFC 6901."""
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in place)


def _put(owner: Fields, place: Pointer, value: Any) -> Iterator[dict[str, Any]]:
    """Operations that write `value`, with what is missing above it."""
    at: Any = owner
    for depth, step in enumerate(place[:-1]):
        if not _has(at, step):
            for inner in reversed(place[depth + 1 :]):
                value = {inner: value}
            yield {"op": "add", "path": pointer(place[: depth + 1]), "value": value}
            return
        at = at[step]
    yield {"op": "replace" if _has(at, place[-1]) else "add", "path": pointer(place), "value": value}


def _has(value: Any, step: str | int | None) -> bool:
    if isinstance(value, dict):
        return step in value
    return isinstance(value, list) and isinstance(step, int) and 0 <= step < len(value)


def _plain(value: Sequence[str] | str) -> list[str] | str:
    return value if isinstance(value, str) else list(value)
