"""Every engine says which of its series moves during a request: a long one must never be called a stall."""

from __future__ import annotations

from pathlib import Path

import pytest

from collectors.engines.base import EngineTable
from collectors.engines.detect import TABLES
from enginetop.fleet.model import EngineKind

DOCS = (Path(__file__).parents[3] / "docs" / "alerts.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.title)
def test_every_engine_declares_it_and_the_manual_says_the_same(table: EngineTable) -> None:
    assert table.live_progress
    assert table.live_progress.isprintable()
    who = "Routers and gateways" if table.kind is EngineKind.ROUTER else table.title
    assert f"| {who} | {table.live_progress} |" in DOCS
