"""SIGKILL at every point where a controller stores, audits or asks, twice; then a start that goes through."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
OLD, NEW = 2048, 512


def _stories(tmp_path: Path, kind: str) -> list[dict[str, Any]]:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.support.crash_run", str(tmp_path), kind],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    return [json.loads(line) for line in ran.stdout.splitlines()]


@pytest.mark.parametrize(
    ("kind", "end", "states"),
    [
        ("gain", "DONE", "PLANNED PREFLIGHT APPROVED CANARY WARMUP OBSERVE PROMOTE VERIFY"),
        ("loss", "ROLLED_BACK", "PLANNED PREFLIGHT APPROVED CANARY WARMUP OBSERVE"),
        ("trickle", "HELD", "PLANNED PREFLIGHT APPROVED CANARY WARMUP OBSERVE"),
    ],
)
def test_killed_anywhere_the_next_start_ends_in_an_allowed_state(
    tmp_path: Path, kind: str, end: str, states: str
) -> None:
    stories = _stories(tmp_path, kind)
    assert len(stories) > 30
    assert {story["at_crash"] for story in stories} >= set(states.split())  # no transition was left out
    *killed, unharmed = stories
    assert (unharmed["died"], unharmed["state"]) == (False, end)
    for story in killed:
        assert story["died"], story
        assert story["audit"] == "", story
        assert story["audited"] == story["state"], story
        if story["state"] == "DONE":
            assert story["values"] == [[NEW, None]] * 3, story
        elif story["state"] is None:
            assert story["at_crash"] is None, story  # killed before anything was stored
            assert story["values"] == [[OLD, None]] * 3, story
        else:
            allowed = {"REFUSED", "ROLLED_BACK", "HELD"} if kind == "trickle" else {"REFUSED", "ROLLED_BACK"}
            assert story["state"] in allowed, story
            assert story["values"] == [[OLD, None]] * 3, story
