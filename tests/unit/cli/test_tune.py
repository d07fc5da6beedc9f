"""`enginetop tune`: what it prints, when it stops, and the plan it leaves."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from enginetop.cli import knob_paths, wiring
from enginetop.cli.main import main
from enginetop.cli.tune import suffices
from enginetop.cli.tune_report import report_lines
from enginetop.fleet.knobs import KnobRow, KnobSheet
from enginetop.fleet.model import EngineKind, Quality, ReplicaState
from enginetop.fleet.plan import parse_plan_text
from enginetop.fleet.snapshot import Advice, FleetSnapshot, ReplicaSnapshot
from tests.tui.changes import withheld
from tests.tui.snapshots import FakeSource, fleet, no_distribution, replica
from tests.unit.cli.test_live_advice import Client
from tui.view.cells import line_text
from tuners.advice import is_undecided
from tuners.control.knob_api import KnobReply, ReplyKind

LOWER = Advice(
    "max_num_batched_tokens",
    "lower",
    ("TPOT p95 61 ms breaks the 50 ms SLO; TTFT p95 250 ms has 58 % slack", "wrong if prompts pass 3.0k"),
    current=8192,
    proposed=6144,
    bound_by="token_budget",
    expected={
        "tpot_p95_seconds_from": 0.061,
        "tpot_p95_seconds_low": 0.046,
        "tpot_p95_seconds_high": 0.050,
        "ttft_p95_change_low_ratio": 0.04,
        "ttft_p95_change_high_ratio": 0.09,
    },
    confidence="high",
    apply="live",
    via="knob_api",
)
HOLD = Advice("max_num_batched_tokens", "hold", ("TPOT p95 40 ms is within the 50 ms SLO",), current=8192)
WITHHELD = Advice("max_num_batched_tokens", "withheld", ("7 busy windows",))


def shown(name: str, advice: Advice, **fields: Any) -> ReplicaSnapshot:
    return replica(name, advice=(advice, withheld("max_num_seqs")), **fields)


def sheet(value: int = 8192, low: int = 256) -> KnobSheet:
    row = KnobRow("max_num_batched_tokens", value, 8192, low, 8192, "tokens", 3)
    return KnobSheet("vllm", "0.32.0", "i1", 1, 1, (row,))


@pytest.fixture
def tune(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs the command on a fleet that stays as it is; `sheets` are the knobs by replica name."""

    def run(snapshot: FleetSnapshot, *argv: str, sheets: dict[str, KnobSheet] | None = None) -> int:
        source = FakeSource(snapshot)
        known = {f"http://{name}.example:8000": found for name, found in (sheets or {}).items()}
        monkeypatch.setattr(wiring, "live_engine", lambda *_: source)
        monkeypatch.setattr(
            knob_paths,
            "knob_clients",
            lambda *_: (
                lambda url: (
                    Client(KnobReply(ReplyKind.OK, sheet=known[url]), lambda: None) if url in known else None
                )
            ),
        )
        code = main(["tune", "b1.example:8000", "--observe", "0.05", *argv])
        assert source.started == source.stopped <= 1
        return code

    return run


def test_the_report_of_a_suggestion(tune: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert tune(fleet([shown("b1", LOWER), shown("b2", HOLD), shown("b3", WITHHELD)])) == 0
    assert capsys.readouterr().out.splitlines() == [
        "max_num_batched_tokens  8192 → 6144   b1, then its pool (2)   live, reversible   confidence high",
        "because   TPOT p95 61 ms breaks the 50 ms SLO; TTFT p95 250 ms has 58 % slack",
        "expect    TPOT p95 61 → 46–50 ms · TTFT p95 +4 to +9 %",
        "wrong if  prompts pass 3.0k",
        "though    alone they say b2 hold, b3 withheld: a plan reaches the pool once b1 is no worse",
        "",
        "hold     max_num_batched_tokens  TPOT p95 40 ms is within the 50 ms SLO  (b2)",
        "withheld max_num_batched_tokens  7 busy windows  (b3)",
        "withheld max_num_seqs  not built yet  (b1 b2 b3)",
    ]


def test_a_pool_is_told_once(tune: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    smaller = replace(LOWER, proposed=4096, confidence="medium")
    assert tune(fleet([shown("b1", smaller), shown("b2", LOWER)])) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if "confidence" in line] == [
        "max_num_batched_tokens  8192 → 6144   b2, then its pool (1)   live, reversible   confidence high"
    ]
    assert "also      b1 8192 → 4096 (medium)" in lines


def test_json_holds_every_row(tune: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert tune(fleet([shown("b1", LOWER)]), "--format", "json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "enginetop.advice/1"
    assert document["plan"] is None
    (only,) = document["replicas"]
    assert (only["name"], only["state"]) == ("b1", "ok")
    assert [(row["action"], row["from"], row["to"]) for row in only["advice"]] == [
        ("lower", 8192, 6144),
        ("withheld", None, None),
    ]


def test_the_plan_of_the_surest_suggestion(
    tune: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plan.json"
    less_sure = replace(LOWER, confidence="low")
    found = fleet([shown("b1", less_sure), shown("b2", LOWER), shown("b3", HOLD)])
    sheets = {"b1": sheet(), "b2": sheet(), "b3": sheet(4096)}
    assert tune(found, "--plan", str(path), "--format", "json", sheets=sheets) == 0
    plan = parse_plan_text(path.read_text(), "plan")
    # b3 stands at another value: it is no part of the plan
    assert [(change.target, change.before, change.after) for change in plan.changes] == [
        ("http://b2.example:8000", 8192, 6144),
        ("http://b1.example:8000", 8192, 6144),
    ]
    captured = capsys.readouterr()
    assert json.loads(captured.out)["plan"] == plan.id
    assert f"is in {path}: enginetop apply {path} b1.example:8000\n" in captured.err


def test_the_command_that_applies_a_plan_names_the_objective(
    tune: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, objective = tmp_path / "plan.json", "ttft=1.5,tpot=0.03,target=0.9"
    assert (
        tune(fleet([shown("b1", LOWER)]), "--plan", str(path), "--slo", objective, sheets={"b1": sheet()})
        == 0
    )
    assert f"enginetop apply {path} b1.example:8000 --slo {objective}\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("advice", "sheets", "words"),
    [
        (HOLD, {"b1": sheet()}, "nothing is suggested"),
        (LOWER, {}, "no path to its knobs"),
        (LOWER, {"b1": sheet(low=7000)}, "out of bounds"),
        (LOWER, {"b1": sheet(6144)}, "is 6144 already"),
    ],
)
def test_without_a_plan_nothing_is_written_and_the_code_says_so(
    tune: Callable[..., int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    advice: Advice,
    sheets: dict[str, KnobSheet],
    words: str,
) -> None:
    path = tmp_path / "plan.json"
    assert tune(fleet([shown("b1", advice)]), "--plan", str(path), sheets=sheets) == 3
    assert not path.exists()
    assert words in capsys.readouterr().err


def test_a_plan_that_cannot_be_written(
    tune: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is known before the watch."""
    for path, why in (
        (tmp_path / "no" / "plan.json", "No such file or directory"),
        (tmp_path, "Is a directory"),
        (tmp_path / ("n" * 256), "File name too long"),
        (Path("/dev/null/plan.json"), "Not a directory"),
    ):
        assert tune(fleet([shown("b1", LOWER)]), "--plan", str(path), sheets={"b1": sheet()}) == 2
        captured = capsys.readouterr()
        assert captured.err == f"enginetop: {path}: {why}; name a file that can be written with --plan\n"
        assert captured.out == ""


def test_a_disk_that_is_full_keeps_nobody_from_the_advice(
    tune: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert tune(fleet([shown("b1", LOWER)]), "--plan", "/dev/full", sheets={"b1": sheet()}) == 2
    captured = capsys.readouterr()
    assert "8192 → 6144" in captured.out
    assert "enginetop: /dev/full: No space left on device; name a file" in captured.err


def recording(path: Path) -> str:
    path.write_text(
        json.dumps(
            {
                "t": 1.0,
                "target": "http://r1:8000",
                "path": "/metrics",
                "body": "vllm:num_requests_running 1\n",
            }
        )
    )
    return str(path)


def test_a_recording_is_advised_on_at_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "--replay", recording(tmp_path / "r.jsonl")]) == 0
    assert "withheld max_num_batched_tokens" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--plan", "p.json"], "--plan needs live engines"),
        (["r1:8000"], "leave the TARGETs out"),
        (["--observe", "0"], "above 0"),
    ],
)
def test_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str], argv: list[str], words: str) -> None:
    command = ["tune", "--replay", recording(tmp_path / "r.jsonl"), *argv]
    try:
        code = main(command)
    except SystemExit as stop:
        code = int(str(stop.code))
    assert code == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("one", "undecided"),
    [
        (shown("b1", WITHHELD), True),
        (shown("b1", HOLD), False),
        (shown("b1", LOWER), False),
        (replica("b1"), False),  # no engine: no rows
        (
            shown(
                "b1",
                WITHHELD,
                signals={**replica("x").signals, "tpot_seconds": no_distribution(Quality.UNSUPPORTED)},
            ),
            False,
        ),
    ],
)
def test_when_more_watching_may_help(one: ReplicaSnapshot, undecided: bool) -> None:
    full = replace(one, signals={"iteration_tokens": no_distribution(), **one.signals})
    assert is_undecided(full) is undecided


@pytest.mark.parametrize(
    ("advice", "watched", "enough"),
    [
        ((LOWER, HOLD), 119.0, False),  # a window of 60 s, and 60 s in which a suggestion has to hold
        ((LOWER, HOLD), 120.0, True),
        ((LOWER, WITHHELD), 120.0, False),
        ((HOLD, HOLD), 120.0, False),  # what is calm now may not stay so
    ],
)
def test_when_the_evidence_suffices(advice: tuple[Advice, ...], watched: float, enough: bool) -> None:
    full = {**replica("x").signals, "iteration_tokens": no_distribution()}
    found = fleet([shown(f"b{i}", row, signals=full) for i, row in enumerate(advice)])
    assert suffices(found, watched, 60.0) is enough


def test_a_fleet_without_engines_is_said_to_be_none() -> None:
    gone = replica("b1", ReplicaState.DOWN, engine=EngineKind.UNKNOWN)
    assert [line_text(line) for line in report_lines(fleet([gone]))] == [
        "nothing to advise on: no engine answers"
    ]


def test_nothing_in_the_report_reaches_the_terminal_raw() -> None:
    hostile = replica("b1", advice=(replace(HOLD, because=("a\x1b[2Jb",)),))
    assert all(line_text(line).isprintable() for line in report_lines(fleet([hostile])))
