"""Names, SRV records, Dynamo's folder, local processes: lists, and why there is none."""

from __future__ import annotations

import json
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dns.message
import dns.rcode
import dns.rrset
import pytest

from collectors.discovery.dns import DnsNames, system_servers
from collectors.discovery.dynamo_folder import DynamoFolder, listed_card, taints_of
from collectors.discovery.listing import Listed, ListingError
from collectors.discovery.local import LocalProcesses
from collectors.discovery.watcher import SourceWatcher
from enginetop.fleet.model import Role, Target

CARD = "dynamo-1.6.1-discovery-mdc-card.json"
FIXTURE = Path(__file__).parents[2] / "fixtures" / "dynamo" / "1.6.1" / CARD


def test_every_address_of_a_name_is_a_target() -> None:
    source = DnsNames("engines.svc:8000", addresses=lambda host, port: ["10.0.0.2", "fd00::1%eth0"])
    assert source.look() == [
        Listed(Target("http://10.0.0.2:8000", "10.0.0.2:8000")),
        Listed(Target("http://[fd00::1]:8000", "[fd00::1]:8000")),
    ]


def test_the_resolver_of_this_machine() -> None:
    assert "http://127.0.0.1:8000" in [one.target.url for one in DnsNames("localhost:8000").look()]


def test_a_lookup_that_fails_is_no_empty_list() -> None:
    def failing(host: str, port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    with pytest.raises(ListingError, match=r"dns h:1: the lookup failed: Temporary failure"):
        DnsNames("h:1", addresses=failing).look()
    with pytest.raises(ListingError, match="no address"):
        DnsNames("h:1", addresses=lambda host, port: []).look()


@pytest.mark.parametrize("name", ["h", "h/x:1", "", ":1"])
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(ValueError, match=r"host|port"):
        DnsNames(name)


@contextmanager
def nameserver(answer: str | None) -> Iterator[tuple[str, int]]:
    """A name server on loopback that answers one SRV question, or that there is no such name."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as wire:
        wire.bind(("127.0.0.1", 0))

        def serve() -> None:
            data, peer = wire.recvfrom(4096)
            question = dns.message.from_wire(data)
            response = dns.message.make_response(question)
            if answer is None:
                response.set_rcode(dns.rcode.NXDOMAIN)
            else:
                name = question.question[0].name
                response.answer = [dns.rrset.from_text(name, 5, "IN", "SRV", *answer.split("|"))]
            wire.sendto(response.to_wire(), peer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield wire.getsockname()
        thread.join(5)


def test_servers_of_an_srv_name() -> None:
    with nameserver("0 5 8001 b.example.|0 5 8000 a.example.") as where:
        source = DnsNames("_http._tcp.engines.example", servers=lambda name: system_servers(name, where))
        assert [one.target.url for one in source.look()] == [
            "http://a.example:8000",
            "http://b.example:8001",
        ]


def test_an_srv_name_that_is_not_there() -> None:
    with nameserver(None) as where, pytest.raises(ListingError, match="does not exist"):
        DnsNames("_http._tcp.x.example", servers=lambda name: system_servers(name, where)).look()


def test_a_worker_of_dynamo_is_where_its_card_says(tmp_path: Path) -> None:
    place = tmp_path / "v1" / "mdc" / "dynamo" / "backend" / "generate"
    place.mkdir(parents=True)
    shutil.copy(FIXTURE, place / "3011a5a9a3e9fa08")
    (found,) = DynamoFolder(str(tmp_path)).look()
    worker = json.loads(FIXTURE.read_text())["instance_id"]
    assert found.identity == f"{worker:x}"
    assert found.target == Target(
        "http://192.0.2.2:40863", f"backend-{worker:x}", model="tiny", role=Role.AGGREGATED
    )


def test_a_folder_with_other_things_in_it(tmp_path: Path) -> None:
    (tmp_path / "half").write_text('{"type": "Model", "card_')
    (tmp_path / "instance").write_text('{"type": "Endpoint", "instance_id": 5}')
    source = DynamoFolder(str(tmp_path))
    assert source.look() == []
    assert "half cannot be read" in source.note
    with pytest.raises(ListingError, match="no such folder"):
        DynamoFolder(str(tmp_path / "nowhere")).look()


def test_taints_of_a_worker(tmp_path: Path) -> None:
    entry = json.loads(FIXTURE.read_text())
    entry["card_json"]["runtime_config"]["taints"] = ["a", 5, "b"]
    (tmp_path / "one").write_text(json.dumps(entry))
    (tmp_path / "half").write_text("{")
    worker = f"{entry['instance_id']:x}"
    assert taints_of(tmp_path, worker) == frozenset({"a", "b"})
    assert taints_of(tmp_path, "5") is None
    wrong: tuple[object, ...] = ("none", None, {})
    for told in wrong:
        entry["card_json"]["runtime_config"]["taints"] = told
        (tmp_path / "one").write_text(json.dumps(entry))
        assert taints_of(tmp_path, worker) == frozenset()
    with pytest.raises(OSError, match="no such folder"):
        taints_of(tmp_path / "nowhere", worker)


@pytest.mark.parametrize(
    "entry",
    [
        None,
        [],
        {},
        {"card_json": {}, "instance_id": "x"},
        {"card_json": {"a": "http://h/x"}, "instance_id": 1},
    ],
)
def test_what_is_no_card(entry: object) -> None:
    assert listed_card(entry) is None


def test_no_process_table_lists_nobody(tmp_path: Path) -> None:
    assert LocalProcesses(tmp_path / "none").look() == []


class _Hanging:
    title = "hanging"
    every_seconds = 0.01
    note = ""

    def __init__(self) -> None:
        self.go = threading.Event()

    def look(self) -> list[Listed]:
        self.go.wait(10)
        return []


class _Broken(_Hanging):
    title = "broken"

    def look(self) -> list[Listed]:
        raise RuntimeError("surprise\x1b[31m")


def test_many_sources_that_hang_hold_up_the_start_once() -> None:
    hanging = [_Hanging() for _ in range(8)]
    begun = time.monotonic()
    looks = SourceWatcher(hanging).first_looks(0.3)
    took = time.monotonic() - begun
    for one in hanging:
        one.go.set()
    assert [look.listed for look in looks] == [None] * 8
    assert 0.3 <= took < 1.5  # one after the other: 2.4


def test_a_source_that_hangs_or_breaks_holds_up_nobody() -> None:
    hanging, good = _Hanging(), DnsNames("h:1", addresses=lambda host, port: ["10.0.0.1"])
    watcher = SourceWatcher([hanging, _Broken(), good])
    looks = watcher.first_looks(0.2)
    hanging.go.set()
    assert [look.listed is None for look in looks] == [True, True, False]
    assert looks[0].problem == "hanging: no list within 0.2 s"
    assert looks[1].problem.startswith("broken: RuntimeError: surprise")
    assert "\x1b" not in looks[1].problem
