"""What goes wrong with `ssh`, by a program that misbehaves: one line that says what and how to mend it."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import stat
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from collectors.answer import Answer
from collectors.fetch import MAX_DETAIL_CHARACTERS, Credentials
from collectors.http import HttpFetcher
from collectors.ssh.address import ssh_address
from collectors.ssh.machines import SshMachines
from enginetop.cli.main import main
from enginetop.fleet.observation import FailureKind
from tests.support.fake_ssh import FakeSsh, fake_ssh
from tests.support.faulty_server import FaultyServer, Reply, Request, page, raw

PAGE = b"vllm:num_requests_running 3.0\n"
SERVER = "127.0.0.1:8000"

T = TypeVar("T")
Look = Callable[[str], Awaitable[Answer]]


@pytest.fixture
def ssh(tmp_path: Path) -> FakeSsh:
    return fake_ssh(tmp_path / "bin")


@pytest.fixture
def engine() -> Iterator[str]:
    with FaultyServer() as running:
        yield running.replica(lambda _: page(PAGE)).url.removeprefix("http://")


class Clock:
    """A steady clock that can be put forward, and run faster than time does."""

    def __init__(self, speed: float = 1.0) -> None:
        self.speed = speed
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() * self.speed + self.ahead


def with_ssh(
    program: str, do: Callable[[Look], Awaitable[T]], clock: Callable[[], float] = time.monotonic
) -> T:
    async def run() -> T:
        fetcher = HttpFetcher(machines=SshMachines(program, clock))
        try:
            return await do(lambda url: fetcher.fetch(url, "/metrics", timeout_seconds=5.0))
        finally:
            await fetcher.aclose()

    return asyncio.run(run())


def once(program: str, url: str, clock: Callable[[], float] = time.monotonic) -> Answer:
    return with_ssh(program, lambda look: look(url), clock)


# What OpenSSH 9.2 writes, word for word but for the names.
SAID = [
    pytest.param(
        "me@gpu1: Permission denied (publickey).\r\n",
        FailureKind.UNAUTHORIZED,
        "permission denied; `ssh gpu1` has to work without a password (a key in ssh's agent or config)",
        id="permission denied",
    ),
    pytest.param(
        "Received disconnect from 10.0.0.7 port 22:2: Too many authentication failures\r\n"
        "Disconnected from 10.0.0.7 port 22\r\n",
        FailureKind.UNAUTHORIZED,
        "permission denied; `ssh gpu1` has to work without a password (a key in ssh's agent or config)",
        id="too many keys",
    ),
    pytest.param(
        "No ED25519 host key is known for gpu1 and you have requested strict checking.\r\n"
        "Host key verification failed.\r\n",
        FailureKind.TLS,
        "the host key is not known; connect once with `ssh gpu1` and verify it",
        id="host key unknown",
    ),
    pytest.param(
        "@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@\r\n"
        "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\r\n"
        "@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@\r\n"
        "IT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!\r\n"
        "Offending ED25519 key in /home/me/.ssh/known_hosts:7\r\n"
        "Host key for gpu1 has changed and you have requested strict checking.\r\n"
        "Host key verification failed.\r\n",
        FailureKind.TLS,
        "the host key has changed: somebody else may answer there; once verified: ssh-keygen -R gpu1",
        id="host key changed",
    ),
    pytest.param(
        "ssh: Could not resolve hostname gpu1: Name or service not known\r\n",
        FailureKind.DNS,
        "no such host name; write it in full, or add it to ssh's config",
        id="unknown name",
    ),
    pytest.param(
        "ssh: connect to host gpu1 port 22: Connection refused\r\n",
        FailureKind.REFUSED,
        "connection refused; is sshd running there, and on this port?",
        id="refused",
    ),
    pytest.param(
        "ssh: connect to host gpu1 port 22: Connection timed out\r\n",
        FailureKind.TIMEOUT,
        "no answer from the machine; is it up, and is this its address and port?",
        id="timed out",
    ),
    pytest.param(
        "ssh: connect to host gpu1 port 22: No route to host\r\n",
        FailureKind.REFUSED,
        "the machine cannot be reached; is the network or VPN up?",
        id="no route",
    ),
    pytest.param(
        "channel 0: open failed: administratively prohibited: open failed\r\n"
        "stdio forwarding failed\r\n"
        "Connection closed by UNKNOWN port 65535\r\n",
        FailureKind.REFUSED,
        "the jump host refuses to forward; its sshd needs AllowTcpForwarding yes",
        id="jump host forbids",
    ),
    pytest.param(
        "channel 0: open failed: connect failed: Connection refused\r\n"
        "stdio forwarding failed\r\n"
        "Connection closed by UNKNOWN port 65535\r\n",
        FailureKind.REFUSED,
        "connection refused; is sshd running there, and on this port?",
        id="refused behind a jump host",
    ),
    pytest.param(
        "Unable to negotiate with 10.0.0.7 port 22: no matching cipher found. Their offer: arcfour\r\n",
        FailureKind.PROTOCOL,
        "no algorithm in common; see `ssh gpu1`",
        id="no algorithm",
    ),
    pytest.param(
        "/home/me/.ssh/config: line 3: Bad configuration option: hostnam\r\n"
        "/home/me/.ssh/config: terminating, 1 bad configuration options\r\n",
        FailureKind.REFUSED,
        "ssh refuses its own config; see `ssh gpu1`",
        id="config",
    ),
    pytest.param(
        "kex_exchange_identification: Connection closed by remote host\r\n",
        FailureKind.REFUSED,
        "the machine closed the connection; see `ssh gpu1`",
        id="closed",
    ),
    pytest.param("", FailureKind.REFUSED, "it ended without a word; see `ssh gpu1`", id="nothing"),
    pytest.param(
        "something new\r\n", FailureKind.REFUSED, "something new; see `ssh gpu1`", id="unknown words"
    ),
]


@pytest.mark.parametrize(("said", "kind", "line"), SAID)
def test_what_ssh_says_is_told_in_a_line(ssh: FakeSsh, said: str, kind: FailureKind, line: str) -> None:
    ssh.behave(say=said, exit=255)
    answer = once(ssh.program, f"ssh://gpu1/{SERVER}")
    assert (answer.error, answer.detail) == (kind, f"ssh to gpu1: {line}")


@pytest.mark.parametrize("code", [0, 1, 255])
def test_garbage_is_one_bounded_printable_line(ssh: FakeSsh, code: int) -> None:
    ssh.behave(say="\x1b]0;owned\x07\udcff\udcfe\0\x1b[2J\u202e" + "x" * 200_000, exit=code)
    answer = once(ssh.program, f"ssh://gpu1/{SERVER}")
    assert answer.error is FailureKind.REFUSED
    assert answer.detail.startswith("ssh to gpu1: ")
    assert answer.detail.isprintable()
    assert len(answer.detail) <= MAX_DETAIL_CHARACTERS


def test_no_program(tmp_path: Path) -> None:
    answer = once(str(tmp_path / "none"), f"ssh://gpu1/{SERVER}")
    assert answer.error is FailureKind.REFUSED
    assert answer.detail.endswith("install an OpenSSH client")


def test_a_machine_that_never_answers(ssh: FakeSsh) -> None:
    ssh.behave(slow_hosts=["gpu1"])
    answer = once(ssh.program, f"ssh://gpu1/{SERVER}", Clock(speed=50))
    assert (answer.error, answer.detail) == (
        FailureKind.TIMEOUT,
        "ssh to gpu1: not let in within 10 s; see what `ssh gpu1` waits for",
    )


def test_forwards_that_are_never_answered(ssh: FakeSsh) -> None:
    ssh.behave(mute=True)
    answer = once(ssh.program, f"ssh://gpu1/{SERVER}", Clock(speed=20))
    assert answer.error is FailureKind.REFUSED
    assert answer.detail == f"ssh to gpu1: no way to {SERVER}: ssh forwards nothing"


def test_one_machine_does_not_hold_up_another(ssh: FakeSsh, engine: str) -> None:
    ssh.behave(slow_hosts=["slow"])

    async def both(look: Look) -> Answer:
        slow = asyncio.ensure_future(look(f"ssh://slow/{SERVER}"))
        try:
            answer = await look(f"ssh://gpu1/{engine}")
            assert not slow.done()
            return answer
        finally:
            slow.cancel()
            await asyncio.gather(slow, return_exceptions=True)

    assert with_ssh(ssh.program, both).body == PAGE


def test_who_gives_up_waiting_does_not_stop_the_others(ssh: FakeSsh, engine: str) -> None:
    async def run(look: Look) -> Answer:
        hasty, patient = (asyncio.ensure_future(look(f"ssh://gpu1/{engine}{path}")) for path in ("/a", "/b"))
        while not ssh.calls():
            await asyncio.sleep(0.01)
        hasty.cancel()
        return await patient

    assert with_ssh(ssh.program, run).body == PAGE
    assert len(ssh.calls("-N")) == 1


def test_how_ssh_is_called(ssh: FakeSsh, engine: str) -> None:
    url = f"ssh://me@gpu1:2222/{engine}"
    assert once(ssh.program, url).body == PAGE
    (connection,) = ssh.calls("-N")
    (forward,) = ssh.calls("forward")
    options = {connection[place + 1] for place, word in enumerate(connection) if word == "-o"}
    assert {"BatchMode=yes", "ControlPersist=no", "ForwardAgent=no", "PermitLocalCommand=no"} <= options
    assert not any("StrictHostKeyChecking" in option or "KnownHosts" in option for option in options)
    assert connection[-6:] == ["-p", "2222", "-l", "me", "--", "gpu1"]
    assert forward[-6:] == connection[-6:]
    assert not any("sh -c" in word for word in (*connection, *forward))


def test_what_crashed_is_started_anew_and_told_by_nobody(ssh: FakeSsh, engine: str) -> None:
    clock = Clock()

    async def run(look: Look) -> list[Answer]:
        answers = []
        for _ in range(4):
            clock.ahead += 100.0  # it stood for longer than a failure does
            answers.append(await look(f"ssh://gpu1/{engine}"))
            ssh.kill()
        return answers

    assert [answer.body for answer in with_ssh(ssh.program, run, clock)] == [PAGE] * 4
    assert len(ssh.calls("-N")) == 4


def test_what_crashes_again_and_again_is_tried_ever_more_rarely(ssh: FakeSsh, engine: str) -> None:
    """Pauses of 2, 4, 8, 16, 32, then 60 seconds."""
    clock = Clock()
    starts_at = []

    async def run(look: Look) -> None:
        for second in range(130):
            clock.ahead = float(second)
            before = len(ssh.calls("-N"))
            await look(f"ssh://gpu1/{engine}")
            if len(ssh.calls("-N")) > before:
                starts_at.append(second)
                ssh.kill()

    origin = time.monotonic()
    with_ssh(ssh.program, run, lambda: origin + clock.ahead)
    pauses = [later - earlier for earlier, later in itertools.pairwise(starts_at)]
    # each is found dead at a look after its start, mostly the next one, and the pause runs from there
    assert len(pauses) >= 5
    for pause, least in zip(pauses, (2, 4, 8, 16, 32, 60), strict=False):
        assert least < pause <= least + 5, pauses


def test_a_failure_is_not_tried_again_at_every_look(ssh: FakeSsh, engine: str) -> None:
    ssh.behave(say="me@gpu1: Permission denied (publickey).\r\n", exit=255)
    clock = Clock()

    async def run(look: Look) -> list[Answer]:
        answers = [await look(f"ssh://gpu1/{engine}/{n}") for n in range(5)]
        ssh.behave()
        answers.append(await look(f"ssh://gpu1/{engine}"))
        clock.ahead += 2.0
        answers.append(await look(f"ssh://gpu1/{engine}"))
        return answers

    *denied, mended = with_ssh(ssh.program, run, clock)
    assert {answer.error for answer in denied} == {FailureKind.UNAUTHORIZED}
    assert len({answer.detail for answer in denied}) == 1
    assert mended.body == PAGE
    assert len(ssh.calls("-N")) == 2


def test_servers_that_are_not_there(ssh: FakeSsh) -> None:
    """`ssh` does not say which of the servers it means; both are told the same, at every look."""

    async def run(look: Look) -> list[Answer]:
        return [await look(f"ssh://gpu1/127.0.0.1:{port}") for port in (1, 2, 1, 2)]

    for port, answer in zip((1, 2, 1, 2), with_ssh(ssh.program, run), strict=True):
        assert answer.error is FailureKind.REFUSED
        assert answer.detail.startswith(f"ssh to gpu1: nothing listens at 127.0.0.1:{port} there; ")


def test_nothing_is_left_of_one_that_went_into_the_background(
    ssh: FakeSsh, engine: str, sockets: Path
) -> None:
    ssh.behave(fork=True)
    once(ssh.program, f"ssh://gpu1/{engine}")
    ssh.wait()


@pytest.mark.parametrize("wanted", ["{tmp}/" + "long" * 20, "{tmp}/per%hcent", "{tmp}/co:lon", "{tmp}/none"])
def test_a_folder_that_ssh_would_misread_is_not_used(
    ssh: FakeSsh, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: str
) -> None:
    folder = Path(wanted.format(tmp=tmp_path))
    if folder.name != "none":
        folder.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))

    async def run() -> None:
        machines = SshMachines(ssh.program)
        path = Path(await machines.socket(ssh_address(f"ssh://gpu1/{engine}")))
        assert folder not in path.parents
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert path.parent.stat().st_uid == os.getuid()
        await machines.aclose()
        assert not path.parent.exists()

    asyncio.run(run())


def test_a_row_says_it_and_the_others_are_read(
    ssh: FakeSsh, engine: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ssh.behave(say="me@gpu1: Permission denied (publickey).\r\n", exit=255)
    monkeypatch.setenv("PATH", f"{ssh.folder}:{os.environ['PATH']}")
    targets = [f"ssh://gpu1/{engine}", f"http://{engine}"]
    assert main(["snapshot", *targets, "--interval", "0.2", "--format", "json"]) == 0
    behind, direct = json.loads(capsys.readouterr().out)["replicas"]
    assert (direct["state"], behind["state"]) == ("ok", "unauthorized")
    assert behind["reasons"][0].startswith("ssh to gpu1: permission denied; `ssh gpu1` has to work")


def test_a_key_goes_to_the_server_and_into_no_argument(ssh: FakeSsh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_KEY", "sk-not-for-the-process-table")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    asked: list[Request] = []

    def answer(request: Request) -> Reply:
        asked.append(request)
        return page(PAGE)

    async def run(url: str) -> Answer:
        credentials = {url: Credentials(api_key_env="ENGINE_KEY")}
        fetcher = HttpFetcher(credentials, machines=SshMachines(ssh.program))
        try:
            return await fetcher.fetch(url, "/metrics", timeout_seconds=5.0)
        finally:
            await fetcher.aclose()

    with FaultyServer() as running:
        server = running.replica(answer).url.removeprefix("http://")
        assert asyncio.run(run(f"ssh://gpu1/{server}")).body == PAGE
    assert [request.headers["authorization"] for request in asked] == ["Bearer sk-not-for-the-process-table"]
    assert asked[0].headers["host"] == server
    assert "sk-not" not in json.dumps(ssh.calls())


def test_an_answer_for_the_complete_client_and_a_crash_of_ssh(ssh: FakeSsh) -> None:
    """The answer is of HTTP/1.0, which the lean client leaves to the other one."""
    old = raw(b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n" + PAGE)
    clock = Clock()

    with FaultyServer() as running:
        server = running.replica(old).url.removeprefix("http://")

        async def run(look: Look) -> list[bytes]:
            bodies = []
            for _ in range(3):
                clock.ahead += 100.0
                bodies.append((await look(f"ssh://gpu1/{server}")).body)
                ssh.kill()
            return bodies

        assert with_ssh(ssh.program, run, clock) == [PAGE] * 3


def test_the_last_server_of_a_machine_takes_the_connection_with_it(
    ssh: FakeSsh, engine: str, sockets: Path
) -> None:
    async def run() -> None:
        fetcher = HttpFetcher(machines=SshMachines(ssh.program))
        urls = [f"ssh://gpu1/{engine}", f"ssh://gpu1/{engine}/v1"]
        try:
            for url in urls:
                await fetcher.fetch(url, "/metrics", timeout_seconds=5.0)
            await fetcher.forget(urls[0])
            assert (await fetcher.fetch(urls[1], "/metrics", timeout_seconds=5.0)).body == PAGE
            assert len(ssh.calls("-N")) == 1
            await fetcher.forget(urls[1])
            assert not any(sockets.iterdir())
            assert (await fetcher.fetch(urls[0], "/metrics", timeout_seconds=5.0)).body == PAGE
            assert len(ssh.calls("-N")) == 2
        finally:
            await fetcher.aclose()

    asyncio.run(run())
