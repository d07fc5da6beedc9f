"""`watch --listen`: where it may listen, what it answers, and that nobody can hold it up."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from enginetop import __version__
from enginetop.alerts.sinks.desk import SinkHealth
from enginetop.cli.listen import Listen, parse_listen
from enginetop.cli.main import main
from enginetop.cli.status_server import Page, StatusServer
from enginetop.cli.watch_pages import WatchPages
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.prometheus_text import prometheus_text
from enginetop.fleet.snapshot import CollectorHealth, FleetSnapshot
from tests.support.watch_process import WAIT_SECONDS, WatchProcess, free_port
from tests.tui.snapshots import alert, distribution, fleet, replica

LOOPBACK = Listen("127.0.0.1", 0)
SINKS = (
    SinkHealth("hook", delivered=5, failed=2, refused=1, dropped=0, waiting=3, problem="refused"),
    SinkHealth('a "b"\\\n', delivered=0, failed=0, refused=0, dropped=0, waiting=0, problem=""),
)


def looked_at() -> FleetSnapshot:
    firing = alert("TargetDown", "http://a.example:8000", "critical")
    made = fleet([replica("a", changes={"ttft_seconds": distribution(0.12, 0.31, count=40)})])
    alerts = (firing, replace(firing, rule="X", state="pending", severity="info"))
    return replace(made, alerts=alerts, collector=CollectorHealth(1.0, 0.9, 4, "", asked=100, achieved=96))


class Clock:
    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


# --- addresses --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:9464", "127.0.0.1:9464"),
        ("127.8.8.8:1", "127.8.8.8:1"),
        ("localhost:9464", "127.0.0.1:9464"),
        (":9464", "127.0.0.1:9464"),
        ("[::1]:9464", "[::1]:9464"),
        ("127.0.0.1:0", "127.0.0.1:0"),
    ],
)
def test_an_address_on_loopback(text: str, expected: str) -> None:
    assert str(parse_listen(text, "--listen", any_address=False)) == expected


@pytest.mark.parametrize(
    "text", ["0.0.0.0:9464", "[::]:9464", "10.0.0.7:9464", "[2001:db8::1]:80", "8.8.8.8:1"]
)
def test_what_others_can_reach_needs_words(text: str) -> None:
    with pytest.raises(ConfigError, match=r"c\.toml: watch\.listen: other machines .*--listen-any-address"):
        parse_listen(text, "c.toml: watch.listen", any_address=False)
    assert str(parse_listen(text, "", any_address=True)) == text


@pytest.mark.parametrize(
    "text",
    ["", "9464", "127.0.0.1", "127.0.0.1:", "host:9464", "127.0.0.1:x", "127.0.0.1:65536", "::1", "a:-1"],
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ConfigError, match="is no address; write"):
        parse_listen(text, "--listen", any_address=True)


# --- the pages --------------------------------------------------------------------------------------------


def test_the_page_is_the_snapshot_and_our_own_figures_to_an_independent_parser() -> None:
    clock = Clock()
    pages = WatchPages(lambda: SINKS, clock)
    snapshot = looked_at()
    pages.take(snapshot)
    clock.now += 1.5
    page = pages.metrics()
    assert page.text.startswith(prometheus_text(snapshot))
    found: dict[tuple[object, ...], tuple[float, str]] = {}
    for family in text_string_to_metric_families(page.text):
        assert family.documentation
        for sample in family.samples:
            key = (sample.name, *sorted(sample.labels.items()))
            assert key not in found
            found[key] = (sample.value, family.type)
    hook = ("sink", "hook")
    wanted: dict[tuple[object, ...], tuple[float, str]] = {
        ("enginetop_sink_delivered_total", hook): (5, "counter"),
        ("enginetop_sink_failures_total", hook): (2, "counter"),
        ("enginetop_sink_refused_total", hook): (1, "counter"),
        ("enginetop_sink_waiting", hook): (3, "gauge"),
        ("enginetop_sink_dropped_total", ("sink", 'a "b"\\\n')): (0, "counter"),
        ("enginetop_scrapes_asked_total",): (100, "counter"),
        ("enginetop_scrapes_achieved_total",): (96, "counter"),
        ("enginetop_late_ticks_total",): (4, "counter"),
        ("enginetop_loop_age_seconds",): (1.5, "gauge"),
    }
    assert {key: found.get(key) for key in wanted} == wanted
    alerts = {key[1:]: value for key, (value, _) in found.items() if key[0] == "enginetop_alerts"}
    assert len(alerts) == 6
    assert sum(alerts.values()) == 2
    assert alerts[("severity", "critical"), ("state", "firing")] == 1
    assert alerts[("severity", "info"), ("state", "pending")] == 1
    (build,) = [key for key in found if key[0] == "enginetop_build_info"]
    assert ("version", __version__) in build


def test_before_the_first_snapshot_there_is_a_page_without_figures() -> None:
    page = WatchPages(lambda: ()).metrics()
    assert [family.name for family in text_string_to_metric_families(page.text)] == ["enginetop_build_info"]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool here: apt-get install prometheus")
def test_promtool_finds_nothing_to_complain_of() -> None:
    pages = WatchPages(lambda: SINKS)
    pages.take(looked_at())
    done = subprocess.run(
        ["promtool", "check", "metrics"],
        input=pages.metrics().text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_health_is_that_of_the_loop() -> None:
    clock = Clock()
    pages = WatchPages(lambda: (), clock)
    assert pages.health() == Page(503, "no snapshot yet\n")
    snapshot = replace(looked_at(), interval_seconds=2.0)
    pages.take(snapshot)
    clock.now += 10.5  # five intervals and half a second of grace
    assert pages.health() == Page(200, "ok\n")
    clock.now += 0.1
    assert pages.health() == Page(503, "late: no snapshot for 10.6 s\n")
    pages.take(snapshot)
    assert pages.health().status == 200


# --- the server -------------------------------------------------------------------------------------------


def broken() -> Page:
    raise RuntimeError("secret")


@contextmanager
def serving(where: Listen = LOOPBACK) -> Iterator[StatusServer]:
    server = StatusServer(where, {"/metrics": lambda: Page(200, "x 1\n"), "/broken": broken})
    try:
        yield server
    finally:
        server.close()


def ask(server: StatusServer, path: str, method: str = "GET") -> tuple[int, str]:
    request = urllib.request.Request(f"http://{server.address}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=WAIT_SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        ("GET", "/metrics", 200, "x 1\n"),
        ("GET", "/metrics?a=b", 200, "x 1\n"),
        ("HEAD", "/metrics", 200, ""),
        ("GET", "/", 404, "there are /metrics and /broken\n"),
        ("GET", "/broken", 500, "a fault of enginetop itself: RuntimeError\n"),
    ],
)
def test_answers(method: str, path: str, status: int, text: str) -> None:
    with serving() as server:
        assert ask(server, path, method) == (status, text)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_done_to_it(method: str) -> None:
    with serving() as server:
        assert ask(server, "/metrics", method)[0] == 501


@pytest.mark.parametrize(
    "sent", [b"", b"\x00\xff\r\n\r\n", b"GET /metrics HTTP/9.9\r\n\r\n", b"GET " + b"a" * 70000]
)
def test_strange_clients_change_nothing(sent: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    with serving() as server:
        with socket.create_connection(
            (server.address.host, server.address.port), timeout=WAIT_SECONDS
        ) as client:
            client.sendall(sent)
        assert ask(server, "/metrics") == (200, "x 1\n")
    assert capfd.readouterr() == ("", "")


def test_clients_that_say_nothing_are_cut_off_beyond_sixteen() -> None:
    with serving() as server:
        where = (server.address.host, server.address.port)
        clients = [socket.create_connection(where, timeout=WAIT_SECONDS) for _ in range(20)]
        try:
            # connections are taken in their order: of the seventeenth on each is closed at once
            assert [client.recv(1) for client in clients[16:]] == [b""] * 4
        finally:
            for client in clients:
                client.close()


def test_a_machine_out_of_threads_for_a_while_is_answered_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with serving() as server:
        where = (server.address.host, server.address.port)
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(ThreadingHTTPServer, "process_request", no_thread)
            for _ in range(20):  # more than are served at a time
                with socket.create_connection(where, timeout=WAIT_SECONDS) as client:
                    assert client.recv(1) == b""
        assert ask(server, "/metrics") == (200, "x 1\n")


def test_an_address_of_version_six() -> None:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            pass
    except OSError:
        pytest.skip("no IPv6 loopback here")
    with serving(Listen("::1", 0)) as server:
        assert str(server.address).startswith("[::1]:")
        assert ask(server, "/metrics") == (200, "x 1\n")


def test_a_port_that_is_taken_is_one_line() -> None:
    with (
        serving() as server,
        pytest.raises(ConfigError, match=r"127\.0\.0\.1:\d+: address already in use; name"),
    ):
        StatusServer(server.address, {})


# --- a living watch ---------------------------------------------------------------------------------------


def test_a_living_watch_answers_and_moves_with_its_config_file(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text('[watch]\nlisten = "127.0.0.1:0"\n')
    argv = (f"127.0.0.1:{free_port()}", "--interval", "0.1", "--config", str(config))
    with WatchProcess(tmp_path, *argv) as watch:
        where = watch.says("/metrics and /healthz at ").split()[-1]
        watch.event(lambda e: e["rule"] == "TargetDown")
        with urllib.request.urlopen(f"{where}/metrics", timeout=WAIT_SECONDS) as answer:
            assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
            text = answer.read().decode()
        names = {family.name for family in text_string_to_metric_families(text)}
        assert {"enginetop_replica_up", "enginetop_alert", "enginetop_scrapes_asked"} <= names
        with urllib.request.urlopen(f"{where}/healthz", timeout=WAIT_SECONDS) as answer:
            assert answer.read() == b"ok\n"
        # an address that cannot be had leaves all as it is
        config.write_text('[watch]\nlisten = "10.0.0.1:9"\n')
        watch.process.send_signal(signal.SIGHUP)
        watch.says("the former configuration stays in force")
        with urllib.request.urlopen(f"{where}/healthz", timeout=WAIT_SECONDS):
            pass
        config.write_text('[watch]\nlisten = "127.0.0.2:0"\n')
        watch.process.send_signal(signal.SIGHUP)
        moved = watch.says("/metrics and /healthz at ").split()[-1]
        watch.says("configuration read again")
        with urllib.request.urlopen(f"{moved}/healthz", timeout=WAIT_SECONDS):
            pass
        with pytest.raises(urllib.error.URLError):
            urllib.request.urlopen(f"{where}/healthz", timeout=WAIT_SECONDS)
        assert watch.stop() == 0


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["127.0.0.1:1", "--listen", "0.0.0.0:9464"], "--listen: other machines reach 0.0.0.0:9464"),
        (["127.0.0.1:1", "--listen", "nowhere"], "--listen: 'nowhere' is no address"),
        (["--replay", "x.jsonl", "--listen", "127.0.0.1:0"], "--listen serves a living watch"),
    ],
)
def test_mistakes_are_one_line(argv: list[str], words: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", *argv]) == 2
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert words in err
