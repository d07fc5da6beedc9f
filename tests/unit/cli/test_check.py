"""`enginetop check`: the line, the exit code, the JSON."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from enginetop.cli.check import judge
from enginetop.cli.main import main
from enginetop.fleet.model import ReplicaState
from enginetop.fleet.snapshot import Alert, Event, FleetSnapshot, Outlier, Slo
from tests.support.watch_process import free_port
from tests.tui.snapshots import AT, alert, distribution, down_replica, fleet, replica
from tests.unit.alerts.stories import book
from tui.view.condition import conditions_of


@pytest.fixture(autouse=True)
def _own_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def verdict(snapshot: FleetSnapshot) -> tuple[int, str]:
    found = judge(snapshot)
    return found.code, found.summary


def with_alerts(*alerts: Alert) -> FleetSnapshot:
    return fleet([replica("a"), replica("b")], alerts=alerts)


A, B = "http://a.example:8000", "http://b.example:8000"
SLOW = alert("TtftSlo", B, "warning", "TTFT p95 1.4 s, the SLO allows 1 s")


def test_a_good_fleet() -> None:
    assert verdict(with_alerts()) == (0, "OK 2 of 2: nothing to report")


def test_one_failed_look_is_told_and_counts_for_nothing() -> None:
    once: dict[str, Any] = {"failed_looks": 1, "reasons": ("connection refused once, just now",)}
    assert verdict(fleet([replica("a"), replica("b", **once)])) == (
        0,
        "OK 2 of 2: b ok, connection refused once, just now",
    )
    troubled = fleet([replica("a", **once), replica("b", **once)], alerts=(SLOW,))
    code, said = verdict(troubled)
    assert code == 1
    assert said.endswith("the SLO allows 1 s; a ok, connection refused once, just now")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"outliers": (Outlier("tpot_seconds.p95", 0.062, 0.024, 5),)},
            "b slower than its like: TPOT p95 62 ms, median of 5: 24 ms",
        ),
        (
            {"outliers": (Outlier("kv_usage_ratio", 0.9, 0.4, 5),)},
            "b unlike its like: KV 90 %, median of 5: 40 %",
        ),
        (
            {"changes": {"kv_usage_ratio": 0.97, "requests_waiting": 4.0}},
            "b KV 97 %: 4 requests wait at KV 97 %",
        ),
        ({"state": ReplicaState.LOADING, "reasons": ("Loading model",)}, "b loading: Loading model"),
        ({"state": ReplicaState.STALE, "reasons": ("HTTP 500",), "since": AT - 9}, "b stale 9 s: HTTP 500"),
        ({"events": (Event(AT - 5, "restarted"),)}, "b restarted"),
        ({"state": ReplicaState.IDLE}, ""),
        ({"state": ReplicaState.SLEEPING}, ""),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_what_the_screen_says_of_a_replica_is_said_and_counts_for_nothing(
    fields: dict[str, Any], said: str
) -> None:
    one = replica("b", **fields)
    condition = conditions_of(fleet([one]))[B]
    assert verdict(fleet([replica("a"), one])) == (0, f"OK 2 of 2: {said or 'nothing to report'}")
    assert condition.short in (said or condition.short)  # the word of the screen
    found = judge(fleet([replica("a"), one], alerts=(SLOW,)))
    assert (found.code, found.asides) == (1, ())  # an alert that counts says it all


def test_what_somebody_has_silenced_is_no_aside_either() -> None:
    slow = distribution(0.9, 1.2, count=400)
    one = replica("b", changes={"ttft_seconds": slow}, slo=Slo(0.5, 0.1, 0.95))
    assert verdict(fleet([one]))[1].startswith("OK 1 of 1: b TTFT")
    quiet = replace(SLOW, silenced_by="ana: drill")
    assert verdict(fleet([one], alerts=(quiet,))) == (0, "OK 1 of 1: nothing to report; 1 silenced")


@pytest.mark.parametrize(
    ("rule", "said"), [("Unauthorized", "unauthorized"), ("NoEngineMetrics", "no engine metrics")]
)
def test_a_state_that_says_nothing_without_its_reason_has_it(rule: str, said: str) -> None:
    one = alert(rule, A, "warning", "no API key: the file /k: No such file or directory, for 9 s")
    assert verdict(with_alerts(one))[1] == (
        f"WARNING 1 of 2: a {said}: no API key: the file /k: No such file or directory, for 9 s"
    )


def test_a_line_has_an_end_and_the_document_has_all() -> None:
    down = [down_replica(f"c{i}", seconds=72) for i in range(20)]
    slow = Outlier("tpot_seconds.p95", 0.062, 0.024, 5)
    found = judge(book()(fleet([*down, *(replica(f"a{i}", outliers=(slow,)) for i in range(9))])))
    assert (len(found.problems), len(found.asides)) == (20, 9)
    assert found.summary.startswith("CRITICAL 20 of 29: c0 down 72 s; ")
    assert " down 72 s; and 8 more; a0 slower than its like: " in found.summary
    assert found.summary.endswith("; and 5 more")


@pytest.mark.parametrize("state", ["pending", "firing"])
def test_a_silenced_replica_that_is_down_is_no_aside_from_its_first_failure_on(state: str) -> None:
    """It said `OK 2 of 2: c0 down 5 s`, and half a minute later nothing of it."""
    quiet = replace(
        alert("TargetDown", "http://c0.example:8000", "critical"), state=state, silenced_by="ana: drill"
    )
    snapshot = fleet([replica("a"), down_replica("c0", seconds=5)], alerts=(quiet,))
    assert verdict(snapshot) == (0, "OK 2 of 2: nothing to report; 1 silenced")


def test_what_is_silenced_is_told_by_its_number() -> None:
    quiet = replace(SLOW, silenced_by="ana: drill")
    assert verdict(with_alerts(quiet)) == (0, "OK 2 of 2: nothing to report; 1 silenced")
    other = replace(SLOW, target=A)
    assert verdict(with_alerts(quiet, other))[1].endswith("the SLO allows 1 s; 1 silenced")


def test_the_line_of_the_specification() -> None:
    snapshot = fleet(
        [
            down_replica("c0", seconds=72),
            replica("a7", ReplicaState.NO_PROGRESS, since=AT - 45),
            *(replica(f"a{i}") for i in range(6)),
        ]
    )
    good = replace(snapshot.fleet.goodput, offered_per_second=47.1, good_per_second=41.2)
    shown = book()(replace(snapshot, fleet=replace(snapshot.fleet, goodput=good)))
    assert verdict(shown) == (
        2,
        "CRITICAL 2 of 8: c0 down 72 s; a7 no progress 45 s | goodput 41.2 of 47.1 req/s",
    )


@pytest.mark.parametrize(
    ("alerts", "code"),
    [
        ((SLOW,), 1),
        ((SLOW, alert("TargetDown", A, "critical")), 2),
        ((alert("Mine", A, "info"),), 0),
        ((replace(SLOW, state="pending"),), 0),  # its hold is not over
        ((replace(SLOW, state="resolved"),), 0),
        ((replace(SLOW, inhibited_by="TargetDown"),), 0),
        ((replace(SLOW, silenced_by="x"),), 0),
        ((replace(SLOW, acknowledged_by="kim"),), 1),
        # these states count at once
        ((replace(alert("TargetDown", A, "critical"), state="pending"),), 2),
        ((replace(alert("Unauthorized", A, "warning"), state="pending"),), 1),
        ((replace(alert("NoEngineMetrics", A, "warning"), state="pending"),), 1),
        ((replace(alert("NoProgress", A, "critical"), state="pending"),), 0),
    ],
)
def test_what_counts(alerts: tuple[Alert, ...], code: int) -> None:
    assert verdict(with_alerts(*alerts))[0] == code


def test_what_is_not_known_is_unknown_and_hides_nothing() -> None:
    unseen = replica("c", ReplicaState.UNKNOWN, reasons=("connection refused once, no good page yet",))
    assert verdict(fleet([replica("a"), unseen])) == (
        3,
        "UNKNOWN 1 of 2: c unknown: connection refused once, no good page yet",
    )
    slow = alert("TtftSlo", A, "warning", "slow")
    assert verdict(fleet([replica("a"), unseen], alerts=[slow])) == (
        1,
        "WARNING 2 of 2: a TtftSlo: slow; c unknown: connection refused once, no good page yet",
    )


@pytest.mark.parametrize(("scraped_at", "code"), [(None, 3), (AT - 2, 0)])
def test_a_page_that_fails_since_the_first_look_is_not_ok(scraped_at: float | None, code: int) -> None:
    """ScrapeLate has a hold; until it is over, one that was read before is no news, one never read no OK."""
    stale = replace(
        replica("b", ReplicaState.STALE), scraped_at=scraped_at, reasons=("HTTP 500 at /metrics",)
    )
    found = verdict(fleet([replica("a"), stale]))
    assert found[0] == code
    assert (found[1] == "UNKNOWN 1 of 2: b stale: HTTP 500 at /metrics") is (code == 3)


def test_hostile_words_stay_on_one_line() -> None:
    assert "\x1b" not in verdict(with_alerts(replace(SLOW, summary="a\x1b[2J\nb")))[1]
    assert verdict(with_alerts(replace(SLOW, summary="a\nb")))[1] == "WARNING 1 of 2: b TtftSlo: a b"


def test_a_target_that_refuses_is_down_after_two_samples(capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    assert main(["check", f"127.0.0.1:{port}", "--interval", "0.1"]) == 2
    out = capsys.readouterr().out
    assert re.fullmatch(rf"CRITICAL 1 of 1: 127\.0\.0\.1:{port} down \d+ s\n", out), out
    assert main(["check", f"127.0.0.1:{port}", "--interval", "0.1", "--format", "json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["status"], document["code"]) == ("enginetop.check/1", "critical", 2)
    assert [alert["state"] for alert in document["alerts"]] == ["pending"]


@pytest.mark.parametrize("argv", [("--config", "no.toml"), ("--replay", "no.jsonl"), ("r1",)])
def test_where_nothing_can_be_looked_at_nothing_is_known(
    argv: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also a fleet that is well would be critical by the 2 of other commands."""
    monkeypatch.chdir(tmp_path)
    assert main(["check", *argv]) == 3
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)


def test_what_needs_a_hold_is_judged_over_the_time_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "c.toml"
    config.write_text('[[alerts]]\nrule = "TargetDown"\nfor_seconds = 1\n')
    given = ["check", f"127.0.0.1:{free_port()}", "--interval", "0.1", "--config", str(config)]
    assert main([*given, "--for", "1", "--format", "json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert [alert["state"] for alert in document["alerts"]] == ["firing"]


def test_a_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r.jsonl"
    page = {"target": "http://r1:8000", "path": "/metrics"}
    records = [{**page, "t": t, "body": "vllm:num_requests_running 0\n"} for t in (0, 5)]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    assert main(["check", "--replay", str(path)]) == 0
    assert capsys.readouterr().out == "OK 1 of 1: nothing to report\n"
    records += [{**page, "t": t, "status": 401} for t in (10, 15)]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    assert main(["check", "--replay", str(path)]) == 1
    out = capsys.readouterr().out
    assert out.startswith("WARNING 1 of 1: r1:8000 unauthorized: HTTP 401 at /metrics: needs an API key, ")
    assert out.endswith(", for 5 s\n")
