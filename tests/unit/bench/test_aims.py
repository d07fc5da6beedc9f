"""The table at the end of `make bench`, from figures written down by hand."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from bench.__main__ import PARTS
from bench.aims import AIMS, Found, summary

ROOT = Path(__file__).parents[3]
FOUND: Found = {
    "startup": [{"help_cpu_seconds": 0.12}],
    "scale": [
        {"replicas": 200, "cores": 0.2, "rss_mb": 119.0},
        {"replicas": 1000, "cores": 0.55, "rss_mb": 410.0, "achieved_ratio": 0.98},
    ],
    "parse": [{"steady_ratio": 95.0}],
    "peers": [
        {
            "replicas": 8,
            "enginetop": {"cpu_ms_per_scrape": 4.0},
            "vllmstat": {"cpu_ms_per_scrape": 14.0},
            "vllm-htop": {"cpu_ms_per_scrape": None},
        }
    ],
}


def lines(found: Found) -> dict[str, list[str]]:
    """The figures of each line, by what it is about."""
    return {line[:52].strip(): line[52:].split() for line in summary(found).splitlines() if line}


def test_ours_stand_beside_their_aims() -> None:
    told = lines(FOUND)
    assert told["--help, CPU s"] == ["0.12", "<=", "0.1", "missed"]
    assert told["1000 replicas at 1 Hz, cores"] == ["0.55", "<=", "0.6"]
    assert told["1000 replicas at 1 Hz, MB"] == ["410", "<=", "400", "missed"]
    assert told["1000 replicas at 1 Hz, share of the scrapes"] == ["0.98", ">=", "0.99", "missed"]
    assert told["200 replicas at 1 Hz, MB"] == ["119", "<=", "120"]
    assert told["200 replicas at 1 Hz, cores"] == ["0.2"]
    assert "8 idle replicas, cores" not in told


def test_others_stand_beside_ours() -> None:
    told = lines(FOUND)
    assert told["the next page of a target, prometheus_client takes"] == ["1", "95x", "95"]
    assert told["8 replicas, CPU ms a scrape, vllmstat"] == ["4", "14", "3.5"]
    assert "8 replicas, CPU ms a scrape, vllm-htop" not in told


def test_nothing_found_is_a_table_without_rows() -> None:
    assert len(summary({}).splitlines()) == 3


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.title)
def test_every_part_is_a_bench(part: object) -> None:
    words = part.words.split()  # type: ignore[attr-defined]
    assert hasattr(importlib.import_module(f"bench.{words[0]}"), "main")


def test_every_aim_is_of_a_part_and_the_whole_takes_a_quarter_of_an_hour() -> None:
    assert {aim.title for aim in AIMS} <= {part.title for part in PARTS}
    assert sum(part.seconds for part in PARTS) <= 16 * 60
