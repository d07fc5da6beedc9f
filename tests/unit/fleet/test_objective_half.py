"""Who misses a half of the objective: by counts, shares or percentiles, and screen and alert alike."""

from __future__ import annotations

from dataclasses import replace

import pytest

from enginetop.alerts.load_checks import slower_than_slo
from enginetop.fleet.objective_half import TPOT, TTFT, Half, is_missed
from enginetop.fleet.snapshot import NO_QUANTILE, Goodput, Quantile, Slo
from tests.tui.snapshots import AT, censored, distribution, exact, fleet, replica
from tui.view.condition import condition_of

SLO = Slo(3.0, 3.0, 0.95, "config")
INTERPOLATED = Quantile(4.4, 2.5, 5.0)
"""A p95 in a bucket that holds the bound: it may be on either side of it."""

WITHIN = Quantile(0.93, 0.90, 0.99)
"""The same bucket, as shares of requests within the bound."""

COUNTED = Goodput(exact=0.99, counted_for=(3.0, 3.0))
CASES = [
    # counts of single requests go before the buckets
    (COUNTED, WITHIN, INTERPOLATED, 0.95, False),
    # they say nothing of a half when too few are within both, nor when counted for another objective
    (replace(COUNTED, exact=0.80), WITHIN, INTERPOLATED, 0.95, True),
    (replace(COUNTED, counted_for=(9.0, 3.0)), WITHIN, INTERPOLATED, 0.95, True),
    (replace(COUNTED, counted_for=None), WITHIN, INTERPOLATED, 0.95, True),
    # shares of a histogram go before the percentile: exact, between bounds, or past the last bucket
    (Goodput(), exact(0.99), INTERPOLATED, 0.95, False),
    (Goodput(), exact(0.95), INTERPOLATED, 0.95, False),
    (Goodput(), exact(0.94), INTERPOLATED, 0.95, True),
    (Goodput(), exact(0.94), exact(2.9), 0.95, True),
    (Goodput(), WITHIN, INTERPOLATED, 0.95, True),
    (Goodput(), WITHIN, INTERPOLATED, 0.92, False),
    (Goodput(), Quantile(None, 0.96, 1.0, censored=True), censored(2.0), 0.95, False),
    (Goodput(), Quantile(None, 0.10, 1.0, censored=True), censored(2.0), 0.95, None),
    # nothing but a percentile
    (Goodput(), NO_QUANTILE, INTERPOLATED, 0.95, True),
    (Goodput(), NO_QUANTILE, exact(3.0), 0.95, False),
    (Goodput(), NO_QUANTILE, censored(3.0), 0.95, True),
    (Goodput(), NO_QUANTILE, censored(2.9), 0.95, None),
    (Goodput(), NO_QUANTILE, NO_QUANTILE, 0.95, None),
]


@pytest.mark.parametrize("half", [TTFT, TPOT], ids=lambda half: half.title)
@pytest.mark.parametrize(("counted", "share", "p95", "target", "missed"), CASES)
def test_what_is_known_best_decides_for_screen_and_alert(
    half: Half, counted: Goodput, share: Quantile, p95: Quantile, target: float, missed: bool | None
) -> None:
    goodput = replace(counted, ttft=share) if half is TTFT else replace(counted, tpot=share)
    # p90 is p50 here, far within the bound: with a target of 0.92 it would be the percentile that counts
    times = distribution(0.1, p95, count=40)
    one = replica("a", changes={half.signal: times}, slo=replace(SLO, target=target), goodput=goodput)
    assert is_missed(half, one, times, target) is missed
    assert (condition_of(one, AT).word == f"{half.title.lower()} slo") is (missed is True)
    found = slower_than_slo(half)(one, fleet([one]))
    assert (False if found is None else found.breached) is missed


def test_a_miss_is_told_by_its_percentile_or_by_the_share() -> None:
    slow = replica(
        "a", changes={"ttft_seconds": distribution(0.1, INTERPOLATED)}, slo=SLO, goodput=Goodput(ttft=WITHIN)
    )
    finding = slower_than_slo(TTFT)(slow, fleet([slow]))
    assert finding is not None
    assert (finding.value, finding.threshold) == (4.4, 3.0)
    assert finding.summary == "TTFT p95 4.4 s, the SLO allows 3 s"
    assert condition_of(slow, AT).because == "TTFT p95 4.4 s, the SLO allows 3.0 s"
    few = replica(
        "a", changes={"ttft_seconds": distribution(0.1, 2.9)}, slo=SLO, goodput=Goodput(ttft=exact(0.91))
    )
    finding = slower_than_slo(TTFT)(few, fleet([few]))
    assert finding is not None
    assert (finding.value, finding.threshold) == (None, 3.0)
    assert finding.summary == "TTFT in time for 91 %, the SLO wants 95 % within 3 s"
    assert condition_of(few, AT).short == "TTFT in time for 91 %"


def test_the_median_speaks_for_few_requests_by_the_same_judgement() -> None:
    few = distribution(3.5, INTERPOLATED, count=8)
    one = replica("a", changes={"ttft_seconds": few}, slo=SLO)
    assert condition_of(one, AT).short == "TTFT p50 3.5 s"
    quick = replace(one, goodput=Goodput(ttft=exact(0.75)))
    assert condition_of(quick, AT).word == "ok"  # three of four in time
    slow = replace(one, goodput=Goodput(ttft=exact(0.25)))
    assert condition_of(slow, AT).word == "ttft slo"
