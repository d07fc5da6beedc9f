"""Xid errors. NVML has no getter for them: they are events, seen only from registration on."""

from __future__ import annotations

import threading
from collections import deque

from collectors.gpu import decoding
from collectors.gpu.devices import SESSION_OVER
from collectors.gpu.library import GpuLibrary, Handle, LibraryError

_KEPT_PER_GPU = 32


class XidLog:
    """The newest Xids of each GPU, by UUID, over all sessions of the library; safe between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[str, deque[tuple[int | None, int]]] = {}

    def add(self, uuid: str, gpu_instance: int | None, xid: int) -> None:
        """Note an error of a GPU, or of one of its MIG instances."""
        with self._lock:
            self._seen.setdefault(uuid, deque(maxlen=_KEPT_PER_GPU)).append((gpu_instance, xid))

    def last(self, uuid: str, gpu_instance: int | None = None) -> int | None:
        """The newest Xid of a GPU, or of a MIG instance (those of the whole GPU count for it); None: none."""
        with self._lock:
            for where, xid in reversed(self._seen.get(uuid, ())):
                if gpu_instance is None or where is None or where == gpu_instance:
                    return xid
        return None


class XidWatcher:
    """Feeds a log during one session of the library, from a thread of its own that waits in short turns.

    A library or a GPU without events is silently left unwatched.
    """

    def __init__(
        self, library: GpuLibrary, log: XidLog, wait_milliseconds: int = 200, pause_seconds: float = 1.0
    ) -> None:
        self._library = library
        self._log = log
        self._wait_milliseconds = wait_milliseconds
        self._pause_seconds = pause_seconds
        self._uuids: dict[int, str] = {}
        self._events: Handle | None = None
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self, device: Handle, uuid: str) -> None:
        """Watch a device from now on; once more for the same device changes nothing."""
        address = self._library.address(device)
        if address in self._uuids:
            return
        self._uuids[address] = uuid  # known before its first event can come
        try:
            if self._events is None:
                self._events = self._library.new_event_set()
            self._library.watch_xid(device, self._events)
        except LibraryError:
            del self._uuids[address]
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="enginetop-xid", daemon=True)
            self._thread.start()

    def stop(self, timeout_seconds: float) -> bool:
        """End the thread and free the event set.

        False: the thread hangs in the driver and did not end in time; the library must then be left alone.
        """
        self._ending.set()
        if self._thread is not None:
            self._thread.join(timeout_seconds)
            if self._thread.is_alive():
                return False
        if self._events is not None:
            events, self._events = self._events, None
            try:
                self._library.free_event_set(events)
            except LibraryError:
                return True  # nothing is left to free after a driver reload
        return True

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                event = self._library.next_xid(self._events, self._wait_milliseconds)
            except LibraryError as error:
                if error.code in SESSION_OVER:
                    return
                # A lost GPU makes every wait fail at once: without a pause this thread would spin.
                self._ending.wait(self._pause_seconds)
                continue
            uuid = None if event is None else self._uuids.get(event.address)
            if event is not None and uuid is not None:
                instance = None if decoding.known(event.gpu_instance) is None else event.gpu_instance
                self._log.add(uuid, instance, event.xid)
