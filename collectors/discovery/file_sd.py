"""Prometheus file-SD: lists of targets in JSON or YAML files, read again when they change.

The format is Prometheus's own (`file_sd_config`): a list of groups, each with `targets` (host:port) and
`labels`. Of the labels `__scheme__`, `__metrics_path__`, `name`, `instance_id`, `model` and `role` are read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from collectors.discovery.listing import MAX_LISTED, Listed, ListingError, role_of, target_at
from collectors.home import at_home
from enginetop.fleet.frozen import frozen

_MOST_BYTES = 16 * 1024 * 1024
_IDENTITIES = ("instance_id", "name")
"""Labels that stay with a replica when its address changes, surest first."""

_WILD = frozenset("*?[")

_Stamp = tuple[int, int, int]


@frozen
class _Read:
    """The last good list of a file, the file as it was at the newest look, and what was wrong then."""

    stamp: _Stamp
    listed: tuple[Listed, ...]
    problem: str = ""


class FileSd:
    """The targets of one file, or of all files that a pattern names. A `Source`.

    A file that is broken (half written, say) keeps its last good list until it is whole again.
    """

    every_seconds = 1.0

    def __init__(self, pattern: str) -> None:
        self.title = f"file_sd {pattern}"
        self.note = ""
        self._path = at_home(pattern)
        self._is_pattern = not _WILD.isdisjoint(self._path.name)
        self._files: dict[Path, _Read] = {}

    def look(self) -> Sequence[Listed]:
        """The targets of all files. ListingError when the only file cannot be read and never could."""
        paths = self._paths()
        self._files = {path: self._read(path, self._files.get(path)) for path in paths}
        problems = [f"{path}: {read.problem}" for path, read in self._files.items() if read.problem]
        if problems and len(problems) == len(self._files) and not any(r.listed for r in self._files.values()):
            raise ListingError(f"{problems[0]}; a list in Prometheus's file-SD form is needed there")
        self.note = f"{problems[0]}; its last good list stays in force" if problems else ""
        listed = [one for read in self._files.values() for one in read.listed]
        if len(listed) > MAX_LISTED:
            raise ListingError(f"{self.title}: more than {MAX_LISTED} targets")
        return listed

    def _paths(self) -> Sequence[Path]:
        if not self._is_pattern:
            return (self._path,)
        try:
            return sorted(self._path.parent.glob(self._path.name))
        except OSError as error:
            raise ListingError(f"{self.title}: {error.strerror}") from None

    def _read(self, path: Path, before: _Read | None) -> _Read:
        kept = before.listed if before is not None else ()
        try:
            found = path.stat()
            stamp = (found.st_mtime_ns, found.st_ino, found.st_size)
            if before is not None and before.stamp == stamp:
                return before
            with path.open("rb") as file:
                data = file.read(_MOST_BYTES + 1)
        except OSError as error:
            return _Read((0, 0, 0), kept, (error.strerror or "cannot be read").lower())
        try:
            if len(data) > _MOST_BYTES:
                raise ValueError(f"larger than {_MOST_BYTES >> 20} MiB")
            return _Read(stamp, tuple(listed_in(_decoded(path, data))))
        except ValueError as error:
            return _Read(stamp, kept, str(error))


def listed_in(document: Any) -> Iterator[Listed]:
    """The targets of a decoded document. ValueError says in a few words what is wrong with it."""
    if not isinstance(document, list):
        raise ValueError("not a list of target groups")
    for number, group in enumerate(document):
        where = f"group {number}"
        if not isinstance(group, dict) or not isinstance(group.get("targets"), list):
            raise ValueError(f"{where} has no list of targets")
        labels = group.get("labels") or {}
        if not isinstance(labels, dict) or not all(isinstance(v, str | int | float) for v in labels.values()):
            raise ValueError(f"the labels of {where} are not words")
        words = {str(name): str(value) for name, value in labels.items()}
        for address in group["targets"]:
            try:
                yield _listed(address, words, alone=len(group["targets"]) == 1)
            except ValueError as error:
                raise ValueError(f"a target of {where}: {error}") from None


def _listed(address: Any, labels: Mapping[str, str], *, alone: bool) -> Listed:
    """One target. Labels of a group with several targets name none of them in particular."""
    if not isinstance(address, str):
        raise ValueError("an address that is no word")
    named = labels if alone else {}
    target = target_at(
        address.strip(),
        scheme=labels.get("__scheme__", "http"),
        metrics_path=labels.get("__metrics_path__"),
        name=named.get("name", ""),
        model=labels.get("model"),
        role=role_of(labels.get("role")),
        pod="/".join(filter(None, (labels.get("namespace"), named["pod"]))) if named.get("pod") else "",
        container=labels.get("container", ""),
    )
    return Listed(target, next((named[label] for label in _IDENTITIES if named.get(label)), ""))


def _decoded(path: Path, data: bytes) -> Any:
    """The document. ValueError when there is none (yet): a file that is being written begins empty."""
    if not data.strip():
        raise ValueError("empty")
    try:
        if path.suffix in (".yml", ".yaml"):
            return _from_yaml(data)
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        line = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
        raise ValueError(f"not {'YAML' if path.suffix in ('.yml', '.yaml') else 'JSON'}{line}") from None


def _from_yaml(data: bytes) -> Any:
    import yaml  # only who has YAML files pays for it

    try:
        return yaml.load(data, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe
    except yaml.YAMLError:
        raise ValueError("not YAML") from None
