"""What the demo takes from its scenario."""

from __future__ import annotations

import pytest

from enginetop.cli.demo import for_demo
from enginetop.cli.settings import Settings
from enginetop.fleet.snapshot import Slo

FLAG = Slo(0.6, 0.05, 0.9, "flag")


@pytest.mark.parametrize(
    ("asked", "scenario", "shown"),
    [
        ((), Slo(), Slo()),
        ((), Slo(3.0, 0.025), Slo(3.0, 0.025, source="config")),
        ((), Slo(3.0, 0.025, source="config"), Slo(3.0, 0.025, source="config")),
        ((("*", FLAG),), Slo(3.0, 0.025), FLAG),
    ],
)
def test_whose_objective_it_is(asked: tuple[tuple[str, Slo], ...], scenario: Slo, shown: Slo) -> None:
    settings = Settings((), {}, 5.0, 2.0, 60.0, asked)
    assert for_demo(settings, scenario).slo_for("a1") == shown
