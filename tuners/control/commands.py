"""Commands of this machine that a restart needs: bounded in time, no shell, their last words kept."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO

from tuners.control.restartable import RestartError

_LONGEST_WORDS = 200
_QUICK_SECONDS = 30.0
_MOST_OUTPUT_BYTES = 8 << 20
_MOST_READ_BYTES = 1 << 20
_LOOK_SECONDS = 0.1


class NotStartedError(RestartError):
    """A command could not even be started."""


class Command:
    """A command under way. What it prints goes into a file, so that it can never block on us; one that prints
    without end is killed.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        timeout_seconds: float = _QUICK_SECONDS,
        environment: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start it. NotStartedError when that cannot be done."""
        self._name = argv[0]
        self._clock = clock
        self._timeout_seconds = timeout_seconds
        self._until = clock() + timeout_seconds
        self._told: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the command
        try:
            self._process = subprocess.Popen(  # noqa: S603 - from the user's own config, without a shell
                tuple(argv),
                stdin=subprocess.DEVNULL,
                stdout=self._told,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **(environment or {})},
            )
        except (OSError, ValueError) as error:  # ValueError: no words that a process can be given
            self._told.close()
            why = error.strerror if isinstance(error, OSError) else None
            raise NotStartedError(f"{self._name} cannot be run: {why or error}") from None

    def done(self) -> bool:
        """Whether it ended well. RestartError when it did not, or takes too long, or prints without
        end; it is killed then.
        """
        code = self._process.poll()
        if self._floods():
            self.kill()
            raise RestartError(
                f"{self._name} printed more than {_MOST_OUTPUT_BYTES >> 20} MiB and was killed"
            )
        if code is None:
            if self._clock() < self._until:
                return False
            self.kill()
            raise RestartError(f"{self._name} did not end within {self._timeout_seconds:g} s and was killed")
        words = self.output().strip().rpartition("\n")[2][:_LONGEST_WORDS]
        self._told.close()
        if code:
            clean = "".join(sign if sign.isprintable() else " " for sign in words)
            raise RestartError(f"{self._name} ended with {code}" + (f": {clean}" if clean else ""))
        return True

    def wait(self) -> None:
        """Wait for its end, as long as it may take."""
        while (left := self._until - self._clock()) > 0 and not self._floods():
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(min(left, _LOOK_SECONDS))
                return

    def output(self) -> str:
        """What it printed so far, of more than 1 MiB the end; empty once it is `done`."""
        if self._told.closed:
            return ""
        # at a place of its own: the command may still write, and shares the file's position with us
        start = max(0, self._printed_bytes() - _MOST_READ_BYTES)
        return os.pread(self._told.fileno(), _MOST_READ_BYTES, start).decode("utf-8", "replace")

    def _floods(self) -> bool:
        return not self._told.closed and self._printed_bytes() > _MOST_OUTPUT_BYTES

    def _printed_bytes(self) -> int:
        return os.fstat(self._told.fileno()).st_size

    def kill(self) -> None:
        """End it and all that it started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._told.close()


def run(
    argv: Sequence[str],
    *,
    timeout_seconds: float = _QUICK_SECONDS,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run a short command to its end; what it printed (`Command.output`). RestartError as in `Command`."""
    command = Command(argv, timeout_seconds=timeout_seconds, environment=environment)
    command.wait()
    told = command.output()
    command.done()
    return told
