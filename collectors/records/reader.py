"""Reads request logs from a thread of its own: a disk that hangs delays nothing else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from collectors.fetch import one_line
from collectors.records.source import RecordSource, bad_records, problem_of
from enginetop.fleet.attribution import ClaimedRecord
from enginetop.fleet.snapshot import CollectorHealth

_POLL_SECONDS = 0.5
_BEHIND_SECONDS = 0.02
"""Between looks while much waits: a long log must not keep the screen from being drawn."""
_STOP_SECONDS = 2.0
_LONGEST_DRAIN_SECONDS = 10.0
_DRAIN_PAUSE_SECONDS = 0.01

Sink = Callable[[Sequence[ClaimedRecord]], None]


class RecordReader:
    """Hands on what the sources bring, from its own thread, every half second.

    `start` may be called once. `problem` and `reported` may be used from any thread.
    """

    def __init__(self, sources: Sequence[RecordSource]) -> None:
        self._sources = tuple(sources)
        self._stopping = threading.Event()
        self._fault = ""
        self._drain_seconds = 0.0
        self._thread: threading.Thread | None = None

    @property
    def problem(self) -> str:
        """What is wrong with the logs, in one line; empty when nothing is."""
        return self._fault or problem_of(self._sources)

    def reported(self, health: CollectorHealth) -> CollectorHealth:
        """The collector's state with that of the logs in it."""
        return replace(health, record_problem=self.problem, bad_records=bad_records(self._sources))

    def start(self, now: Callable[[], float], sink: Sink) -> None:
        """Begin to read; `sink` is called from the thread with what is found."""
        self._thread = threading.Thread(
            target=self._run, args=(now, sink), name="enginetop-records", daemon=True
        )
        self._thread.start()

    def stop(self, drain_seconds: float = 0.0) -> None:
        """End the thread after a last look; one that hangs in a disk is left behind.

        With `drain_seconds` all that is there already is read, and standard input to its end if that comes
        within them.
        """
        self._drain_seconds = drain_seconds
        self._stopping.set()
        if self._thread is not None:
            self._thread.join((_LONGEST_DRAIN_SECONDS if drain_seconds else 0.0) + _STOP_SECONDS)

    def _run(self, now: Callable[[], float], sink: Sink) -> None:
        while not self._stopping.wait(self._poll(now, sink)):
            pass
        begun = time.monotonic()
        while not self._drained(self._poll(now, sink), time.monotonic() - begun):
            time.sleep(_DRAIN_PAUSE_SECONDS)
        for source in self._sources:
            try:
                source.close()
            except Exception as error:  # noqa: BLE001 - a thread that dies would write a traceback on the screen
                self._note_fault(error)

    def _drained(self, due: float, seconds: float) -> bool:
        """Whether reading on at the end is over after so many seconds, its last look asking for one more."""
        if due < _POLL_SECONDS and self._drain_seconds:
            if seconds < _LONGEST_DRAIN_SECONDS:
                return False
            self._fault = f"request records: not all of them could be read in {_LONGEST_DRAIN_SECONDS:g} s"
        return seconds >= self._drain_seconds or all(source.ended for source in self._sources)

    def _poll(self, now: Callable[[], float], sink: Sink) -> float:
        """Read what is new; seconds until the next look is due."""
        behind = False
        for source in self._sources:
            try:
                found = source.poll(now())
                if found:
                    sink(found)
                behind = behind or source.behind
            except Exception as error:  # noqa: BLE001 - shown as the reason why there are none; others have theirs
                self._note_fault(error)
        return _BEHIND_SECONDS if behind else _POLL_SECONDS

    def _note_fault(self, error: Exception) -> None:
        self._fault = one_line(f"request records cannot be read: {type(error).__name__}: {error}")
