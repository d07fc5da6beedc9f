"""Engines found from a process table, a made-up one and the real one."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from collectors.discovery.local import local_targets
from enginetop.fleet.model import LocalProcess

_TCP_HEAD = (
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
)


def _tcp(port: int, inode: int, address: str = "0100007F") -> str:
    rest = "00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0"
    return f"   0: {address}:{port:04X} {rest} {inode} 1 0 100 0 0 10 0\n"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "net").mkdir()
    (tmp_path / "net/tcp").write_text(_TCP_HEAD)
    (tmp_path / "self").mkdir()
    return tmp_path


def _process(
    proc: Path, pid: int, argv: list[str], sockets: dict[int, int], address: str = "0100007F"
) -> None:
    fd = proc / str(pid) / "fd"
    fd.mkdir(parents=True)
    (proc / str(pid) / "cmdline").write_bytes(b"".join(part.encode() + b"\0" for part in argv))
    for number, inode in enumerate(sockets.values(), start=3):
        (fd / str(number)).symlink_to(f"socket:[{inode}]")
    with (proc / "net/tcp").open("a") as table:
        table.writelines(_tcp(port, inode, address) for port, inode in sockets.items())


@pytest.mark.parametrize(
    ("argv", "ports", "found"),
    [
        (["/venv/bin/python", "/venv/bin/vllm", "serve", "m", "--port", "8010"], [8010, 40001], [8010]),
        (["python3", "-m", "vllm.entrypoints.openai.api_server", "--port=9000"], [9000], [9000]),
        (["vllm", "serve", "m"], [8000, 51000], [8000]),
        (["/opt/llama-server", "-m", "x.gguf", "--port", "8081"], [8081], [8081]),
        (["llama-server"], [4242], [4242]),
        (["python3", "-m", "sglang.launch_server", "--model", "m"], [30000], [30000]),
        (["trtllm-serve", "serve", "m", "--port", "8123"], [8123], [8123]),
        (["tritonserver", "--model-repository=/m"], [8000, 8001, 8002], [8002]),
        (["/opt/tritonserver/bin/tritonserver", "--metrics-port=9002"], [8000, 8001, 9002], [9002]),
        (["tritonserver", "--allow-metrics=false"], [8000, 8001], []),
        (["lmdeploy", "serve", "api_server", "m"], [23333, 40000], [23333]),
        (["text-generation-router", "--port", "3000"], [3000, 9000], [3000]),
        (["vllm", "serve", "m"], [], []),
        (["vllm", "serve", "m"], [5001, 5002], []),
        (["vim", "vllm-serve-notes.txt"], [8000], []),
        (["python3", "-m", "http.server", "8000"], [8000], []),
        (["tail", "-f", "/var/log/llama-server"], [8080], []),
    ],
)
def test_engines_by_argv_and_socket(proc: Path, argv: list[str], ports: list[int], found: list[int]) -> None:
    _process(proc, 77, argv, {port: 900 + number for number, port in enumerate(ports)})
    assert [target.url for target in local_targets(proc)] == [f"http://127.0.0.1:{port}" for port in found]


def test_several_engines_lowest_port_first_and_wildcards_dialled_on_loopback(proc: Path) -> None:
    _process(proc, 20, ["llama-server", "--port", "9001"], {9001: 1}, address="00000000")
    _process(proc, 10, ["vllm", "serve", "m"], {8000: 2}, address="0500000A")
    assert [target.url for target in local_targets(proc)] == ["http://10.0.0.5:8000", "http://127.0.0.1:9001"]


def test_who_listens_on_all_of_ipv6_is_dialled_there_where_this_machine_has_it(proc: Path) -> None:
    _process(proc, 10, ["vllm", "serve", "m"], {})
    (proc / "10/fd/3").symlink_to("socket:[7]")
    (proc / "net/tcp6").write_text(_TCP_HEAD + _tcp(8000, 7, "0" * 32))
    assert [target.url for target in local_targets(proc)] == ["http://127.0.0.1:8000"]
    (proc / "net/if_inet6").write_text("00000000000000000000000000000001 01 80 10 80       lo\n")
    assert [target.url for target in local_targets(proc)] == ["http://[::1]:8000"]
    (proc / "10/fd/4").symlink_to("socket:[8]")
    with (proc / "net/tcp").open("a") as table:
        table.write(_tcp(8000, 8, "00000000"))
    assert [target.url for target in local_targets(proc)] == ["http://127.0.0.1:8000"]


def test_who_serves_is_told_without_keys(proc: Path) -> None:
    argv = ["vllm", "serve", "m", "--api-key", "first-key", "second", "--port", "8000", "--hf-token=abc\x1b"]
    _process(proc, 77, argv, {8000: 900})
    (proc / "77/cgroup").write_text(f"0::/system.slice/vllm.service/libpod-payload-{'ab' * 32}\n")
    (target,) = local_targets(proc)
    shown = ("vllm", "serve", "m", "--api-key", "…", "…", "--port", "8000", "--hf-token=…")
    assert target.process == LocalProcess(77, shown, "vllm.service", "ab" * 6)


def test_no_process_table_at_all(tmp_path: Path) -> None:
    assert local_targets(tmp_path / "nowhere") == ()


def test_a_real_process_that_listens(tmp_path: Path) -> None:
    program = tmp_path / "llama-server"
    program.symlink_to(sys.executable)
    listen = "s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); input()"
    code = f"import socket; {listen}"
    with subprocess.Popen(
        [str(program), "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        port = int(child.stdout.readline())
        assert f"http://127.0.0.1:{port}" in [target.url for target in local_targets()]
        child.communicate("\n", timeout=20)
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0
