"""The report: exit codes, JSON, and lines that fit a screen."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from enginetop.doctor.facts import Missing, StageFacts, TargetFacts
from enginetop.doctor.finding import Finding, Level
from enginetop.doctor.report import Report, document, lines
from enginetop.doctor.target import target_findings
from enginetop.fleet.observation import FailureKind
from tests.unit.doctor.test_target import ENGINE, HEALTHY, NOW

HERE = (Finding("terminal", Level.OK, "120x40"), Finding("sinks", Level.INFO, "none"))


def report(*targets: TargetFacts, here: tuple[Finding, ...] = HERE) -> Report:
    return Report(NOW, here, tuple((facts, tuple(target_findings(facts, NOW))) for facts in targets))


@pytest.mark.parametrize(
    ("level", "code"), [(Level.OK, 0), (Level.INFO, 0), (Level.WARNING, 1), (Level.ERROR, 2)]
)
def test_the_exit_code_is_that_of_the_gravest_finding(level: Level, code: int) -> None:
    assert report(HEALTHY, here=(*HERE, Finding("x", level, "y"))).exit_code == code


def test_lines_of_a_healthy_target() -> None:
    assert lines(report(HEALTHY), 80) == [
        "enginetop doctor: nothing wrong; 1 target",
        "  terminal  ● 120x40",
        "  sinks     · none",
        "a1",
        "  reach     ● name 3 ms (10.0.0.1), connection <1 ms",
        "  page      ● /metrics 200 in 12 ms, 14 KiB, 2 other pages",
        "  engine    ● vLLM 0.32.0 · m · decode",
        "  signals   ● 2 of 3 signals are read, 1 wait for traffic",
    ]


def test_a_fix_stands_under_its_finding_and_long_words_wrap() -> None:
    trouble = Finding("config", Level.ERROR, "word " * 20 + "end", "do this")
    shown = lines(report(here=(trouble,)), 60)
    assert shown[0] == "enginetop doctor: 1 error; 0 targets"
    assert shown[1].startswith("  config    ✖ word word")
    assert shown[-1] == "              → do this"
    assert all(len(line) <= 60 for line in shown)
    assert " ".join(" ".join(shown[1:-1]).split()).endswith("word end")


def test_many_targets_take_a_line_each_and_hide_no_trouble() -> None:
    targets = [replace(HEALTHY, name=f"r{i}") for i in range(5)]
    targets[3] = replace(targets[3], skew_seconds=60.0)
    noted = replace(ENGINE, missing=(Missing("queue_seconds", "too old"),))
    targets[4] = replace(targets[4], engine=noted)
    shown = lines(report(*targets), 80)
    assert shown[0] == "enginetop doctor: 1 warning; 5 targets"
    healthy = "● vLLM 0.32.0 · m · decode, 16 ms, 14 KiB"
    assert [line for line in shown if healthy in line] == [f"r{i}  {healthy}" for i in range(5)]
    assert "60.0 s behind" in shown[shown.index(f"r3  {healthy}") + 1]
    assert not any("too old" in line for line in shown)
    assert shown[-1] == "1 note on targets left out; --format json has them"


def test_one_of_many_that_is_away() -> None:
    problem = StageFacts("connection", 0.1, problem="connection refused", kind=FailureKind.REFUSED)
    away = TargetFacts("r9", "http://r9", 2.0, stages=(problem,))
    shown = lines(report(HEALTHY, HEALTHY, away), 80)
    at = shown.index("r9  ✖ nothing is read of it")
    assert shown[at + 1] == "  reach     ✖ connection refused"
    assert shown[at + 2].startswith("              → start the server")


def test_the_document() -> None:
    engine = replace(ENGINE, missing=(Missing("queue_seconds", "too old", "a newer one"),))
    told = json.loads(json.dumps(document(report(replace(HEALTHY, engine=engine))), allow_nan=False))
    assert (told["schema"], told["status"], told["code"]) == ("enginetop.doctor/1", "ok", 0)
    assert told["counts"] == {"ok": 5, "info": 2, "warning": 0, "error": 0}
    assert told["findings"][0] == {
        "area": "terminal",
        "target": None,
        "level": "ok",
        "what": "120x40",
        "fix": "",
    }
    (target,) = told["targets"]
    assert (target["target"], target["name"], target["failure"]) == ("http://a1:8000", "a1", None)
    assert [page["status"] for page in target["pages"]] == [404, 200, 200]
    assert target["engine"]["missing"] == [
        {"signal": "queue_seconds", "reason": "too old", "enable": "a newer one"}
    ]
    assert target["engine"]["version"] == "0.32.0"


def test_the_document_of_a_target_that_is_away() -> None:
    (target,) = document(report(TargetFacts("a", "http://a", 2.0)))["targets"]
    assert target["engine"] is None
    assert target["pages"] == []
