"""The thread in which changes are carried out, one at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable

from enginetop.fleet.errors import EnginetopError
from tuners.control.recovery import StoredChangeError


class ChangeThread:
    """One thread for each run, never two at once. `fault` is why the last one failed; empty: it did not."""

    def __init__(self) -> None:
        self.fault = ""
        self._thread: threading.Thread | None = None

    @property
    def busy(self) -> bool:
        """Whether a run is under way."""
        return self._thread is not None and self._thread.is_alive()

    def launch(self, run: Callable[[], object], at_end: Callable[[], object]) -> None:
        """Begin a run; `at_end` is called in its thread, however it ends."""
        self.fault = ""

        def body() -> None:
            try:
                run()
            except (EnginetopError, StoredChangeError, OSError) as error:
                self.fault = " ".join(str(error).split())
            except Exception as error:  # noqa: BLE001 - a thread that dies must say so; the ttl undoes the rest
                self.fault = f"a fault of enginetop itself: {type(error).__name__}: {error}"
            finally:
                at_end()

        self._thread = threading.Thread(target=body, name="enginetop-control", daemon=True)
        self._thread.start()

    def join(self, timeout_seconds: float | None = None) -> bool:
        """Wait for the end of the run; whether there is none under way any more."""
        if self._thread is not None:
            self._thread.join(timeout_seconds)
        return not self.busy
