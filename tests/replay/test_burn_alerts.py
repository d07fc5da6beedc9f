"""A burn page through `watch --replay` and `snapshot --replay`: at the minute that was worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from enginetop.cli.main import main
from tests.support.burn_recordings import SLO, BurnStory, Outage, burns, clock

R1, R2 = "http://r1:8000", "http://r2:8000"

# 10 requests a page of 30 s and replica; 8 of r1's are bad from 1:10 to 1:40, so that 40 % of all are.
# The hour holds 2400 requests. 8 k > 0.144 x 2400 = 345.6: k = 44, 1:10:00 + 22 min
FIRES = clock(1, 32)
# m pages after the end 8 (10 - m) of 5 minutes' 200 are bad: 16 % at m = 6, 12 % at m = 7
RESOLVES = clock(1, 43, 30)


OUTAGES = {
    name: Outage(clock(1, 10), clock(1, 40), late=late, failed=failed)
    for name, (late, failed) in {"late": (8, 0), "failed": (0, 8), "both": (3, 5)}.items()
}


def until(seconds: float, outage: Outage, folder: Path) -> str:
    story = BurnStory(seconds, 30.0, 10, {R1: outage, R2: None})
    return str(story.write(folder / f"{seconds:.0f}.jsonl"))


@pytest.mark.parametrize(("kind", "times"), [("late", 1), ("failed", 1), ("both", 2)])
def test_it_pages_and_is_over_at_the_same_times_twice(
    kind: str, times: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = until(clock(2), OUTAGES[kind], tmp_path)
    printed = []
    for _ in range(times):
        assert main(["watch", "--replay", path, "--slo", SLO]) == 0
        printed.append(capfd.readouterr().out)
    assert printed[0] == printed[-1]
    assert burns(printed[0]) == [
        (FIRES, "critical", "1h", "firing"),
        (RESOLVES, "critical", "1h", "resolved"),
    ]


@pytest.mark.parametrize(
    ("kind", "seconds", "states"),
    [
        ("both", FIRES - 30, []),
        ("late", FIRES, ["firing"]),
        ("failed", FIRES, ["firing"]),
        ("both", FIRES, ["firing"]),
        ("both", RESOLVES - 30, ["firing"]),
        ("both", RESOLVES, ["resolved"]),
        ("both", RESOLVES + 30, []),
    ],
)
def test_a_snapshot_of_the_minute(
    kind: str, seconds: float, states: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["snapshot", "--replay", until(seconds, OUTAGES[kind], tmp_path), "--slo", SLO]) == 0
    found: dict[str, Any] = json.loads(capfd.readouterr().out)
    alerts = [alert for alert in found["alerts"] if alert["rule"] == "BudgetBurn"]
    assert [alert["state"] for alert in alerts] == states
    row = found["fleet"]["goodput"]["burn"][0]
    assert (row["long_seconds"], row["short_seconds"], row["threshold"]) == (3600, 300, 14.4)
    assert row["firing"] is (states == ["firing"])
