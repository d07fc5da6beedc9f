"""Where changes are kept: one file each, the audit beside them, a lock for the one controller.

STATE/changes/ID.json   the change as of its last transition
STATE/changes/ID.stop   somebody wants it undone
STATE/kill-switch       while it exists nothing is changed, and what is under way is undone
STATE/control.lock      held by the one controller
STATE/audit.*           see `audit`
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from enginetop.fleet.change import FINAL_STATES, AuditRow
from enginetop.fleet.plan import MAX_PLAN_BYTES, Plan, PlanError, parse_plan_text
from tuners.control.audit import Audit
from tuners.control.files import OwnerLock, write_synced
from tuners.control.progress import Progress
from tuners.control.recovery import StoredChangeError, progress_document, stored_plan


class Journal(Protocol):
    """Where a run writes what it is about to do, before it does it. OSError when that fails."""

    def save(self, progress: Progress) -> None:
        """Keep the change as it stands."""

    def append(self, rows: Sequence[AuditRow]) -> None:
        """Add rows to the audit."""

    def stop_wanted(self, change: str) -> str:
        """Why the change is to be undone; empty: nobody wants that."""


class ChangeStore:
    """The state folder; a `Journal` on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.audit = Audit(folder)
        self.lock = OwnerLock(folder / "control.lock")
        self._changes = folder / "changes"
        self._kill_switch = folder / "kill-switch"
        self._saved: dict[str, dict[str, Any]] = {}

    def save(self, progress: Progress) -> None:
        """Store the change if anything of its stored form differs from what was stored last."""
        document = progress_document(progress)
        if self._saved.get(progress.plan.id) == document:
            return
        path = self._changes / f"{progress.plan.id}.json"
        write_synced(path, json.dumps(document, indent=1, allow_nan=False).encode() + b"\n")
        self._saved[progress.plan.id] = document
        if progress.finished:
            self._stop_file(progress.plan.id).unlink(missing_ok=True)

    def append(self, rows: Sequence[AuditRow]) -> None:
        """See `Journal`."""
        self.audit.append(rows)

    def stop_wanted(self, change: str) -> str:
        """See `Journal`. Where nobody can look whether it is wanted, it is."""
        try:
            asked = "a rollback was asked for" if self._stop_file(change).exists() else ""
        except OSError as error:
            return self._unreadable(error)
        return self.forbidden() or asked

    def forbidden(self) -> str:
        """Why no change may be made now; empty: it may. Where nobody can look, it may not."""
        try:
            on = self._kill_switch.exists()
        except OSError as error:
            return self._unreadable(error)
        return f"the kill switch {self._kill_switch} is on: delete that file to allow changes" if on else ""

    def _unreadable(self, error: OSError) -> str:
        return f"the state folder {self.folder} cannot be read ({error.strerror or error})"

    def request_stop(self, change: str) -> None:
        """Ask the controller of a change, wherever it runs, to undo it."""
        write_synced(self._stop_file(change), b"")

    def load(self, change: str) -> Mapping[str, Any]:
        """A stored change. StoredChangeError when there is none of that id, or it cannot be read."""
        path = self._changes / f"{change}.json"
        if not change or path.parent != self._changes or not path.name[0].isalnum():
            raise StoredChangeError(f"{change!r} is no change id")
        try:
            document = json.loads(path.read_bytes())
        except FileNotFoundError:
            known = ", ".join(sorted(self.ids())[-5:]) or "none"
            raise StoredChangeError(f"no change {change!r} is known here (latest: {known})") from None
        except (OSError, ValueError, RecursionError) as error:
            raise StoredChangeError(f"{path}: cannot be read ({type(error).__name__})") from None
        stored_plan(document)
        return dict(document)

    def ids(self) -> tuple[str, ...]:
        """The ids of all stored changes."""
        return tuple(path.stem for path in self._changes.glob("*.json"))

    def unfinished(self) -> tuple[str, ...]:
        """Changes that were under way when their controller ended.

        StoredChangeError when one of the files cannot be read: it may hide a change in force.
        """
        found = []
        for change in sorted(self.ids()):
            _, state, _ = stored_plan(self.load(change))
            if state not in FINAL_STATES:
                found.append(change)
        return tuple(found)

    def _stop_file(self, change: str) -> Path:
        return self._changes / f"{change}.stop"


class RememberingJournal:
    """A store's journal that keeps the rows of one change at hand, for its view."""

    def __init__(self, store: ChangeStore, rows: Iterable[AuditRow] = ()) -> None:
        self._store = store
        self.rows = list(rows)

    def save(self, progress: Progress) -> None:
        """See `Journal`."""
        self._store.save(progress)

    def append(self, rows: Sequence[AuditRow]) -> None:
        """See `Journal`."""
        self.rows.extend(rows)
        self._store.append(rows)

    def stop_wanted(self, change: str) -> str:
        """See `Journal`."""
        return self._store.stop_wanted(change)


def read_plan(path: Path) -> Plan:
    """Read a plan file. PlanError with one line when it cannot be used."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_PLAN_BYTES + 1)
        return parse_plan_text(data.decode("utf-8"), str(path))
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror or 'not readable'}; name a plan file") from None
    except UnicodeDecodeError:
        raise PlanError(f"{path}: not UTF-8 text") from None
