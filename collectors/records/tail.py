"""Following a file that others write: rotation, truncation, late arrival, halves of lines, lines without end.

`FileTail.poll` never waits: it reads what is there, up to a limit, and returns whole lines. A directory means
its newest file, as with writers that begin one every hour. What stands in the way is `problem`, in words.
"""

from __future__ import annotations

import os
import select
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

MAX_LINE_BYTES = 16 * 1024 * 1024
"""SGLang writes the prompt into a record; a longer line is passed over."""

MAX_POLL_BYTES = 1024 * 1024
"""Read in one go; the rest waits for the next."""

MAX_BACKLOG_BYTES = 32 * 1024 * 1024
"""Of a file that is read from its start: its last part."""

_CHUNK_BYTES = 256 * 1024
_KNOWN_FILES = 32
_REMEMBERED_BYTES = 256  # of what stands just before the place where reading stopped


@dataclass(frozen=True, slots=True)
class RawLine:
    """One line without its end. `written_by`: Unix time when it was surely there already, None: just now.
    `whole` False: longer than the limit, and `data` is empty.
    """

    data: bytes
    written_by: float | None = None
    whole: bool = True


class LineCutter:
    """Cuts bytes into lines with bounded memory."""

    def __init__(self, *, in_the_middle: bool = False, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        """`in_the_middle`: what comes first is the end of a line whose beginning was not seen."""
        self._max = max_line_bytes
        self._parts: list[bytes] = []
        self._size = 0
        self._dropping = in_the_middle

    def take(self, data: bytes, written_by: float | None = None) -> Iterator[RawLine]:
        """The lines that `data` completes."""
        *ends, rest = data.split(b"\n")
        for end in ends:
            yield from self._finish(end, written_by)
        self._keep(rest)
        if self._size > self._max:
            yield RawLine(b"", written_by, whole=False)
            self._parts, self._size, self._dropping = [], 0, True

    @property
    def pending_bytes(self) -> int:
        """What is kept of a line that is not complete."""
        return self._size

    def end(self) -> Iterator[RawLine]:
        """What is left as the last line, if it did not end."""
        if self._size and not self._dropping:
            yield from self._finish(b"", None)

    def _keep(self, part: bytes) -> None:
        if part and not self._dropping:
            self._parts.append(part)
            self._size += len(part)

    def _finish(self, end: bytes, written_by: float | None) -> Iterator[RawLine]:
        self._keep(end)
        data, size, dropped = b"".join(self._parts), self._size, self._dropping
        self._parts, self._size, self._dropping = [], 0, False
        if not dropped:
            yield RawLine(data, written_by) if size <= self._max else RawLine(b"", written_by, whole=False)


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
        self._open: _OpenFile | None = None
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
        opened = _OpenFile(path)
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


class _OpenFile:
    """A file that is being read, and where in it we are."""

    def __init__(self, path: Path) -> None:
        # a pipe or a device in the place of a file must not make us wait
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        found = os.fstat(self._descriptor)
        if not stat.S_ISREG(found.st_mode):
            os.close(self._descriptor)
            raise OSError(0, "not a file; name a file, a directory of files, or - for standard input")
        self.identity = (found.st_dev, found.st_ino)
        self.offset = 0
        self.behind = False
        self._backlog_end, self._backlog_at = 0, found.st_mtime
        self._cutter = LineCutter()
        self._before = b""

    def begin(self, offset: int | None, *, at_end: bool, backlog: bool) -> None:
        """Where to read on: where we once stopped, at the end, or at the start."""
        size = os.fstat(self._descriptor).st_size
        if offset is not None and offset <= size:
            self.offset = offset
        elif at_end:
            self.offset = size
        else:
            self.offset = max(0, size - MAX_BACKLOG_BYTES)
        if backlog:
            self._backlog_end = size
        self._before = self._just_before()
        if self.offset:
            self._cutter = LineCutter(in_the_middle=not self._before.endswith(b"\n"))

    def read(self) -> list[RawLine]:
        """The lines that are new, up to the limit of a poll."""
        if self._is_rewritten():
            self.offset, self._backlog_end, self._cutter = 0, 0, LineCutter()
        lines = self._read_on()
        self._before = self._just_before()
        return lines

    def _is_rewritten(self) -> bool:
        """Whether the file was truncated; it may have grown past our place again since the last poll."""
        before = self._just_before()
        return len(before) < min(self.offset, _REMEMBERED_BYTES) or before != self._before

    def _just_before(self) -> bytes:
        length = min(self.offset, _REMEMBERED_BYTES)
        return os.pread(self._descriptor, length, self.offset - length)

    def _read_on(self) -> list[RawLine]:
        lines: list[RawLine] = []
        until = self.offset + MAX_POLL_BYTES
        while self.offset < until:
            data = os.pread(self._descriptor, _CHUNK_BYTES, self.offset)
            if not data:
                self.behind = False
                return lines
            written_by = self._backlog_at if self.offset < self._backlog_end else None
            self.offset += len(data)
            lines += self._cutter.take(data, written_by)
        self.behind = True
        return lines

    @property
    def resume_at(self) -> int:
        """The beginning of the line that is not complete, else the place where reading stopped."""
        return self.offset - self._cutter.pending_bytes

    def last_line(self) -> list[RawLine]:
        """What the file ended with, if its writer left it without a line end."""
        return list(self._cutter.end())

    def close(self) -> None:
        os.close(self._descriptor)


class StreamTail:
    """Reads standard input, or another descriptor, without waiting for it."""

    def __init__(self, descriptor: int, name: str = "standard input") -> None:
        self.path = name
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
                data = os.read(self._descriptor, _CHUNK_BYTES)
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
