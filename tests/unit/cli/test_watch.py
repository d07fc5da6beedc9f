"""`enginetop watch`: events of a recording by hand, and a living one with signals, sinks and a supervisor."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from enginetop.cli.main import main
from enginetop.cli.sd_notify import Supervisor
from enginetop.fleet.errors import ConfigError
from tests.support.watch_process import WAIT_SECONDS, Receiver, WatchProcess, free_port

URL = "http://r1:8000"
PAGE = 'vllm:num_requests_running{engine="0"} {run}\nvllm:generation_tokens_total{engine="0"} {tokens}\n'


@pytest.fixture(autouse=True)
def _own_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def page(t: float, running: int = 1, tokens: float | None = None, url: str = URL) -> dict[str, Any]:
    body = PAGE.replace("{run}", str(running)).replace("{tokens}", str(10 * t if tokens is None else tokens))
    return {"t": t, "target": url, "path": "/metrics", "body": body}


def refused(t: float, url: str = URL) -> dict[str, Any]:
    return {"t": t, "target": url, "path": "/metrics", "error": "refused"}


def recording(tmp_path: Path, records: list[dict[str, Any]]) -> str:
    path = tmp_path / "fleet.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


def events(text: str) -> list[tuple[float, str, str]]:
    found = [json.loads(line) for line in text.splitlines()]
    return [(e["at"], e["rule"], e["state"]) for e in found if e["event"] == "alert"]


# pages every 5 s, refused from 15 to 60: down at the second failure (20), since the first (15)
OUTAGE = [page(t) for t in (0, 5, 10)] + [refused(t) for t in range(15, 65, 5)] + [page(t) for t in (65, 70)]
OUTAGE_EVENTS = [
    (20.0, "TargetDown", "pending"),
    (45.0, "TargetDown", "firing"),
    (65.0, "TargetDown", "resolved"),
]


def test_an_outage_in_a_recording(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = recording(tmp_path, OUTAGE)
    printed = []
    for _ in range(2):
        assert main(["watch", "--replay", path]) == 0
        printed.append(capfd.readouterr().out)
    assert printed[0] == printed[1]
    assert events(printed[0]) == OUTAGE_EVENTS
    first = json.loads(printed[0].splitlines()[0])
    assert first == {
        "event": "alert",
        "at": 20.0,
        "rule": "TargetDown",
        "severity": "critical",
        "state": "pending",
        "target": URL,
        "name": URL.removeprefix("http://"),
        "since": 15.0,
        "value": 5.0,
        "threshold": None,
        "summary": "connection refused for 5 s",
        "labels": {"engine": "vllm"},
        "inhibited_by": "",
        "silenced_by": "",
        "acknowledged_by": "",
        "runbook": "enginetop runbook TargetDown",
    }


def test_a_standstill_counts_from_the_last_movement(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    # moves until 20, stands still on pages 25, 30, 35; moves again at 70. Three pages make the state
    records = (
        [page(t) for t in range(0, 25, 5)] + [page(t, tokens=200) for t in range(25, 70, 5)] + [page(70)]
    )
    assert main(["watch", "--replay", recording(tmp_path, records)]) == 0
    assert events(capfd.readouterr().out) == [
        (30.0, "NoProgress", "pending"),
        (50.0, "NoProgress", "firing"),
        (70.0, "NoProgress", "resolved"),
    ]


def test_what_clears_while_pending_is_resolved_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    records = [page(0), page(5), refused(10), refused(15), page(20), page(25)]
    assert main(["watch", "--replay", recording(tmp_path, records)]) == 0
    assert events(capfd.readouterr().out) == [
        (15.0, "TargetDown", "pending"),
        (20.0, "TargetDown", "resolved"),
    ]


def test_heartbeats_follow_the_clock_of_the_recording(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["watch", "--replay", recording(tmp_path, OUTAGE), "--heartbeat", "30"]) == 0
    beats = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    beats = [beat for beat in beats if beat["event"] == "heartbeat"]
    assert [(b["at"], b["states"], b["alerts"]) for b in beats] == [
        (0.0, {"ok": 1}, {}),
        (30.0, {"down": 1}, {"pending": 1}),
        (60.0, {"down": 1}, {"firing": 1}),
    ]


def test_rules_holds_and_silences_of_the_config_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "c.toml"
    config.write_text(
        '[[alerts]]\nrule = "TargetDown"\nfor_seconds = 10\n'
        '[[alerts]]\nrule = "Busy"\nwhen = "requests_running >= 1"\nfor_seconds = 5\nseverity = "info"\n'
        '[[silences]]\nrule = "Busy"\nuntil = 1970-01-01T00:00:08Z\nreason = "test"\n'
        '[[sinks]]\nkind = "webhook"\nurl_env = "NOWHERE"\n'
    )
    assert main(["watch", "--replay", recording(tmp_path, OUTAGE), "--config", str(config)]) == 0
    out, err = capfd.readouterr()
    assert events(out) == [
        (0.0, "Busy", "pending"),
        (5.0, "Busy", "firing"),
        (20.0, "TargetDown", "pending"),
        (20.0, "Busy", "resolved"),
        (25.0, "TargetDown", "firing"),
        (65.0, "TargetDown", "resolved"),
        (65.0, "Busy", "pending"),
        (70.0, "Busy", "firing"),
    ]
    assert [json.loads(line)["silenced_by"] for line in out.splitlines()[:3]] == ["test", "test", ""]
    assert "a replay is not delivered" in err


def test_sentences_for_people(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["watch", "--replay", recording(tmp_path, OUTAGE), "--format", "table"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert [line.partition(" ")[2] for line in lines] == [
        "1 of 1 up, 0 firing",
        "r1:8000: ok, 1 running",
        "r1:8000: still ok. connection refused once, just now",
        "r1:8000: TargetDown pending, critical. connection refused for 5 s",
        "r1:8000: down, was ok. connection refused for 5 s",
        "r1:8000: TargetDown firing, critical. connection refused for 30 s",
        "0 of 1 up, 1 firing",
        "r1:8000: down, connection refused for 45 s",
        "r1:8000: TargetDown resolved, critical. connection refused for 45 s",
        "r1:8000: ok, was down",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            '[[alerts]]\nrule = "X"\nwhen = "kv_usage > 1"\n',
            "alerts.0.when: unknown signal 'kv_usage'; did you mean",
        ),
        (
            '[[alerts]]\nrule = "X"\nwen = "kv_usage > 1"\n',
            "alerts.0.wen is an unknown key; did you mean 'when'?",
        ),
        ('[[alerts]]\nrule = "X"\nwhen = "kv_usage_ratio > 1"\nseverity = "page"\n', "alerts.0.severity"),
        ('[[alerts]]\nrule = "TargetDown"\nfor_seconds = -1\n', "alerts.0.for_seconds"),
        ("[[silences]]\nuntil = 2026-01-01T00:00:00\n", "silences.0.until"),
        ('[[sinks]]\nkind = "slack"\nurl = "https://hooks/SECRET"\n', "needs url_env or url_file"),
        (
            '[[sinks]]\nkind = "alertmanager"\nurl = "http://u:SECRET@am:9093"\n',
            "sinks.0.url: no key in an address",
        ),
        ('[[sinks]]\nkind = "alertmanager"\nurl = "am:9093"\n', "sinks.0.url: not an address"),
        ('[[sinks]]\nkind = "file"\npath = "a"\nname = "x"\n' * 2, "another sink is named 'x'"),
        ('[[sinks]]\nkind = "mail"\n', "sinks.0.kind"),
    ],
)
def test_mistakes_in_the_config_file_are_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    config = tmp_path / "c.toml"
    config.write_text(text)
    assert main(["watch", "127.0.0.1:1", "--config", str(config)]) == 2
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert words in err
    assert "SECRET" not in err


@pytest.mark.parametrize(
    ("when", "told"),
    [
        ("kv_usage_ratio > 95", True),
        ("requests_waiting > 5 and prefix_hit_ratio >= 30", True),
        ("kv_usage_ratio > 0.95 or requests_waiting > 95", False),
        ("prefix_hit_ratio < 30", False),  # always true: no silence to be surprised by
    ],
)
def test_a_percentage_in_the_place_of_a_ratio_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], when: str, told: bool
) -> None:
    config = tmp_path / "c.toml"
    config.write_text(f'[[alerts]]\nrule = "Mine"\nwhen = "{when}"\n')
    main(["watch", "--replay", recording(tmp_path, OUTAGE), "--config", str(config)])
    err = capfd.readouterr().err
    assert ("rule Mine: " in err and "can never be" in err) is told


def test_a_burn_alert_that_can_never_fire_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    # at 90 % all requests bad burn 10x; at 95 % 20x
    path = recording(tmp_path, OUTAGE)
    main(["watch", "--replay", path, "--slo", "target=0.9"])
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "burn" in line]
    assert "at most 10x" in line
    assert "14.4x can never fire" in line
    assert "above 0.9306" in line
    main(["watch", "--replay", path, "--slo", "target=0.95"])
    assert "burn" not in capfd.readouterr().err


# --- a living watch ---------------------------------------------------------------------------------------

FAST = ("--interval", "0.1")
AT_ONCE = '[[alerts]]\nrule = "TargetDown"\nfor_seconds = 0\n'


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "fleet.toml"
    path.write_text(f'{AT_ONCE}[[sinks]]\nkind = "webhook"\nurl_env = "HOOK"\n')
    return path


@pytest.fixture
def hook() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


def env(port: int) -> dict[str, str]:
    return {"HOOK": f"http://127.0.0.1:{port}/hooks/S3CRET?token=S3CRET"}


def argv(config: Path, *more: str) -> tuple[str, ...]:
    return (f"127.0.0.1:{free_port()}", *FAST, "--config", str(config), *more)


def settled(beat: dict[str, Any]) -> bool:
    """A heartbeat that sees the alert firing and everything delivered."""
    return bool(
        beat["event"] == "heartbeat"
        and beat["alerts"] == {"firing": 1}
        and beat["sinks"]["webhook"]["waiting"] == 0
    )


def test_an_engine_that_cannot_be_made_leaves_no_thread_behind(
    config: Path, hook: Receiver, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def no_engine(*_: object, **__: object) -> None:
        raise ConfigError("records: no such thing")

    monkeypatch.setenv("HOOK", env(hook.port)["HOOK"])
    monkeypatch.setattr("enginetop.cli.wiring.live_engine", no_engine)
    before = set(threading.enumerate())
    assert main(["watch", *argv(config), "--listen", "127.0.0.1:0"]) == 2
    assert "records: no such thing" in capfd.readouterr().err
    left = [thread.name for thread in set(threading.enumerate()) - before if thread.is_alive()]
    assert left == []


def test_ended_in_the_middle_of_a_post_nothing_is_lost_or_doubled(
    tmp_path: Path, config: Path, hook: Receiver
) -> None:
    given = argv(config, "--heartbeat", "0.1")
    hook.hold = True
    with WatchProcess(tmp_path, *given, env=env(hook.port)) as watch:
        assert hook.post()["state"] == "firing"
        watch.process.send_signal(signal.SIGTERM)
        hook.released.set()
        assert watch.process.wait(timeout=WAIT_SECONDS) == 0
    hook.hold = False
    with WatchProcess(tmp_path, *given, env=env(hook.port)) as watch:
        watch.event(settled)
        assert watch.stop() == 0
    assert hook.posts.empty()
    assert set(hook.paths) == {"/hooks/S3CRET?token=S3CRET"}


def test_a_receiver_that_is_away_is_told_when_it_is_back_and_no_address_is_printed(
    tmp_path: Path, config: Path
) -> None:
    port = free_port()
    where, given = env(port), argv(config, "--heartbeat", "0.1")
    with WatchProcess(tmp_path, *given, env=where) as watch:
        assert watch.event(lambda e: e.get("state") == "firing")["rule"] == "TargetDown"
        said = watch.says("webhook: ")
        with Receiver(port) as back:
            assert back.post()["rule"] == "TargetDown"
            watch.event(settled)
            assert watch.stop() == 0
            assert back.posts.empty()
    assert "S3CRET" not in said + "".join(watch.told)


def test_killed_hard_with_an_undelivered_alert(tmp_path: Path, config: Path) -> None:
    port = free_port()
    where, given = env(port), argv(config, "--heartbeat", "0.1")
    with WatchProcess(tmp_path, *given, env=where) as watch:
        watch.event(lambda e: e["event"] == "heartbeat" and e["sinks"]["webhook"]["waiting"] == 1)
        watch.stop(signal.SIGKILL)
    with Receiver(port) as back:
        with WatchProcess(tmp_path, *given, env=where) as watch:
            first = back.post()
            watch.event(settled)
            assert watch.stop() == 0
        assert first["state"] == "firing"
        assert back.posts.empty()


def test_a_full_disk_under_stdout_stops_no_delivery(tmp_path: Path, config: Path, hook: Receiver) -> None:
    with (
        Path("/dev/full").open("w") as full,
        WatchProcess(tmp_path, *argv(config), env=env(hook.port), stdout=full) as watch,
    ):
        assert hook.post()["state"] == "firing"
        watch.says("stdout cannot be written: no space left on device")
        assert watch.stop() == 1


def test_a_reload_takes_new_rules_and_refuses_broken_ones(
    tmp_path: Path, config: Path, hook: Receiver
) -> None:
    config.write_text(config.read_text().replace("for_seconds = 0", "for_seconds = 3600"))
    with WatchProcess(tmp_path, *argv(config), env=env(hook.port)) as watch:
        watch.event(lambda e: e["state"] == "pending")
        config.write_text("[[alerts]]\nrule = 7\n")
        watch.process.send_signal(signal.SIGHUP)
        watch.says("the former configuration stays in force")
        config.write_text(f'{AT_ONCE}[[sinks]]\nkind = "webhook"\nurl_env = "HOOK"\n')
        watch.process.send_signal(signal.SIGHUP)
        watch.says("configuration read again")
        assert watch.event(lambda e: True)["state"] == "firing"
        assert hook.post()["state"] == "firing"
        config.write_text(f"interval_seconds = 0.2\n{config.read_text()}")
        watch.process.send_signal(signal.SIGHUP)
        watch.says("configuration read again")
        assert watch.stop() == 0
        assert hook.posts.empty()


def test_a_supervisor_hears_of_life(tmp_path: Path, config: Path, hook: Receiver) -> None:
    address = str(tmp_path / "n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.settimeout(WAIT_SECONDS)
        given = {**env(hook.port), "NOTIFY_SOCKET": address, "WATCHDOG_USEC": "300000"}

        def heard(word: str) -> str:
            while word not in (message := manager.recv(4096).decode()):
                pass
            return message

        with WatchProcess(tmp_path, *argv(config), env=given) as watch:
            assert heard("READY=1") == "READY=1\nSTATUS=watching 1 target"
            assert heard("WATCHDOG=1")
            watch.process.send_signal(signal.SIGHUP)
            assert "MONOTONIC_USEC=" in heard("RELOADING=1")
            assert heard("READY=1")
            watch.process.send_signal(signal.SIGTERM)
            assert heard("STOPPING=1")
            assert watch.process.wait(timeout=WAIT_SECONDS) == 0


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, None),  # nobody listens
        ({"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "30000000"}, 30.0),
        ({"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "x"}, None),
        ({"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "0"}, None),
        ({"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "1", "WATCHDOG_PID": str(os.getpid() + 1)}, None),
    ],
)
def test_whom_a_watchdog_watches(environment: dict[str, str], seconds: float | None) -> None:
    supervisor = Supervisor(environment)
    assert supervisor.watchdog_seconds == seconds
    supervisor.alive()  # nobody there: nothing happens
