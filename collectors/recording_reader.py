"""Reading a recording: tolerant of what people and crashes do to files, and never the whole of it at once."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import IO

from collectors.recording_format import (
    GpuRecord,
    Record,
    RecordError,
    RequestRecord,
    ScrapeRecord,
    parse_header,
    parse_record,
    target_of,
)
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import Target

MAX_LINE_BYTES = 128 * 1024 * 1024
"""A page of the fetcher's limit, every byte of it escaped, is still shorter."""

MAX_SORTED_BYTES = 256 * 1024 * 1024
"""A recording whose lines are not in time order is sorted in memory up to this size."""

_STEP_SECONDS = 1.0
"""Answers that come together may be written in another order: no reason to say anything."""

_GZIP_MAGIC = b"\x1f\x8b"


@frozen(eq=False)
class Step:
    """All records of one instant."""

    at: float
    scrapes: tuple[ScrapeRecord, ...]
    gpus: tuple[GpuRecord, ...]
    requests: tuple[RequestRecord, ...] = ()


class Recording:
    """A recording on disk.

    Looked through once when it is opened: `targets` (in the header's order, then by first sight), `first_at`
    and `last_at` are known from then on, and `note` says what could not be read. Raises ConfigError when the
    file holds nothing that can be replayed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.targets: tuple[Target, ...] = ()
        self.first_at = self.last_at = 0.0
        self._in_order = True
        self._step_back = ""
        self._size = 0
        self._skipped = 0
        self._first_problem = ""
        self._cut = ""
        self._look_through()

    @property
    def note(self) -> str:
        """What was passed over, in one line; empty when nothing was."""
        parts = []
        if self._skipped:
            lines = "1 line" if self._skipped == 1 else f"{self._skipped} lines"
            parts.append(f"{lines} skipped ({self._first_problem})")
        if self._step_back:
            parts.append(self._step_back)
        if self._cut:
            parts.append(self._cut)
        return f"{self.path}: " + "; ".join(parts) if parts else ""

    def steps(self) -> Iterator[Step]:
        """The records, grouped by instant, in time order."""
        records: Iterator[Record] = self._records()
        if not self._in_order:
            records = iter(sorted(records, key=attrgetter("at")))
        for at, group in groupby(records, key=attrgetter("at")):
            together = list(group)
            yield Step(
                at,
                tuple(record for record in together if isinstance(record, ScrapeRecord)),
                tuple(record for record in together if isinstance(record, GpuRecord)),
                tuple(record for record in together if isinstance(record, RequestRecord)),
            )

    def _look_through(self) -> None:
        named: dict[str, Target] = {}
        seen: dict[str, Target] = {}
        times: list[float] = []
        for number, line in self._numbered_lines():
            self._size += len(line)
            if number == 1 and (declared := parse_header(line)) is not None:
                named = {target.url: target for target in declared}
                continue
            record = self._parse(number, line)
            if record is None:
                continue
            if isinstance(record, ScrapeRecord | RequestRecord) and record.url not in seen:
                seen[record.url] = target_of(record.url)
            if not times:
                times = [record.at, record.at]
            if record.at < times[1]:
                self._in_order = False
            if not self._step_back and times[1] - record.at > _STEP_SECONDS:
                self._step_back = (
                    f"the clock steps back by {times[1] - record.at:g} s in line {number}; lines are taken "
                    f"in the order of their times"
                )
            times = [min(times[0], record.at), max(times[1], record.at)]
        if not times:
            problem = self._first_problem or self._cut
            why = f" ({problem})" if problem else ""
            raise ConfigError(f"{self.path}: no record in it{why}; see `enginetop record`")
        if not self._in_order and self._size > MAX_SORTED_BYTES:
            raise ConfigError(f"{self.path}: not in time order and too large to sort; sort its lines by `t`")
        self.targets = tuple({**named, **{u: t for u, t in seen.items() if u not in named}}.values())
        self.first_at, self.last_at = times

    def _records(self) -> Iterator[Record]:
        for _, line in self._numbered_lines():
            try:
                record = parse_record(line)
            except RecordError:
                continue  # counted when the file was looked through
            if record is not None:
                yield record

    def _parse(self, number: int, line: str) -> Record | None:
        try:
            return parse_record(line)
        except RecordError as error:
            if not line.endswith("\n"):
                self._cut = "its last line is cut off"
                return None
            self._skipped += 1
            self._first_problem = self._first_problem or f"line {number}: {error}"
            return None

    def _numbered_lines(self) -> Iterator[tuple[int, str]]:
        """The lines that are not blank, each with its number."""
        number = 0
        with _opened(self.path) as file:
            while True:
                try:
                    line = file.readline(MAX_LINE_BYTES)
                except (EOFError, zlib.error, gzip.BadGzipFile):
                    self._cut = "the file is cut off or damaged"
                    return
                except OSError as error:
                    raise ConfigError(f"{self.path}: {error.strerror}") from error
                if not line:
                    return
                number += 1
                if not line.isspace():
                    # editors of some systems begin a file with a byte order mark
                    yield number, line.decode("utf-8-sig" if number == 1 else "utf-8", "replace")


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes] | gzip.GzipFile]:
    try:
        raw = path.open("rb")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; name a recording") from error
    with raw:
        try:
            compressed = raw.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
            raw.seek(0)
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}; name a recording file") from error
        if not compressed:
            yield raw
            return
        with gzip.GzipFile(fileobj=raw) as file:
            yield file
