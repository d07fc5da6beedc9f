"""`ssh://` addresses: what is one, what it means to `ssh`, and that nothing else gets near a program."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.discovery.listing import target_at
from collectors.ssh.address import SshAddress, SshHost, ssh_address
from enginetop.cli.main import main
from enginetop.cli.targets import parse_target
from enginetop.fleet.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "machine", "server", "path", "name"),
    [
        ("ssh://gpu1/127.0.0.1:8000", SshHost("gpu1"), "127.0.0.1:8000", "", "gpu1/127.0.0.1:8000"),
        ("ssh://me@gpu1:2222/localhost:8000/v1/", SshHost("gpu1", "me", 2222), "localhost:8000", "/v1",
         "gpu1:2222/localhost:8000/v1"),
        ("ssh://gpu_1.example.org:22/10.0.0.7:30000", SshHost("gpu_1.example.org", "", 22),
         "10.0.0.7:30000", "", "gpu_1.example.org:22/10.0.0.7:30000"),
        ("ssh://[fd00::1]:2222/[::1]:8000", SshHost("fd00::1", "", 2222), "[::1]:8000", "",
         "[fd00::1]:2222/[::1]:8000"),
        ("ssh://[fe80::1%eth0]/[::1]:8000", SshHost("fe80::1%eth0"), "[::1]:8000", "",
         "[fe80::1%eth0]/[::1]:8000"),
    ],
)  # fmt: skip
def test_what_an_address_means(text: str, machine: SshHost, server: str, path: str, name: str) -> None:
    address = ssh_address(text)
    assert address == SshAddress(machine, server, path)
    assert address.name == name
    assert address.inner_url == f"http://{server}{path}"
    assert ssh_address(address.url) == address


def test_a_page_that_is_named_is_no_part_of_the_base() -> None:
    target = parse_target("ssh://me@gpu1/127.0.0.1:8000/metrics")
    assert (target.url, target.metrics_path) == ("ssh://me@gpu1/127.0.0.1:8000", "/metrics")
    assert (target.name, target.host, target.port) == ("gpu1/127.0.0.1:8000", "gpu1", 8000)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("ssh://gpu1", "no host:port of a server after the machine"),
        ("ssh://gpu1/", "no host:port of a server after the machine"),
        ("ssh://gpu1/127.0.0.1", "no host:port of a server after the machine"),
        ("ssh://gpu1/127.0.0.1:0", "no host:port of a server after the machine"),
        ("ssh://gpu1/127.0.0.1:65536", "no host:port of a server after the machine"),
        ("ssh://gpu1/127.0.0.1:²", "no host:port of a server after the machine"),
        ("ssh://gpu1/-Rx:80", "no host:port of a server after the machine"),
        ("ssh:///127.0.0.1:8000", "no host in it"),
        ("ssh://-oProxyCommand=x/127.0.0.1:8000", "no host in it"),
        ("ssh://gpu1;reboot/127.0.0.1:8000", "no host in it"),
        ("ssh://$(id)/127.0.0.1:8000", "no host in it"),
        ("ssh://-l@gpu1/127.0.0.1:8000", "no user name before the @"),
        ("ssh://@gpu1/127.0.0.1:8000", "no user name before the @"),
        ("ssh://me:hunter2@gpu1/127.0.0.1:8000", "no password in an address"),
        ("ssh://gpu1:99999/127.0.0.1:8000", "no host[:port] of a machine"),
        ("ssh://gpu1/127.0.0.1:8000?x=1", "no query"),
        ("ssh://gpu1/127.0.0.1:8000/a b", "no query, fragment or space"),
    ],
)
def test_what_is_no_address_is_told_in_a_line(text: str, why: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_target(text)
    line = str(raised.value)
    assert why in line
    assert "write ssh://host[:port]/127.0.0.1:8000" in line
    assert "hunter2" not in line
    assert line.isprintable()


@settings(max_examples=80, deadline=None)
@given(st.text(st.sampled_from("a1-._:/@[]%$`;|&\\ \n\t'\"(){}#?*~!+=,é"), max_size=30))
def test_what_reaches_a_program_is_harmless(text: str) -> None:
    try:
        address = ssh_address(f"ssh://{text}/127.0.0.1:8000")
    except ValueError:
        return
    for word in (address.machine.host, address.machine.user, address.server):
        assert not word.startswith("-")
        assert not set(word) & set(" \n\t$`;|&'\"(){}*~!\\/?#")


@pytest.mark.parametrize(
    "words",
    [
        ["snapshot", "--prometheus", "ssh://gpu1/127.0.0.1:9090"],
        ["probe", "ssh://gpu1/127.0.0.1:8000", "--yes"],
    ],
)
def test_what_dials_by_itself_says_how_it_can_be_had(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "`ssh -N -L PORT:SERVER HOST`" in line


def test_a_list_names_no_server_behind_ssh() -> None:
    """Whoever can write into a list must not have us log in somewhere."""
    with pytest.raises(ValueError, match="no host:port"):
        target_at("ssh://gpu1/127.0.0.1:8000")
    with pytest.raises(ValueError, match="the scheme 'ssh' is not read"):
        target_at("gpu1", scheme="ssh")
