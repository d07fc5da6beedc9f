"""Delivery: what is told to whom, once, over restarts, full disks and receivers that fail."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from enginetop.alerts.sinks.courier import Courier, Delivery
from enginetop.alerts.sinks.desk import Desk
from enginetop.alerts.sinks.file import FileSink
from enginetop.alerts.sinks.ledger import MOST_WAITING, Ledger
from enginetop.alerts.sinks.notice import Notice
from enginetop.alerts.sinks.outbox import Outbox
from enginetop.alerts.sinks.wire import (
    AlertmanagerSink,
    PostAnswer,
    WebhookSink,
    alertmanager_alert,
    plain_body,
    slack_body,
)
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.snapshot import Alert
from tests.tui.snapshots import AT, alert, fleet

URL = "http://a.example:8000"
FIRE = replace(alert("TargetDown", URL, "critical", "down"), labels={"model": "m"}, value=72.0)
OVER = replace(FIRE, state="resolved")
MILD = replace(alert("TtftSlo", URL, "warning", "slow"), labels={"model": "m"})


def everything(_: Alert) -> bool:
    return True


def critical(one: Alert) -> bool:
    return one.severity == "critical"


def told(ledger: Ledger, *looks: Sequence[Alert]) -> list[tuple[int, str, str]]:
    """The notices that these looks lead to: number of the look, rule, state."""
    found = []
    for look, alerts in enumerate(looks):
        for notice in ledger.due(AT + look, alerts):
            ledger.add(notice)
            found.append((look, notice.alert.rule, notice.alert.state))
    return found


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        ([[FIRE], [FIRE], [OVER], []], [(0, "TargetDown", "firing"), (2, "TargetDown", "resolved")]),
        # a resolved alert that nobody was told of, a pending one
        ([[OVER], [replace(FIRE, state="pending")]], []),
        # vanished without a word (its rule is gone)
        ([[FIRE], []], [(0, "TargetDown", "firing"), (1, "TargetDown", "resolved")]),
        # quiet from the start, then not
        (
            [[replace(MILD, inhibited_by="TargetDown")], [MILD], [MILD]],
            [(1, "TtftSlo", "firing")],
        ),
        ([[replace(MILD, silenced_by="canary")], []], []),
        # told, then silenced: the end is told nevertheless
        (
            [[MILD], [replace(MILD, silenced_by="x")], [replace(MILD, silenced_by="x", state="resolved")]],
            [(0, "TtftSlo", "firing"), (2, "TtftSlo", "resolved")],
        ),
        # over and again
        (
            [[FIRE], [OVER], [replace(FIRE, since=AT)]],
            [(0, "TargetDown", "firing"), (1, "TargetDown", "resolved"), (2, "TargetDown", "firing")],
        ),
        # a value that changes is no news, another label is another alert
        ([[FIRE], [replace(FIRE, value=1.0, summary="x")]], [(0, "TargetDown", "firing")]),
    ],
)
def test_what_is_told(looks: list[list[Alert]], expected: list[tuple[int, str, str]]) -> None:
    assert told(Ledger({"s": everything}), *looks) == expected


def test_a_sink_hears_what_it_wants_to_hear() -> None:
    ledger = Ledger({"all": everything, "grave": critical})
    told(ledger, [FIRE, MILD])
    assert [n.alert.rule for n in ledger.waiting("all")] == ["TargetDown", "TtftSlo"]
    assert [n.alert.rule for n in ledger.waiting("grave")] == ["TargetDown"]
    assert ledger.firing("grave") == ()
    ledger.settle("grave", [1])
    assert [n.alert.rule for n in ledger.firing("grave")] == ["TargetDown"]


def test_a_sink_that_is_too_far_behind_loses_its_oldest_and_counts_them() -> None:
    ledger = Ledger({"s": everything})
    told(ledger, *([FIRE] if i % 2 == 0 else [OVER] for i in range(MOST_WAITING + 10)))
    assert len(ledger.waiting("s")) == MOST_WAITING
    assert ledger.waiting("s")[0].number == 11
    assert ledger.dropped == {"s": 10}


def test_ids_tell_deliveries_from_alerts() -> None:
    ids = {
        Notice(number, at, one).id
        for number, at, one in [
            (1, AT, FIRE),
            (7, AT, replace(FIRE, value=3.0)),  # the same notice, told again
            (2, AT + 9, OVER),
            (3, AT + 99, FIRE),
        ]
    }
    assert len(ids) == 3


def waiting(outbox: Outbox, sink: str = "s") -> list[str]:
    return [f"{notice.alert.rule} {notice.alert.state}" for notice in outbox.waiting(sink)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "alerts" / "x.jsonl"


def test_nothing_is_lost_and_nothing_told_twice_over_restarts(path: Path) -> None:
    first = Outbox(path, {"s": everything})
    first.offer(AT, [FIRE, MILD])
    first.settle("s", first.waiting("s")[:1])
    first.close()
    second = Outbox(path, {"s": everything})
    assert waiting(second) == ["TtftSlo firing"]
    assert {alert.rule for alert in second.told()} == {"TargetDown", "TtftSlo"}
    assert second.told()[0].labels == {"model": "m"}
    second.offer(AT + 10, [FIRE])  # MILD ended while nobody looked
    assert waiting(second) == ["TtftSlo firing", "TtftSlo resolved"]
    second.settle("s", second.waiting("s"))
    second.offer(AT + 20, [FIRE])
    assert waiting(second) == []
    second.close()
    third = Outbox(path, {"s": everything, "new": everything})
    assert (waiting(third), waiting(third, "new")) == ([], ["TargetDown firing"])
    third.close()


def test_a_torn_last_line_is_passed_over(path: Path) -> None:
    first = Outbox(path, {"s": everything})
    first.offer(AT, [FIRE])
    first.close()
    with path.open("ab") as file:
        file.write(b'{"n":2,"at":1764446')
    second = Outbox(path, {"s": everything})
    assert waiting(second) == ["TargetDown firing"]
    second.offer(AT, [FIRE, MILD])
    second.close()
    third = Outbox(path, {"s": everything})
    assert waiting(third) == ["TargetDown firing", "TtftSlo firing"]
    third.close()


@pytest.mark.parametrize(
    "line", [b"[]", b"null", b'{"n": "x"}', b'{"n":1,"at":2,"alert":{}}', b"\xff", b"[" * 9999]
)
def test_garbage_in_the_file_is_passed_over(path: Path, line: bytes) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(line + b"\n")
    outbox = Outbox(path, {"s": everything})
    assert waiting(outbox) == []
    outbox.close()


def test_the_file_stays_short(path: Path) -> None:
    outbox = Outbox(path, {"s": everything})
    for i in range(700):
        outbox.offer(AT + i, [replace(FIRE, summary="x" * 500)] if i % 2 == 0 else [])
        outbox.settle("s", outbox.waiting("s"))
    assert path.stat().st_size < 300_000
    outbox.close()


def test_one_process_delivers(path: Path) -> None:
    first = Outbox(path, {"s": everything})
    with pytest.raises(ConfigError, match="another `enginetop watch`"):
        Outbox(path, {"s": everything})
    first.close()
    Outbox(path, {"s": everything}).close()


def test_a_disk_that_cannot_be_written_stops_no_delivery(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outbox = Outbox(path, {"s": everything})
    full = True
    fsync = os.fsync

    def sync(handle: int) -> None:
        if full:
            raise OSError(28, "No space left on device")
        fsync(handle)

    monkeypatch.setattr(os, "fsync", sync)
    outbox.offer(AT, [FIRE])
    assert waiting(outbox) == ["TargetDown firing"]
    assert "no space left on device" in outbox.problem
    full = False
    outbox.offer(AT, [FIRE, MILD])
    assert outbox.problem == ""
    outbox.close()
    again = Outbox(path, {"s": everything})
    assert waiting(again) == ["TargetDown firing", "TtftSlo firing"]
    again.close()


def test_a_state_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    outbox = Outbox(tmp_path / "file" / "alerts" / "x.jsonl", {"s": everything})
    outbox.offer(AT, [FIRE])
    assert waiting(outbox) == ["TargetDown firing"]
    assert "kept in memory" in outbox.problem
    outbox.close()


class FakeSink:
    """Takes what a script says, then everything; tells when it was asked."""

    def __init__(self, *script: Delivery, resend_seconds: float | None = None) -> None:
        self.name = "s"
        self.resend_seconds = resend_seconds
        self.script = list(script)
        self.seen: list[list[str]] = []
        self.asked = threading.Semaphore(0)

    def deliver(self, notices: Sequence[Notice]) -> Delivery:
        """See `Sink`."""
        self.seen.append([f"{notice.alert.rule} {notice.alert.state}" for notice in notices])
        self.asked.release()
        return self.script.pop(0) if self.script else Delivery(len(notices))


def courier(sink: FakeSink, outbox: Outbox, monotonic: Callable[[], float] = lambda: 0.0) -> Courier:
    return Courier(sink, outbox, monotonic)


def test_a_courier_tells_what_waits_and_once_more_what_failed(path: Path) -> None:
    outbox = Outbox(path, {"s": everything})
    outbox.offer(AT, [FIRE, MILD])
    sink = FakeSink(Delivery(1, "503"), Delivery(0, "no answer"))
    told_by = courier(sink, outbox)
    assert [told_by._attempt() for _ in range(4)] == [False, False, True, True]
    assert sink.seen == [["TargetDown firing", "TtftSlo firing"], ["TtftSlo firing"], ["TtftSlo firing"]]
    assert (told_by.delivered, told_by.failed, told_by.refused, told_by.problem) == (2, 2, 0, "")
    outbox.close()


def test_what_is_refused_for_good_is_counted_and_dropped(path: Path) -> None:
    outbox = Outbox(path, {"s": everything})
    outbox.offer(AT, [FIRE, MILD])
    sink = FakeSink(Delivery(0, "the receiver answers 400", refused=True))
    told_by = courier(sink, outbox)
    assert [told_by._attempt() for _ in range(2)] == [False, True]
    assert sink.seen[1] == ["TtftSlo firing"]
    assert (told_by.delivered, told_by.refused) == (1, 1)
    outbox.close()


def test_what_fires_is_repeated_for_those_who_forget(path: Path) -> None:
    now = 1000.0
    outbox = Outbox(path, {"s": everything})
    outbox.offer(AT, [FIRE])
    sink = FakeSink(resend_seconds=60.0)
    told_by = courier(sink, outbox, lambda: now)
    for at in (1000.0, 1030.0, 1060.0, 1061.0, 1120.0):
        now = at
        told_by._attempt()
    # told, repeated at once (a restart may come before the minute is over), then every minute
    assert sink.seen == [["TargetDown firing"]] * 4
    outbox.offer(AT + 9, [OVER])
    told_by._attempt()
    now = 1300.0
    told_by._attempt()
    assert sink.seen[4:] == [["TargetDown resolved"]]
    outbox.close()


def test_a_sink_that_raises_is_one_that_failed(path: Path) -> None:
    class Broken(FakeSink):
        def deliver(self, notices: Sequence[Notice]) -> Delivery:
            raise RuntimeError("secret")

    outbox = Outbox(path, {"s": everything})
    outbox.offer(AT, [FIRE])
    told_by = courier(Broken(), outbox)
    assert told_by._attempt() is False
    assert told_by.problem == "RuntimeError"
    outbox.close()


@pytest.mark.parametrize("breaks", ["waiting", "settle", "firing"])
def test_a_book_that_breaks_ends_no_courier(path: Path, monkeypatch: pytest.MonkeyPatch, breaks: str) -> None:
    outbox = Outbox(path, {"s": everything})
    outbox.offer(AT, [FIRE])
    sink = FakeSink(resend_seconds=60.0)
    told_by = courier(sink, outbox)
    with monkeypatch.context() as broken:
        broken.setattr(outbox, breaks, lambda *_: dict[str, int]()["no such sink"])
        assert told_by._attempt() is False
        assert told_by.problem == "a fault of enginetop itself: KeyError"
    assert told_by._attempt() is True
    assert told_by.problem == ""
    assert ["TargetDown firing"] in sink.seen
    outbox.close()


def test_a_book_that_breaks_does_not_end_the_desk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outbox, sink = Outbox(path, {"s": everything}), FakeSink()
    offer, looks = outbox.offer, iter(range(10))

    def breaking(at: float, alerts: Sequence[Alert]) -> None:
        if next(looks) == 0:
            raise KeyError("torn")
        offer(at, alerts)

    monkeypatch.setattr(outbox, "offer", breaking)
    desk = Desk(outbox, [sink], lambda: 0.0)
    desk.start()
    desk.take(fleet([], alerts=[MILD]))
    desk.take(fleet([], alerts=[MILD, FIRE]))
    assert sink.asked.acquire(timeout=10)
    assert desk.health()[0].problem == "alerts were lost by a fault of enginetop itself: KeyError"
    desk.stop()
    assert sink.seen[0] == ["TtftSlo firing", "TargetDown firing"]


def test_a_desk_delivers_and_keeps_what_it_cannot(path: Path) -> None:
    sink, stuck = FakeSink(), FakeSink(*[Delivery(0, "no answer")] * 1000)
    stuck.name = "stuck"
    desk = Desk(Outbox(path, {"s": everything, "stuck": everything}), [sink, stuck], lambda: 0.0)
    desk.start()
    desk.take(fleet([], alerts=[FIRE, replace(MILD, state="pending")]))
    assert sink.asked.acquire(timeout=10)
    assert stuck.asked.acquire(timeout=10)
    desk.take(fleet([], alerts=[FIRE]))  # nothing new
    desk.take(fleet([], alerts=[OVER]))
    assert desk.stop() == ("stuck (no answer)",)
    assert sink.seen == [["TargetDown firing"], ["TargetDown resolved"]]
    outbox = Outbox(path, {"s": everything, "stuck": everything})
    assert waiting(outbox, "stuck") == ["TargetDown firing", "TargetDown resolved"]
    assert outbox.told() == ()
    outbox.close()


NOTICES = [Notice(1, AT, FIRE), Notice(2, AT + 60, OVER)]


def lines(path: Path) -> list[str]:
    return [json.loads(line)["state"] for line in path.read_text().splitlines()]


def test_a_file_that_is_rotated_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "alerts.jsonl"
    sink = FileSink("file", path)
    assert sink.deliver(NOTICES[:1]) == Delivery(1)
    path.rename(tmp_path / "alerts.jsonl.1")
    assert sink.deliver(NOTICES[1:]) == Delivery(1)
    assert (lines(tmp_path / "alerts.jsonl.1"), lines(path)) == (["firing"], ["resolved"])


def test_a_run_that_crashed_before_its_mark_writes_no_line_twice(tmp_path: Path) -> None:
    path = tmp_path / "alerts.jsonl"
    FileSink("file", path).deliver(NOTICES[:1])
    with path.open("a") as file:
        file.write("not json\n[]\n")
    assert FileSink("file", path).deliver(NOTICES) == Delivery(2)
    assert path.read_text().count('"id"') == 2


def test_a_full_disk_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "alerts.jsonl"
    sink = FileSink("file", path)
    sink.deliver(NOTICES[:1])
    write, room = os.write, 40

    def small(handle: int, data: bytes) -> int:
        nonlocal room
        if room <= 0:
            raise OSError(28, "No space left on device")
        written = write(handle, data[:room])
        room -= written
        return written

    monkeypatch.setattr(os, "write", small)
    assert sink.deliver(NOTICES[1:]) == Delivery(0, f"{path}: no space left on device")
    assert lines(path) == ["firing"]
    monkeypatch.undo()
    assert sink.deliver(NOTICES[1:]) == Delivery(1)
    assert lines(path) == ["firing", "resolved"]


class Receiver:
    """Answers posts by a script, then with 200."""

    def __init__(self, *script: int | None) -> None:
        self.script = list(script)
        self.bodies: list[object] = []

    def __call__(self, body: bytes) -> PostAnswer:
        self.bodies.append(json.loads(body))
        status = self.script.pop(0) if self.script else 200
        return PostAnswer(status, "no answer within 5 s" if status is None else "")


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ([], Delivery(2)),
        ([204, 202], Delivery(2)),
        ([200, 503], Delivery(1, "the receiver answers 503")),
        ([429], Delivery(0, "the receiver answers 429")),
        ([301], Delivery(0, "the receiver answers 301")),
        ([404], Delivery(0, "the receiver answers 404")),
        ([200, 400], Delivery(1, "the receiver answers 400", refused=True)),
        ([None], Delivery(0, "no answer within 5 s")),
    ],
)
def test_a_webhook(script: list[int | None], expected: Delivery) -> None:
    receiver = Receiver(*script)
    assert WebhookSink("hook", receiver, plain_body).deliver(NOTICES) == expected
    first = receiver.bodies[0]
    assert isinstance(first, dict)
    assert (first["event"], first["rule"], first["state"], first["id"]) == (
        "alert",
        "TargetDown",
        "firing",
        NOTICES[0].id,
    )


def test_slack_takes_one_line_in_which_nothing_is_markup() -> None:
    body = slack_body(Notice(1, AT, replace(MILD, summary="<!channel> p95 > 1 s & more")))
    assert body == {
        "text": "[warning] TtftSlo http://a.example:8000 (m): &lt;!channel&gt; p95 &gt; 1 s &amp; more"
    }
    assert slack_body(NOTICES[1])["text"].startswith("[resolved] TargetDown")


@pytest.mark.parametrize(
    ("name", "where"),
    [("prod-a1", f"prod-a1 {URL} (m)"), ("a.example:8000", f"{URL} (m)"), ("", f"{URL} (m)")],
)
def test_every_form_tells_what_the_target_is_called(name: str, where: str) -> None:
    notice = Notice(1, AT, replace(MILD, name=name))
    assert f" {where}: slow" in slack_body(notice)["text"]
    assert plain_body(notice)["name"] == (name or URL)
    assert alertmanager_alert(notice, AT)["annotations"].get("name", "") == name
    assert "name" not in alertmanager_alert(notice, AT)["labels"]  # a new name is no new alert


def test_an_alert_as_alertmanager_wants_it() -> None:
    # AT is 2025-11-29T20:00:00Z; since is a minute earlier; it ends in five minutes unless repeated
    assert alertmanager_alert(NOTICES[0], now=AT + 10) == {
        "labels": {"alertname": "TargetDown", "severity": "critical", "target": URL, "model": "m"},
        "annotations": {"summary": "down", "value": "72", "runbook": "enginetop runbook TargetDown"},
        "startsAt": "2025-11-29T19:59:00.000+00:00",
        "endsAt": "2025-11-29T20:05:10.000+00:00",
    }
    over = alertmanager_alert(NOTICES[1], now=AT + 70)
    assert over["endsAt"] == "2025-11-29T20:01:00.000+00:00"
    early = alertmanager_alert(NOTICES[1], now=AT - 3600)  # the clock was set back
    assert early["startsAt"] <= early["endsAt"] == "2025-11-29T19:00:00.000+00:00"


def test_alertmanager_gets_the_newest_of_each_alert_in_one_post() -> None:
    receiver = Receiver()
    again = Notice(3, AT + 90, replace(FIRE, since=AT + 90))
    assert AlertmanagerSink("am", receiver, lambda: AT + 100).deliver([*NOTICES, again]) == Delivery(3)
    assert isinstance(receiver.bodies[0], list)
    assert [one["startsAt"] for one in receiver.bodies[0]] == ["2025-11-29T20:01:30.000+00:00"]


def test_one_alert_that_alertmanager_refuses_does_not_take_the_batch_with_it() -> None:
    receiver = Receiver(400, 200, 400)
    sink = AlertmanagerSink("am", receiver, lambda: AT)
    notices = [Notice(1, AT, FIRE), Notice(2, AT, MILD)]
    assert sink.deliver(notices) == Delivery(1, "the receiver answers 400", refused=True)
    assert [len(body) for body in receiver.bodies] == [2, 1, 1]  # type: ignore[arg-type]
