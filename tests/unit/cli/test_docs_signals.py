"""`docs/signals.md` tells every signal of both catalogues, with the formula that the code follows."""

from __future__ import annotations

from pathlib import Path

import pytest

from enginetop.docs_signals import formula, page
from enginetop.fleet.beyond_catalogue import BEYOND
from enginetop.fleet.signals import SIGNALS

FILE = Path(__file__).parents[3] / "docs" / "signals.md"


def test_the_page_is_what_the_catalogues_say() -> None:
    assert FILE.read_text(encoding="utf-8") == page(), "run: make docs"


def rows() -> dict[str, list[str]]:
    lines = [line for line in page().splitlines() if line.startswith("| `")]
    return {
        cells[0].strip("`"): cells[1:]
        for cells in ([c.strip() for c in line[1:-1].split(" | ")] for line in lines)
    }


def test_every_signal_has_one_row_that_says_who_tells_it() -> None:
    told = rows()
    assert {*SIGNALS, *(row.name for row in BEYOND)} <= set(told)
    empty = {name for name, cells in told.items() if name in SIGNALS and not all(cells)}
    assert empty == set()
    assert {row.name for row in BEYOND if not told[row.name][-1]} == set()


@pytest.mark.parametrize(
    ("signal", "said"),
    [
        ("kv_usage_ratio", "gauge `kv_usage_ratio` of the last good page, maximum over ranks"),
        ("requests_waiting", "gauge `requests_waiting` of the last good page, sum over ranks"),
        ("preemptions", "increase of `preemptions`"),
        ("generation_tokens_per_second", "increase of `generation_tokens` / seconds"),
        ("prefix_hit_ratio", "increase of `prefix_hits` / increase of `prefix_queries`"),
        (
            "spec_accepted_length",
            (
                "1 + increase of `spec_accepted_tokens` / increase of `spec_drafts`; "
                "else the gauge `spec_accepted_length_now`"
            ),
        ),
        ("ttft_seconds", "increase of the buckets of `ttft_seconds`"),
    ],
)
def test_formulas(signal: str, said: str) -> None:
    assert formula(signal) == said


@pytest.mark.parametrize(
    ("signal", "engine"),
    [
        ("kv_capacity_tokens", "vLLM (○)"),
        ("queue_seconds", "vLLM (0.6.6)"),
        ("models_loaded", "llama.cpp in router mode"),
        ("power_watts", "GPUs of this machine or `--gpu-exporter`"),
    ],
)
def test_who_tells_it(signal: str, engine: str) -> None:
    assert engine in rows()[signal][-1]
