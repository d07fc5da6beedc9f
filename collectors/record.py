"""Writing a recording while the engine runs: a thread of its own, so that a slow disk delays no scrape."""

from __future__ import annotations

import gzip
import os
import queue
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

from collectors.answer import Answer
from collectors.fetch import one_line
from collectors.recording_format import answer_line, gpu_line, header_line
from collectors.redact import Keep
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.model import Target
from enginetop.fleet.snapshot import GpuReport

MAX_PENDING_BYTES = 64 * 1024 * 1024
"""Pages that wait for the disk. A disk that falls further behind ends the recording, not the engine."""

_GZIP_LEVEL = 6
_CLOSE_SECONDS = 10.0


class Recorder:
    """Writes scrapes and GPU reports to a file; a `ScrapeSink`.

    A name that ends in `.gz` is compressed. Each scrape is flushed, so that a crash costs at most the last
    one. When writing fails, the recording ends there, `problem` says why, and everything else goes on.
    `keep` names the fields of JSON pages that may be written, by path. Raises ConfigError when the file
    cannot be opened.
    """

    def __init__(
        self,
        path: Path,
        *,
        created: float,
        targets: Sequence[Target],
        interval_seconds: float,
        keep: Keep,
        max_pending_bytes: int = MAX_PENDING_BYTES,
    ) -> None:
        self._path = path
        self._keep = keep
        self._max_pending_bytes = max_pending_bytes
        self._pending_bytes = 0
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[tuple[int, Callable[[], str]] | None] = queue.SimpleQueue()
        self.problem = ""
        self.scrapes = 0
        try:
            # pages may hold more than is known to be secret: a new file is for its owner alone
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            self._raw = os.fdopen(os.open(path, flags, 0o600), "wb")
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}; name a file that can be written") from error
        self._file: IO[bytes] | gzip.GzipFile = self._raw
        if path.name.endswith(".gz"):
            self._file = gzip.GzipFile(fileobj=self._raw, mode="wb", compresslevel=_GZIP_LEVEL, mtime=0)
        self._put(0, lambda: header_line(created, targets, interval_seconds))
        self._thread = threading.Thread(target=self._run, name="enginetop-record", daemon=True)
        self._thread.start()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def record_scrape(self, url: str, at: float, answers: Sequence[Answer]) -> None:
        """Keep the answers of one scrape, which was complete at `at`. Never raises and never waits."""
        size = sum(len(answer.body) for answer in answers)
        self._put(size, lambda: "".join(answer_line(url, at, answer, self._keep) for answer in answers))
        self.scrapes += 1

    def record_gpus(self, report: GpuReport) -> None:
        """Keep one GPU report. Never raises and never waits."""
        self._put(0, lambda: gpu_line(report))

    def close(self) -> None:
        """Write what is pending and close the file. Waits for a slow disk for a while, not for ever."""
        self._jobs.put(None)
        self._thread.join(_CLOSE_SECONDS)
        if self._thread.is_alive():
            self._fail("the disk does not answer")

    def _put(self, size: int, make: Callable[[], str]) -> None:
        if self.problem:
            return
        with self._lock:
            self._pending_bytes += size
            behind = self._pending_bytes > self._max_pending_bytes
        if behind:
            self._fail("the disk is too slow")
        else:
            self._jobs.put((size, make))

    def _run(self) -> None:
        try:
            while (job := self._jobs.get()) is not None:
                size, make = job
                if not self.problem:
                    self._file.write(make().encode("utf-8"))
                    self._file.flush()
                with self._lock:
                    self._pending_bytes -= size
        except Exception as error:  # noqa: BLE001 - the recording ends, the engine goes on
            self._fail_for(error)
        finally:
            self._close_file()

    def _close_file(self) -> None:
        try:
            self._file.close()
        except Exception as error:  # noqa: BLE001 - the end of the file may be missing: say so
            self._fail_for(error)
        finally:
            try:
                self._raw.close()
            except OSError as error:
                self._fail_for(error)

    def _fail_for(self, error: Exception) -> None:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        self._fail(reason.lower())

    def _fail(self, reason: str) -> None:
        self.problem = self.problem or one_line(f"recording stopped: {self._path}: {reason}")
