"""The audit: append-only JSON lines, each with the hash of the one before, on disk before the act.

A second file holds the head (number of lines and last hash), so that a cut tail shows. A crash may leave a
torn last line or a head that is one append behind; both are told apart from tampering: a torn line has no
line feed, and the head is written after the lines it counts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from enginetop.fleet.change import AuditRow, ChangeState, Verdict
from enginetop.fleet.foreign_json import decoded
from enginetop.fleet.frozen import frozen
from tuners.control.files import append_synced, locked, locked_to_read, write_synced

_GENESIS = "0" * 64


@frozen
class AuditCheck:
    """Whether the audit is intact. `problem` names the first line that is not; `lines` were looked at."""

    lines: int
    problem: str = ""

    @property
    def intact(self) -> bool:
        """Nothing is missing and nothing was altered."""
        return not self.problem


class Audit:
    """The audit in a folder. Several processes may append; each append is one locked step."""

    def __init__(self, folder: Path) -> None:
        self._lines = folder / "audit.jsonl"
        self._head = folder / "audit.head"
        self._lock = folder / "audit.lock"

    def append(self, rows: Sequence[AuditRow]) -> None:
        """Write rows to disk; returns when they are there. OSError when they cannot be."""
        if not rows:
            return
        with locked(self._lock):
            whole = self._whole_bytes()
            count, last = whole.count(b"\n"), _last_hash(whole)
            head = self._read_head()
            if head is not None and head[0] > count:
                last = head[1]  # lines were cut off: the chain must go on showing it
            text = b""
            for row in rows:
                document = row_document(row)
                last = _hash(last, document)
                text += _line({**document, "hash": last})
                count += 1
            append_synced(self._lines, text, keep_bytes=len(whole))
            write_synced(self._head, json.dumps({"lines": count, "hash": last}).encode() + b"\n")

    def rows(self) -> tuple[AuditRow, ...]:
        """All rows that can be read, oldest first; lines that are none are left out."""
        found: list[AuditRow] = []
        for line in self._whole_bytes().splitlines():
            row = _parse(line)
            if row is not None:
                found.append(row)
        return tuple(found)

    def verify(self) -> AuditCheck:
        """Follow the chain from the first line to the head."""
        if not self._lock.parent.exists():
            return AuditCheck(0)
        with locked_to_read(self._lock):
            whole = self._whole_bytes()
            head = self._read_head()
        last = _GENESIS
        hashes = [last]
        lines = whole.splitlines()
        for number, line in enumerate(lines, 1):
            document = decoded(line)
            found = document.pop("hash", None) if isinstance(document, dict) else None
            if found is None:
                return AuditCheck(len(lines), f"line {number} is no audit line")
            last = _hash(last, document)
            if found != last:
                return AuditCheck(len(lines), f"line {number} does not follow from the one before")
            hashes.append(last)
        if head is None:
            problem = "" if not lines else "the head file is missing or unreadable"
            return AuditCheck(len(lines), problem)
        counted, hashed = head
        if counted > len(lines):
            return AuditCheck(len(lines), f"the head counts {counted} lines, {len(lines)} are there: cut off")
        if hashes[counted] != hashed:
            return AuditCheck(len(lines), f"line {counted} is not the one that the head was written for")
        return AuditCheck(len(lines))

    def _whole_bytes(self) -> bytes:
        """The file without a torn last line."""
        try:
            data = self._lines.read_bytes()
        except FileNotFoundError:
            return b""
        return data[: data.rfind(b"\n") + 1]

    def _read_head(self) -> tuple[int, str] | None:
        try:
            document = decoded(self._head.read_bytes())
        except OSError:
            return None
        if not isinstance(document, dict):
            return None
        lines, found = document.get("lines"), document.get("hash")
        return (lines, found) if isinstance(lines, int) and lines >= 0 and isinstance(found, str) else None


def row_document(row: AuditRow) -> dict[str, Any]:
    """A row in the contract's form: `id` is the change's id."""
    return {
        "id": row.change,
        "at": row.at,
        "state": row.state.value,
        "target": row.target,
        "knob": row.knob,
        "before": row.before,
        "after": row.after,
        "verdict": row.verdict.value if row.verdict else None,
        "detail": row.detail,
        "asked": row.asked,
    }


def _parse(line: bytes) -> AuditRow | None:
    document = decoded(line)
    try:
        verdict = document["verdict"]
        return AuditRow(
            change=str(document["id"]),
            at=float(document["at"]),
            state=ChangeState(document["state"]),
            target=str(document["target"]),
            knob=str(document["knob"]),
            before=document["before"],
            after=document["after"],
            verdict=None if verdict is None else Verdict(verdict),
            detail=str(document["detail"]),
            asked=bool(document.get("asked", False)),
        )
    except (ValueError, KeyError, TypeError, OverflowError):
        return None


def _hash(before: str, document: dict[str, Any]) -> str:
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(f"{before}\n{canonical}".encode()).hexdigest()


def _last_hash(whole: bytes) -> str:
    if not whole:
        return _GENESIS
    document = decoded(whole[whole.rfind(b"\n", 0, -1) + 1 :])
    return str(document["hash"]) if isinstance(document, dict) and "hash" in document else _GENESIS


def _line(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"
