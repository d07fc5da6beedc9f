"""What is sent to prove who we are, what is shown of it (nothing), and what the config file may say of it."""

from __future__ import annotations

import asyncio
import socket
import ssl
from base64 import b64encode
from pathlib import Path

import pytest

from collectors.answer import Answer
from collectors.fetch import Credentials, FetchError
from collectors.http import HttpFetcher
from collectors.prometheus.client import PrometheusClient, PrometheusError
from enginetop.cli.parser import parse
from enginetop.cli.resolve import resolve
from enginetop.cli.settings import Settings
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.observation import FailureKind
from tests.support.faulty_server import FaultyServer, Reply, Request, page

TLS = Path(__file__).parents[2] / "support" / "tls"
CERT, KEY = str(TLS / "server.crt"), str(TLS / "server.key")
PASSWORD = "correct-horse-battery"
WARNED: list[str] = []
PAIR = b64encode(f"ops:{PASSWORD}".encode()).decode()


def fetch(url: str, how: Credentials) -> Answer:
    async def run() -> Answer:
        fetcher = HttpFetcher({url: how})
        try:
            return await fetcher.fetch(url, "/metrics", timeout_seconds=5.0)
        finally:
            await fetcher.aclose()

    return asyncio.run(run())


def echo(request: Request) -> Reply:
    return page(f"said {request.headers.get('authorization')} and {PASSWORD}".encode())


def test_a_user_and_a_password_are_sent_and_never_kept(
    server: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def script(request: Request) -> Reply:
        seen.append(request.headers["authorization"])
        return echo(request)

    monkeypatch.setenv("OPS_PASSWORD", PASSWORD)
    answer = fetch(server.replica(script).url, Credentials(username="ops", password_env="OPS_PASSWORD"))
    assert seen == [f"Basic {PAIR}"]
    assert answer.body == b"said Basic [key] and [key]"


def test_a_password_in_a_file_is_read_anew(server: FaultyServer, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\n")
    how = Credentials(username="ops", password_file=str(file))
    assert fetch(server.replica(echo).url, how).body.startswith(b"said Basic [key]")
    file.unlink()
    answer = fetch(server.replica(echo).url, how)
    assert answer.error is FailureKind.UNAUTHORIZED
    assert answer.detail == f"no password: the file {file}: No such file or directory"


def test_credentials_name_secrets_and_hold_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPS_PASSWORD", PASSWORD)
    how = Credentials(username="ops", password_env="OPS_PASSWORD")
    how.authorization()
    assert PASSWORD not in repr(how) + str(how)


def mutual(server: FaultyServer) -> str:
    """A server that wants to see a certificate, made by the same CA as its own."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERT, KEY)
    context.load_verify_locations(CERT)
    context.verify_mode = ssl.CERT_REQUIRED
    return server.replica(page(b"vllm:num_requests_running 1\n"), tls=context).url


def test_a_certificate_of_our_own_opens_what_wants_one(server: FaultyServer) -> None:
    url = mutual(server)
    shown = Credentials(ca_file=CERT, client_cert_file=CERT, client_key_file=KEY)
    assert fetch(url, shown).status == 200
    without = fetch(url, Credentials(ca_file=CERT))
    assert without.error is not None


BAD_FILES = [
    ({"client_cert_file": "/none.pem"}, "the client certificate /none.pem: No such file"),
    ({"client_cert_file": CERT}, "no certificate with its key"),
    ({"client_cert_file": CERT, "client_key_file": CERT}, "no certificate with its key"),
    ({"ca_file": "/none.pem"}, "the CA file /none.pem: No such file"),
    ({"ca_file": KEY}, "the CA file"),
]


@pytest.mark.parametrize(("files", "words"), BAD_FILES)
def test_a_file_that_cannot_be_used_is_named(files: dict[str, str], words: str) -> None:
    answer = fetch("https://127.0.0.1:1", Credentials(**files))  # type: ignore[arg-type]
    assert answer.error is FailureKind.TLS
    assert words in answer.detail
    client = PrometheusClient("https://127.0.0.1:1", Credentials(**files))  # type: ignore[arg-type]
    with pytest.raises(PrometheusError, match=words) as caught:
        client.now()
    client.close()
    assert caught.value.kind is FailureKind.TLS


def test_an_unknown_ca_and_another_name_are_told_with_what_helps(
    server: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERT, KEY)
    url = server.replica(page(b"x"), tls=context).url
    for said in (fetch(url, Credentials()).detail, _refusal(url, Credentials())):
        assert "TLS: self-signed certificate; name its CA with ca_file" in said
    look_up = socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, *rest, **more: look_up("127.0.0.1", *rest, **more)
    )
    other = url.replace("127.0.0.1", "other.test")
    for said in (fetch(other, Credentials(ca_file=CERT)).detail, _refusal(other, Credentials(ca_file=CERT))):
        assert "mismatch" in said


def _refusal(url: str, how: Credentials) -> str:
    client = PrometheusClient(url, how, timeout_seconds=5.0)
    try:
        with pytest.raises(PrometheusError) as caught:
            client.now()
    finally:
        client.close()
    assert caught.value.kind is FailureKind.TLS
    return str(caught.value)


def settled(tmp_path: Path, keys: str) -> Settings:
    (tmp_path / "c.toml").write_text(f'[[targets]]\nurl = "http://h:1"\n{keys}\n')
    _, args = parse(["snapshot", "--config", str(tmp_path / "c.toml")])
    return resolve(args, WARNED.append)


def test_the_config_file_names_them(tmp_path: Path) -> None:
    keys = 'username = "ops"\npassword_file = "p"\nclient_cert_file = "c"\nclient_key_file = "k"'
    assert settled(tmp_path, keys).credentials == {
        "http://h:1": Credentials(
            username="ops", password_file="p", client_cert_file="c", client_key_file="k"
        )
    }


def test_what_is_not_verified_has_a_banner(tmp_path: Path) -> None:
    WARNED.clear()
    assert settled(tmp_path, 'name = "a1"\ninsecure_skip_verify = true').banner == "TLS NOT VERIFIED: a1"
    assert WARNED == ["TLS NOT VERIFIED: a1"]
    assert settled(tmp_path, 'name = "a1"').banner == ""


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ('username = "ops"', "username needs one of"),
        ('password_env = "P"', "and these a username"),
        ('username = "o"\npassword_env = "P"\npassword_file = "p"', "username needs one of"),
        ('username = "o"\npassword_env = "P"\napi_key_env = "K"', "exclude each other"),
        ('username = "o:p"\npassword_env = "P"', "no colon"),
        ('username = "o"\npassword_env = "not a name!"', "name of a variable"),
        ('client_key_file = "k"', "client_cert_file"),
        ('passwort_env = "P"', "did you mean 'password_env'"),
    ],
)
def test_what_the_config_file_may_not_say(tmp_path: Path, keys: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        settled(tmp_path, keys)


def test_a_secret_that_is_not_there() -> None:
    with pytest.raises(FetchError) as caught:
        Credentials(username="o", password_env="ENGINETOP_NO_SUCH").authorization()
    assert caught.value.detail == "no password: the variable ENGINETOP_NO_SUCH is not set or empty"
