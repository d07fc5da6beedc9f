"""Running until somebody says stop: ctrl+c, SIGTERM, SIGHUP."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_STOPPERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stop_event() -> Iterator[threading.Event]:
    """An event that the usual signals set while the block runs; only for the main thread."""
    stopped = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        stopped.set()

    before = {number: signal.signal(number, stop) for number in _STOPPERS}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
