"""`enginetop silence`, and that check and watch go by it."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from enginetop.cli.main import main
from tests.support.watch_process import Receiver, WatchProcess, free_port


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("LOGNAME", "ana")
    return tmp_path / "state" / "enginetop"


def test_add_list_expire(capfd: pytest.CaptureFixture[str]) -> None:
    began = time.time()
    given = ["--for", "2h", "--rule", "Ttft*", "--target", "b\x1b*", "--reason", "load test"]
    assert main(["silence", "add", *given]) == 0
    line = capfd.readouterr().out
    assert line.endswith("rule Ttft* target b?* for 2h00m, by ana (load test)\n")
    assert main(["silence", "list", "--format", "json"]) == 0
    (found,) = map(json.loads, capfd.readouterr().out.splitlines())
    assert (found["rule"], found["target"], found["by"]) == ("Ttft*", "b\x1b*", "ana")
    assert began + 7200 <= found["until"] <= time.time() + 7200
    assert line.startswith(f"{found['id']} ")
    assert main(["silence", "expire", found["id"]]) == 0
    capfd.readouterr()
    assert main(["silence", "list"]) == 0
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["add", "--rule", "X"], "for how long? add --for 30m"),
        (["add", "--for", "2h"], "which alerts?"),
        (["expire"], "which one? give an id"),
        (["expire", "nope"], "no silence 'nope' is in force"),
    ],
)
def test_mistakes_are_one_line(argv: list[str], words: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["silence", *argv]) == 2
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert words in err


def test_a_damaged_file_is_one_line(state: Path, capfd: pytest.CaptureFixture[str]) -> None:
    state.mkdir(parents=True)
    (state / "quiet.json").write_text("{")
    for argv in (["silence", "list"], ["silence", "expire", "x"]):
        assert main(argv) == 2
        out, err = capfd.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert "silences and acknowledgements cannot be read: it is damaged" in err
    assert main(["silence", "add", "--for", "1h", "--all"]) == 0
    assert "set aside as quiet.broken-1.json" in capfd.readouterr().err
    assert (state / "quiet.broken-1.json").read_text() == "{"


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("KvPresure", "enginetop: no built-in rule is called KvPresure; KvPressure is\n"),
        ("Own", "enginetop: no built-in rule is called Own\n"),
        ("Ttft*", ""),
        ("KvPressure", ""),
    ],
)
def test_a_rule_that_is_not_built_in_is_said(rule: str, said: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["silence", "add", "--for", "1h", "--rule", rule]) == 0
    assert capfd.readouterr().err == said


def test_check_goes_by_a_silence_of_the_command_line(capfd: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    look = ["check", f"127.0.0.1:{port}", "--interval", "0.1"]
    assert main(look) == 2
    assert main(["silence", "add", "--for", "1h", "--target", f"*:{port}"]) == 0
    capfd.readouterr()
    assert main(look) == 0
    assert capfd.readouterr().out.startswith("OK")


def test_a_living_watch_goes_by_it_at_once_and_tells_no_sink(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    rule = (
        '[[alerts]]\nrule = "TargetDown"\nfor_seconds = {}\n[[sinks]]\nkind = "webhook"\nurl_env = "HOOK"\n'
    )
    config.write_text(rule.format(3600))
    argv = (f"127.0.0.1:{free_port()}", "--interval", "0.1", "--heartbeat", "0.1", "--config", str(config))
    with Receiver() as hook:
        env = {"HOOK": f"http://127.0.0.1:{hook.port}/"}
        with WatchProcess(tmp_path, *argv, env=env) as watch:
            assert watch.event(lambda e: e.get("state") == "pending")["silenced_by"] == ""
            assert main(["silence", "add", "--for", "1h", "--rule", "TargetDown", "--reason", "drill"]) == 0
            config.write_text(rule.format(0))
            watch.process.send_signal(signal.SIGHUP)
            assert watch.event(lambda e: e.get("state") == "firing")["silenced_by"] == "ana: drill"
            watch.event(lambda e: e["event"] == "heartbeat" and e["alerts"] == {"firing": 1})
            (tmp_path / "state" / "enginetop" / "quiet.json").write_text("{")
            watch.says("silences and acknowledgements cannot be read: it is damaged")
            assert watch.stop() == 0
        assert hook.posts.empty()
