"""Lists and names that lead to a cloud's metadata service: nothing is asked there."""

from __future__ import annotations

import asyncio
import ipaddress
import json
from pathlib import Path

import pytest

from collectors import no_engine_there
from collectors.answer import Answer
from collectors.discovery.dns import DnsNames
from collectors.discovery.file_sd import FileSd
from collectors.discovery.listing import Listed
from collectors.discovery.watcher import look_at
from collectors.http import HttpFetcher
from collectors.no_engine_there import leads_astray
from enginetop.fleet.model import Target
from enginetop.fleet.observation import FailureKind
from tests.support.faulty_server import FaultyServer, page

ASTRAY = [
    "169.254.169.254",
    "169.254.169.254:80",
    "169.254.170.2",
    "169.254.7.7:8000",
    "2852039166:80",  # 169 * 2**24 + 254 * 2**16 + 169 * 2**8 + 254
    "0xa9fea9fe",
    "169.254.43518",  # 169 * 256 + 254
    "[::ffff:169.254.169.254]:80",
    "[fd00:ec2::254]",
    "[fe80::1]:8000",
    "0.0.0.0:8000",
    "[::]:8000",
    "224.0.0.1:8000",
    "100.100.100.200",
]
FINE = ["10.0.0.1:8000", "127.0.0.1:8000", "[fd00::1]:8000", "engine-1:8000", "100.100.100.201", "8.8.8.8"]


def test_a_list_cannot_name_them(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text(json.dumps([{"targets": [*ASTRAY, *FINE]}]))
    look = look_at(FileSd(str(tmp_path / "list.json")))
    assert look.listed is not None
    assert [one.target.url for one in look.listed] == [f"http://{address}" for address in FINE]
    assert "http://169.254.169.254: the metadata service of a cloud, left out" in look.problem


@pytest.mark.parametrize("address", ASTRAY)
def test_none_of_them_is_listed(address: str, tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text(json.dumps([{"targets": [address]}]))
    look = look_at(FileSd(str(tmp_path / "list.json")))
    assert (look.listed, "left out" in look.problem) == ((), True)


def test_a_list_of_what_is_no_address_is_a_problem_and_no_end() -> None:
    class Wrong(DnsNames):
        def look(self) -> list[Listed]:
            return [Listed(Target("http://[10.0.0.1", "x"))]

    look = look_at(Wrong("h:80"))
    assert look.listed is None
    assert "ValueError" in look.problem


def test_a_name_of_several_addresses_keeps_the_others() -> None:
    look = look_at(DnsNames("h:80", addresses=lambda host, port: ["169.254.169.254", "10.0.0.2"]))
    assert [one.target.url for one in look.listed or ()] == ["http://10.0.0.2:80"]


@pytest.mark.parametrize(
    ("host", "peer", "astray"),
    [
        ("metadata.internal", ("169.254.169.254", 80), True),
        ("metadata.internal", ("fd00:ec2::254", 80, 0, 0), True),
        ("metadata.internal", ("::ffff:169.254.169.254", 80, 0, 0), True),
        ("169.254.169.254", ("169.254.169.254", 80), False),  # written out by the user
        ("workstation.local", ("fe80::1", 8000, 0, 2), False),  # names of a network without a server
        ("engine-1", ("10.0.0.1", 8000), False),
        ("engine-1", "/run/engine.sock", False),
        ("engine-1", None, False),
    ],
)
def test_where_a_name_may_lead(host: str, peer: object, astray: bool) -> None:
    assert leads_astray(host, peer) is astray


def asked(url: str, *, fast_path: bool) -> Answer:
    async def ask() -> Answer:
        fetcher = HttpFetcher(fast_path=fast_path)
        try:
            return await fetcher.fetch(url, "/metrics", timeout_seconds=5)
        finally:
            await fetcher.aclose()

    return asyncio.run(ask())


@pytest.mark.parametrize("fast_path", [True, False])
def test_a_name_that_leads_there_is_not_asked(
    fast_path: bool, server: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the resolver says at the moment of the connection: no byte of a request is sent."""
    replica = server.replica(page(b"vllm:num_requests_running 1\n"))
    port = replica.url.rpartition(":")[2]
    here = frozenset(map(ipaddress.ip_address, ("127.0.0.1", "::1")))
    monkeypatch.setattr(no_engine_there, "_METADATA", here)
    answer = asked(f"http://localhost:{port}", fast_path=fast_path)
    assert (answer.error, replica.requests) == (FailureKind.REFUSED, [])
    assert "metadata" in answer.detail
    assert asked(f"http://127.0.0.1:{port}", fast_path=fast_path).error is None
