"""Silences and acknowledgements on disk, shared by the screen, `watch`, `check` and the command line.

One small JSON file, replaced atomically under a lock. A file that cannot be read is never overwritten: it is
set aside by the first change after it, and said so.
"""

from __future__ import annotations

import errno
import json
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from enginetop.alerts.rule import Key
from enginetop.alerts.silence import NO_QUIET, Acknowledgement, Quiet, Silence
from enginetop.fleet.errors import EnginetopError
from tuners.control.files import locked, write_synced

SCHEMA = "enginetop.quiet/1"

_MOST_BYTES = 4 * 1024 * 1024
_OF_THE_PLACE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.EEXIST})
"""What another place, or other rights at this one, would mend."""

Edit = Callable[[Quiet], Quiet]


class QuietError(EnginetopError):
    """What was asked for cannot be done; the text says why, in one line."""


class QuietFile:
    """The file at `path`; a `QuietSource`. Safe between threads and processes.

    `problem` says in one line why the file cannot be read, empty when it can; what was read before counts on.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = path.with_suffix(".lock")
        self._seen: tuple[int, int, int] | None = None
        self._quiet = NO_QUIET
        self.problem = ""

    def read(self) -> Quiet:
        """See `QuietSource`; the file is read again only when it has changed."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            self._seen, self._quiet, self.problem = None, NO_QUIET, ""
            return self._quiet
        except OSError as error:
            self.problem = _cannot_be_read(self._path, error)
            return self._quiet
        seen = (found.st_ino, found.st_mtime_ns, found.st_size)
        if seen != self._seen:
            self._seen = seen
            try:
                self._quiet, self.problem = _parsed(self._path), ""
            except (OSError, ValueError) as error:
                self.problem = f"{_cannot_be_read(self._path, error)}; what was read before counts on"
        return self._quiet

    def add(self, silence: Silence, now: float) -> tuple[Silence, str]:
        """Keep a silence, under a new id; the silence, and what else is to be said. QuietError."""
        named = replace(silence, id=secrets.token_hex(4))
        return named, self._edit(
            lambda quiet: replace(
                quiet, silences=(*(one for one in quiet.silences if one.until > now), named)
            )
        )

    def expire(self, silence_id: str) -> Silence:
        """Take a silence back. QuietError: there is none of this id."""
        known = {one.id: one for one in self.read().silences}
        if silence_id not in known:
            there = ", ".join(known) or "none"
            raise QuietError(self.problem or f"no silence {silence_id!r} is in force (there are: {there})")
        self._edit(
            lambda quiet: replace(
                quiet, silences=tuple(one for one in quiet.silences if one.id != silence_id)
            )
        )
        return known[silence_id]

    def acknowledge(self, acknowledgement: Acknowledgement) -> str:
        """Keep an acknowledgement, in place of a former one; what else is to be said. QuietError."""
        return self._edit(
            lambda quiet: replace(
                quiet, acknowledgements=(*_without(quiet, {acknowledgement.key}), acknowledgement)
            )
        )

    def withdraw(self, key: Key) -> None:
        """Take an acknowledgement back. QuietError: the file cannot be written."""
        self._edit(lambda quiet: replace(quiet, acknowledgements=_without(quiet, {key})))

    def forget(self, over: Iterable[Acknowledgement]) -> None:
        """See `QuietSource`. Does not wait for whoever has the file."""
        gone = set(over)
        try:
            with locked(self._lock, wait=False):
                quiet = _parsed(self._path)
                kept = tuple(one for one in quiet.acknowledgements if one not in gone)
                if kept != quiet.acknowledgements:
                    self._write(replace(quiet, acknowledgements=kept))
        except (OSError, ValueError):
            return  # it is tried again with the next snapshot

    def _edit(self, edit: Edit) -> str:
        said = ""
        try:
            with locked(self._lock):
                try:
                    quiet = _parsed(self._path)
                except FileNotFoundError:
                    quiet = NO_QUIET
                except ValueError as error:
                    aside = self._set_aside()
                    said = f"{_cannot_be_read(self._path, error)}; it was set aside as {aside.name}"
                    quiet = NO_QUIET
                self._write(edit(quiet))
        except OSError as error:
            reason = (error.strerror or "cannot be written").lower()
            fix = "; make it writable, or set XDG_STATE_HOME" if error.errno in _OF_THE_PLACE else ""
            raise QuietError(f"{self._path}: {reason}; nothing was changed{fix}") from None
        return said

    def _set_aside(self) -> Path:
        number = 1
        while (aside := self._path.with_name(f"{self._path.stem}.broken-{number}.json")).exists():
            number += 1
        self._path.rename(aside)
        return aside

    def _write(self, quiet: Quiet) -> None:
        write_synced(self._path, json.dumps(quiet_document(quiet), indent=1).encode() + b"\n")


def quiet_document(quiet: Quiet) -> dict[str, Any]:
    """The file's content."""
    return {
        "schema": SCHEMA,
        "silences": [silence_document(silence) for silence in quiet.silences],
        "acknowledgements": [
            {
                "rule": one.key[0],
                "severity": one.key[1],
                "target": one.key[2],
                "subject": dict(one.key[3]),
                "at": one.at,
                "by": one.by,
                "note": one.note,
            }
            for one in quiet.acknowledgements
        ],
    }


def silence_document(silence: Silence) -> dict[str, Any]:
    """One silence as JSON."""
    return {
        "id": silence.id,
        "rule": silence.rule,
        "target": silence.target,
        "until": silence.until,
        "by": silence.by,
        "reason": silence.reason,
    }


def _parsed(path: Path) -> Quiet:
    """The content of a file. OSError, or ValueError with words: it is none of ours, or damaged."""
    with path.open("rb") as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ValueError("it is too large")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError("it is damaged") from None
    if not isinstance(document, Mapping) or document.get("schema") != SCHEMA:
        raise ValueError(f"it is no {SCHEMA}")
    try:
        return Quiet(
            tuple(_silence(one) for one in document["silences"]),
            tuple(_acknowledgement(one) for one in document["acknowledgements"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise ValueError("an entry is damaged") from None


def _silence(found: Mapping[str, Any]) -> Silence:
    texts = {name: str(found[name]) for name in ("rule", "target", "reason", "id", "by")}
    return Silence(until=float(found["until"]), **texts)


def _acknowledgement(found: Mapping[str, Any]) -> Acknowledgement:
    subject = tuple(sorted((str(name), str(value)) for name, value in found["subject"].items()))
    key: Key = (str(found["rule"]), str(found["severity"]), str(found["target"]), subject)
    return Acknowledgement(key, float(found["at"]), str(found["by"]), str(found["note"]))


def _without(quiet: Quiet, keys: set[Key]) -> tuple[Acknowledgement, ...]:
    return tuple(one for one in quiet.acknowledgements if one.key not in keys)


def _cannot_be_read(path: Path, error: Exception) -> str:
    reason = (error.strerror or "") if isinstance(error, OSError) else str(error)
    return f"{path}: silences and acknowledgements cannot be read: {reason.lower()}"
