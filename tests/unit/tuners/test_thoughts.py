"""Shares of long thoughts from buckets, and their log over an hour; figures worked out in the comments."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginetop.fleet.snapshot import ReplicaSnapshot
from tests.tui.snapshots import AT, replica
from tuners.thought_log import ThoughtLog
from tuners.thoughts import Thoughts

INF = float("inf")
THOUGHTS = Thoughts({0.0: 10, 100.0: 60, 400.0: 84, 1600.0: 96, INF: 100})


def test_shares_at_bounds_are_exact() -> None:
    assert [THOUGHTS.share_above(bound) for bound in (0, 100, 400, 1600)] == pytest.approx(
        [0.90, 0.40, 0.16, 0.04]
    )
    assert THOUGHTS.share_above(1601) is None
    assert Thoughts({}).share_above(5) is None
    assert Thoughts({10.0: 0, INF: 0}).share_above(5) is None


def test_within_a_bucket_the_share_falls_as_a_power() -> None:
    # from 100 to 400 it falls from .40 to .16: half way of the logarithms, at 200, sqrt(.40 x .16) = .25298
    assert THOUGHTS.share_above(200) == pytest.approx(0.252982, abs=1e-6)
    # below the first bound there is no logarithm: a straight line, .90 at 0, .40 at 100
    assert THOUGHTS.share_above(50) == pytest.approx(0.65)
    # nor when nobody passes the upper bound
    assert Thoughts({100.0: 50, 300.0: 100}).share_above(200) == pytest.approx(0.25)


def test_quantiles() -> None:
    assert THOUGHTS.quantile(0.6) == pytest.approx(100.0)
    assert THOUGHTS.quantile(1 - 0.252982) == pytest.approx(200.0, abs=1e-3)
    assert THOUGHTS.quantile(0.35) == pytest.approx(50.0)
    assert THOUGHTS.quantile(0.97) is None


def test_a_log_normal_is_read_better_than_from_even_buckets() -> None:
    # median 380, sigma .7: p95 = 380 exp(.7 x 1.6449) = 1202; the bucket reaches from 1024 to 1536
    def at_most(tokens: float) -> float:
        return 1e6 * 0.5 * math.erfc(-math.log(tokens / 380) / 0.7 / math.sqrt(2))

    found = Thoughts({bound: at_most(bound) for bound in (512.0, 1024.0, 1536.0, 2048.0)} | {INF: 1e6})
    assert found.quantile(0.95) == pytest.approx(1202, rel=0.02)
    assert found.least_cap() == 1280


def test_the_least_cap_keeps_errors_in_hand() -> None:
    # .16 x .25 ^ (ln(1280 / 400) / ln 4) = .16 x 400 / 1280 = 5 %; one error in 100 requests: 7.2. 1536 =
    # 6 x 256 cuts 4.17 % and sqrt(.0417 x .9583 / 100) = 2.0. At 1600, where the buckets end: 4 % and 1.96.
    assert THOUGHTS.least_cap() == 1280
    assert THOUGHTS.least_cap(errors=1.0) is None
    assert THOUGHTS.least_cap(errors=1.0, most_truncated=0.07) == 1536
    assert Thoughts({}).least_cap() is None


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 50), min_size=2, max_size=8), st.floats(1, 60_000))
def test_shares_fall_and_quantiles_turn_them_round(counts: list[int], tokens: float) -> None:
    total, at_most = 0.0, {}
    for place, count in enumerate(counts):
        total += count
        at_most[64.0 * 4**place] = total
    thoughts = Thoughts(at_most | {INF: total})
    share, more = thoughts.share_above(tokens), thoughts.share_above(1.5 * tokens)
    if share is None:
        return
    assert 0.0 <= share <= 1.0
    assert more is None or more <= share + 1e-12
    back = thoughts.quantile(1.0 - share)
    if 0.0 < share < 1.0 and back is not None:
        assert thoughts.share_above(back) == pytest.approx(share, abs=1e-9)


def seen(at: float, *at_most: float, model: str = "m") -> ReplicaSnapshot:
    """A page `at` seconds after the first, with these totals up to 64, 1024 and all."""
    totals = dict(zip((f"reasoning_tokens.le.{b}" for b in ("64.0", "1024.0", "inf")), at_most, strict=True))
    return replace(replica("b1", totals=totals, scraped_at=AT + at), model=model)


def test_the_log_counts_from_its_first_page() -> None:
    assert ThoughtLog().thoughts is None
    log = ThoughtLog()
    log.take(seen(0, 5, 50, 60), None)
    log.take(seen(30, 6, 70, 85), None)
    assert log.thoughts == Thoughts({64.0: 1, 1024.0: 20, INF: 25}, 30.0)
    log.take(seen(50, 6, 70, 86, model="m"), None)
    assert log.thoughts == Thoughts({64.0: 1, 1024.0: 20, INF: 26}, 50.0)


def test_an_hour_is_kept() -> None:
    log = ThoughtLog()
    for minute in range(90):
        log.take(seen(60.0 * minute, minute, 10 * minute, 10 * minute), None)
    # marks every five minutes: the oldest of the last hour at minute 89 is that of minute 30
    assert log.thoughts == Thoughts({64.0: 59, 1024.0: 590, INF: 590}, 3540.0)


def counted(log: ThoughtLog) -> float:
    """Requests in the log."""
    return log.thoughts.count if log.thoughts is not None else 0.0


def test_a_lower_budget_takes_nothing_away_and_a_higher_one_does() -> None:
    # below the budget in force the share is the same as without; what a lower one cut was not seen whole
    log = ThoughtLog()
    log.take(seen(0, 0, 0, 0), -1)
    log.take(seen(60, 1, 10, 10), 4096)
    log.take(seen(120, 2, 20, 20), 4096)
    assert counted(log) == 20
    log.take(seen(180, 3, 30, 30), 8192)
    assert counted(log) == 0
    log.take(seen(240, 3, 35, 36), 8192)
    assert counted(log) == 6
    log.take(seen(300, 3, 35, 36), None)
    assert counted(log) == 0


def test_another_model_or_other_buckets_begin_anew() -> None:
    log = ThoughtLog()
    log.take(seen(0, 0, 0, 0), None)
    log.take(seen(60, 1, 10, 10), None)
    assert counted(log) == 10
    log.take(seen(120, 1, 12, 12, model="other"), None)
    assert counted(log) == 0
    log.take(seen(180, 1, 14, 14, model="other"), None)
    assert counted(log) == 2
    coarse = replica("b1", totals={"reasoning_tokens.le.inf": 20.0}, scraped_at=AT + 240)
    log.take(replace(coarse, model="other"), None)
    assert counted(log) == 0
