"""Against a real Alertmanager (Debian's package): fire, repeat, resolve, silence, as its own API tells it."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import pytest

from collectors.fetch import NO_CREDENTIALS
from enginetop.alerts.sinks.desk import Desk
from enginetop.alerts.sinks.notice import Notice
from enginetop.alerts.sinks.outbox import Outbox
from enginetop.alerts.sinks.wire import RESEND_SECONDS, AlertmanagerSink
from enginetop.cli.alerting import _post
from tests.support.watch_process import WAIT_SECONDS, Receiver, WatchProcess, free_port
from tests.tui.snapshots import alert, fleet

BINARY = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")

pytestmark = pytest.mark.skipif(
    BINARY is None, reason="no Alertmanager here: apt-get install prometheus-alertmanager"
)


def _drain(stream: IO[str]) -> None:
    with suppress(ValueError):  # closed at its end
        stream.read()


class Alertmanager:
    """A running Alertmanager that tells a webhook receiver what it would tell people."""

    def __init__(self, folder: Path, told: Receiver) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        self._folder = folder
        self._starts = 0
        config = folder / "alertmanager.yml"
        config.write_text(
            "route: {receiver: hook, group_by: [alertname], group_wait: 100ms, group_interval: 1s, "
            "repeat_interval: 1h}\n"
            f"receivers: [{{name: hook, webhook_configs: [{{url: 'http://127.0.0.1:{told.port}/', "
            "send_resolved: true}]}]\n"
        )
        self.start()

    def start(self) -> None:
        """Start it without a memory of what it knew; returns once it listens."""
        self._starts += 1
        self.process = subprocess.Popen(
            [
                str(BINARY),
                f"--config.file={self._folder / 'alertmanager.yml'}",
                f"--storage.path={self._folder / f'data-{self._starts}'}",
                f"--web.listen-address={self.url.removeprefix('http://')}",
                "--cluster.listen-address=",
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        for line in self.process.stderr:  # until it says that it listens
            if "Listening on" in line or "msg=Listening" in line:
                break
        threading.Thread(target=_drain, args=(self.process.stderr,), daemon=True).start()

    def stop(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait(timeout=WAIT_SECONDS)
        assert self.process.stderr is not None
        self.process.stderr.close()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """One call of its API v2."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self.url}/api/v2{path}", data, {"Content-Type": "application/json"}, method=method
        )
        with urllib.request.urlopen(request, timeout=WAIT_SECONDS) as answer:
            return json.loads(answer.read() or "null")

    def alerts(self, rule: str = "TargetDown") -> list[dict[str, Any]]:
        """What it holds of a rule now."""
        filters = urllib.parse.quote(f'alertname="{rule}"')
        found: list[dict[str, Any]] = self.ask("GET", f"/alerts?filter={filters}")
        return found

    def until(self, true: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        """Ask again and again until what it holds is as wanted."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not true(found := self.alerts()):
            assert time.monotonic() < deadline, found
        return found


@pytest.fixture(scope="module")
def told() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory, told: Receiver) -> Iterator[Alertmanager]:
    running = Alertmanager(tmp_path_factory.mktemp("am"), told)
    yield running
    running.stop()


def test_a_watch_fires_repeats_and_resolves(tmp_path: Path, manager: Alertmanager, told: Receiver) -> None:
    port = free_port()
    config = tmp_path / "fleet.toml"
    config.write_text(
        '[[alerts]]\nrule = "TargetDown"\nfor_seconds = 0\n'
        f'[[sinks]]\nkind = "alertmanager"\nurl = "{manager.url}"\n'
    )
    patient = ("--timeout", str(WAIT_SECONDS))  # with the target's answer on a busy machine
    given = (f"127.0.0.1:{port}", "--interval", "0.1", *patient, "--config", str(config))
    with WatchProcess(tmp_path, *given) as watch:
        event = watch.event(lambda e: e["state"] == "firing")
        (held,) = manager.until(bool)
        assert held["labels"] == {
            "alertname": "TargetDown",
            "severity": "critical",
            "target": f"http://127.0.0.1:{port}",
        }
        assert held["status"]["state"] in ("active", "unprocessed")
        assert held["annotations"]["summary"] == event["summary"]
        first = told.post()
        assert (first["status"], len(first["alerts"])) == ("firing", 1)
        assert watch.stop(signal.SIGKILL) != 0
    # a new run repeats it at once: the same alert with the same start, a later end, and nobody is told twice
    with WatchProcess(tmp_path, *given) as watch:
        (again,) = manager.until(lambda found: bool(found) and found[0]["updatedAt"] > held["updatedAt"])
        assert (again["fingerprint"], again["startsAt"]) == (held["fingerprint"], held["startsAt"])
        assert again["endsAt"] > held["endsAt"]
        assert told.posts.empty()
        # its target comes back, as a page without an engine: no longer down
        with Receiver(port):
            assert watch.event(lambda e: e["rule"] == "TargetDown")["state"] == "resolved"
            manager.until(lambda found: not found)
            assert told.post()["status"] == "resolved"
        assert watch.stop() == 0


def test_one_that_restarts_and_forgets_hears_again(
    tmp_path: Path, manager: Alertmanager, told: Receiver
) -> None:
    clock = [0.0]
    post = _post(lambda: f"{manager.url}/api/v2/alerts", NO_CREDENTIALS)
    outbox = Outbox(tmp_path / "journal.jsonl", {"am": lambda _: True})
    desk = Desk(outbox, [AlertmanagerSink("am", post, time.time)], lambda: clock[0])
    fires = alert("QueueGrowing", "http://q1:8000", since=time.time() - 60)
    desk.start()
    desk.take(replace(fleet([], alerts=[fires]), at=time.time()))
    _until(lambda: manager.alerts("QueueGrowing"))
    manager.stop()
    clock[0] += RESEND_SECONDS
    _until(lambda: desk.health()[0].problem)  # it is tried again, and told why not
    manager.start()
    (again,) = _until(lambda: manager.alerts("QueueGrowing"))
    assert again["labels"]["target"] == "http://q1:8000"
    # the end is told once, also to one that has just restarted
    desk.take(replace(fleet([], alerts=[replace(fires, state="resolved")]), at=time.time()))
    _until(lambda: not manager.alerts("QueueGrowing"))
    assert desk.stop() == ()
    while not told.posts.empty():
        told.posts.get()


def _until(look: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + WAIT_SECONDS
    while not (found := look()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def test_a_silence_made_there_suppresses_the_alert(manager: Alertmanager) -> None:
    sink = AlertmanagerSink("am", _post(lambda: f"{manager.url}/api/v2/alerts", NO_CREDENTIALS), time.time)
    now = time.time()
    fires = Notice(1, now, alert("KvPressure", "http://b1:8000", since=now - 60))
    matcher = {"name": "target", "value": "http://b1:8000", "isRegex": False, "isEqual": True}
    times = {"startsAt": "2020-01-01T00:00:00Z", "endsAt": "2099-01-01T00:00:00Z"}
    made = manager.ask(
        "POST", "/silences", {"matchers": [matcher], **times, "createdBy": "test", "comment": "canary"}
    )
    assert sink.deliver([fires]).problem == ""
    deadline = time.monotonic() + WAIT_SECONDS
    while (found := manager.alerts("KvPressure")[0]["status"])["state"] != "suppressed":
        assert time.monotonic() < deadline, found
    assert found["silencedBy"] == [made["silenceID"]]
    manager.ask("DELETE", f"/silence/{made['silenceID']}")


def test_names_that_people_give_their_rules_are_taken(manager: Alertmanager) -> None:
    sink = AlertmanagerSink("am", _post(lambda: f"{manager.url}/api/v2/alerts", NO_CREDENTIALS), time.time)
    odd = alert('KV > 95 % "öfter"\n{x}', "http://b1:8000", summary="", since=time.time())
    assert sink.deliver([Notice(1, time.time(), odd)]).problem == ""
    names = {one["labels"]["alertname"] for one in manager.ask("GET", "/alerts")}
    assert 'KV > 95 % "öfter"\n{x}' in names
