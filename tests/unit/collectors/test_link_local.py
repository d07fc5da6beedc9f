"""IPv6 addresses of one link (`fe80::1%eth0`): dialled with their zone, which nobody else is sent."""

from __future__ import annotations

import asyncio
import ipaddress
import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from collectors.control_http import HttpKnobTransport
from collectors.discovery.listing import target_at
from collectors.fetch import NO_CREDENTIALS
from collectors.http import HttpFetcher
from collectors.origin import Origin, url_host
from collectors.probe.client import ProbeClient
from enginetop.cli.main import main
from enginetop.cli.prometheus import prometheus_url
from enginetop.cli.targets import parse_target
from enginetop.fleet.errors import ConfigError
from tests.support.faulty_server import FaultyServer, Reply, Request, page


def _link_local() -> tuple[str, str]:
    """An address of this machine that holds on one link, and its interface; empty: there is none."""
    try:
        lines = Path("/proc/net/if_inet6").read_text().splitlines()
    except OSError:
        return "", ""
    for digits, *_, interface in map(str.split, lines):
        address = ipaddress.IPv6Address(int(digits, 16))
        if address.is_link_local:
            return str(address), interface
    return "", ""


ADDRESS, INTERFACE = _link_local()
on_a_link = pytest.mark.skipif(not ADDRESS, reason="no interface here has a link-local IPv6 address")


@pytest.fixture
def asked() -> list[Request]:
    return []


@pytest.fixture
def port(asked: list[Request]) -> Iterator[int]:
    def answer(request: Request) -> Reply:
        asked.append(request)
        body = b"vllm:num_requests_running 1\n" if "metrics" in request.path else b'{"data": [{"id": "m"}]}'
        return page(body)

    with FaultyServer() as server:
        yield int(urlsplit(server.replica(answer, host="::").url).port or 0)


@on_a_link
@pytest.mark.parametrize("zone", ["%25", "%"])
def test_every_client_dials_the_zone_and_sends_it_to_nobody(
    zone: str, port: int, asked: list[Request], capsys: pytest.CaptureFixture[str]
) -> None:
    url = parse_target(f"http://[{ADDRESS}{zone}{INTERFACE}]:{port}").url
    assert url == f"http://[{ADDRESS}%25{INTERFACE}]:{port}"

    async def fetch(fast_path: bool) -> int:
        fetcher = HttpFetcher(fast_path=fast_path)
        try:
            return (await fetcher.fetch(url, "/metrics", timeout_seconds=5.0)).status
        finally:
            await fetcher.aclose()

    assert [asyncio.run(fetch(fast_path)) for fast_path in (True, False)] == [200, 200]
    assert HttpKnobTransport(url, NO_CREDENTIALS).request("GET", "/knobs").status == 200
    assert ProbeClient(NO_CREDENTIALS).only_model(url, 5.0) == "m"
    assert main(["snapshot", url, "--interval", "0.2", "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["replicas"]
    assert row["state"] == "ok"
    assert {request.headers["host"] for request in asked} == {f"[{ADDRESS}]:{port}"}


@pytest.mark.parametrize(
    ("host", "written"),
    [
        ("engine.test", "engine.test"),
        ("10.0.0.1", "10.0.0.1"),
        ("::1", "[::1]"),
        ("fe80::1%eth0", "[fe80::1%25eth0]"),
        ("fe80::1%25eth0", "[fe80::1%25eth0]"),
    ],
)
def test_a_host_in_a_url(host: str, written: str) -> None:
    assert url_host(host) == written
    assert parse_target(f"http://{written}:8000").url == f"http://{written}:8000"
    assert target_at(f"{written}:8000").url == f"http://{written}:8000"


@pytest.mark.parametrize(
    ("url", "dialled", "authority", "server_name"),
    [
        ("http://[fe80::1%25enP4p65s0]:8000", "http://[fe80::1%enP4p65s0]:8000", "[fe80::1]:8000", "fe80::1"),
        ("https://[::1]", "https://[::1]:443", "[::1]", "::1"),
        ("https://engine.test.:8443", "https://engine.test.:8443", "engine.test:8443", "engine.test"),
    ],
)
def test_what_is_dialled_and_what_is_sent(url: str, dialled: str, authority: str, server_name: str) -> None:
    origin = Origin.of(urlsplit(url))
    assert (origin.dialled, origin.authority, origin.server_name) == (dialled, authority, server_name)


def test_without_its_zone_it_is_no_address() -> None:
    with pytest.raises(ConfigError, match=r"name its interface: \[fe80::1%25eth0\]:8000"):
        parse_target("[fe80::17]:8000")
    with pytest.raises(ConfigError, match="a zone is not asked"):
        prometheus_url("http://[fe80::1%25eth0]:9090")
