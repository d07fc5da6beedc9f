"""Burn alerts over a day and over three and a half, replayed: every minute of them is worked out by hand.

A row is over its threshold when more than threshold x 1 % of the requests of both windows were bad. Windows
begin at the newest sample of their ring that is not after their time: samples stand every 15 s for the hour,
every 2 min for 6 h, every half hour for 24 h and 3 d.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from enginetop.cli.main import main
from tests.support.burn_recordings import SLO, BurnStory, Outage, Told, burns, clock

pytestmark = pytest.mark.verify

MOST_SECONDS = 60.0


def twice(path: Path, capfd: pytest.CaptureFixture[str]) -> Told:
    printed = []
    for _ in range(2):
        begun = time.process_time()
        assert main(["watch", "--replay", str(path), "--slo", SLO]) == 0
        took = time.process_time() - begun
        assert took < MOST_SECONDS
        printed.append(capfd.readouterr().out)
    assert printed[0] == printed[1]
    return burns(printed[0])


def test_a_day_of_two_replicas(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """10 requests a page and replica; all of r1's are late from 10:00 to 11:00: half of all are bad."""
    outage = Outage(clock(10), clock(11), late=10)
    story = BurnStory(clock(24), 15.0, 10, {"http://r1:8000": outage, "http://r2:8000": None})
    told = twice(story.write(tmp_path / "day.jsonl"), capfd)
    assert told == [
        # k pages into the outage 10 k of the hour's 4800 requests are bad: > 14.4 % is k > 69.12, so page 70
        (clock(10, 17, 30), "critical", "1h", "firing"),
        # 6 h hold 28 800 requests, and 20 more for each page that the window begins early: k mod 8 of them.
        # 10 k > 0.06 (28 800 + 20 (k mod 8)): 173 gives 1730 of 1734, 174 gives 1740 of 1735.2
        (clock(10, 43, 30), "critical", "6h", "firing"),
        # m pages after its end 20 - m of 20 pages of 5 min are bad: 5 leave 12.5 %, 6 left 15 %; m = 15
        (clock(11, 3, 45), "critical", "1h", "resolved"),
        # 120 - m of 120 pages of 30 min: 14 leave 5.83 %, 15 left 6.25 %; m = 106
        (clock(11, 26, 30), "critical", "6h", "resolved"),
        # 24 h and 3 d are not known before they have passed; at 24:00 2400 of 115 200 are bad: 2.1x of 3x
    ]


def test_three_days_and_a_half(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """100 requests a page, a page a minute; 37 of them end in an error from 73:00 to 77:00.

    k counts minutes since 73:00, m since 77:00.
    """
    outage = Outage(clock(73), clock(77), failed=37)
    story = BurnStory(clock(83), 60.0, 100, {"http://r1:8000": outage})
    told = twice(story.write(tmp_path / "days.jsonl"), capfd)
    assert told == [
        # 37 k > 0.144 x 6000 = 864: k = 24 (888)
        (clock(73, 24), "critical", "1h", "firing"),
        # 37 k > 0.06 x 100 (360 + k mod 2): k = 59 (2183 > 2166; 58: 2146 < 2160)
        (clock(73, 59), "critical", "6h", "firing"),
        # 37 k > 0.01 x 100 (4320 + k mod 30): k = 118 (4366 > 4348; 117: 4329 < 4347)
        (clock(74, 58), "warning", "3d", "firing"),
        # 37 k > 0.03 x 100 (1440 + k mod 30): k = 120 (4440 > 4320; 119: 4403 < 4407)
        (clock(75, 0), "warning", "24h", "firing"),
        # 5 min: 37 (5 - m) of 500: 14.8 % at m = 3, 7.4 % at m = 4
        (clock(77, 4), "critical", "1h", "resolved"),
        # 30 min: 37 (30 - m) of 3000: 6.17 % at m = 25, 4.93 % at m = 26
        (clock(77, 26), "critical", "6h", "resolved"),
        # 2 h: 37 (120 - m + m mod 2) of 100 (120 + m mod 2): 3.06 % at m = 111, 2.47 % at m = 112
        (clock(78, 52), "warning", "24h", "resolved"),
        # 6 h: 37 (360 - m + m mod 2) of 100 (360 + m mod 2): 1.02 % at m = 351, 0.82 % at m = 352
        (clock(82, 52), "warning", "3d", "resolved"),
    ]
