"""An engine that we started ourselves, as one that can be started anew with other flags."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from enginetop.fleet.model import EngineKind
from tuners.control.flags import FLAGS, MASK, FlagError, edited, masked, value_of
from tuners.control.restartable import Load, NothingDoneError, RestartError, Values

_STOP_SECONDS = 30.0
"""How long an engine may take to end before it is killed."""


class LaunchedEngine:
    """A `Restartable` child process. All calls that start one come from the same thread. `launcher` is how a
    person begins to write what we do, up to the engine's own command.

    With `setpriv` on the machine the engine is told to end when we die, so that no value on trial outlives
    its dead man's switch: whoever starts us again starts the engine with its own command.
    """

    def __init__(
        self,
        argv: Sequence[str],
        kind: EngineKind,
        look: Callable[[], Load],
        *,
        launcher: str = "enginetop launch",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._argv = tuple(argv)
        self._kind = kind
        self._look = look
        self._launcher = launcher
        self._clock = clock
        self._process: subprocess.Popen[bytes] | None = None
        self._next: tuple[str, ...] | None = None
        self._kill_at = 0.0

    @property
    def pid(self) -> int | None:
        """Of the process that was started last."""
        return self._process.pid if self._process is not None else None

    @property
    def exit_code(self) -> int | None:
        """Of the process that was started last; None: it runs."""
        return self._process.poll() if self._process is not None else None

    def start(self) -> None:
        """Start it as it was given. RestartError when that cannot be done."""
        self._spawn(self._argv)

    def load(self) -> Load:
        """See `Restartable`."""
        return self._look()

    def begin(self, values: Values) -> None:
        """See `Restartable`."""
        try:
            self._next = edited(self._argv, self._kind, self._changed(values))
        except FlagError as error:
            raise NothingDoneError(str(error)) from None
        self._kill_at = self._clock() + _STOP_SECONDS
        self._send(signal.SIGTERM)

    def poll(self) -> bool:
        """See `Restartable`."""
        process = self._process
        if self._next is not None:
            if process is not None and process.poll() is None:
                if self._clock() >= self._kill_at:
                    self._kill()
                return False
            self._kill()  # helpers that outlived it hold the port and the memory
            argv, self._next = self._next, None
            self._spawn(argv)
            return True
        if process is not None and (code := process.poll()) is not None:
            raise RestartError(_ended(code))
        return True

    def by_hand(self, values: Values) -> str:
        """See `Restartable`."""
        try:
            argv = edited(self._argv, self._kind, self._changed(values))
        except FlagError:
            argv = self._argv
        shown = masked(argv)
        hint = "" if shown == argv else f" (put in what {MASK} stands for)"
        return f"{self._launcher} -- {shlex.join(shown)}{hint}"

    def stop(self) -> int:
        """End it, and wait for that; its exit code."""
        process = self._process
        if process is None:
            return 0
        self._send(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_SECONDS)
        self._kill()
        return process.wait()

    def _changed(self, values: Values) -> Values:
        flags = FLAGS.get(self._kind, {})
        return {
            knob: value
            for knob, value in values.items()
            if knob in flags and value != value_of(self._argv, flags[knob])
        }

    def _spawn(self, argv: tuple[str, ...]) -> None:
        if shutil.which(argv[0]) is None:  # or setpriv would be the one to say so
            raise RestartError(f"{argv[0]} cannot be started: no such program")
        guard = shutil.which("setpriv")
        command = (guard, "--pdeathsig", "TERM", "--", *argv) if guard else argv
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the user's own command, as it was given
                command, stdin=subprocess.DEVNULL, start_new_session=True
            )
        except OSError as error:
            raise RestartError(f"{argv[0]} cannot be started: {error.strerror or error}") from None

    def _send(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    def _kill(self) -> None:
        """Kill what is left of its process group."""
        if self._process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)


def _ended(code: int) -> str:
    if code < 0:
        return f"it was ended by signal {-code}"
    return f"it ended with exit code {code}"
