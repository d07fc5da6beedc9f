"""The GPUs of this machine as a `GpuSource`: retries, the join with replicas, and a close that returns."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from collectors.gpu.devices import Card, Row, failed_row
from collectors.gpu.events import XidLog
from collectors.gpu.library import Code, GpuLibrary, LibraryError
from collectors.gpu.nvml import load_pynvml
from collectors.gpu.processes import ProcessJoin
from collectors.gpu.session import Session
from collectors.sanitise import clean_text
from enginetop.fleet.model import LOCAL_HOST, Target
from enginetop.fleet.snapshot import GpuDevice, GpuReport

RETRY_SECONDS = 30.0
"""Between two tries to initialise the library while something is wrong."""
JOIN_SECONDS = 5.0
"""Between two looks at which processes use which GPU."""
CLOSE_SECONDS = 3.0
"""How long `close` waits for a call that hangs in the driver before it leaves the library as it is."""

_PROBLEMS: dict[int, str] = {
    Code.LIBRARY_NOT_FOUND: (
        "no NVIDIA driver library (libnvidia-ml.so.1); install the driver, "
        "or run the container with the NVIDIA runtime"
    ),
    Code.DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded; run: modprobe nvidia (dmesg says why it fails)",
    Code.VERSION_MISMATCH: (
        "the NVIDIA library and the loaded driver differ in version (an upgrade under a running driver); "
        "reboot or reload the driver"
    ),
    Code.NO_PERMISSION: "no permission to use the NVIDIA driver; check the rights of /dev/nvidia*",
    Code.FUNCTION_NOT_FOUND: "the NVIDIA library is a stub or far too old; install a current driver",
}


_NO_PACKAGE = "the Python package nvidia-ml-py is missing; install it for GPU figures"


def problem_line(error: LibraryError) -> str:
    """One line for people: what is wrong with GPU figures, and the fix."""
    known = _PROBLEMS.get(error.code)
    if known:
        return known
    return f"the NVIDIA library fails: {clean_text(str(error), 200)} (NVML error {error.code}); see dmesg"


class NvmlSource:
    """`GpuSource` over NVML.

    `load` brings the library; it is called in `open`. It and the library's `start` may raise ImportError.
    `proc` is the root of `/proc`. `make_join` builds the join of processes with targets. Used from one
    thread; `close` may come from another.
    """

    def __init__(
        self,
        load: Callable[[], GpuLibrary] = load_pynvml,
        proc: Path = Path("/proc"),
        make_join: Callable[[Sequence[Target], Path], ProcessJoin] = ProcessJoin,
        close_seconds: float = CLOSE_SECONDS,
    ) -> None:
        self._load = load
        self._proc = proc
        self._make_join = make_join
        self._close_seconds = close_seconds
        self._in_use = threading.Lock()
        self._library: GpuLibrary | None = None
        self._session: Session | None = None
        self._cards: list[Card] = []
        self._xids = XidLog()
        self._problem = "the GPU source is not open"
        self._failure = LibraryError(Code.UNINITIALIZED)
        self._tried_at: float | None = None
        self._troubled = False
        self._join: ProcessJoin | None = None
        self._joined_at: float | None = None
        self._replicas: dict[str, tuple[str, ...]] = {}

    def open(self, targets: Sequence[Target]) -> None:
        """Find the library; the first `read` imports and initialises it."""
        with self._in_use:
            self._join = self._make_join(targets, self._proc)
            try:
                self._library = self._load()
            except ImportError:
                self._problem = _NO_PACKAGE

    def read(self, now: float) -> Sequence[GpuReport]:
        """One report, of this machine. `now` is in Unix seconds."""
        with self._in_use:
            gpus: tuple[GpuDevice, ...] = ()
            try:
                if self._library is not None:
                    gpus = self._gpus(self._library, now)
            except Exception as fault:  # noqa: BLE001 - a fault of ours is shown; the GPU thread must outlive it
                self._problem = f"GPU figures fail by a fault of enginetop ({type(fault).__name__})"
            return [GpuReport(LOCAL_HOST, now, gpus, self._problem)]

    def close(self) -> None:
        """Release the library. Returns within `close_seconds`, also while a call hangs in the driver."""
        closer = threading.Thread(target=self._release, name="enginetop-gpu-close", daemon=True)
        closer.start()
        closer.join(self._close_seconds)

    def _release(self) -> None:
        with self._in_use:
            self._end_session()
            self._library = None
            self._problem = "the GPU source is closed"

    def _end_session(self) -> bool:
        session, self._session = self._session, None
        return session is None or session.stop(self._close_seconds)

    def _gpus(self, library: GpuLibrary, now: float) -> tuple[GpuDevice, ...]:
        rows = self._rows(library, now)
        if self._join is not None and self._join.possible and _is_due(self._joined_at, now, JOIN_SECONDS):
            self._joined_at = now
            found = self._join.replicas(_pids(library, rows))
            kept = {row.key for row in rows if row.device.state != "ok"}  # who ran on a GPU when it failed
            self._replicas = {key: urls for key, urls in self._replicas.items() if key in kept} | found
        return tuple(
            replace(
                row.device,
                last_xid=self._xids.last(row.gpu_uuid, row.gpu_instance),
                replicas=self._replicas.get(row.key),
            )
            for row in rows
        )

    def _rows(self, library: GpuLibrary, now: float) -> list[Row]:
        if (self._session is None or self._troubled) and _is_due(self._tried_at, now, RETRY_SECONDS):
            self._tried_at = now
            self._renew(library)
        if self._session is not None:
            try:
                rows = self._session.rows()
            except LibraryError as error:
                self._fail(error)
            else:
                self._troubled = self._session.outdated() or any(row.device.state != "ok" for row in rows)
                self._problem = "" if rows else "the NVIDIA driver is loaded but has no GPU"
                return rows
        return [failed_row(card, self._failure) for card in self._cards]

    def _renew(self, library: GpuLibrary) -> None:
        if not self._end_session():
            self._fail(LibraryError(Code.TIMEOUT, "a call hangs in the driver"))
            return
        try:
            self._session = Session(library, self._cards, self._xids, self._proc)
        except ImportError:  # the package is there, but not whole
            self._problem = _NO_PACKAGE
        except LibraryError as error:
            self._fail(error)
        else:
            self._cards = self._session.cards

    def _fail(self, error: LibraryError) -> None:
        self._troubled = True
        self._failure = error
        self._problem = problem_line(error)


def _is_due(last: float | None, now: float, spacing: float) -> bool:
    """Whether `spacing` seconds are over since `last`, or the clock was set back."""
    return last is None or not last <= now < last + spacing


def _pids(library: GpuLibrary, rows: Sequence[Row]) -> dict[str, list[int] | None]:
    """The pids on each device; None where it does not tell. Those of MIG instances are their GPU's too."""
    told: dict[str, list[int] | None] = {}
    for row in rows:
        try:
            told[row.key] = None if row.handle is None else library.process_ids(row.handle)
        except LibraryError:
            told[row.key] = None
    for row in rows:
        if row.device.mig is None:
            parts = [
                told[r.key] for r in rows if r.gpu_uuid == row.gpu_uuid and r.device.index == row.device.index
            ]
            known = [pids for pids in parts if pids is not None]
            told[row.key] = sorted(set().union(*known)) if known else None
    return told
