"""One running `ssh`: a connection to a machine, and a unix socket for each server behind it.

The system's program is used because its config, agent, jump hosts, hardware keys and known hosts are what
people already trust. It never asks anything (BatchMode, no terminal of its own), never forwards more than was
asked for, and ends with us, however we end: a shell beside it reads a pipe that only we hold open.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from collectors.fetch import FetchError
from collectors.ssh.address import SshHost
from collectors.ssh.faults import command, connect_fault, forward_fault, lost_fault, ssh_fault
from enginetop.fleet.observation import FailureKind

CONNECT_SECONDS = 10
"""How long a machine may take to let us in: names, jumps and keys included."""

_FORWARD_SECONDS = 5.0
_END_SECONDS = 2.0
_LOOK_SECONDS = 0.01
_FORWARDS_AT_ONCE = 8
_MOST_SAID_BYTES = 65_536

_LONGEST_FOLDER = 60
"""A unix socket's path has 104 to 108 bytes; `ssh` adds 17 to that of its own while it makes it."""

_PLAIN_PATH = re.compile(r"[A-Za-z0-9/_.-]+")
"""A path without what `ssh` expands (`%`, `${}`) or splits at (`:`, spaces)."""

# The pipe (descriptor 3) ends when we do, whatever killed us. A config may send `ssh` into the background
# (ForkAfterAuthentication): such a one is told to exit through its control socket.
_GUARD = """
folder=$1 ssh=$2
shift
exec 3<&0
"$@" </dev/null 3<&- &
master=$!
{ read -r _; kill "$master"; } <&3 3<&- 2>/dev/null &
watcher=$!
wait "$master"
kill "$watcher" 2>/dev/null
if [ -S "$folder/c" ]; then "$ssh" -F none -S "$folder/c" -O exit -- x 2>/dev/null; fi
rm -f -- "$folder"/*
rmdir -- "$folder"
"""

_OPTIONS = (
    "BatchMode=yes",
    "ControlMaster=yes",
    "ControlPersist=no",
    "ClearAllForwardings=yes",
    "ForwardAgent=no",
    "ForwardX11=no",
    "PermitLocalCommand=no",
    "RequestTTY=no",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
    "StreamLocalBindMask=0177",
    "LogLevel=INFO",
    f"ConnectTimeout={CONNECT_SECONDS}",
)


async def connect(machine: SshHost, program: str, monotonic: Callable[[], float]) -> SshConnection:
    """A connection that stands. FetchError: there is none, and why."""
    if shutil.which(program) is None:
        line = f"there is no program {program!r} here; install an OpenSSH client"
        raise ssh_fault(machine, FailureKind.REFUSED, line)
    try:
        connection = SshConnection(machine, program, monotonic)
    except OSError as error:
        reason = (error.strerror or "no reason given").lower()
        raise ssh_fault(machine, FailureKind.REFUSED, f"{program} cannot be started: {reason}") from None
    try:
        await connection.wait_until_in()
    except BaseException:
        await connection.end()
        raise
    return connection


class SshConnection:
    """A process of `ssh` and the folder of its sockets, which is ours alone. See `connect`."""

    def __init__(self, machine: SshHost, program: str, monotonic: Callable[[], float]) -> None:
        self._machine = machine
        self._program = program
        self._monotonic = monotonic
        self._began = monotonic()
        self._numbers = itertools.count()
        self._forwards: dict[str, asyncio.Task[str | FetchError]] = {}
        self._turns = asyncio.Semaphore(_FORWARDS_AT_ONCE)
        self._given_up = False
        self._channels = ""
        self._folder = _private_folder()
        with contextlib.ExitStack() as failed:
            failed.callback(shutil.rmtree, self._folder, ignore_errors=True)
            # A file and not a pipe: nobody has to read it in time. Its name is gone before anything is in it.
            place = self._folder / "said"
            self._said = os.open(place, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
            failed.callback(os.close, self._said)
            place.unlink()
            self._process = self._start()
            failed.pop_all()

    @property
    def stands(self) -> bool:
        """Whether it is of use, as far as is known."""
        return not self._given_up and self._process.poll() is None

    @property
    def age_seconds(self) -> float:
        """Since it was begun."""
        return self._monotonic() - self._began

    def listens(self) -> bool:
        """Whether its process still listens at its sockets; one that does not is given up."""
        with socket.socket(socket.AF_UNIX) as knocking:
            knocking.setblocking(False)
            try:
                knocking.connect(str(self._control))
            except BlockingIOError:
                pass  # others knock too
            except OSError:
                self._given_up = True
        return self.stands

    async def wait_until_in(self) -> None:
        """Wait until the machine has let us in. FetchError: it has not."""
        while not self._control.exists():
            if self._process.poll() is not None:
                raise connect_fault(self._machine, self._read())
            if self.age_seconds > CONNECT_SECONDS + 1:
                line = f"not let in within {CONNECT_SECONDS} s; see what `{command(self._machine)}` waits for"
                raise ssh_fault(self._machine, FailureKind.TIMEOUT, line)
            await asyncio.sleep(_LOOK_SECONDS)

    async def socket(self, server: str) -> str:
        """The path of the socket that leads to `server`; who gives up waiting does not stop the others.

        FetchError: there is none, and the connection is given up.
        """
        task = self._forwards.get(server)
        if task is None:
            task = self._forwards[server] = asyncio.create_task(self._forward(server))
        made = await asyncio.shield(task)
        if isinstance(made, FetchError):
            self._given_up = True
            raise FetchError(made.kind, made.detail)
        return made

    def server_fault(self, server: str) -> FetchError | None:
        """Why connections to `server` bring nothing, by what `ssh` said last; None: it did not tell."""
        said = self._read()
        if said:
            self._channels = said
            os.ftruncate(self._said, 0)
        return forward_fault(self._machine, server, self._channels)

    def end_fault(self) -> FetchError:
        """Why it stands no more."""
        return lost_fault(self._machine, self._read())

    async def end(self) -> None:
        """Let the guard end what it started, and see that nothing is left."""
        self._given_up = True
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            ends = time.monotonic() + _END_SECONDS
            while self._process.poll() is None and time.monotonic() < ends:
                await asyncio.sleep(_LOOK_SECONDS)
            await asyncio.gather(*self._forwards.values())
        finally:
            if self._process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
            os.close(self._said)
            shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self) -> subprocess.Popen[bytes]:
        options = [word for option in _OPTIONS for word in ("-o", option)]
        return subprocess.Popen(  # noqa: S603 - the words of a checked address, never a shell's text
            ["/bin/sh", "-c", _GUARD, "enginetop-ssh", str(self._folder),
             self._program, "-N", "-T", *options, *self._place()],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._said,
            start_new_session=True,  # no terminal to ask on, and no Ctrl-C meant for us
            env={**os.environ, "SSH_ASKPASS_REQUIRE": "never", "LC_ALL": "C"},
        )  # fmt: skip

    async def _forward(self, server: str) -> str | FetchError:
        path = self._folder / f"s{next(self._numbers)}"
        words = [self._program, "-F", "none", "-O", "forward", "-o", "StreamLocalBindMask=0177"]
        async with self._turns:
            try:
                asked = subprocess.Popen(  # noqa: S603 - as above
                    [*words, "-L", f"{path}:{server}", *self._place()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            except OSError as error:
                return ssh_fault(
                    self._machine, FailureKind.REFUSED, (error.strerror or "not started").lower()
                )
            ends = self._monotonic() + _FORWARD_SECONDS
            try:
                while asked.poll() is None and self.stands and self._monotonic() < ends:
                    await asyncio.sleep(_LOOK_SECONDS)
            finally:
                if asked.poll() is None:
                    asked.kill()
                asked.wait()
        if asked.returncode != 0 or not path.exists():
            return ssh_fault(self._machine, FailureKind.REFUSED, f"no way to {server}: ssh forwards nothing")
        return str(path)

    def _read(self) -> str:
        size = os.fstat(self._said).st_size
        said = os.pread(self._said, _MOST_SAID_BYTES, max(0, size - _MOST_SAID_BYTES))
        return said.decode("utf-8", "replace")

    @property
    def _control(self) -> Path:
        return self._folder / "c"

    def _place(self) -> list[str]:
        machine = self._machine
        port = ("-p", str(machine.port)) if machine.port else ()
        user = ("-l", machine.user) if machine.user else ()
        return ["-S", str(self._control), *port, *user, "--", machine.host]


def _private_folder() -> Path:
    """A new folder that only we can enter, with a path that `ssh` takes as it is."""
    for wanted in (os.environ.get("XDG_RUNTIME_DIR", ""), tempfile.gettempdir()):
        fits = len(wanted) <= _LONGEST_FOLDER and _PLAIN_PATH.fullmatch(wanted)
        if fits and Path(wanted).is_dir() and os.access(wanted, os.W_OK | os.X_OK):
            return Path(tempfile.mkdtemp(prefix="enginetop-", dir=wanted))
    return Path(tempfile.mkdtemp(prefix="enginetop-", dir="/tmp"))
