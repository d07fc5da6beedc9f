"""From a GPU's pids to the replica: over a made-up process table, and with a real server process."""

from __future__ import annotations

import ipaddress
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from collectors.gpu.processes import (
    Listener,
    ProcessJoin,
    listeners,
    open_files,
    own_addresses,
    parent,
    sees_host_pids,
)
from collectors.gpu.source import NvmlSource
from enginetop.fleet.model import Target
from tests.support.fake_nvml.driver import FakeDriver, only

NAMES = frozenset({"gpu-box"})
HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
QUEUES = "00000000:00000000 00:00000000 00000000  1000        0"
END = "1 0000000000000000 100 0 0 10 0"

LOOPBACK, ANY, TEN = "0100007F", "00000000", "0500000A"  # 127.0.0.1, 0.0.0.0, 10.0.0.5
LOOPBACK6, ANY6 = "00000000000000000000000001000000", "0" * 32
MAPPED = "0000000000000000FFFF00000100007F"  # ::ffff:127.0.0.1

FIB = """Local:
  +-- 0.0.0.0/0 3 0 5
     |-- 10.0.0.5
        /32 host LOCAL
     |-- 10.0.0.255
        /32 link BROADCAST
     |-- 127.0.0.1
        /32 host LOCAL
"""
IF_INET6 = """00000000000000000000000000000001 01 80 10 80       lo
fd000000000000000000000000000002 04 40 00 82     eth0
"""


class Table:
    """A `/proc` in a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "net").mkdir()
        (root / "self/ns").mkdir(parents=True)
        (root / "net/fib_trie").write_text(FIB)
        (root / "net/if_inet6").write_text(IF_INET6)
        (root / "net/tcp").write_text(HEAD)
        (root / "net/tcp6").write_text(HEAD)

    def socket(self, address: str, port: int, inode: int, state: str = "0A") -> None:
        remote = "0" * len(address)
        line = f"   0: {address}:{port:04X} {remote}:0000 {state} {QUEUES} {inode} {END}\n"
        with (self.root / ("net/tcp" if len(address) == 8 else "net/tcp6")).open("a") as file:
            file.write(line)

    def process(self, pid: int, ppid: int, *files: str, name: str = "python") -> None:
        folder = self.root / str(pid)
        (folder / "fd").mkdir(parents=True)
        (folder / "stat").write_text(f"{pid} ({name}) S {ppid} {pid} {pid} 0 -1 4194304 100\n")
        for number, file in enumerate(files):
            (folder / "fd" / str(number)).symlink_to(file)

    def join(self, *urls: str, host_pids: bool | None = True) -> ProcessJoin:
        return ProcessJoin([Target(url, url) for url in urls], self.root, NAMES, host_pids)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path)


def test_listening_sockets_are_decoded(table: Table) -> None:
    table.socket(TEN, 8000, 11)
    table.socket(LOOPBACK, 30000, 12, state="01")  # an established connection
    table.socket(LOOPBACK6, 65535, 13)
    table.socket(MAPPED, 80, 14)
    with (table.root / "net/tcp").open("a") as file:
        file.write("   7: XX:YY 0:0 0A 1 2 3 4 5 6\n 0A \n\xff\n")
    assert listeners(table.root) == [
        Listener(ipaddress.ip_address("10.0.0.5"), 8000, 11),
        Listener(ipaddress.ip_address("::1"), 65535, 13),
        Listener(ipaddress.ip_address("127.0.0.1"), 80, 14),
    ]


def test_own_addresses_are_the_local_ones(table: Table) -> None:
    assert own_addresses(table.root) == {
        ipaddress.ip_address(text) for text in ("10.0.0.5", "127.0.0.1", "::1", "fd00::2")
    }


@pytest.mark.parametrize("name", ["python", "tmux: server", "a) S 99 (b", "((", ") Z 4"])
def test_the_parent_is_found_whatever_the_process_is_called(table: Table, name: str) -> None:
    table.process(50, 40, name=name)
    assert parent(table.root, 50) == 40


def test_a_process_without_parent_or_table_entry_has_none(table: Table) -> None:
    table.process(1, 0)
    assert (parent(table.root, 1), parent(table.root, 4242)) == (None, None)
    (table.root / "1/stat").write_text("garbage")
    assert parent(table.root, 1) is None
    assert open_files(table.root, 4242) == frozenset()


@pytest.mark.parametrize("namespace", ["pid:[4026531836]", "pid:[4026532345]"])
def test_the_hosts_pid_namespace_is_told_from_a_containers(table: Table, namespace: str) -> None:
    (table.root / "self/ns/pid").symlink_to(namespace)
    assert sees_host_pids(table.root) is (namespace == "pid:[4026531836]")


A, B = "http://localhost:8000", "http://127.0.0.1:8001"


def test_workers_belong_to_the_server_that_started_them(table: Table) -> None:
    table.socket(ANY, 8000, 11)
    table.socket(LOOPBACK, 8001, 12)
    table.process(1, 0)
    table.process(100, 1, "socket:[11]", "/dev/null")
    table.process(101, 100, "pipe:[5]")  # the engine core
    table.process(102, 101)  # its tensor-parallel workers
    table.process(103, 101)
    table.process(200, 1, "socket:[12]")
    found = table.join(A, B).replicas(
        {"gpu0": [102], "gpu1": [103, 200], "gpu2": [200], "gpu3": [], "gpu4": None}
    )
    assert found == {"gpu0": (A,), "gpu1": (A, B), "gpu2": (B,), "gpu3": ()}


def test_the_nearest_listening_parent_wins(table: Table) -> None:
    table.socket(ANY, 8000, 11)  # a router that started the engine itself
    table.socket(ANY, 8001, 12)
    table.process(100, 1, "socket:[11]")
    table.process(101, 100, "socket:[12]")
    table.process(102, 101)
    assert table.join(A, B).replicas({"gpu0": [102]}) == {"gpu0": (B,)}


def test_a_gpu_whose_processes_are_foreign_is_left_to_its_host(table: Table) -> None:
    table.socket(ANY, 8000, 11)
    table.process(100, 1, "socket:[11]")
    table.process(300, 1)
    assert table.join(A).replicas({"gpu0": [100, 300], "gpu1": [300], "gpu2": [4242]}) == {"gpu0": (A,)}


def test_an_empty_table_tells_nothing_even_about_idle_gpus(table: Table) -> None:
    table.socket(ANY, 8000, 11)
    table.process(300, 1)
    assert table.join(A).replicas({"gpu0": [], "gpu1": [300]}) == {}


def test_a_loop_of_parents_ends(table: Table) -> None:
    table.socket(ANY, 8000, 11)
    table.process(100, 101)
    table.process(101, 100)
    assert table.join(A).replicas({"gpu0": [100]}) == {}


@pytest.mark.parametrize(
    ("url", "address", "joined"),
    [
        ("http://localhost:8000", LOOPBACK, True),
        ("http://localhost:8000", LOOPBACK6, True),
        ("http://localhost:8000", TEN, False),
        ("http://127.0.0.1:8000", ANY6, True),
        ("http://127.0.0.1:8000", LOOPBACK6, False),
        ("http://127.0.0.1:8000", MAPPED, True),
        ("http://[::1]:8000", LOOPBACK6, True),
        ("http://[::1]:8000", ANY, False),
        ("http://10.0.0.5:8000", TEN, True),
        ("http://10.0.0.5:8000", ANY, True),
        ("http://10.0.0.5:8000", LOOPBACK, False),
        ("http://gpu-box:8000", TEN, True),
        ("http://GPU-BOX:8000", ANY, True),
        ("http://10.0.0.6:8000", ANY, False),
        ("http://elsewhere:8000", ANY, False),
        ("http://localhost:8001", ANY, False),
    ],
)
def test_only_sockets_that_the_targets_url_reaches_count(
    table: Table, url: str, address: str, joined: bool
) -> None:
    table.socket(address, 8000, 11)
    table.process(100, 1, "socket:[11]")
    assert table.join(url).replicas({"gpu0": [100]}) == ({"gpu0": (url,)} if joined else {})


def test_nothing_is_asked_when_no_target_is_on_this_machine(table: Table) -> None:
    assert not table.join("http://10.0.0.6:8000", "http://elsewhere:8000").possible
    assert not table.join().possible
    assert table.join("http://10.0.0.6:8000", "http://10.0.0.5:8000").possible


def test_in_a_container_a_pid_counts_only_if_it_holds_a_gpu_open(table: Table) -> None:
    table.socket(ANY, 8000, 11)
    table.process(100, 1, "socket:[11]")  # has the number of some process of the host by chance
    table.process(101, 100, "/dev/nvidiactl", "/dev/nvidia0")
    join = table.join(A, host_pids=False)
    assert join.replicas({"gpu0": [100]}) == {}
    assert join.replicas({"gpu0": [101]}) == {"gpu0": (A,)}


def test_without_a_process_table_nothing_is_known(tmp_path: Path) -> None:
    join = ProcessJoin([Target(A, "a")], tmp_path / "none", frozenset())
    assert join.replicas({"gpu0": [1]}) == {}


SERVER = """
import os, socket, sys
server = socket.create_server(("127.0.0.1", 0))
worker = os.fork()
if worker == 0:
    server.close()
    sys.stdin.read()
    os._exit(0)
print(server.getsockname()[1], worker, flush=True)
sys.stdin.read()
os.waitpid(worker, 0)
"""


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="no /proc here")
def test_a_real_server_is_found_from_its_workers_pid(driver: FakeDriver) -> None:
    command = [sys.executable, "-c", SERVER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port, worker = server.stdout.readline().split()
        url = f"http://localhost:{port}"
        driver.say(f"pid 0 compute {worker}", f"pid 1 compute {server.pid}", "count 3")
        make_join: Callable[..., ProcessJoin] = lambda targets, proc: ProcessJoin(  # noqa: E731
            targets, proc, frozenset(), host_pids=True
        )
        source = NvmlSource(driver.load, make_join=make_join)
        source.open([Target(url, "a"), Target("http://localhost:1", "other")])
        report = only(source.read(0.0))
        source.close()
        server.communicate("")
    assert [gpu.replicas for gpu in report.gpus] == [(url,), (url,), ()]
