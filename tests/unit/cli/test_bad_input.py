"""What people get wrong: one line that says what and how to mend it, and exit 2, or a row's state."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from enginetop.cli.main import main
from tests.support.faulty_server import FaultyServer, page

SNAPSHOT = ["snapshot", "--interval", "0.2", "--format", "json"]


@pytest.fixture
def unknown_names(monkeypatch: pytest.MonkeyPatch) -> None:
    look_up = socket.getaddrinfo

    def fail(host: object, *rest: object, **more: object) -> object:
        if isinstance(host, str | bytes) and b"invalid" in (host.encode() if isinstance(host, str) else host):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return look_up(host, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", fail)


def _row(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    assert main([*SNAPSHOT, *words]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    (row,) = json.loads(out)["replicas"]
    (reason,) = row["reasons"]
    return row["state"], reason


def _line(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main([*SNAPSHOT, *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("enginetop: ")
    return line


@pytest.mark.usefixtures("unknown_names")
def test_a_name_that_nobody_knows(capsys: pytest.CaptureFixture[str]) -> None:
    helps = "; correct the name, or see why this machine's resolver does not know it"
    state, reason = _row(["engine.invalid:8000"], capsys)
    assert state == "down"
    assert reason.startswith("name lookup failed: Name or service not known for ")
    assert reason.endswith(helps)
    for words in (["--prometheus", "http://x.invalid:1"], ["--discover", "dns:x.invalid:1"]):
        assert _line(words, capsys).endswith(f"Name or service not known{helps}")


@pytest.mark.parametrize("status", [401, 403])
def test_a_key_that_is_wanted(status: int, server: FaultyServer, capsys: pytest.CaptureFixture[str]) -> None:
    url = server.replica(page(b"", status)).url
    state, reason = _row([url], capsys)
    assert state == "unauthorized"
    assert reason.startswith(f"HTTP {status} at /prometheus/metrics: needs an API key, or another one")
    assert "api_key_env" in reason
    line = _line(["--prometheus", url], capsys)
    assert f"prometheus {url}: HTTP {status}; it needs a key, or another one" in line
    assert "api_key_env" in line


def test_a_redirect_to_another_host(server: FaultyServer, capsys: pytest.CaptureFixture[str]) -> None:
    url = server.replica(page(b"", 302, extra="location: http://elsewhere.test/metrics?key=hunter2\r\n")).url
    state, reason = _row([url], capsys)
    assert state == "no_engine_metrics"
    assert reason.startswith("redirected to http://elsewhere.test, not followed: name that target")
    line = _line(["--prometheus", url], capsys)
    assert line.endswith("redirected to http://elsewhere.test, not followed: name that address")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            b'[[targets]]\nurl = "http://a:1',
            "Unterminated string (at end of document); is the file complete?",
        ),
        (b'[[targets]]\nurl = "http://a:1"\n[[tar', "(at end of document); is the file complete?"),
        (b'[[targets]]\nurl = "http://a:1"\nurk = 1', "targets.0.urk is an unknown key; did you mean 'url'?"),
        (
            b'[[targets]]\nurl = "http://a:1"\napi_key = "sk-0"',  # no value: it is not left out as one
            "targets.0.api_key is an unknown key; did you mean 'api_key_env'?",
        ),
        (b'[hooks.up]\ncomand = ["x"]', "hooks.up.comand is an unknown key; did you mean 'command'?"),
        (b'[[tragets]]\nurl = "http://a:1"', "tragets is an unknown key; did you mean 'targets'?"),
        (b"[fleet]\ninterval_seconds = 1", "fleet is an unknown key; known keys: interval_seconds, "),
        (b"[[targets]]\nname = 'a'", "targets.0.url: field required"),
        (b"\xff\xfe", "not UTF-8 text; name a readable TOML file with --config"),
        (b"a = " + b"[" * 5000 + b"]" * 5000, "not valid TOML: arrays or tables are nested too deeply"),
        (b"interval_seconds = " + b"9" * 5000, "not valid TOML: a number has too many digits"),
        (
            b'[[targets]]\nurl = "http://a:1"\nca_file = "a\\u0000b"',
            "targets.0.ca_file: no text with the character U+0000 in it",
        ),
        (
            b'[hooks.up]\ncommand = ["x\\u0000"]',
            "hooks.up.command.0: no text with the character U+0000 in it",
        ),
    ],
)
def test_a_config_that_is_cut_short_or_misspelt(
    text: bytes, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.toml"
    config.write_bytes(text)
    told = _line(["--config", str(config)], capsys)
    assert told.startswith(f"enginetop: {config}: ")
    assert line in told


def test_the_mark_that_some_editors_begin_a_file_with_is_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.toml"
    config.write_bytes(b"\xef\xbb\xbfinterval_seconds = 7.5\n")
    assert main(["config", "print", "--config", str(config), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["interval_seconds"] == 7.5


def test_a_folder_of_config_that_cannot_be_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As of another user's home. One that is not there, or is none, is no fault."""
    config = tmp_path / ("n" * 256)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(config))
    told = _line(["127.0.0.1:1"], capsys)
    assert told.endswith(
        "/enginetop/config.toml: File name too long; name a readable TOML file with --config"
    )
    for none in (tmp_path / "none", Path("/dev/null")):
        monkeypatch.setenv("XDG_CONFIG_HOME", str(none))
        assert _row(["127.0.0.1:1"], capsys)[0] == "down"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--discover", "file_sd:~nobody-here/x.json"], "~nobody-here/x.json: no such file or directory; "),
        (["--discover", "dynamo:~nobody-here/store"], "dynamo ~nobody-here/store: no such folder"),
        (["--kubernetes"], "no kubeconfig: ~nobody-here/config not there; "),
    ],
    ids=["list", "folder", "kubeconfig"],
)
def test_a_home_that_nobody_knows(
    words: list[str], line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "~nobody-here/config")
    assert line in _line(words, capsys)


def test_files_of_the_config_in_a_home_that_nobody_knows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "fleet.toml"
    config.write_text(
        "[control]\n[hooks.again]\ncommand = ['true']\n[[records]]\npath = '~nobody-here/log'\n"
        "[[targets]]\nurl = 'http://127.0.0.1:1'\n"
        "restart = { file = '~nobody-here/engine.yaml', hook = 'again', engine = 'vllm' }\n"
    )
    assert main([*SNAPSHOT, "--samples", "1", "--config", str(config)]) == 0
    assert "~nobody-here/log: no such file yet; it is read when it appears" in capsys.readouterr().err
    main(["doctor", "--config", str(config)])
    assert "its knobs cannot be read: ~nobody-here/engine.yaml: No such file" in capsys.readouterr().out
