"""Replicas that stand out from their like, and those that never may."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginetop.fleet.document import replica_document
from enginetop.fleet.model import Quality, ReplicaState, Role
from enginetop.fleet.outliers import COMPARED, OutlierBoard
from enginetop.fleet.snapshot import Distribution, Outlier, Quantile, ReplicaSnapshot
from tests.tui.snapshots import distribution, replica, scalar


def marked(replicas: Sequence[ReplicaSnapshot]) -> dict[str, list[tuple[str, float, float, int]]]:
    return {
        one.target.name: [(o.signal, o.value, o.median, o.replicas) for o in one.outliers]
        for one in OutlierBoard().marked(replicas)
        if one.outliers
    }


def with_kv(*values: float, **fields: Any) -> list[ReplicaSnapshot]:
    return [replica(f"a{n}", changes={"kv_usage_ratio": kv}, **fields) for n, kv in enumerate(values)]


def p95(value: float, low: float, high: float, count: float = 100.0) -> Distribution:
    quantiles = {"p95": Quantile(value, low, high)}
    return Distribution(count, None, Quantile(), quantiles, "seconds", Quality.OK)


def test_a_fuller_and_an_emptier_cache_by_hand() -> None:
    # median of .2 .5 .5 .55 .55 .9 is .525, deviations .025 .025 .025 .025 .325 .375: scatter .037, limit .25
    assert marked(with_kv(0.5, 0.5, 0.55, 0.55, 0.9, 0.2)) == {
        "a4": [("kv_usage_ratio", 0.9, 0.525, 6)],
        "a5": [("kv_usage_ratio", 0.2, 0.525, 6)],
    }


def test_a_fleet_that_scatters_has_no_outlier() -> None:
    # median .5, deviations 0 .1 .1 .2 .2 .4: scatter 1.4826 x .15, times 3.5 is .78
    assert marked(with_kv(0.5, 0.4, 0.6, 0.3, 0.7, 0.9)) == {}


def test_three_are_too_few_and_so_are_four_of_several_pools() -> None:
    assert marked(with_kv(0.1, 0.1, 0.9)) == {}
    assert marked([*with_kv(0.1, 0.1), *with_kv(0.1, 0.9, role=Role.PREFILL)]) == {}
    assert marked([*with_kv(0.1, 0.1), *with_kv(0.1, 0.9, model="another")]) == {}
    assert set(marked(with_kv(0.1, 0.1, 0.1, 0.9))) == {"a3"}


@pytest.mark.parametrize("state", [ReplicaState.DOWN, ReplicaState.STALE, ReplicaState.SLEEPING])
def test_who_does_not_serve_is_not_compared(state: ReplicaState) -> None:
    assert marked([*with_kv(0.1, 0.1, 0.1), *with_kv(0.9, state=state)]) == {}


def test_what_is_not_known_or_not_fresh_is_not_compared() -> None:
    others = with_kv(0.1, 0.1, 0.1)
    for kv in (scalar(None, Quality.UNSUPPORTED), scalar(0.9, Quality.SUSPECT)):
        assert marked([*others, replica("x", changes={"kv_usage_ratio": kv})]) == {}


@pytest.mark.parametrize(("exact", "found"), [(4, set()), (3, set()), (0, {"x"})])
def test_an_estimate_is_held_against_estimates_alone(exact: int, found: set[str]) -> None:
    """A rate over an outage is none of now: who is just back does not generate a fortieth of its like."""

    def generating(name: str, tokens: float, quality: Quality) -> ReplicaSnapshot:
        return replica(name, changes={"generation_tokens_per_second": scalar(tokens, quality)})

    others = [
        generating(f"a{n}", 450.0, Quality.OK if n < exact else Quality.ESTIMATED) for n in range(exact or 4)
    ]
    assert set(marked([*others, generating("x", 12.0, Quality.ESTIMATED)])) == found


def test_only_the_bad_side_of_a_latency_stands_out() -> None:
    def fleet(last: float) -> list[ReplicaSnapshot]:
        times = (0.2, 0.2, 0.2, 0.2, last)
        return [
            replica(f"a{n}", changes={"ttft_seconds": distribution(0.1, t, count=100)})
            for n, t in enumerate(times)
        ]

    assert marked(fleet(0.9)) == {"a4": [("ttft_seconds.p95", 0.9, 0.2, 5)]}
    assert marked(fleet(0.01)) == {}
    assert marked(fleet(0.29)) == {}  # half as much again, and less than a tenth of a second
    slow = [
        replica(f"a{n}", changes={"generation_tokens_per_second": t})
        for n, t in enumerate((900, 900, 900, 200))
    ]
    assert marked(slow) == {"a3": [("generation_tokens_per_second", 200, 900, 4)]}
    fast = [
        replica(f"a{n}", changes={"generation_tokens_per_second": t})
        for n, t in enumerate((900, 900, 900, 2000))
    ]
    assert marked(fast) == {}


def test_a_percentile_within_the_bucket_of_the_others_may_be_theirs() -> None:
    def fleet(*told: Distribution) -> list[ReplicaSnapshot]:
        return [replica(f"a{n}", changes={"ttft_seconds": one}) for n, one in enumerate(told)]

    usual = [p95(1.1, 1.0, 2.5)] * 4
    assert marked(fleet(*usual, p95(2.4, 1.0, 2.5))) == {}
    assert marked(fleet(*usual, p95(2.6, 2.5, 5.0))) == {"a4": [("ttft_seconds.p95", 2.6, 1.1, 5)]}
    assert marked(fleet(*usual, p95(2.6, 2.5, 5.0, count=19))) == {}
    past = Distribution(
        100.0, None, Quantile(), {"p95": Quantile(None, 10.0, None, censored=True)}, "seconds", Quality.OK
    )
    assert marked(fleet(*usual, past)) == {"a4": [("ttft_seconds.p95", 10.0, 1.1, 5)]}


def test_what_did_not_change_is_the_same_object() -> None:
    board, fleet = OutlierBoard(), with_kv(0.1, 0.1, 0.1, 0.9)
    first, again = board.marked(fleet), board.marked(fleet)
    assert all(one is other for one, other in zip(first, again, strict=True))
    assert first[0] is fleet[0]
    gone = board.marked([*fleet[:3], *with_kv(0.1)])
    assert not any(one.outliers for one in gone)


def test_in_the_document() -> None:
    *_, odd = OutlierBoard().marked(with_kv(0.25, 0.25, 0.25, 0.75))
    assert odd.outliers == (Outlier("kv_usage_ratio", 0.75, 0.25, 4),)
    assert replica_document(odd)["outliers"] == [
        {"signal": "kv_usage_ratio", "value": 0.75, "median": 0.25, "replicas": 4}
    ]
    assert replica_document(with_kv(0.5)[0])["outliers"] == []


figures = st.fixed_dictionaries(
    {
        "kv_usage_ratio": st.floats(0, 1),
        "generation_tokens_per_second": st.floats(0, 5000),
        "preemptions_per_second": st.floats(0, 5),
        "spec_acceptance_ratio": st.floats(0, 1),
    }
)


@settings(max_examples=50, deadline=None)
@given(st.lists(figures, min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_order_does_not_matter(told: list[dict[str, float]], chance: random.Random) -> None:
    fleet = [replica(f"a{n}", changes=dict(one)) for n, one in enumerate(told)]
    shuffled = list(fleet)
    chance.shuffle(shuffled)
    assert marked(fleet) == marked(shuffled)
    for compared in COMPARED:  # more than half of them are never odd
        odd = [one for one in marked(fleet).values() if any(name == compared.name for name, *_ in one)]
        assert len(odd) <= len(fleet) // 2


@settings(max_examples=60, deadline=None)
@given(
    figures,
    st.floats(0.01, 20),
    st.lists(st.tuples(*[st.floats(0.9, 1.1)] * 6), min_size=4, max_size=16),
)
def test_scatter_of_a_tenth_is_no_outlier(
    usual: dict[str, float], seconds: float, scatter: list[tuple[float, ...]]
) -> None:
    fleet = []
    for n, factors in enumerate(scatter):
        changes: dict[str, Any] = {
            name: value * f for (name, value), f in zip(usual.items(), factors, strict=False)
        }
        changes["ttft_seconds"] = distribution(seconds, seconds * factors[4], count=100)
        changes["itl_seconds"] = distribution(seconds, seconds * factors[5], count=100)
        fleet.append(replica(f"a{n}", changes=changes))
    assert marked(fleet) == {}


def test_every_figure_is_one_that_a_replica_has() -> None:
    signals = replica("a").signals
    assert all(one.name.partition(".")[0] in signals for one in COMPARED)
