"""What limits a replica: cases from the field, and shares of the window."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginetop.fleet.bound_by import UNKNOWN, WORDS, BoundShares, Load, bound_by, load_of
from enginetop.fleet.derive import signals
from enginetop.fleet.reading import ConfigValue
from enginetop.fleet.snapshot import Slo
from tests.support.history_pages import INF, Told, columns, histogram, two_ranks, value

# budget 2048, steps of 2010 tokens (98.1 %), 14 wait, KV .55, 60 of 256 run
BUDGET_BOUND = Load(
    60, 14, 0.55, most_running=256, step_tokens=2010, budget_tokens=2048, ttft_late=True, tpot_late=False
)
CALM = Load(
    60, 0, 0.55, most_running=256, step_tokens=300, budget_tokens=2048, ttft_late=False, tpot_late=False
)


@pytest.mark.parametrize(
    ("load", "word"),
    [
        (BUDGET_BOUND, "token_budget"),
        (replace(BUDGET_BOUND, preempted=True), "kv"),
        (replace(BUDGET_BOUND, running=20, kv_ratio=0.32), "token_budget"),  # prefill only: KV stays at 32 %
        (replace(BUDGET_BOUND, tpot_late=True), "capacity"),
        (replace(BUDGET_BOUND, kv_ratio=0.96), "kv"),
        (replace(BUDGET_BOUND, step_tokens=300), "queue"),  # low KV, few running, many pending, no limit hit
        (replace(BUDGET_BOUND, step_tokens=300, running=256), "sequences"),
        (replace(BUDGET_BOUND, step_tokens=300, most_running=None), "unknown"),
        (replace(BUDGET_BOUND, step_tokens=None), "unknown"),
        (replace(BUDGET_BOUND, step_tokens=None, running=256), "sequences"),
        (CALM, "none"),
        (replace(CALM, kv_ratio=0.97), "none"),  # a prefix cache that is kept is no pressure
        (replace(CALM, running=0), "none"),
        (replace(CALM, tpot_late=True), "decode"),
        (replace(CALM, tpot_late=True, step_tokens=2010), "token_budget"),
        (replace(CALM, ttft_late=True), "prefill"),
        (replace(CALM, waiting=None), "unknown"),
        (replace(CALM, running=None), "unknown"),
    ],
)
def test_the_word_of_a_page(load: Load, word: str) -> None:
    assert bound_by(load) == word


def test_limits_are_of_all_ranks_and_late_is_the_p95() -> None:
    shape = columns(
        value("requests_running", rank="0"),
        value("requests_running", rank="1"),
        value("requests_waiting", rank="0"),
        value("requests_waiting", rank="1"),
        *histogram("ttft_seconds", (0.5, 1.0, INF), rank="0"),
        ranks=two_ranks(),
    )
    told = Told(shape)
    told.page(0, 1, 2, 3, 4, *[0.0] * 5)
    told.page(10, 200, 100, 0, 5, 10, 90, 100, 60, 100)  # p95 is past 1 s
    window = told.history.window(60.0)
    assert window is not None
    config = {"max_num_seqs": ConfigValue(256, "x"), "max_num_batched_tokens": ConfigValue("None", "x")}
    found = load_of(signals(window), window, config, Slo(0.9, 0.1), preempted=False)
    assert (found.running, found.waiting, found.most_running, found.budget_tokens) == (300, 5, 512, None)
    assert (found.ttft_late, found.tpot_late) == (True, None)


class TestShares:
    def test_each_word_holds_since_the_page_before(self) -> None:
        shares = BoundShares(60.0)
        shares.add(100.0, "none")
        for at, word in ((110.0, "none"), (130.0, "kv"), (150.0, "none")):
            shares.add(at, word)
        assert shares.shares == {"kv": 0.4, "none": 0.6}  # 20 of 50 s
        assert list(shares.shares) == ["kv", "none"]

    def test_what_is_older_than_the_window_is_forgotten(self) -> None:
        shares = BoundShares(60.0)
        for at, word in ((0.0, "kv"), (50.0, "kv"), (100.0, "none"), (140.0, "queue")):
            shares.add(at, word)
        assert shares.shares == {"queue": 40 / 60, "none": 20 / 60}  # from 80 on

    def test_one_page_speaks_for_all_and_none_for_nothing(self) -> None:
        shares = BoundShares(60.0)
        assert shares.shares == UNKNOWN
        shares.add(5.0, "kv")
        assert shares.shares == {"kv": 1.0}

    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.tuples(st.floats(0, 500), st.sampled_from(WORDS)), min_size=1, max_size=40))
    def test_shares_add_up_to_one(self, pages: list[tuple[float, str]]) -> None:
        shares = BoundShares(60.0)
        for at, word in pages:
            shares.add(at, word)
            assert sum(shares.shares.values()) == pytest.approx(1.0)
            assert all(0 <= share <= 1 + 1e-9 for share in shares.shares.values())
