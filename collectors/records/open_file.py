"""A file that is being read while others write it, cut into lines with bounded memory."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from enginetop.fleet.frozen import frozen

MAX_LINE_BYTES = 16 * 1024 * 1024
"""SGLang writes the prompt into a record; a longer line is passed over."""

MAX_POLL_BYTES = 1024 * 1024
"""Read in one go; the rest waits for the next."""

MAX_BACKLOG_BYTES = 32 * 1024 * 1024
"""Of a file that is read from its start: its last part."""

CHUNK_BYTES = 256 * 1024
_REMEMBERED_BYTES = 256  # of what stands just before the place where reading stopped


@frozen
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


class OpenFile:
    """A file that is being read, and where in it we are."""

    def __init__(self, path: Path) -> None:
        """OSError: it cannot be opened, or is no regular file."""
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
            data = os.pread(self._descriptor, CHUNK_BYTES, self.offset)
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
        """Close it."""
        os.close(self._descriptor)
