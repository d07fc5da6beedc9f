"""Xid events: who hears of what, and a thread that neither spins nor stays."""

from __future__ import annotations

import threading
from collections.abc import Callable

from collectors.gpu.events import XidLog, XidWatcher
from collectors.gpu.library import Code, LibraryError, XidEvent
from tests.support.fake_nvml.plain import PlainLibrary

NONE = 0xFFFF_FFFF


class EventLibrary(PlainLibrary):
    """Hands out what `script` returns or raises, one step a wait; then says `done` and waits for the end."""

    def __init__(self, *script: Callable[[], XidEvent | None]) -> None:
        super().__init__()
        self.script = list(script)
        self.done = threading.Event()
        self.waits = 0

    def new_event_set(self) -> str:
        return "set"

    def watch_xid(self, device: str, events: str) -> None:
        if device == "unwatchable":
            raise LibraryError(Code.NOT_SUPPORTED)

    def next_xid(self, events: str, timeout_ms: int) -> XidEvent | None:
        self.waits += 1
        if self.script:
            return self.script.pop(0)()
        self.done.set()
        return None


def fails_with(code: int) -> Callable[[], XidEvent | None]:
    def fail() -> XidEvent | None:
        raise LibraryError(code)

    return fail


def test_the_newest_xid_of_a_gpu_and_of_its_instances() -> None:
    log = XidLog()
    assert log.last("a") is None
    log.add("a", 3, 31)
    log.add("a", None, 63)
    log.add("a", 5, 43)
    assert [log.last("a"), log.last("a", 5), log.last("a", 3), log.last("a", 9)] == [43, 43, 63, 63]
    assert log.last("b") is None


def test_an_event_storm_keeps_the_log_small() -> None:
    log = XidLog()
    for xid in range(100_000):
        log.add("a", None, xid)
    assert log.last("a") == 99_999
    assert len(log._seen["a"]) < 100


def test_events_after_a_failed_wait_still_arrive() -> None:
    address = PlainLibrary().address("gpu0")
    library = EventLibrary(
        fails_with(Code.GPU_IS_LOST),
        lambda: None,
        fails_with(Code.UNKNOWN),
        lambda: XidEvent(address, 79, NONE),
        lambda: XidEvent(address + 1, 13, NONE),
    )
    log = XidLog()
    watcher = XidWatcher(library, log, pause_seconds=0.0)
    watcher.watch("gpu0", "GPU-0")
    assert library.done.wait(30.0)
    assert log.last("GPU-0") == 79
    assert watcher.stop(30.0)
    assert library.calls == ["free"]


def test_a_wait_that_always_fails_at_once_does_not_spin() -> None:
    library = EventLibrary(*[fails_with(Code.GPU_IS_LOST)] * 1000)
    watcher = XidWatcher(library, XidLog(), pause_seconds=30.0)
    watcher.watch("gpu0", "GPU-0")
    assert watcher.stop(30.0)  # the pause itself ends at once
    assert library.waits <= 1


def test_the_thread_ends_with_the_session() -> None:
    library = EventLibrary(fails_with(Code.UNINITIALIZED))
    watcher = XidWatcher(library, XidLog())
    watcher.watch("gpu0", "GPU-0")
    thread = watcher._thread
    assert thread is not None
    thread.join(30.0)
    assert not thread.is_alive()
    assert library.waits == 1
    assert watcher.stop(0.0)


def test_a_device_without_events_does_not_disturb_the_others() -> None:
    library = EventLibrary(lambda: XidEvent(PlainLibrary().address("gpu1"), 48, NONE))
    log = XidLog()
    watcher = XidWatcher(library, log)
    watcher.watch("unwatchable", "GPU-0")
    assert watcher._thread is None
    watcher.watch("gpu1", "GPU-1")
    watcher.watch("gpu1", "GPU-1")
    assert library.done.wait(30.0)
    assert watcher.stop(30.0)
    assert (log.last("GPU-0"), log.last("GPU-1")) == (None, 48)
