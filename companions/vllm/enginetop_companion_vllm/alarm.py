"""A thread that rings once at a deadline. It touches nothing of the engine: it only rings."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Alarm:
    """Calls `ring` from its own thread when the deadline (seconds of `time.monotonic`) has come.

    The thread starts with the first deadline. A `ring` that fails is tried again after `patience` seconds.
    """

    def __init__(self, ring: Callable[[], None], patience: float = 1.0) -> None:
        self._ring = ring
        self._patience = patience
        self._changed = threading.Condition()
        self._deadline: float | None = None
        self._thread: threading.Thread | None = None

    def set(self, deadline: float | None) -> None:
        """Ring at `deadline` instead of what was set before; None: not at all."""
        with self._changed:
            self._deadline = deadline
            if self._thread is None and deadline is not None:
                self._thread = threading.Thread(target=self._run, name="enginetop-alarm", daemon=True)
                self._thread.start()
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._deadline is None:
                    self._changed.wait()
                    continue
                left = self._deadline - time.monotonic()
                if left > 0:
                    self._changed.wait(left)
                    continue
                self._deadline = None
            try:
                self._ring()
            except Exception:  # noqa: BLE001 - whatever the engine's queue says, the value must go back
                self.set(time.monotonic() + self._patience)
