"""Percentiles lie in their buckets and joint bounds hold the exact share, in every window of real pages.

The other scenarios, for longer, are under `make verify`.
"""

from __future__ import annotations

import pytest

from enginetop.simulator.builtin import scenario_named
from tests.support.known_truth import KEPT_AS, check_scenario


@pytest.mark.parametrize("name", ["steady", "kv-pressure", "burst", "budget-too-large"])
def test_every_window_tells_the_truth(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = check_scenario(scenario_named(name), 2, 3, 20, monkeypatch)
    assert set(compared) == {*KEPT_AS, "joint"}
    assert min(compared.values()) > 25
