"""The fleet over real sockets: what HTTP clients see, ports, start and stop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import http.client
import json
import os
import socket
import threading
from collections.abc import Iterator

import pytest

from enginetop.fleet.errors import ConfigError
from enginetop.simulator.builtin import SCENARIOS
from enginetop.simulator.faults import outage
from enginetop.simulator.http_messages import Reply
from enginetop.simulator.http_server import HttpServer, Port
from enginetop.simulator.scenario import Pool, Scenario
from enginetop.simulator.simulated_fleet import SimulatedFleet, serve_until
from tests.unit.simulator.read_page import ReadPage

STEADY = SCENARIOS["steady"]
QWEN = STEADY.pools[0].members[0]


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def fleet_of(scenario: Scenario = STEADY, replicas: int = 2, clock: Clock | None = None) -> SimulatedFleet:
    return SimulatedFleet(scenario, replicas, start_time=1.7e9, warm_up_seconds=10.0, clock=clock or Clock())


def port_of(url: str) -> int:
    scheme, _, port = url.rpartition(":")
    assert scheme == "http://127.0.0.1"
    return int(port)


@pytest.fixture(scope="module")
def fleet() -> Iterator[SimulatedFleet]:
    with fleet_of() as running:
        yield running


@pytest.fixture
def client(fleet: SimulatedFleet) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection("127.0.0.1", port_of(fleet.urls[0]), timeout=10)
    yield connection
    connection.close()


def ask(client: http.client.HTTPConnection, path: str, method: str = "GET") -> http.client.HTTPResponse:
    client.request(method, path)
    return client.getresponse()


def test_metrics_page(client: http.client.HTTPConnection) -> None:
    reply = ask(client, "/metrics")
    body = reply.read()
    assert reply.status == 200
    assert reply.getheader("content-type") == "text/plain; version=0.0.4; charset=utf-8"
    assert reply.getheader("content-length") == str(len(body))
    page = ReadPage.of(body)
    assert page.value("enginetop_simulated") == 1.0
    assert page.value("vllm:generation_tokens_total") > 0


def test_pages_beside_it(client: http.client.HTTPConnection) -> None:
    assert ask(client, "/version").read() == b'{"version":"0.32.0"}'
    reply = ask(client, "/v1/models")
    assert reply.getheader("content-type") == "application/json"
    (model,) = json.loads(reply.read())["data"]
    assert (model["id"], model["max_model_len"]) == ("Qwen3-32B", 32768)
    info = json.loads(ask(client, "/server_info?config_format=json").read())["vllm_config"]
    assert info["scheduler_config"]["max_num_batched_tokens"] == QWEN.engine.max_num_batched_tokens
    assert info["speculative_config"] is None
    health = ask(client, "/health")
    assert (health.status, health.read()) == (200, b"")


@pytest.mark.parametrize("path", ["/prometheus/metrics", "/", "/metrics/", "/metricsx", "/v1", "/v1/"])
def test_other_paths_are_not_found(client: http.client.HTTPConnection, path: str) -> None:
    reply = ask(client, path)
    reply.read()
    assert reply.status == 404
    assert ask(client, "/health").read() == b"", "the connection lives on"


def test_a_query_is_ignored_and_head_has_no_body(client: http.client.HTTPConnection) -> None:
    page = ask(client, "/metrics?name[]=x").read()
    reply = ask(client, "/metrics", "HEAD")
    assert reply.read() == b""
    assert reply.getheader("content-length") == str(len(page))


def test_other_methods_are_refused(client: http.client.HTTPConnection) -> None:
    reply = ask(client, "/metrics", "DELETE")
    reply.read()
    assert reply.status == 405
    assert reply.getheader("allow") == "HEAD, GET"
    assert ask(client, "/health").status == 200, "the connection lives on"


def talk(fleet: SimulatedFleet, sent: bytes) -> bytes:
    """Everything that comes back until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", port_of(fleet.urls[0])), timeout=10) as connection:
        connection.sendall(sent)
        received = b""
        while part := connection.recv(65536):
            received += part
        return received


@pytest.mark.parametrize(
    ("sent", "statuses"),
    [
        (b"GET /health HTTP/1.0\r\n\r\n", [b"200"]),
        (b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n", [b"200"]),
        (b"GET /health HTTP/1.1\r\n\r\nGET /x HTTP/1.1\r\nconnection:Close\r\n\r\n", [b"200", b"404"]),
        (b"nonsense\r\n\r\n", [b"400"]),
        (b"GET /health\r\n\r\n", [b"400"]),
        (b"\xff\xfe\x00 \xff HTTP/9.9\r\n\r\n", [b"400"]),
        pytest.param(b"GET /health HTTP/1.1\r\nx: " + b"a" * 20_000, [b"400"], id="a long head"),
        (b"POST /metrics HTTP/1.1\r\ncontent-length: 4\r\n\r\nbodyGET /x HTTP/1.0\r\n\r\n", [b"405", b"404"]),
        pytest.param(
            b"POST /metrics HTTP/1.1\r\ncontent-length: 8000000\r\n\r\n" + b"x" * 8_000_000,
            [b"413"],
            id="a large body, sent to its end",
        ),
        pytest.param(
            b"POST /metrics HTTP/1.1\r\ncontent-length: 1" + b"0" * 5000 + b"\r\n\r\n",
            [b"413"],
            id="a long length",
        ),
        (b"POST /metrics HTTP/1.1\r\ncontent-length: -1\r\n\r\nGET /x HTTP/1.0\r\n\r\n", [b"400"]),
        (b"POST /metrics HTTP/1.1\r\ncontent-length: 1_0\r\n\r\n", [b"400"]),
        (b"POST /metrics HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", [b"411"]),
    ],
)
def test_raw_requests(fleet: SimulatedFleet, sent: bytes, statuses: list[bytes]) -> None:
    received = talk(fleet, sent)
    assert [part[:3] for part in received.split(b"HTTP/1.1 ")[1:]] == statuses


def test_a_request_in_pieces(fleet: SimulatedFleet) -> None:
    with socket.create_connection(("127.0.0.1", port_of(fleet.urls[0])), timeout=10) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in (b"GET /ver", b"sion HTTP/1.1\r\nConnection: clo", b"se\r\n", b"\r\n"):
            connection.sendall(piece)
        received = b""
        while part := connection.recv(65536):
            received += part
    assert received.endswith(b'{"version":"0.32.0"}')


def test_targets_are_named(fleet: SimulatedFleet) -> None:
    assert [target.name for target in fleet.targets()] == ["a1", "b1"]
    assert [target.url for target in fleet.targets()] == fleet.urls
    assert len(set(fleet.urls)) == 2


def test_gpus_belong_to_the_urls(fleet: SimulatedFleet) -> None:
    (report,) = fleet.gpus.read(1.0)
    assert [gpu.replicas for gpu in report.gpus] == [(fleet.urls[0],)] * 2 + [(fleet.urls[1],)] * 4
    assert all((gpu.utilization_ratio or 0.0) > 0.5 for gpu in report.gpus), "warmed up"


def test_the_page_follows_the_clock() -> None:
    clock = Clock()
    with fleet_of(clock=clock) as fleet:
        connection = http.client.HTTPConnection("127.0.0.1", port_of(fleet.urls[0]), timeout=10)
        try:
            pages = []
            for _ in range(3):
                pages.append(ReadPage.of(ask(connection, "/metrics").read()))
                clock.now += 7.0
        finally:
            connection.close()
    cpu = [page.value("process_cpu_seconds_total") for page in pages]
    tokens = [page.value("vllm:generation_tokens_total") for page in pages]
    assert tokens == sorted(set(tokens))
    assert cpu == sorted(set(cpu))


def refuses(port: int) -> bool:
    """Whether nobody listens; a connection that is cut is not refused."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
            while connection.recv(4096):
                pass
    except ConnectionRefusedError:
        return True
    except ConnectionError:
        return False
    return False


def until(wanted: bool, port: int) -> None:
    """Knock until connections are refused, or no longer are; the test's own timeout ends it."""
    while refuses(port) is not wanted:
        pass


def test_a_replica_that_is_down_refuses_and_returns_on_its_port() -> None:
    plan = QWEN.with_faults(outage(50.0, every_seconds=1000.0, for_seconds=30.0))
    clock = Clock()
    with fleet_of(Scenario("s", "s", (Pool("a", (QWEN, plan)),)), clock=clock) as fleet:
        first, second = map(port_of, fleet.urls)
        idle = socket.create_connection(("127.0.0.1", second), timeout=10)
        with idle:
            clock.now += 60.0
            until(True, second)
            with contextlib.suppress(ConnectionResetError):
                assert idle.recv(1) == b"", "connections die with the process"
        assert not refuses(first)
        clock.now += 60.0
        until(False, second)
        assert [port_of(url) for url in fleet.urls] == [first, second]


def test_a_page_of_a_process_that_just_died_is_cut_off() -> None:
    async def scenario() -> bytes:
        port = Port()
        server = HttpServer(port, lambda request: None if request.path == "/gone" else Reply(b"x"))
        server.open()
        reader, writer = await asyncio.open_connection("127.0.0.1", port.number)
        writer.write(b"GET /gone HTTP/1.1\r\n\r\n")
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""
        finally:
            writer.close()
            server.close()
            port.close()

    assert asyncio.run(scenario()) == b""


def test_a_connection_accepted_at_the_last_moment_is_cut_too() -> None:
    async def scenario() -> bytes:
        port = Port()
        server = HttpServer(port, lambda _: Reply(b"x"))
        server.open()
        loop = asyncio.get_running_loop()
        with socket.create_connection(("127.0.0.1", port.number), timeout=10) as client:
            client.setblocking(False)
            # The server goes when the connection is accepted but not yet in the hands of its protocol.
            loop.call_soon(server.close)
            server._accept()
            await asyncio.sleep(0)
            assert not server.is_open
            await server.wait_closed()
            port.close()
            with contextlib.suppress(ConnectionError):
                client.send(b"GET / HTTP/1.1\r\n\r\n")
                return await asyncio.wait_for(loop.sock_recv(client, 10), 10)
            return b""

    assert asyncio.run(scenario()) == b""


class Exhausted(socket.socket):
    """A listener for which there is no file descriptor at first."""

    failures = 1

    def accept(self) -> tuple[socket.socket, object]:
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super().accept()


class ExhaustedPort(Port):
    def listening_socket(self) -> socket.socket:
        return Exhausted(fileno=super().listening_socket().detach())


def test_too_few_file_descriptors_delay_an_answer() -> None:
    async def scenario() -> bytes:
        port = ExhaustedPort()
        server = HttpServer(port, lambda _: Reply(b"late"))
        server.open()
        reader, writer = await asyncio.open_connection("127.0.0.1", port.number)
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        received = await reader.read()
        writer.close()
        server.close()
        await server.wait_closed()
        port.close()
        return received

    assert asyncio.run(scenario()).endswith(b"late")


def test_stop_leaves_nothing_behind() -> None:
    before = threading.active_count()
    fleet = fleet_of()
    urls = fleet.start()
    connection = http.client.HTTPConnection("127.0.0.1", port_of(urls[0]), timeout=10)
    ask(connection, "/health").read()
    fleet.stop()
    connection.close()
    assert threading.active_count() == before
    assert fleet.urls == []
    assert fleet.targets() == []
    assert all(refuses(port_of(url)) for url in urls)
    fleet.stop()
    with pytest.raises(RuntimeError, match="not started"):
        _ = fleet.gpus


def test_a_fleet_can_be_started_again_and_goes_on_where_it_stood() -> None:
    clock = Clock()
    fleet = fleet_of(replicas=1, clock=clock)
    tokens = []
    for _ in range(3):
        (url,) = fleet.start()
        with pytest.raises(RuntimeError, match="already started"):
            fleet.start()
        clock.now += 5.0
        connection = http.client.HTTPConnection("127.0.0.1", port_of(url), timeout=10)
        tokens.append(ReadPage.of(ask(connection, "/metrics").read()).value("vllm:generation_tokens_total"))
        connection.close()
        fleet.stop()
        clock.now += 1000.0
    assert tokens == sorted(set(tokens))
    assert tokens[-1] < 30 * 5000, "the time between does not count"


def test_a_wanted_port_is_taken_or_refused() -> None:
    free = Port()
    number = free.number
    free.close()
    with fleet_of(replicas=1) as other:
        assert other.urls
    fleet, rival = fleet_of(replicas=1), fleet_of(replicas=1)
    try:
        assert fleet.start(number) == [f"http://127.0.0.1:{number}"]
        with pytest.raises(ConfigError, match=f"port {number}: .*; try another --port"):
            rival.start(number)
        assert rival.urls == []
    finally:
        fleet.stop()
        rival.stop()


@pytest.mark.parametrize("first", [65535, 70_000, -1])
def test_ports_that_do_not_exist_are_refused(first: int) -> None:
    with pytest.raises(ConfigError, match=f"--port {first}: 2 replicas"):
        fleet_of().start(first)


def test_a_fleet_that_cannot_listen_says_so_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: HttpServer) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(HttpServer, "open", fail)
    before = threading.active_count()
    fleet = fleet_of()
    with pytest.raises(ConfigError, match=r"^cannot serve the simulated fleet: Too many open files$"):
        fleet.start()
    assert threading.active_count() == before
    assert fleet.urls == []


def test_serve_until_announces_and_ends() -> None:
    stopped = threading.Event()
    told: list[str] = []

    def announce(url: str) -> None:
        told.append(url)
        assert not refuses(port_of(url))
        if len(told) == 2:
            stopped.set()

    fleet = fleet_of()
    serve_until(stopped, fleet, announce)
    assert len(set(told)) == 2
    assert fleet.urls == []


def test_serve_until_stops_the_fleet_when_interrupted() -> None:
    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    fleet = fleet_of()
    with pytest.raises(KeyboardInterrupt):
        serve_until(threading.Event(), fleet, interrupt)
    assert fleet.urls == []
