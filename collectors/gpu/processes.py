"""Which replica runs on a GPU: from the pids that use it to the process that listens on a target's port.

Everything is read from `/proc` under a given root. A worker of a tensor-parallel engine is a child of the
server, so that the parents of a pid are asked too; the nearest one that listens wins. Sockets are matched by
their inode, which is unique on the machine: a server in another network namespace is never taken for ours.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import Target

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_LISTEN = " 0A "
_INIT_PID_NAMESPACE = "pid:[4026531836]"
"""The kernel's fixed inode of the first pid namespace (PROC_PID_INIT_INO)."""

_MAX_PARENTS = 32
_MAX_FILES = 65_536
_MAX_SOCKETS = 1_000_000


@frozen
class Listener:
    """One listening TCP socket."""

    address: Address
    port: int
    inode: int


def _address(text: str) -> Address:
    """An address of `/proc/net/tcp{,6}`: 32 bit words in hexadecimal, each in the host's byte order."""
    order = "<" if sys.byteorder == "little" else ">"
    words = [int(text[i : i + 8], 16) for i in range(0, len(text), 8)]
    packed = struct.pack(f"{order}{len(words)}I", *words)
    if len(packed) == 4:
        return ipaddress.IPv4Address(packed)
    address = ipaddress.IPv6Address(packed)
    return address.ipv4_mapped or address


def _lines(path: Path, limit: int) -> Iterator[str]:
    try:
        with path.open(encoding="ascii", errors="replace") as file:
            yield from islice(file, limit)
    except OSError:
        return


def listeners(proc: Path) -> list[Listener]:
    """All listening TCP sockets of this network namespace."""
    found: list[Listener] = []
    for table in ("net/tcp", "net/tcp6"):
        for line in _lines(proc / table, _MAX_SOCKETS):
            if _LISTEN not in line:  # a busy host has a hundred thousand connections here
                continue
            fields = line.split()
            if len(fields) < 10 or fields[3] != _LISTEN.strip():
                continue
            host, _, port = fields[1].partition(":")
            with contextlib.suppress(ValueError, struct.error):
                found.append(Listener(_address(host), int(port, 16), int(fields[9])))
    return found


def own_addresses(proc: Path) -> frozenset[Address]:
    """Addresses of this machine's interfaces, loopback among them."""
    found: set[Address] = set()
    leaf = ""
    for line in _lines(proc / "net/fib_trie", _MAX_SOCKETS):
        text = line.strip()
        if text.startswith("|-- "):
            leaf = text[4:]
        elif text == "/32 host LOCAL":
            with contextlib.suppress(ValueError):
                found.add(ipaddress.IPv4Address(leaf))
    for line in _lines(proc / "net/if_inet6", _MAX_SOCKETS):
        with contextlib.suppress(ValueError):
            found.add(ipaddress.IPv6Address(int(line.split(maxsplit=1)[0], 16)))
    return frozenset(found)


def _target_addresses(host: str, own: frozenset[Address], own_names: frozenset[str]) -> frozenset[Address]:
    """The addresses of this machine that a target's host can mean; empty: another machine, or not known."""
    loopback = frozenset(address for address in own if address.is_loopback)
    if host == "localhost":
        return loopback | {ipaddress.IPv4Address("127.0.0.1"), ipaddress.IPv6Address("::1")}
    if host in own_names:
        return own
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return frozenset()
    return frozenset({address}) if address.is_loopback or address in own else frozenset()


def _hears(listener: Listener, wanted: frozenset[Address]) -> bool:
    bound = listener.address
    if bound in wanted:
        return True
    # A socket bound to :: hears IPv4 too, unless it was told not to, which no table tells.
    return bound.is_unspecified and any(bound.version == 6 or a.version == 4 for a in wanted)


def servers(
    targets: Iterable[Target], sockets: Sequence[Listener], own: frozenset[Address], own_names: frozenset[str]
) -> dict[int, tuple[str, ...]]:
    """For the inode of each listening socket that belongs to a target on this machine: the targets' URLs."""
    on_port: dict[int, list[Listener]] = {}
    for listener in sockets:
        on_port.setdefault(listener.port, []).append(listener)
    found: dict[int, tuple[str, ...]] = {}
    for target in targets:
        hearing = on_port.get(target.port, ())
        wanted = _target_addresses(target.host, own, own_names) if hearing else frozenset()
        for listener in hearing:
            if wanted and _hears(listener, wanted):
                found[listener.inode] = (*found.get(listener.inode, ()), target.url)
    return found


def parent(proc: Path, pid: int) -> int | None:
    """The parent's pid; None when the process is gone or has no parent here."""
    try:
        text = (proc / str(pid) / "stat").read_text("ascii", "replace")
    except OSError:
        return None
    # The name may hold spaces and brackets: what follows its last bracket is "state ppid ...".
    fields = text.rpartition(")")[2].split()
    return int(fields[1]) if len(fields) > 1 and fields[1].isdigit() and int(fields[1]) > 0 else None


def open_files(proc: Path, pid: int) -> frozenset[str]:
    """Where the process's file descriptors point to; empty when we may not look."""
    found: set[str] = set()
    with contextlib.suppress(OSError):
        for entry in islice((proc / str(pid) / "fd").iterdir(), _MAX_FILES):
            with contextlib.suppress(OSError):
                found.add(str(entry.readlink()))
    return frozenset(found)


def sees_host_pids(proc: Path) -> bool:
    """Whether pids here are those of the host, as NVML reports them."""
    try:
        return str((proc / "self/ns/pid").readlink()) == _INIT_PID_NAMESPACE
    except OSError:
        return False


class _Finder:
    """Finds the targets behind pids. Lives for one look, in which each process is read once."""

    def __init__(self, proc: Path, by_inode: Mapping[int, tuple[str, ...]], host_pids: bool) -> None:
        self._proc = proc
        self._by_file = {f"socket:[{inode}]": urls for inode, urls in by_inode.items()}
        self._host_pids = host_pids
        self._files: dict[int, frozenset[str]] = {}

    def _open_files(self, pid: int) -> frozenset[str]:
        if pid not in self._files:
            self._files[pid] = open_files(self._proc, pid)
        return self._files[pid]

    def urls(self, pid: int) -> frozenset[str]:
        """The targets that the process serves, itself or by its nearest listening parent; empty: not known.

        In a pid namespace of our own, the host's pid may be the number of an unrelated process here: then a
        process counts only if it holds an NVIDIA device open.
        """
        if not self._host_pids and not any(file.startswith("/dev/nvidia") for file in self._open_files(pid)):
            return frozenset()
        asked: int | None = pid
        for _ in range(_MAX_PARENTS):
            if asked is None:
                break
            served = self._by_file.keys() & self._open_files(asked)
            if served:
                return frozenset(url for file in served for url in self._by_file[file])
            asked = parent(self._proc, asked)
        return frozenset()


def own_names() -> frozenset[str]:
    """This machine's host name, long and short, in lower case."""
    name = socket.gethostname().lower()
    return frozenset({name, name.partition(".")[0]} - {"", "localhost"})


class ProcessJoin:
    """Joins GPU processes with the targets that run on this machine."""

    def __init__(
        self,
        targets: Sequence[Target],
        proc: Path = Path("/proc"),
        names: frozenset[str] | None = None,
        host_pids: bool | None = None,
    ) -> None:
        self._targets = tuple(targets)
        self._proc = proc
        self._names = own_names() if names is None else names
        self._host_pids = sees_host_pids(proc) if host_pids is None else host_pids
        own = own_addresses(proc)
        self.possible = any(_target_addresses(target.host, own, self._names) for target in self._targets)
        """Whether any target may run on this machine; if not, no process needs to be asked for."""

    def replicas(self, pids_of: Mapping[str, Sequence[int] | None]) -> dict[str, tuple[str, ...]]:
        """For each device (by any key) the URLs of the targets on it, in the targets' order.

        `pids_of` is None for a device that did not tell. A device is left out when nothing is known about it:
        it did not tell, or none of its processes serves a target. When no process of any device does, the
        table tells nothing about who runs where (a container sees an empty one) and all are left out; else a
        device without processes has no replicas.
        """
        if not any(pids_of.values()):
            return {}
        own = own_addresses(self._proc)
        by_inode = servers(self._targets, listeners(self._proc), own, self._names)
        finder = _Finder(self._proc, by_inode, self._host_pids)
        served = {
            key: frozenset(url for pid in pids for url in finder.urls(pid))
            for key, pids in pids_of.items()
            if pids is not None
        }
        if not any(served.values()):
            return {}
        order = tuple(dict.fromkeys(target.url for target in self._targets))
        return {
            key: tuple(url for url in order if url in urls)
            for key, urls in served.items()
            if urls or not pids_of[key]
        }
