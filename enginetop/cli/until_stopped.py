"""Running until somebody says stop: ctrl+c, SIGTERM, SIGHUP."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

_STOPPERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stop_event() -> Iterator[threading.Event]:
    """An event that the usual signals set while the block runs; only for the main thread."""
    stopped = threading.Event()
    with on_signals(lambda _number: stopped.set()):
        yield stopped


@contextmanager
def on_signals(act: Callable[[int], None], numbers: Iterable[signal.Signals] = _STOPPERS) -> Iterator[None]:
    """Let `act` hear the number of each such signal while the block runs; only for the main thread."""

    def handle(number: int, _frame: FrameType | None) -> None:
        act(number)

    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def passing_folder(prefix: str) -> Iterator[Path]:
    """A folder of our own that is gone after the block, also where SIGTERM or SIGHUP ends it: with SystemExit
    then, and the exit code of such an end. Only for the main thread.
    """
    from tempfile import TemporaryDirectory  # of use to few

    def leave(number: int) -> None:
        raise SystemExit(128 + number)

    with (
        TemporaryDirectory(prefix=prefix) as folder,
        on_signals(leave, (signal.SIGTERM, signal.SIGHUP)),
    ):
        yield Path(folder)
