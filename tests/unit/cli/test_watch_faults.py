"""A living watch in trouble: dying receivers, full disks, hard ends, broken configurations. Nothing is lost,
and nothing is told twice without the id that tells it is the same.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from enginetop.alerts.book import AlertBook
from enginetop.alerts.builtin import builtin_rules
from enginetop.cli.main import main
from tests.support.watch_process import WAIT_SECONDS, Receiver, WatchProcess, free_port
from tests.tui.snapshots import AT, down_replica, fleet, replica

AT_ONCE = '[[alerts]]\nrule = "TargetDown"\nfor_seconds = 0\n'
HOOK_SINK = '[[sinks]]\nkind = "webhook"\nurl_env = "HOOK"\n'


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "fleet.toml"
    path.write_text(AT_ONCE + HOOK_SINK)
    return path


def env(port: int) -> dict[str, str]:
    return {"HOOK": f"http://127.0.0.1:{port}/"}


def argv(config: Path, *more: str) -> tuple[str, ...]:
    given = (f"127.0.0.1:{free_port()}", "--interval", "0.1", "--heartbeat", "0.1")
    return (*given, "--config", str(config), *more)


def settled(beat: dict[str, Any]) -> bool:
    """A heartbeat that sees the alert firing and everything delivered."""
    return bool(
        beat["event"] == "heartbeat"
        and beat["alerts"] == {"firing": 1}
        and all(sink["waiting"] == 0 for sink in beat["sinks"].values())
        and all(sink["delivered"] >= 1 for sink in beat["sinks"].values())
    )


class DyingReceiver:
    """Takes one post and dies of it: before the body, after it, or in the middle of its answer."""

    def __init__(self, last_words: bytes, *, reads: bool) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._last_words, self._reads = last_words, reads
        self.died = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        client, _ = self._listener.accept()
        client.settimeout(WAIT_SECONDS)
        if self._reads:
            text = b""
            while not text.endswith(b"}"):
                text += client.recv(65536)
            client.sendall(self._last_words)
        self._listener.close()
        client.close()
        self.died.set()


@pytest.mark.parametrize(
    ("last_words", "reads"),
    [
        (b"", False),
        (b"", True),
        (b"HTTP/1.1 2", True),
        (b"HTTP/1.1 500 no\r\nContent-Length: 9\r\n\r\nx", True),
    ],
    ids=["before the body", "before the answer", "in the answer", "in the body of a 500"],
)
def test_a_receiver_that_dies_of_a_post_hears_of_it_again(
    tmp_path: Path, config: Path, last_words: bytes, reads: bool
) -> None:
    dying = DyingReceiver(last_words, reads=reads)
    with WatchProcess(tmp_path, *argv(config), env=env(dying.port)) as watch:
        assert dying.died.wait(WAIT_SECONDS)
        watch.says("webhook: ")
        with Receiver(dying.port) as back:
            assert back.post()["state"] == "firing"
            watch.event(settled)
            assert watch.stop() == 0
            assert back.posts.empty()


def test_killed_hard_between_a_delivery_and_its_mark_it_repeats_that_id(tmp_path: Path, config: Path) -> None:
    with Receiver() as hook:
        hook.hold = True
        given = argv(config)
        with WatchProcess(tmp_path, *given, env=env(hook.port)) as watch:
            first = hook.post()
            watch.stop(signal.SIGKILL)
        hook.hold = False
        hook.released.set()
        with WatchProcess(tmp_path, *given, env=env(hook.port)) as watch:
            again = hook.post()
            watch.event(settled)
            watch.stop(signal.SIGKILL)
        assert (again["id"], again["state"]) == (first["id"], "firing")
        with WatchProcess(tmp_path, *given, env=env(hook.port)) as watch:
            watch.event(lambda e: e["event"] == "heartbeat" and e["alerts"] == {"firing": 1})
            assert watch.stop() == 0
        assert hook.posts.empty()


def test_killed_hard_the_end_of_an_alert_is_told_by_the_next_run(tmp_path: Path, config: Path) -> None:
    port = free_port()
    given = (f"127.0.0.1:{port}", "--interval", "0.1", "--heartbeat", "0.1", "--config", str(config))
    with Receiver() as hook:
        with WatchProcess(tmp_path, *given, env=env(hook.port)) as watch:
            fired = hook.post()
            watch.event(settled)
            watch.stop(signal.SIGKILL)
        with Receiver(port), WatchProcess(tmp_path, *given, env=env(hook.port)) as watch:
            over = hook.post()
            assert watch.stop() == 0
        assert (fired["rule"], over["rule"], over["state"]) == ("TargetDown", "TargetDown", "resolved")
        assert hook.posts.empty()


needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here to set a limit with")


@needs_bash
def test_no_room_for_the_journal_stops_no_delivery_and_is_one_line(tmp_path: Path, config: Path) -> None:
    """The limit on file sizes of the process: every write to a file fails as on a full disk."""
    config.write_text(f'{AT_ONCE}{HOOK_SINK}[[sinks]]\nkind = "file"\npath = "{tmp_path}/alerts.jsonl"\n')
    limited = ("bash", "-c", 'ulimit -f 0; exec "$@"', "limited")
    with Receiver() as hook:
        with WatchProcess(tmp_path, *argv(config), env=env(hook.port), wrapper=limited) as watch:
            assert hook.post()["state"] == "firing"
            said = watch.says("file too large")
            assert "kept in memory" in said
            watch.event(lambda e: e["event"] == "heartbeat" and e["sinks"]["file"]["failed"] > 0)
            assert watch.stop() == 0
            assert "not delivered yet, and kept for the next start: alerts for file" in watch.rest()[-1]
        assert hook.posts.empty()
    assert (tmp_path / "alerts.jsonl").read_text() == ""


BROKEN = {
    "not TOML": "[[alerts\n",
    "no text": "\x00",
    "unknown table": "[allerts]\n",
    "unknown signal": '[[alerts]]\nrule = "X"\nwhen = "kv_usage > 1"\n',
    "unknown sink": '[[sinks]]\nkind = "pager"\n',
    "a wrong number": "interval_seconds = -1\n",
    "a target that is none": '[[targets]]\nurl = "http://"\n',
    "an address that others reach": '[watch]\nlisten = "0.0.0.0:1"\n',
}


def test_no_broken_configuration_is_taken(tmp_path: Path, config: Path) -> None:
    good = config.read_text()
    (tmp_path / "hidden").mkdir()
    with Receiver() as hook, WatchProcess(tmp_path, *argv(config), env=env(hook.port)) as watch:
        assert hook.post()["state"] == "firing"
        watch.says("watching 1 target;")
        for name, text in BROKEN.items():
            # targets are named on the command line, but those of the file must be sound too
            config.write_text(text)
            before = len(watch.told)
            watch.process.send_signal(signal.SIGHUP)
            line = watch.says("the former configuration stays in force")
            assert str(config) in line, name
            assert watch.told[before:] == [line], name
        config.rename(tmp_path / "hidden" / "c.toml")
        watch.process.send_signal(signal.SIGHUP)
        assert "no such file" in watch.says("the former configuration stays in force").lower()
        config.write_text(good)
        watch.process.send_signal(signal.SIGHUP)
        watch.says("configuration read again")
        watch.event(settled)
        assert watch.stop() == 0
        assert hook.posts.empty()


def test_a_rule_over_an_unknown_signal_is_one_line_at_the_start_too(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "c.toml"
    config.write_text(BROKEN["unknown signal"])
    assert main(["check", "127.0.0.1:1", "--config", str(config)]) == 3
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "alerts.0.when: unknown signal 'kv_usage'; did you mean" in err


# --- a clock that steps back ------------------------------------------------------------------------------


def story(steps: list[tuple[float, bool]]) -> str:
    """Pages and refusals of one replica at these times, in this order."""
    lines = []
    for count, (at, up) in enumerate(steps):
        page = f"vllm:num_requests_running 1\nvllm:generation_tokens_total {100 * count}\n"
        answer: dict[str, str] = {"body": page} if up else {"error": "refused"}
        lines.append(json.dumps({"t": at, "target": "http://r1:8000", "path": "/metrics", **answer}))
    return "\n".join(lines) + "\n"


LIVES = re.compile("(PF?R)*(PF?)?")
"""What may be told of one alert: pending, perhaps firing, resolved, and so on."""


@pytest.mark.parametrize("step_back", [1.0, 61.0, 3600.0, 1e6])
@pytest.mark.parametrize("when", ["before", "pending", "firing", "after"])
def test_a_recording_whose_clock_steps_back_is_told_and_taken_by_its_times(
    step_back: float, when: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    start = 2e6
    looks = [True] * 6 + [False] * 20 + [True] * 6  # every 5 s
    at_look = {"before": 4, "pending": 9, "firing": 18, "after": 28}[when]
    steps = [(start + 5 * i - (step_back if i >= at_look else 0), up) for i, up in enumerate(looks)]
    printed = []
    for order in (steps, steps, sorted(steps)):
        path = tmp_path / "fleet.jsonl"
        path.write_text(story(order))
        assert main(["watch", "--replay", str(path)]) == 0
        printed.append(capfd.readouterr())
    assert printed[0] == printed[1]
    if step_back >= 5:
        (line,) = printed[0].err.splitlines()
        assert f"the clock steps back by {step_back - 5:g} s in line {at_look + 1}" in line
    assert printed[2].err == ""
    events = [json.loads(line) for line in printed[0].out.splitlines()]
    assert LIVES.fullmatch("".join(event["state"][0].upper() for event in events))
    assert events == sorted(events, key=lambda event: event["at"])
    assert all(event["since"] <= event["at"] and event["value"] >= 0 for event in events)


@pytest.mark.parametrize("step_back", [1.0, 61.0, 3600.0, 1e6])
@pytest.mark.parametrize("at_look", range(2, 14))
def test_a_clock_that_steps_back_under_a_book_loses_and_doubles_nothing(
    step_back: float, at_look: int
) -> None:
    """Looks every 10 s; down at the 4th, in force after 30 s, up again at the 10th."""
    watched = AlertBook(builtin_rules(60.0))
    told = ""
    for look in range(14):
        at = AT + 10 * look - (step_back if look >= at_look else 0)
        one = down_replica("a", seconds=0) if 4 <= look < 10 else replica("a")
        watched(replace(fleet([replace(one, since=at)]), at=at))
        told += "".join(event.alert.state[0].upper() for event in watched.take_events())
        assert all(alert.since <= at for alert in watched.current())
    assert told in ("PFR", "PR")  # set back while pending, its hold may begin anew
