"""TLS without I/O, against OpenSSL's other end: how the wire is cut changes nothing."""

from __future__ import annotations

import ssl
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors import lean_tls
from collectors.fetch import Credentials, FetchError
from collectors.full_http import tls_context
from collectors.lean_tls import Tls, TlsContexts, TlsLayer
from enginetop.fleet.observation import FailureKind
from tests.support.tls_server import CA, FILES, pem


class Server:
    """The other end of the wire."""

    def __init__(self, certificate: str = "good") -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem(certificate))
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.end = context.wrap_bio(self.incoming, self.outgoing, server_side=True)
        self.shaken = False

    def take(self, data: bytes) -> bytes:
        """What goes back over the wire."""
        self.incoming.write(data)
        if not self.shaken:
            try:
                self.end.do_handshake()
                self.shaken = True
            except ssl.SSLWantReadError:
                pass
        return self.outgoing.read()

    def say(self, data: bytes) -> bytes:
        """The bytes of the wire that say it."""
        self.end.write(data)
        return self.outgoing.read()


def client() -> TlsLayer:
    return TlsLayer(ssl.create_default_context(cafile=CA), "127.0.0.1")


def shaken(layer: TlsLayer, server: Server, room: memoryview) -> None:
    layer.begin()
    while not layer.ready:
        back = server.take(layer.to_send())
        assert list(layer.read(memoryview(back), room)) == []
    tickets = server.take(layer.to_send())
    assert list(layer.read(memoryview(tickets), room)) == []


@given(
    st.binary(min_size=1, max_size=70_000),
    st.lists(st.integers(1, 30_000), max_size=6),
    st.integers(100, 40_000),
)
@settings(max_examples=40, deadline=None)
def test_what_is_said_arrives_however_it_is_cut(body: bytes, cuts: list[int], room_bytes: int) -> None:
    layer, server, room = client(), Server(), memoryview(bytearray(room_bytes))
    shaken(layer, server, room)
    wire = server.say(body)
    heard = bytearray()
    for size in (*cuts, len(wire)):
        piece, wire = wire[:size], wire[size:]
        for count in layer.read(memoryview(piece), room):
            assert 0 < count <= room_bytes
            heard += room[:count]
    assert bytes(heard) == body
    assert not layer.ended


def test_a_close_in_good_order_is_the_end_and_no_error() -> None:
    layer, server, room = client(), Server(), memoryview(bytearray(100))
    shaken(layer, server, room)
    wire = server.say(b"last words")
    with pytest.raises(ssl.SSLWantReadError):
        server.end.unwrap()
    wire += server.outgoing.read()
    assert [bytes(room[:count]) for count in layer.read(memoryview(wire), room)] == [b"last words"]
    assert layer.ended


def test_a_certificate_for_another_name_is_an_error_that_the_other_end_is_told() -> None:
    layer, server, room = client(), Server("elsewhere"), memoryview(bytearray(100))
    layer.begin()
    back = server.take(layer.to_send())
    with pytest.raises(ssl.SSLCertVerificationError):
        list(layer.read(memoryview(back), room))
    with pytest.raises(ssl.SSLError) as told:
        server.take(layer.to_send())
    assert "alert" in str(told.value)
    assert not layer.ready


def test_what_was_said_before_the_wire_broke_is_heard() -> None:
    layer, server, room = client(), Server(), memoryview(bytearray(100))
    shaken(layer, server, room)
    reads = layer.read(memoryview(server.say(b"all of it") + b"\x17\x03\x03\x00\x01x"), room)
    assert bytes(room[: next(reads)]) == b"all of it"
    with pytest.raises(ssl.SSLError):
        next(reads)


@given(st.binary(min_size=1, max_size=2_000))
@settings(max_examples=60, deadline=None)
def test_garbage_is_an_ssl_error_or_waits_for_more(garbage: bytes) -> None:
    layer, room = client(), memoryview(bytearray(100))
    layer.begin()
    with suppress(ssl.SSLError):
        assert list(layer.read(memoryview(garbage), room)) == []
    assert not layer.ready


def test_a_fleet_whose_handshakes_fail_has_no_file_read_twice_that_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Credentials] = []

    def reads(credentials: Credentials) -> ssl.SSLContext:
        read.append(credentials)
        return tls_context(credentials)

    monkeypatch.setattr(lean_tls, "tls_context", reads)
    ca, shown = tmp_path / "ca.crt", tmp_path / "client.pem"
    ca.write_bytes((FILES / "namesake.crt").read_bytes())
    shown.write_bytes((FILES / "client-expired.pem").read_bytes())
    system, named = Credentials(), Credentials(ca_file=str(ca), client_cert_file=str(shown))
    contexts = TlsContexts()
    fleet = [Tls(contexts, how, f"replica-{number}") for how in (system, named) for number in range(20)]

    def read_in_a_round_of_failures() -> list[Credentials]:
        read.clear()
        for one in fleet:
            one.layer()
            one.told(FetchError(FailureKind.TLS, "unable to get local issuer certificate"))
        return list(read)

    assert read_in_a_round_of_failures() == [system, named]
    assert read_in_a_round_of_failures() == []
    for file, other in ((ca, "ca.crt"), (shown, "client.pem")):  # the right ones, by hand
        file.write_bytes((FILES / other).read_bytes())
        assert read_in_a_round_of_failures() == [named]
        assert read_in_a_round_of_failures() == []
    assert contexts.of(named).get_ca_certs() == ssl.create_default_context(cafile=CA).get_ca_certs()
