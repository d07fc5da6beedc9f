"""Following a file that others write: rotation, truncation, late arrival, halves of lines, lines without end.

`FileTail.poll` never waits: it reads what is there, up to a limit, and returns whole lines. A directory means
its newest file, as with writers that begin one every hour. What stands in the way is `problem`, in words.
"""

from __future__ import annotations

import os
import select
import stat
from contextlib import suppress
from operator import itemgetter
from pathlib import Path

from collectors.records.open_file import CHUNK_BYTES, MAX_POLL_BYTES, LineCutter, OpenFile, RawLine

_KNOWN_FILES = 32


class FileTail:
    """Follows one path. Not for use from several threads at once.

    `from_start`: what is in the file already counts too. A file that appears later is read from its start in
    any case. The file is told by device and inode, so that one that was renamed is read to its end first.
    """

    def __init__(self, path: Path, *, from_start: bool) -> None:
        self.path = path
        self.problem = ""
        self._from_start = from_start
        self._looked = False
        self._open: OpenFile | None = None
        self._offsets: dict[tuple[int, int], int] = {}
        """Where reading stopped in files that were left, so that none is read twice."""

    def poll(self) -> list[RawLine]:
        """The lines that are new. Never raises."""
        lines: list[RawLine] = []
        try:
            if self._open is not None:
                lines += self._open.read()
            found = self._newest()
            if found is not None:
                lines += self._follow(*found)
            self._looked = True
        except OSError as error:
            self.problem = f"{self.path}: {(error.strerror or 'cannot be read').lower()}"
        return lines

    @property
    def behind(self) -> bool:
        """Whether the last poll stopped at its limit."""
        return self._open is not None and self._open.behind

    @property
    def ended(self) -> bool:
        """Whether all that is there was read."""
        return not self.behind

    def close(self) -> None:
        """Close the file."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def _newest(self) -> tuple[Path, os.stat_result] | None:
        """The file to be read now; None, with a problem, when there is none."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            self.problem = f"{self.path}: no such file yet; it is read when it appears"
            return None
        if not stat.S_ISDIR(found.st_mode):
            return self.path, found
        with os.scandir(self.path) as entries:
            files = [file for entry in entries if (file := _file_of(entry)) is not None]
        if not files:
            self.problem = f"{self.path}: no file in it yet; one is read when it appears"
            return None
        _, name, found = max(files, key=itemgetter(0, 1))
        return self.path / name, found

    def _follow(self, path: Path, found: os.stat_result) -> list[RawLine]:
        identity = (found.st_dev, found.st_ino)
        current = self._open
        if current is not None and current.identity == identity:
            self.problem = ""
            return []
        if current is not None and (current.behind or not found.st_size):
            return []  # first the rest of the file that is being left; its writer may not have left it yet
        opened = OpenFile(path)
        lines: list[RawLine] = []
        if current is not None:
            if path == self.path:  # it was rotated; of two files of a directory both may go on
                lines += current.last_line()
            self._offsets[current.identity] = current.resume_at
            while len(self._offsets) > _KNOWN_FILES:
                del self._offsets[next(iter(self._offsets))]
            current.close()
        backlog = not self._looked
        opened.begin(
            self._offsets.pop(opened.identity, None),
            at_end=backlog and not self._from_start,
            backlog=backlog,
        )
        self._open, self.problem = opened, ""
        return lines + opened.read()


class StreamTail:
    """Reads standard input, or another descriptor, without waiting for it."""

    def __init__(self, descriptor: int) -> None:
        self.path = "standard input"
        self.problem = ""
        self.behind = False
        self._descriptor: int | None = descriptor
        self._cutter = LineCutter()

    @property
    def ended(self) -> bool:
        """Whether its writer has closed it, and all was read."""
        return self._descriptor is None

    def poll(self) -> list[RawLine]:
        """The lines that are new. Never raises."""
        lines: list[RawLine] = []
        size = 0
        try:
            while self._descriptor is not None and size < MAX_POLL_BYTES:
                if not select.select([self._descriptor], [], [], 0)[0]:
                    self.behind = False
                    return lines
                data = os.read(self._descriptor, CHUNK_BYTES)
                if not data:
                    self._descriptor, self.behind = None, False
                    return lines + list(self._cutter.end())
                size += len(data)
                lines += self._cutter.take(data)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else None
            self.problem = f"{self.path}: {(reason or 'cannot be read').lower()}"
            self._descriptor, self.behind = None, False
            return lines
        self.behind = self._descriptor is not None
        return lines

    def close(self) -> None:
        """It is not ours to close."""
        self._descriptor = None


def _file_of(entry: os.DirEntry[str]) -> tuple[int, str, os.stat_result] | None:
    """Time of the last write, name and status of a file that is not hidden; None for all else."""
    with suppress(OSError):  # it may be gone by now
        if not entry.name.startswith(".") and entry.is_file():
            found = entry.stat()
            return found.st_mtime_ns, entry.name, found
    return None
