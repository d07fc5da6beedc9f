"""Debian's own `sshd` on a free port, with keys of its own, and `ssh` as somebody who knows them has it."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.launching import free_port, until

SSH = shutil.which("ssh") or ""
SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin") or ""


def why_not() -> str:
    """Why there is no server to test against; empty when there is."""
    if not SSHD or not SSH or shutil.which("ssh-keygen") is None:
        return "no sshd here: apt-get install openssh-server openssh-client"
    if os.geteuid() == 0:
        try:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # root's sshd wants it
        except OSError:
            return "sshd wants /run/sshd, which cannot be made here"
    return ""


@dataclass(slots=True)
class SshServer:
    """One running server. Its folder holds the keys of both sides and the client's files."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes]

    @property
    def bin(self) -> Path:
        """A folder with an `ssh` that reads this folder's config instead of the user's."""
        return self.folder / "bin"

    @property
    def known_hosts(self) -> Path:
        """What the client knows of the server."""
        return self.folder / "known_hosts"

    def url(self, server: str) -> str:
        """The target for a server behind it."""
        return f"ssh://{getpass.getuser()}@127.0.0.1:{self.port}/{server}"

    def configure(self, lines: str) -> None:
        """Put lines at the beginning of the client's config."""
        config = self.folder / "ssh_config"
        config.write_text(f"{lines}\nHost *\n{config.read_text()}")

    def stop(self) -> None:
        """The server and every connection to it end at once."""
        children = _children(self.process.pid)
        self.process.kill()
        self.process.wait()
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)


def _children(parent: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[1]) == parent:
                found.append(int(stat.parent.name))
    return found


@contextmanager
def ssh_server(folder: Path, *, port: int = 0, options: str = "") -> Iterator[SshServer]:
    """A server that lets in whoever has the key in `folder`; `options` are more lines of its config."""
    _key(folder / "host_key")
    _key(folder / "user_key")
    number = port or free_port()
    (folder / "authorized_keys").write_text((folder / "user_key.pub").read_text())
    config = folder / "sshd_config"
    config.write_text(
        f"{options}\nListenAddress 127.0.0.1:{number}\nHostKey {folder}/host_key\nPidFile none\nUsePAM no\n"
        f"AuthorizedKeysFile {folder}/authorized_keys\nStrictModes no\nPasswordAuthentication no\n"
        f"KbdInteractiveAuthentication no\nPermitRootLogin yes\nPrintMotd no\n"
    )
    known = folder / "known_hosts"
    if not known.exists():
        kind, key, *_ = (folder / "host_key.pub").read_text().split()
        known.write_text(f"[127.0.0.1]:{number} {kind} {key}\n")
    client = folder / "ssh_config"
    client.write_text(f"IdentityFile {folder}/user_key\nIdentitiesOnly yes\nUserKnownHostsFile {known}\n")
    (folder / "bin").mkdir(exist_ok=True)
    program = folder / "bin" / "ssh"
    program.write_text(
        f'#!/bin/sh\ncase "$1" in -F) exec {SSH} "$@" ;; *) exec {SSH} -F {client} "$@" ;; esac\n'
    )
    program.chmod(0o755)
    with (folder / "sshd.log").open("wb") as log:
        process = subprocess.Popen(
            [SSHD, "-D", "-e", "-f", str(config)], stderr=log, stdin=subprocess.DEVNULL
        )
    server = SshServer(folder, number, process)
    try:
        until(lambda: _listens(number), f"listened: {(folder / 'sshd.log').read_text()}")
        yield server
    finally:
        if process.poll() is None:
            server.stop()


def _key(path: Path) -> None:
    if not path.exists():
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)


def _listens(port: int) -> bool | None:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return None
    return True
