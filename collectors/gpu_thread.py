"""Reads GPUs from a thread of its own: a GPU library that hangs delays nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from collectors.fetch import one_line
from enginetop.fleet.model import LOCAL_HOST, Target
from enginetop.fleet.ports import GpuSource
from enginetop.fleet.snapshot import GpuReport

EXPORTERS_SECONDS = 5.0
"""The least time between two looks at exporters: they have something new every 10 to 30 s."""

_STOP_SECONDS = 4.0
"""A source may take this long to let its library go."""


class GpuThread:
    """Calls `on_report` from its own thread for every report, every `interval_seconds`."""

    def __init__(
        self,
        source: GpuSource,
        targets: Sequence[Target],
        interval_seconds: float,
        now: Callable[[], float],
        on_report: Callable[[GpuReport], None],
    ) -> None:
        self._source = source
        self._targets = targets
        self._interval = interval_seconds
        self._now = now
        self._on_report = on_report
        self._stopping = threading.Event()
        self._read_once = threading.Event()
        self._thread = threading.Thread(target=self._run, name="enginetop-gpu", daemon=True)

    def start(self) -> None:
        """Begin reading."""
        self._thread.start()

    def wait_for_first(self, timeout_seconds: float) -> bool:
        """Wait until the GPUs were read once; whether they were."""
        return self._read_once.wait(timeout_seconds)

    def stop(self) -> None:
        """End the thread; one that hangs in the library is left behind."""
        self._stopping.set()
        self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        try:
            self._source.open(self._targets)
            while not self._stopping.is_set():
                self._read()
                self._read_once.set()
                self._stopping.wait(self._interval)
        except Exception as error:  # noqa: BLE001 - shown as the reason why there are no GPUs
            self._report_fault(error)
        finally:
            self._read_once.set()
            self._close()

    def _close(self) -> None:
        try:
            self._source.close()
        except Exception as error:  # noqa: BLE001 - a thread that dies would write a traceback on the screen
            self._report_fault(error)

    def _read(self) -> None:
        try:
            reports = self._source.read(self._now())
        except Exception as error:  # noqa: BLE001 - the next reading may work again
            self._report_fault(error)
            return
        for report in reports:
            self._on_report(report)

    def _report_fault(self, error: Exception) -> None:
        problem = one_line(f"GPUs cannot be read: {type(error).__name__}: {error}")
        self._on_report(GpuReport(LOCAL_HOST, self._now(), (), problem))


def gpu_threads(
    sources: tuple[GpuSource | None, GpuSource | None],
    targets: Sequence[Target],
    interval_seconds: float,
    now: Callable[[], float],
    on_report: Callable[[GpuReport], None],
) -> tuple[GpuThread, ...]:
    """A thread for this machine's own GPUs and one for exporters, as far as there are such sources."""
    own, exporters = sources
    paces = ((own, interval_seconds), (exporters, max(interval_seconds, EXPORTERS_SECONDS)))
    return tuple(
        GpuThread(source, targets, seconds, now, on_report) for source, seconds in paces if source is not None
    )
