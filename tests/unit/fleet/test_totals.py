"""Running totals: what a block between two instants is cut from."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from enginetop.fleet import history
from enginetop.fleet.totals import TOTALS, bucket_totals
from tests.support.history_pages import INF, NAN, Told, columns, histogram, two_ranks, value


def totals(told: Told) -> Mapping[str, float]:
    return told.history.totals


def test_nothing_has_happened_at_first_sight() -> None:
    told = Told(columns(value("requests_judged"), value("requests_running")))
    assert totals(told) == {}
    told.page(0, 70, 3)
    assert totals(told) == {"requests_judged": 0.0}
    told.page(2, 75, 3)
    assert totals(told) == {"requests_judged": 5.0}


def test_ranks_and_labels_are_added_up() -> None:
    told = Told(
        columns(
            value("requests_judged", "ok0", "0"),
            value("requests_judged", "abort0", "0"),
            value("requests_judged", "ok1", "1"),
            *histogram("iteration_tokens", (8.0, INF), "0"),
            *histogram("iteration_tokens", (8.0, INF), "1"),
            ranks=two_ranks(),
        )
    )
    told.page(0, 1, 1, 1, *(0, 0, 0.0, 0), *(5, 5, 20.0, 5))
    told.page(2, 4, 2, 1, *(1, 3, 90.0, 3), *(5, 6, 40.0, 6))
    # 3 + 1 + 0 requests; 3 + 1 steps; 90 + 20 tokens
    assert totals(told) == {
        "requests_judged": 4.0,
        "iteration_tokens.count": 4.0,
        "iteration_tokens.sum": 110.0,
    }


def test_buckets_of_thoughts_are_kept_by_bound() -> None:
    told = Told(
        columns(
            *histogram("reasoning_tokens", (1024.0, 131072.0, INF), "0"),
            *histogram("reasoning_tokens", (1024.0, 131072.0, INF), "1"),
            *histogram("ttft_seconds", (0.1, INF), "0"),
            ranks=two_ranks(),
        )
    )
    told.page(0, *(1, 2, 3, 4000.0, 3), *(0, 0, 0, 0.0, 0), *(1, 2, 0.3, 2))
    told.page(2, *(4, 9, 11, 9000.0, 11), *(2, 3, 3, 2000.0, 3), *(5, 7, 0.9, 7))
    # rank 0 gained 3, 7 and 8, rank 1 gained 2, 3 and 3; other histograms keep no buckets
    found = bucket_totals(totals(told), "reasoning_tokens")
    assert found == {1024.0: 5.0, 131072.0: 10.0, INF: 11.0}
    assert list(found) == [1024.0, 131072.0, INF]
    assert bucket_totals(totals(told), "ttft_seconds") == {}


def test_a_restart_takes_nothing_away() -> None:
    told = Told(columns(value("requests_judged")))
    told.page(0, 100, token=1.0)
    told.page(2, 130, token=1.0)
    told.page(4, 7, token=2.0)
    told.page(6, 9, token=2.0)
    assert totals(told) == {"requests_judged": 39.0}  # 30 + 7 + 2


def test_a_series_that_comes_late_starts_from_zero_and_one_that_is_gone_keeps_its_total() -> None:
    told = Told(columns(value("requests_judged", "ok")))
    told.page(0, 10)
    both = columns(value("requests_judged", "ok"), value("requests_judged", "error"))
    told.page(2, 11, 2, shape=both)
    assert totals(told) == {"requests_judged": 3.0}
    told.page(4, 5, shape=columns(value("requests_running")))
    assert totals(told) == {"requests_judged": 3.0}


def test_totals_outlive_the_forgetting_of_series() -> None:
    told = Told(columns(value("requests_judged", "ok")))
    told.page(0, 10)
    told.page(2, 15)
    fewest = history._FEWEST_SLOTS
    many = columns(*(value("requests_judged", f"label {i}") for i in range(fewest + 1)))
    told.page(4, *[1.0] * (fewest + 1), shape=many)
    few = columns(value("requests_judged", "ok"))
    told.page(6, 20, shape=few)  # more slots than eight times its lines: all but its own are forgotten
    assert totals(told) == {"requests_judged": 5.0 + (fewest + 1) + 5.0}
    told.page(8, 26, shape=few)
    assert totals(told) == {"requests_judged": 5.0 + (fewest + 1) + 5.0 + 6.0}


def test_names_are_measures_or_parts_of_one() -> None:
    assert TOTALS.keys() >= {
        *("requests_judged", "requests_within_slo", "requests_finished", "requests_aborted"),
        *("requests_errored", "preemptions", "generation_tokens", "prompt_tokens_processed"),
        *("iteration_tokens.count", "iteration_tokens.sum"),
    }


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.one_of(st.integers(0, 50).map(float), st.just(NAN)),
            st.one_of(st.integers(0, 50).map(float), st.just(NAN)),
            st.sampled_from([None, 1.0, 2.0]),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_they_never_fall_whatever_the_pages_hold(pages: list[tuple[float, float, float | None]]) -> None:
    told = Told(columns(value("requests_judged"), *histogram("iteration_tokens", (), parts="sum count")))
    before: dict[str, float] = {}
    for at, (requests, steps, token) in enumerate(pages):
        told.page(2.0 * at, requests, steps * 9.0, steps, token=token)
        now = dict(totals(told))
        assert all(now[name] >= total for name, total in before.items())
        assert before.keys() <= now.keys()
        before = now


def test_a_sum_that_falls_takes_nothing_away() -> None:
    told = Told(columns(*histogram("iteration_tokens", (), parts="sum count")))
    told.page(0, 100.0, 1)
    told.page(2, 400.0, 2)
    told.page(4, 50.0, 3)  # no reset: the count rises
    assert totals(told) == {"iteration_tokens.sum": 300.0, "iteration_tokens.count": 2.0}
