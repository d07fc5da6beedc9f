"""Certificates that are wrong, as each of the clients tells it: one line with what helps."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collectors.control_http import HttpKnobTransport
from collectors.fetch import Credentials
from collectors.http import HttpFetcher
from collectors.kubernetes.client import KubernetesClient
from collectors.kubernetes.context import Context, KubernetesError
from collectors.probe.client import ProbeClient, ProbeError
from collectors.prometheus.client import PrometheusClient, PrometheusError
from collectors.tls_words import tls_words
from enginetop.cli.main import main
from enginetop.fleet.observation import FailureKind
from tests.support.faulty_server import FaultyServer, page
from tests.support.tls_server import CA, FILES, pem, tls_server

NAMESAKE = str(FILES / "namesake.crt")
EXPIRED = "TLS: certificate has expired; it has to be renewed there, unless this machine's clock is wrong"
FUTURE = "TLS: certificate is not yet valid; a clock is wrong, here or where it was made"
STRANGER = "TLS: unable to get local issuer certificate; name its CA with ca_file"
ELSEWHERE = (
    "TLS: ip address mismatch, certificate is not valid for '127.0.0.1'; write the target's address with a "
    "name that is in its certificate"
)
MISSING = "TLS: refused there: certificate required; name our client certificate with client_cert_file"
OLD = "TLS: refused there: certificate expired; our client certificate (client_cert_file) has to be renewed"
UNKNOWN = (
    "TLS: refused there: unknown ca; it does not know the CA of our client certificate (client_cert_file)"
)

CASES = [
    pytest.param("expired", Credentials(ca_file=CA), None, EXPIRED, id="expired"),
    pytest.param("future", Credentials(ca_file=CA), None, FUTURE, id="not yet valid"),
    pytest.param("good", Credentials(ca_file=NAMESAKE), None, STRANGER, id="another CA of that name"),
    pytest.param("good", Credentials(), None, STRANGER, id="a CA that the system does not know"),
    pytest.param("elsewhere", Credentials(ca_file=CA), None, ELSEWHERE, id="another name"),
    pytest.param("good", Credentials(ca_file=CA), CA, MISSING, id="no client certificate"),
    pytest.param(
        "good", Credentials(ca_file=CA, client_cert_file=pem("client-expired")), CA, OLD, id="an old one"
    ),
    pytest.param(
        "good", Credentials(ca_file=CA, client_cert_file=pem("client-stranger")), CA, UNKNOWN, id="a stranger"
    ),
]


def direct(url: str, how: Credentials) -> str:
    async def ask() -> str:
        fetcher = HttpFetcher({url: how})
        try:
            answer = await fetcher.fetch(url, "/metrics", timeout_seconds=10.0)
        finally:
            await fetcher.aclose()
        assert answer.error is FailureKind.TLS
        return answer.detail

    return asyncio.run(ask())


def prometheus(url: str, how: Credentials) -> str:
    client = PrometheusClient(url, how, timeout_seconds=10.0)
    try:
        with pytest.raises(PrometheusError) as caught:
            client.now()
    finally:
        client.close()
    assert caught.value.kind is FailureKind.TLS
    return str(caught.value).removeprefix(f"prometheus {url}: ")


def kubernetes(url: str, how: Credentials) -> str:
    own = how.client_cert_file
    context = Context("west", url, "llm", ca_file=how.ca_file, cert_file=own, key_file=own)
    client = KubernetesClient(context, timeout_seconds=10.0)
    try:
        with pytest.raises(KubernetesError) as caught:
            client.get("/api")
    finally:
        client.close()
    said = str(caught.value).removeprefix(f"Kubernetes west ({url}): ")
    said = said.replace("certificate-authority in the kubeconfig", "ca_file")
    return said.replace("client-certificate", "client_cert_file")


def knobs(url: str, how: Credentials) -> str:
    return HttpKnobTransport(url, how).request("GET", "/knobs").detail


def probe(url: str, how: Credentials) -> str:
    with pytest.raises(ProbeError) as caught:
        ProbeClient(how).only_model(url, 10.0)
    said = str(caught.value).removeprefix(f"{url}/v1/models: ")
    return said.removesuffix("; name one with --model")


@pytest.mark.parametrize("tell", [direct, prometheus, kubernetes, knobs, probe])
@pytest.mark.parametrize(("certificate", "how", "clients_of", "line"), CASES)
def test_every_client_tells_it_alike(
    certificate: str,
    how: Credentials,
    clients_of: str | None,
    line: str,
    tell: Callable[[str, Credentials], str],
) -> None:
    with tls_server(certificate, b"{}", clients_of=clients_of) as port:
        assert tell(f"https://127.0.0.1:{port}", how) == line


@pytest.mark.parametrize(
    ("shown", "line"),
    [
        (None, "TLS: refused there: handshake failure; it may want a client certificate (client_cert_file)"),
        ("client-expired", OLD),
        ("client-stranger", UNKNOWN),
    ],
)
def test_a_server_of_before_tls_1_3_refuses_in_the_handshake(shown: str | None, line: str) -> None:
    how = Credentials(ca_file=CA, client_cert_file=None if shown is None else pem(shown))
    with tls_server("good", b"{}", clients_of=CA, newest=ssl.TLSVersion.TLSv1_2) as port:
        assert direct(f"https://127.0.0.1:{port}", how) == line


@pytest.mark.parametrize(
    ("shown", "perhaps"),
    [(None, "it may want a client certificate"), ("client-stranger", "it may refuse our client certificate")],
)
def test_a_server_that_hangs_up_on_a_certificate(shown: str | None, perhaps: str) -> None:
    """As uvicorn's, before which engines run, does."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem("good"))
    context.load_verify_locations(CA)
    context.verify_mode = ssl.CERT_REQUIRED
    how = Credentials(ca_file=CA, client_cert_file=None if shown is None else pem(shown))

    async def ask(url: str) -> str:
        fetcher = HttpFetcher({url: how})
        try:
            answer = await fetcher.fetch(url, "/metrics", timeout_seconds=10.0)
        finally:
            await fetcher.aclose()
        assert answer.error is FailureKind.REFUSED
        return answer.detail

    with FaultyServer() as server:
        said = asyncio.run(ask(server.replica(lambda _: page(b"x 1\n"), tls=context).url))
    assert said == f"connected, and closed without an answer; {perhaps} (client_cert_file)"


@pytest.mark.parametrize(
    ("name", "host"), [("good", "127.0.0.1"), ("good", "localhost"), ("client", "127.0.0.1")]
)
def test_what_is_right_is_read(name: str, host: str) -> None:
    how = Credentials(ca_file=CA, client_cert_file=pem(name))
    with tls_server("good", b"vllm:num_requests_running 1\n", clients_of=CA) as port:

        async def ask() -> bytes:
            fetcher = HttpFetcher({url: how})
            try:
                return (await fetcher.fetch(url, "/metrics", timeout_seconds=10.0)).body
            finally:
                await fetcher.aclose()

        url = f"https://{host}:{port}"
        assert asyncio.run(ask()) == b"vllm:num_requests_running 1\n"


def test_plain_http_where_tls_is_asked() -> None:
    def answer(listener: socket.socket) -> None:
        client, _ = listener.accept()
        with client:
            client.recv(65_536)
            client.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        said = direct(f"https://127.0.0.1:{listener.getsockname()[1]}", Credentials())
        thread.join()
    assert said.endswith("; it speaks plain HTTP there: write http://")


def test_a_server_that_does_not_know_the_name_it_is_asked_for() -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pem("good"))
    server.sni_callback = lambda *_: ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    here = ssl.create_default_context(cafile=CA).wrap_bio(back, there, server_hostname="somebody.example")
    with pytest.raises(ssl.SSLWantReadError):
        here.do_handshake()
    with pytest.raises(ssl.SSLError):
        server.wrap_bio(there, back, server_side=True).do_handshake()
    with pytest.raises(ssl.SSLError) as caught:
        here.do_handshake()
    line = "TLS: refused there: unrecognized name; write the target's address with a name that it knows"
    assert tls_words(caught.value) == line


def test_a_name_does_not_count_as_what_is_wrong() -> None:
    error = ssl.SSLCertVerificationError(1, "")
    error.verify_message = "Hostname mismatch, certificate is not valid for 'self-signed.example'."
    assert tls_words(error).endswith("; write the target's address with a name that is in its certificate")


@pytest.mark.parametrize("said", ["", "SOMETHING_NEW", "TLSV13_ALERT_SOMETHING_NEW"])
def test_words_that_nobody_knows(said: str) -> None:
    error = ssl.SSLError(1, said)
    error.reason = said
    told = tls_words(error)
    assert told.startswith("TLS: ")
    assert ("handshake failed" in told) == (said == "")
    assert ("see its log" in told) == ("ALERT" in said)


def test_a_row_says_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with tls_server("expired", b"x") as port:
        config = tmp_path / "config.toml"
        config.write_text(f'[[targets]]\nurl = "https://localhost:{port}"\nca_file = "{CA}"\n')
        words = ["snapshot", "--config", str(config), "--interval", "0.2", "--format", "json"]
        assert main(words) == 0
    (row,) = json.loads(capsys.readouterr().out)["replicas"]
    assert row["state"] == "down"
    what, helps = EXPIRED.split("; ")
    assert row["reasons"][0].startswith(f"{what} for ")
    assert row["reasons"][0].endswith(f"; {helps}")


@pytest.mark.parametrize("host", ["localhost", "localhost."])
def test_a_final_dot_is_no_part_of_what_a_certificate_names(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up = socket.getaddrinfo

    def look_up(name: str | bytes | None, *how: Any, **more: Any) -> Any:
        return looked_up("127.0.0.1" if name in (host, host.encode()) else name, *how, **more)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    how = Credentials(ca_file=CA)

    async def fetch(url: str, fast_path: bool) -> int:
        fetcher = HttpFetcher({url: how}, fast_path=fast_path)
        try:
            return (await fetcher.fetch(url, "/metrics", timeout_seconds=10.0)).status
        finally:
            await fetcher.aclose()

    with tls_server("good", b'{"data": [{"id": "m"}]}') as port:
        url = f"https://{host}:{port}"
        assert [asyncio.run(fetch(url, fast_path)) for fast_path in (True, False)] == [200, 200]
        assert HttpKnobTransport(url, how).request("GET", "/knobs").status == 200
        assert ProbeClient(how).only_model(url, 10.0) == "m"
