"""Shares of long thoughts from buckets, and their log over hours; figures worked out in the comments."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from enginetop.fleet.snapshot import ReplicaSnapshot
from tests.tui.snapshots import AT, distribution, no_distribution, replica
from tuners.pool_thoughts import Counted, PoolThoughts
from tuners.thought_log import ThoughtLog
from tuners.thoughts import Thoughts, together

INF = float("inf")
THOUGHTS = Thoughts({0.0: 10, 100.0: 60, 400.0: 84, 1600.0: 96, INF: 100})


def test_shares_at_bounds_are_exact() -> None:
    assert [THOUGHTS.share_above(bound) for bound in (0, 100, 400, 1600)] == pytest.approx(
        [0.90, 0.40, 0.16, 0.04]
    )
    assert THOUGHTS.share_above(1601) is None
    assert Thoughts({}).share_above(5) is None
    assert Thoughts({10.0: 0, INF: 0}).share_above(5) is None


def test_within_a_bucket_normal_scores_lie_on_a_line_over_the_logarithm() -> None:
    # from 100 to 400 it falls from .40 to .16, normal scores .253347 and .994458: half way of the logarithms,
    # at 200, it is .623902, above which lies .266346
    assert THOUGHTS.share_above(200) == pytest.approx(0.266346, abs=1e-6)
    # below the first bound there is no logarithm: a straight line, .90 at 0, .40 at 100
    assert THOUGHTS.share_above(50) == pytest.approx(0.65)


def test_of_a_bucket_that_nobody_leaves_the_greatest_share_is_told() -> None:
    # all may have been cut at 300, by whom is not told: half pass 200, and the p75 is 300 at most
    cut = Thoughts({100.0: 50, 300.0: 100, 900.0: 100, INF: 100})
    assert [cut.share_above(tokens) for tokens in (100, 200, 299, 300)] == [0.5, 0.5, 0.5, 0.0]
    assert (cut.quantile(0.75), cut.bounds_of(200)) == (300.0, (0.0, 0.5))
    assert cut.least_cap(most_truncated=0.4) == 512


def test_below_a_budget_in_force_buckets_are_whole() -> None:
    # a budget of 400 or 500 leaves 84 of 100 up to 400 or not more than 60 up to 100: one at 400 is in doubt
    assert THOUGHTS.below(500) == Thoughts({0.0: 10, 100.0: 60, 400.0: 84, INF: 100})
    assert THOUGHTS.below(400) == Thoughts({0.0: 10, 100.0: 60, INF: 100})
    assert (THOUGHTS.below(400).share_above(200), THOUGHTS.below(400).longest) == (None, 100.0)
    assert THOUGHTS.below(-1) is THOUGHTS.below(None) is THOUGHTS
    assert Thoughts({}).below(9) == Thoughts({})


def test_quantiles() -> None:
    assert THOUGHTS.quantile(0.6) == pytest.approx(100.0)
    assert THOUGHTS.quantile(1 - 0.266346) == pytest.approx(200.0, abs=1e-3)
    assert THOUGHTS.quantile(0.35) == pytest.approx(50.0)
    assert THOUGHTS.quantile(0.97) is None


def test_a_log_normal_is_read_better_than_from_even_buckets() -> None:
    # median 380, sigma .7: p95 = 380 exp(.7 x 1.6449) = 1202; the bucket reaches from 1024 to 1536
    def at_most(tokens: float) -> float:
        return 1e6 * 0.5 * math.erfc(-math.log(tokens / 380) / 0.7 / math.sqrt(2))

    found = Thoughts({bound: at_most(bound) for bound in (512.0, 1024.0, 1536.0, 2048.0)} | {INF: 1e6})
    assert found.quantile(0.95) == pytest.approx(1201.7, rel=1e-4)
    assert found.least_cap() == 1280


def test_what_a_budget_cuts() -> None:
    # seven requests, each alone in a narrow bucket: (200+400+800+1600+3200+4096+4096) / 7 = 2056, 43.3 % less
    lengths = (200, 400, 800, 1600, 3200, 6400, 12800)
    edges = {
        edge: float(place + side)
        for place, x in enumerate(lengths)
        for side, edge in enumerate((x - 1.0, x + 1.0))
    }
    thoughts = Thoughts(edges | {INF: 7.0})
    whole, cut = thoughts.powers()[0], thoughts.powers(4096)[0]
    assert whole == pytest.approx(3628.6, abs=0.05)
    assert cut == pytest.approx(2056.0)
    assert 1 - cut / whole == pytest.approx(0.433, abs=5e-4)
    assert thoughts.share_above(4096) == pytest.approx(2 / 7)


def test_the_least_cap_truncates_one_in_twenty() -> None:
    # 100 requests of 10, 20, ... 1000: five may be cut, the 95th has 950 -> 1024; ten: 900 -> 1024; 25: 750
    thoughts = Thoughts({10.0 * place: min(place, 100.0) for place in range(111)} | {INF: 100.0})
    assert [thoughts.least_cap(most_truncated=most) for most in (0.05, 0.10, 0.25)] == [1024, 1024, 768]


def test_the_least_cap_keeps_errors_in_hand() -> None:
    # normal scores .994458 at 400, 1.750686 at 1600. 1280 lies .839036 of the way: 1.628961 and 5.17 %, 1536
    # .970553: 1.728417 and 4.196 %, with one error in 100 requests, sqrt(.04196 x .95804 / 100), 2.0 more. At
    # 1600, where the buckets end: 4 % and 1.96.
    assert THOUGHTS.least_cap() == 1536
    assert THOUGHTS.least_cap(errors=1.0) is None
    assert THOUGHTS.least_cap(errors=1.0, most_truncated=0.07) == 1536
    assert Thoughts({}).least_cap() is None


@settings(max_examples=50, deadline=None)
@example([0, 18, 50, 0, 28], 1025.0)
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


def seen(at: float, *at_most: float, model: str = "m", tpot: float | None = None) -> ReplicaSnapshot:
    """A page `at` seconds after the first, with these totals up to 64, 1024 and all."""
    totals = dict(zip((f"reasoning_tokens.le.{b}" for b in ("64.0", "1024.0", "inf")), at_most, strict=True))
    times = no_distribution() if tpot is None else distribution(tpot, tpot)
    one = replica("b1", totals=totals, scraped_at=AT + at, changes={"tpot_seconds": times})
    return replace(one, model=model)


def test_the_log_counts_from_its_first_page() -> None:
    assert ThoughtLog().thoughts is None
    log = ThoughtLog()
    log.take(seen(0, 5, 50, 60), None)
    log.take(seen(30, 6, 70, 85), None)
    assert log.thoughts == Thoughts({64.0: 1, 1024.0: 20, INF: 25}, 30.0)
    log.take(seen(50, 6, 70, 86, model="m"), None)
    assert log.thoughts == Thoughts({64.0: 1, 1024.0: 20, INF: 26}, 50.0)


def test_thoughts_that_could_not_end_in_time_are_weighted_up() -> None:
    """At 10 ms a token those of 32, 256 and 1024 tokens (middles of their buckets, the last one's begin) take
    .32, 2.56 and 10.24 s: of 30 s they can begin in 29.68, 27.44 and 19.76. Of 1, 19 and 5 seen 1.010782,
    20.77259 and 7.591093 began, 29.37447 in all: shares of .0344102, .707165 and .258425.
    """
    log = ThoughtLog()
    log.take(seen(0, 5, 50, 60, tpot=0.01), None)
    log.take(seen(30, 6, 70, 85, tpot=0.01), None)
    assert log.thoughts is not None
    assert log.thoughts.count == pytest.approx(25.0)
    assert list(log.thoughts.at_most.values()) == pytest.approx([0.860255, 18.53938, 25.0], abs=1e-4)


def test_every_restart_loses_the_thoughts_of_the_moment() -> None:
    """Three lives of 10 s: of a thought of 2.56 s 7.44 s each, of one of 10.24 s nothing, which counts as a
    tenth. Of 10 and 1 seen 13.4409 and 10 began: 57.34 % up to 1024.
    """
    log = ThoughtLog()
    for second, at_most in ((0, 0), (10, 4), (11, 4), (21, 7), (22, 7), (32, 10)):
        life = AT + 11 * (second // 11)
        log.take(seen(second, 0, at_most, 1.1 * at_most, tpot=0.01), None, restarted_at=life)
    assert log.thoughts is not None
    assert log.thoughts.at_most[1024.0] / log.thoughts.count == pytest.approx(0.5734, abs=1e-4)


def test_a_log_that_goes_on_misses_nothing_of_what_began_before_it() -> None:
    """After half a day the oldest marks go, and the engine was seen to live before the rest of the log."""
    log = ThoughtLog()
    for minute in range(800):
        log.take(seen(60.0 * minute, minute, 10 * minute, 20 * minute, tpot=1.0), None)
    assert log.thoughts == Thoughts({64.0: 719, 1024.0: 7190, INF: 14_380}, 43_140.0)


def test_a_power_tail_is_told_no_less_than_it_is() -> None:
    # half of all that reach a length reach its 1.5-fold: above 1536 lies (1024 / 1536)^1.7095 = 1/2
    exponent = math.log(2.0) / math.log(1.5)
    bounds = (1024.0, 4096.0, 16384.0)
    found = Thoughts({bound: 1e6 * (1 - (1024 / bound) ** exponent / 4) for bound in bounds} | {INF: 1e6})
    for tokens in (1280.0, 2048.0, 3072.0, 5000.0, 8192.0, 12288.0):
        true = (1024 / tokens) ** exponent / 4
        assert true <= (found.share_above(tokens) or 0.0) < 1.2 * true


def test_the_share_beyond_a_budget_goes_on_from_below_it() -> None:
    # a log-normal of median 700 and sigma 1.3, cut at 6144: what passes 3072 and 4096 tells what would have
    # passed 6144: .5 erfc(ln(6144 / 700) / 1.3 / sqrt 2) = 4.737 %
    def at_most(tokens: float) -> float:
        return 1e6 * (1.0 - 0.5 * math.erfc(math.log(tokens / 700) / 1.3 / math.sqrt(2)))

    cut = Thoughts({bound: at_most(bound) for bound in (2048.0, 3072.0, 4096.0)} | {6144.0: 1e6, INF: 1e6})
    assert cut.share_beyond(6144) == pytest.approx(0.04737, abs=1e-5)
    assert cut.share_beyond(3000) is None
    assert Thoughts({}).share_beyond(100) is None


def test_replicas_count_together() -> None:
    # 100 requests in 60 s and 300 in 100 s: 400, on average in 90 s
    fast = Thoughts({100.0: 120, 400.0: 252, 1600.0: 300, INF: 300}, 100.0)
    slow = Thoughts({100.0: 60, 400.0: 84, 1600.0: 96, INF: 100}, 60.0)
    both = Thoughts({100.0: 180, 400.0: 336, 1600.0: 396, INF: 400}, 90.0)
    assert together([fast, slow]) == both
    assert together([Thoughts({}), Thoughts({100.0: 0, INF: 0})]) == Thoughts({})
    pool = PoolThoughts(
        [Counted("m", fast), Counted("m", slow), Counted("other", slow), Counted("m", Thoughts({INF: 9}))]
    )
    assert pool.of(Counted("m", slow)) == both
    assert pool.of(Counted("other", slow)) is slow
    assert pool.of(Counted("m", Thoughts({INF: 9}))) == Thoughts({INF: 9})
    assert pool.of(Counted("m", None)) is None


def test_half_a_day_is_kept() -> None:
    log = ThoughtLog()
    for minute in range(810):
        log.take(seen(60.0 * minute, minute, 10 * minute, 10 * minute), None)
    # marks every five minutes: the oldest of the last 720 minutes at minute 809 is that of minute 90
    assert log.thoughts == Thoughts({64.0: 719, 1024.0: 7190, INF: 7190}, 43_140.0)


def test_a_log_goes_on_when_the_clock_is_set_back() -> None:
    log = ThoughtLog()
    for at, ended in ((7200, 0), (7260, 10), (3600, 20), (3660, 30)):
        log.take(seen(at, 0, ended, ended, tpot=0.01), None)
    assert log.thoughts is not None
    assert (log.thoughts.count, log.thoughts.seconds) == (30.0, 60.0)


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
