"""`docs/engines.md` says what the mapping tables say, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from collectors.engines.detect import TABLES
from enginetop.docs_tables import page
from enginetop.fleet.changeable import CHANGEABLE
from enginetop.fleet.derive import MEASURES_OF
from enginetop.fleet.model import EngineKind
from enginetop.fleet.signals import KNOBS, MEASURES, SIGNALS

WRITTEN = Path(__file__).parents[3] / "docs" / "engines.md"


def rows(heading: str, column: str) -> dict[str, str]:
    """One column of the first table that follows a heading, by the first column."""
    lines = page().partition(f"## {heading}\n")[2].splitlines()
    table = [line for line in lines[: lines.index("", lines.index("") + 1)] if line.startswith("|")]
    head, _, *body = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table]
    at = head.index(column)
    return {cells[0]: cells[at] for cells in body}


def test_the_file_is_what_the_tables_say() -> None:
    assert WRITTEN.read_text(encoding="utf-8") == page(), "run `make docs`"


@pytest.mark.parametrize(
    ("engine", "signal", "mark"),
    [
        ("vLLM", "kv_usage_ratio", "●"),  # under two names
        ("vLLM", "queue_seconds", "0.6.6"),
        ("vLLM", "tpot_seconds", "0.11.0"),
        ("vLLM", "kv_capacity_tokens", "○"),  # blocks times their size
        ("SGLang", "tpot_seconds", "0.5.23"),
        ("SGLang", "iteration_tokens", "–"),
        ("llama.cpp", "ttft_seconds", "–"),
        ("llama.cpp", "generation_tokens_per_second", "○"),  # from the slots
        ("TGI", "preemptions", "–"),
    ],
)
def test_the_marks_of_signals(engine: str, signal: str, mark: str) -> None:
    assert rows("Signals of engines", engine)[f"`{signal}`"] == mark


def test_every_engine_and_gateway_has_a_section() -> None:
    headings = {line.removeprefix("## ") for line in page().splitlines() if line.startswith("## ")}
    assert {table.title for table in TABLES} <= headings


def test_what_is_never_asked_has_its_reason() -> None:
    written = page()
    for table in TABLES:
        for path, why in table.never:
            assert f"| `{path}` | {why} |" in written


def test_every_signal_of_a_page_is_made_of_measures() -> None:
    # two more follow from reasoning tokens and a setting
    of_machines = {name for name in SIGNALS if name.startswith(("power_", "energy_", "cost_"))}
    assert set(SIGNALS) - of_machines - {"reasoning_budget_hit_ratio", "reasoning_kv_tokens"} <= set(
        MEASURES_OF
    )
    assert {measure for measures in MEASURES_OF.values() for measure in measures} <= set(MEASURES)


def test_every_engine_says_how_each_knob_is_changed() -> None:
    assert set(CHANGEABLE) == set(EngineKind) - {EngineKind.ROUTER, EngineKind.UNKNOWN}
    for knobs in CHANGEABLE.values():
        assert tuple(knobs) == KNOBS
        assert {change.apply for change in knobs.values()} <= {"live", "restart", "per_request", "none"}
        assert all(change.how for change in knobs.values())
