"""`ssh://` targets through a real sshd: what is read, what is told, and that nothing is left behind."""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.answer import Answer
from collectors.http import HttpFetcher
from collectors.ssh.address import ssh_address
from collectors.ssh.machines import SshMachines
from enginetop.cli.main import main
from enginetop.fleet.observation import FailureKind
from tests.support.faulty_server import FaultyServer, Script, page
from tests.support.launching import until
from tests.support.ssh_server import SshServer, ssh_server, why_not

WHY_NOT = why_not()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)

PAGE = b"vllm:num_requests_running 3.0\n"


@pytest.fixture
def sshd(tmp_path: Path, sockets: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SshServer]:
    with ssh_server(tmp_path) as server:
        monkeypatch.setenv("PATH", f"{server.bin}:{os.environ['PATH']}")
        yield server


@pytest.fixture
def engine() -> Iterator[str]:
    with FaultyServer() as running:
        yield running.replica(lambda _: page(PAGE)).url.removeprefix("http://")


def _always(body: bytes) -> Script:
    return lambda _: page(body)


def ask(*urls: str, times: int = 1) -> list[Answer]:
    async def run() -> list[Answer]:
        fetcher = HttpFetcher()
        try:
            answers: list[Answer] = []
            for _ in range(times):
                asked = (fetcher.fetch(url, "/metrics", timeout_seconds=5.0) for url in urls)
                answers += await asyncio.gather(*asked)
            return answers
        finally:
            await fetcher.aclose()

    return asyncio.run(run())


def test_a_page_behind_ssh_is_the_page(sshd: SshServer, engine: str) -> None:
    answers = ask(sshd.url(engine), times=2)
    assert [(answer.status, answer.body, answer.error) for answer in answers] == [(200, PAGE, None)] * 2


def test_many_servers_of_a_machine_share_one_connection(sshd: SshServer) -> None:
    with FaultyServer() as running:
        pages = [f"vllm:num_requests_running {n}.0\n".encode() for n in range(12)]
        replicas = [running.replica(_always(body)) for body in pages]
        answers = ask(*(sshd.url(replica.url.removeprefix("http://")) for replica in replicas))
    assert [answer.body for answer in answers] == pages
    assert (sshd.folder / "sshd.log").read_text().count("Accepted publickey") == 1


def test_the_sockets_are_ours_alone(sshd: SshServer, engine: str, sockets: Path) -> None:
    async def run() -> None:
        machines = SshMachines()
        path = Path(await machines.socket(ssh_address(sshd.url(engine))))
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert path.parent.parent == sockets
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
        assert {entry.name for entry in path.parent.iterdir()} == {"c", "s0"}
        await machines.aclose()
        assert not path.parent.exists()

    asyncio.run(run())


def test_a_host_of_the_config_behind_a_jump_host(sshd: SshServer, engine: str) -> None:
    sshd.configure(
        f"Host bastion far\n HostName 127.0.0.1\n Port {sshd.port}\n User {getpass.getuser()}\n"
        "Host far\n ProxyJump bastion\n LocalForward 127.0.0.1:1 127.0.0.1:1\n ForwardAgent yes\n"
    )
    (answer,) = ask(f"ssh://far/{engine}")
    assert (answer.body, answer.detail) == (PAGE, "")
    assert (sshd.folder / "sshd.log").read_text().count("Accepted publickey") == 2


def test_a_config_that_sends_ssh_into_the_background(sshd: SshServer, engine: str) -> None:
    sshd.configure("ForkAfterAuthentication yes\n")
    ask(sshd.url(engine))
    until(lambda: "isconnected from" in (sshd.folder / "sshd.log").read_text() or None, "ended")


def test_a_host_key_that_nobody_verified(sshd: SshServer, engine: str) -> None:
    sshd.known_hosts.write_text("")
    (answer,) = ask(sshd.url(engine))
    assert answer.error is FailureKind.TLS
    assert answer.detail == (
        f"ssh to 127.0.0.1:{sshd.port}: the host key is not known; connect once with "
        f"`ssh -p {sshd.port} 127.0.0.1` and verify it"
    )
    assert sshd.known_hosts.read_text() == ""


def test_a_host_key_that_changed(sshd: SshServer, engine: str) -> None:
    other = (sshd.folder / "user_key.pub").read_text().split()[:2]
    sshd.known_hosts.write_text(f"[127.0.0.1]:{sshd.port} {' '.join(other)}\n")
    (answer,) = ask(sshd.url(engine))
    assert answer.error is FailureKind.TLS
    assert answer.detail.endswith(f"ssh-keygen -R '[127.0.0.1]:{sshd.port}'")
    assert "the host key has changed" in answer.detail


def test_somebody_who_is_not_let_in(sshd: SshServer, engine: str) -> None:
    (sshd.folder / "authorized_keys").write_text("")
    (answer,) = ask(sshd.url(engine))
    assert answer.error is FailureKind.UNAUTHORIZED
    assert "permission denied; `ssh -p" in answer.detail
    assert str(sshd.folder) not in answer.detail


def test_nobody_listens_behind_it(sshd: SshServer) -> None:
    (answer,) = ask(sshd.url("127.0.0.1:1"))
    assert answer.error is FailureKind.REFUSED
    assert answer.detail == (
        f"ssh to 127.0.0.1:{sshd.port}: nothing listens at 127.0.0.1:1 there; "
        "start the server, or correct its port"
    )


def test_a_machine_that_forbids_forwarding(
    tmp_path: Path, sockets: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ssh_server(tmp_path, options="AllowTcpForwarding no") as server:
        monkeypatch.setenv("PATH", f"{server.bin}:{os.environ['PATH']}")
        (answer,) = ask(server.url(engine))
    assert answer.error is FailureKind.REFUSED
    assert "forwarding is refused there; its sshd needs AllowTcpForwarding yes" in answer.detail


def test_a_connection_that_was_lost_is_made_again(sshd: SshServer, engine: str) -> None:
    ahead = 0.0

    async def run() -> list[Answer]:
        fetcher = HttpFetcher(machines=SshMachines(monotonic=lambda: time.monotonic() + ahead))

        async def look() -> Answer:
            nonlocal ahead
            ahead += 100.0  # longer than any pause, and than a connection stands that is no failure
            return await fetcher.fetch(sshd.url(engine), "/metrics", timeout_seconds=5.0)

        try:
            first = await look()
            sshd.stop()
            lost = await look()
            with ssh_server(sshd.folder, port=sshd.port):
                return [first, lost, await look(), await look()]
        finally:
            await fetcher.aclose()

    first, lost, again, once_more = asyncio.run(run())
    assert [answer.body for answer in (first, again, once_more)] == [PAGE] * 3
    assert (lost.error, lost.detail) == (
        FailureKind.REFUSED,
        f"ssh to 127.0.0.1:{sshd.port}: connection refused; is sshd running there, and on this port?",
    )


def test_a_snapshot_and_a_recording(
    sshd: SshServer, engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["snapshot", sshd.url(engine), "--interval", "0.2", "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["replicas"]
    assert (row["name"], row["state"]) == (f"127.0.0.1:{sshd.port}/{engine}", "ok")
    assert row["signals"]["requests_running"]["value"] == 3
    recording = tmp_path / "seen.jsonl"
    assert main(["record", sshd.url(engine), "--for", "1", "--interval", "0.3", "-o", str(recording)]) == 0
    assert "user_key" not in recording.read_text()
    assert str(sshd.folder) not in recording.read_text()
    capsys.readouterr()
    assert main(["snapshot", "--replay", str(recording), "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["replicas"]
    # a recording holds no user of an address, and none of ssh's
    assert row["target"] == f"ssh://127.0.0.1:{sshd.port}/{engine}"
    assert row["signals"]["requests_running"]["value"] == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_however_we_end(
    sshd: SshServer, engine: str, sockets: Path, number: signal.Signals
) -> None:
    words = [sys.executable, "-m", "enginetop", "watch", sshd.url(engine), "--interval", "0.2"]
    watching = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: list(sockets.glob("enginetop-*/s0")) or None, "connected")
    finally:
        watching.send_signal(number)
        watching.wait(timeout=30)
    until(lambda: not any(sockets.iterdir()) or None, "removed")
    log = sshd.folder / "sshd.log"
    until(lambda: "isconnected from" in log.read_text() or "closed by" in log.read_text() or None, "ended")
