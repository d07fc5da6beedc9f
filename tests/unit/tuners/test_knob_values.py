"""How a knob can be set, as its sheet says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from enginetop.fleet.knobs import KnobRow, KnobSheet
from enginetop.fleet.model import EngineKind
from enginetop.fleet.snapshot import ReplicaSnapshot
from tuners.knob_values import knobs_of

REPLICA = cast("ReplicaSnapshot", SimpleNamespace(config={}, engine=EngineKind.VLLM))


@pytest.mark.parametrize(
    ("apply", "value", "way"),
    [
        ("live", 32, ("live", "knob_api")),
        ("live", 128, ("restart", "--max-num-seqs")),
        ("restart", 32, ("restart", "process")),
        ("restart", 128, ("restart", "process")),
    ],
)
def test_a_restart_path_is_not_called_live(apply: str, value: int, way: tuple[str, str]) -> None:
    row = KnobRow("max_num_seqs", 64, 64, 1, 64, "requests", 0, apply=apply)
    writer = "knob_api" if apply == "live" else "process"
    knobs = knobs_of(REPLICA, KnobSheet("vllm", "", "i", 1, 1, (row,), writer))
    assert knobs.sequences == 64
    assert knobs.way("max_num_seqs", value) == way
