"""`enginetop tune --what-if`: what it takes, and what it prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from enginetop.cli.argument_groups import knob_values
from enginetop.cli.main import main
from enginetop.cli.what_if import answer_lines, answers
from enginetop.fleet.snapshot import Outlook
from tests.tui.snapshots import fleet, replica
from tests.unit.cli.test_tune import recording
from tui.view.cells import line_text

LESS = Outlook(
    "max_num_batched_tokens",
    4096,
    "predicted",
    ("a full step takes 37 ms, now 62 ms",),
    8192,
    {"tpot_p95_seconds_from": 0.061, "tpot_p95_seconds_low": 0.036, "tpot_p95_seconds_high": 0.038},
    ("step time 11.8 ms + 6.1 µs/token", "attention over long contexts is not in the fit"),
)


def outlook(knob: str, value: int) -> Outlook:
    return LESS if value == LESS.value else Outlook(knob, value, "withheld", ("7 busy windows\x1b[2J",), 8192)


def test_the_lines_of_an_answer() -> None:
    asked = [knob_values("max_num_batched_tokens=4096,512")]
    found = answers(fleet([replica("b1", what_if=outlook), replica("router")]), asked)
    assert [line_text(line) for line in answer_lines(found)] == [
        "what if max_num_batched_tokens  8192 → 4096   b1",
        "because   a full step takes 37 ms, now 62 ms",
        "predicted TPOT p95 61 → 36–38 ms",
        "limits    step time 11.8 ms + 6.1 µs/token",
        "          attention over long contexts is not in the fit",
        "",
        "what if max_num_batched_tokens  8192 → 512   b1",
        "withheld  7 busy windows?[2J",
        "",
    ]
    assert [line_text(line) for line in answer_lines([])] == ["nothing to tell: no engine answers"]


def test_json_of_a_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["tune", "--replay", recording(tmp_path / "r.jsonl"), "--format", "json"]
    assert main(command) == 0
    assert "what_if" not in json.loads(capsys.readouterr().out)
    assert main([*command, "--what-if", "max_num_seqs=32,64", "--what-if", "thinking_token_budget=-1"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "enginetop.advice/1"
    told = [(row["knob"], row["to"]) for row in document["what_if"]]
    names = len({row["name"] for row in document["what_if"]})
    asked = [("max_num_seqs", 32), ("max_num_seqs", 64), ("thinking_token_budget", -1)]
    assert told == [pair for pair in asked for _ in range(names)]
    for row in document["what_if"]:
        assert set(row) == {
            "target",
            "name",
            "knob",
            "from",
            "to",
            "action",
            "because",
            "expected",
            "limits",
        }
        assert row["action"] == "withheld"
        assert row["because"]


@pytest.mark.parametrize(
    "text", ["max_num_seqs", "seqs=3", "max_num_seqs=", "max_num_seqs=1.5", "=3", "\x1b=3"]
)
def test_what_is_no_knob_and_value(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["tune", "--replay", recording(tmp_path / "r.jsonl"), f"--what-if={text}"])
    assert stop.value.code == 2
    told = capsys.readouterr().err
    assert "\x1b" not in told
    assert "max_num_seqs" in told
