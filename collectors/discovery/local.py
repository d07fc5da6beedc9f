"""Engines that listen on this machine, found from the process table alone.

Nothing is asked of a port: a process is an engine by its argv, and its page is where its argv or its
listening sockets say. So looking for engines wakes, loads and drains nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from ipaddress import IPv6Address
from pathlib import Path

from collectors.cgroups import unit_and_container
from collectors.discovery.listing import Listed
from collectors.gpu.processes import Listener, listeners, open_files, own_addresses
from collectors.sanitise import clean_text
from collectors.secrets import words_without_secrets
from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import EngineKind, LocalProcess, Target

_MAX_ARGV_BYTES = 65_536
_MOST_WORDS, _LONGEST_WORD = 200, 500
"""Of an argv that is shown."""


@frozen
class Launch:
    """How an engine's server is started: a pattern over its argv joined by spaces, the default port of its
    metrics page, and the flag that sets it.
    """

    kind: EngineKind
    pattern: re.Pattern[str]
    default_port: int
    port_flag: str = "--port"


LAUNCHES: tuple[Launch, ...] = (
    Launch(EngineKind.VLLM, re.compile(r"(^|[ /])vllm serve( |$)|-m vllm\.entrypoints\.\S*api_server"), 8000),
    Launch(EngineKind.SGLANG, re.compile(r"-m sglang\.launch_server|(^|[ /])sglang serve( |$)"), 30000),
    Launch(EngineKind.TRTLLM, re.compile(r"(^|[ /])trtllm-serve( |$)"), 8000),
    Launch(EngineKind.LLAMACPP, re.compile(r"^(\S*/)?llama-server( |$)"), 8080),
    Launch(EngineKind.TGI, re.compile(r"^(\S*/)?text-generation-(launcher|router)( |$)"), 3000),
    Launch(EngineKind.LMDEPLOY, re.compile(r"(^|[ /])lmdeploy serve api_server( |$)"), 23333),
    # Its other ports serve inference.
    Launch(EngineKind.TRITON, re.compile(r"^(\S*/)?tritonserver( |$)"), 8002, "--metrics-port"),
)
"""How each engine is launched; the first that matches counts."""

_LOOPBACK = IPv6Address("::1")
_PORT = r"(?:^| ){}[ =](\d{{1,5}})(?: |$)"


class LocalProcesses:
    """The engines of the process table, which come and go with their processes. A `Source`."""

    every_seconds = 5.0
    note = ""
    title = "local"

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc

    def look(self) -> Sequence[Listed]:
        """One target an engine; none where there is no process table."""
        return [Listed(target) for target in local_targets(self._proc)]


def local_targets(proc: Path = Path("/proc")) -> tuple[Target, ...]:
    """The engines that listen on this machine, lowest port first; empty where there is no process table."""
    found: dict[int, Target] = {}
    sockets, has_ipv6 = listeners(proc), _LOOPBACK in own_addresses(proc)
    for pid, words in _commands(proc):
        argv = " ".join(words)
        launch = next((known for known in LAUNCHES if known.pattern.search(argv)), None)
        if launch is None:
            continue
        mine = open_files(proc, pid)
        own = [socket for socket in sockets if f"socket:[{socket.inode}]" in mine]
        listener = _serving(own, argv, launch)
        if listener is not None:
            host = _dial(listener, has_ipv6=has_ipv6)
            address = f"{host}:{listener.port}"
            process = _process(proc, pid, words)
            found[listener.port] = Target(f"http://{address}", address, process=process)
    return tuple(found[port] for port in sorted(found))


def _process(proc: Path, pid: int, words: Sequence[str]) -> LocalProcess:
    shown = (clean_text(word, _LONGEST_WORD) for word in words_without_secrets(words[:_MOST_WORDS]))
    return LocalProcess(pid, tuple(shown), *unit_and_container(proc, pid))


def _serving(own: Sequence[Listener], argv: str, launch: Launch) -> Listener | None:
    """The socket that serves HTTP: the port of the argv, else the engine's default, else the only one."""
    by_port = {socket.port: socket for socket in reversed(own)}  # IPv4, where it listens on both
    named = re.search(_PORT.format(re.escape(launch.port_flag)), argv)
    wanted = int(named.group(1)) if named else launch.default_port
    if wanted in by_port:
        return by_port[wanted]
    return own[0] if len(by_port) == 1 else None


def _dial(listener: Listener, *, has_ipv6: bool) -> str:
    address = listener.address
    if address.is_unspecified:
        # Many that listen on :: hear IPv6 alone (asyncio's servers do), which no table tells.
        return f"[{_LOOPBACK}]" if address.version == 6 and has_ipv6 else "127.0.0.1"
    return f"[{address}]" if address.version == 6 else str(address)


def _commands(proc: Path) -> Iterator[tuple[int, Sequence[str]]]:
    for entry in _entries(proc):
        if not entry.name.isdigit():
            continue
        try:
            with (entry / "cmdline").open("rb") as file:
                raw = file.read(_MAX_ARGV_BYTES)
        except OSError:
            continue
        if raw:
            yield int(entry.name), raw.decode("utf-8", "replace").rstrip("\0").split("\0")


def _entries(proc: Path) -> Iterable[Path]:
    try:
        return sorted(proc.iterdir())
    except OSError:
        return ()
