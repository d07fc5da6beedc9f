"""A program that is called as `ssh` is, and misbehaves as it is told to.

As a module it installs itself; as a program it is the client: a connection with a control socket (`-N`), or
one that asks it for a forward (`-O forward`).
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class FakeSsh:
    """The installed program. Its behaviour is read at every start of it."""

    folder: Path

    @property
    def program(self) -> str:
        """What to run."""
        return str(self.folder / "ssh")

    def behave(self, **how: object) -> None:
        """`say` on stderr, then go on or `exit` with a code; never answer for `slow_hosts`; leave forwards
        unanswered (`mute`) or go into the background (`fork`).
        """
        (self.folder / "how.json").write_text(json.dumps(how))

    def calls(self, *holding: str) -> list[list[str]]:
        """The arguments of every start, of those that hold all these words."""
        log = self.folder / "calls"
        lines = log.read_text().splitlines() if log.exists() else []
        return [words for words in map(json.loads, lines) if set(holding) <= set(words)]

    def kill(self) -> None:
        """The newest connection dies as by a crash: its sockets stay."""
        os.kill(int((self.folder / "pid").read_text()), signal.SIGKILL)
        self.wait()

    def wait(self) -> None:
        """Wait for the end of the newest connection. AssertionError after a minute."""
        process = Path("/proc", (self.folder / "pid").read_text())
        deadline = time.monotonic() + 60
        while _runs(process):
            assert time.monotonic() < deadline, "never ended"
            time.sleep(0.01)


def fake_ssh(folder: Path, **how: object) -> FakeSsh:
    """Put a fake `ssh` into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    fake = FakeSsh(folder)
    program = Path(fake.program)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {__file__} {folder} "$@"\n')
    program.chmod(0o755)
    fake.behave(**how)
    return fake


def _runs(process: Path) -> bool:
    """Whether any thread is left: the first may have ended while others still hold the sockets open."""
    try:
        ended = (process / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
        return not ended or len(list((process / "task").iterdir())) > 1
    except OSError:
        return False


def _main(folder: Path, words: list[str]) -> int:
    with (folder / "calls").open("a") as log:
        log.write(json.dumps(words) + "\n")
    how = json.loads((folder / "how.json").read_text())
    control = words[words.index("-S") + 1]
    if "-O" in words:
        return _ask(control, words)
    if words[-1] in how.get("slow_hosts", ()):
        time.sleep(3600)
    sys.stderr.buffer.write(how.get("say", "").encode("utf-8", "surrogateescape"))
    sys.stderr.flush()
    if "exit" in how:
        return int(how["exit"])
    if how.get("fork") and os.fork():
        while not Path(control).exists():
            time.sleep(0.01)
        return 0
    (folder / "pid").write_text(str(os.getpid()))
    return _serve(control, mute=how.get("mute", False))


def _ask(control: str, words: list[str]) -> int:
    """`-O forward -L path:server`, or `-O exit`."""
    with socket.socket(socket.AF_UNIX) as asked:
        try:
            asked.connect(control)
        except OSError:
            return 255
        wanted = words[words.index("-L") + 1] if "-L" in words else "exit"
        asked.sendall(f"{wanted}\n".encode())
        return 0 if asked.recv(3) == b"ok\n" else 255


def _serve(control: str, *, mute: bool) -> int:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(control)
        listener.listen()
        while True:
            asking, _ = listener.accept()
            wanted = asking.makefile().readline().strip()
            if not wanted:
                continue  # somebody looked whether we listen
            if wanted == "exit":
                break
            if mute:
                time.sleep(3600)
            path, _, server = wanted.partition(":")
            host, _, port = server.rpartition(":")
            forward = socket.socket(socket.AF_UNIX)
            forward.bind(path)
            forward.listen()
            threading.Thread(target=_relay, args=(forward, (host, int(port))), daemon=True).start()
            asking.sendall(b"ok\n")
            asking.close()
    Path(control).unlink()
    return 255


def _relay(forward: socket.socket, server: tuple[str, int]) -> None:
    while True:
        near, _ = forward.accept()
        try:
            far = socket.create_connection(server)
        except OSError as error:
            print(f"channel 2: open failed: connect failed: {error.strerror}", file=sys.stderr, flush=True)
            near.close()
            continue
        for source, sink in ((near, far), (far, near)):
            threading.Thread(target=_copy, args=(source, sink), daemon=True).start()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while part := source.recv(65_536):
            sink.sendall(part)
        sink.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    sys.exit(_main(Path(sys.argv[1]), sys.argv[2:]))
