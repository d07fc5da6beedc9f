"""Load curves made by hand: with a knee, without one, noisy, too short."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginetop.fleet.load_curve import LoadCurve, LoadPoint, load_curve


def sweep(*rows: tuple[float, float, float], slo: float = 0.5) -> LoadCurve:
    """Rows of running requests, goodput and TTFT p99, each a run of a load generator."""
    points = [LoadPoint(running, good, None, ttft) for running, good, ttft in rows]
    return load_curve(points, slo, least_points=1)


def windows(
    running: float, good: float, ttft: float, count: int = 12, noise: float = 0.0, seed: int = 1
) -> list[LoadPoint]:
    """Windows at one load; goodput and TTFT scatter by `noise` of their size."""
    random = Random(f"{seed} {running}")
    return [
        LoadPoint(running, good * random.gauss(1, noise), 0.9, ttft * random.gauss(1, noise))
        for _ in range(count)
    ]


def test_the_published_sweep_has_its_knee_at_32() -> None:
    curve = sweep(
        (8, 5200, 0.210), (16, 9800, 0.370), (32, 12200, 0.420), (48, 7400, 0.680), (64, 2100, 1.200)
    )
    assert curve.knee is not None
    assert (curve.knee.running, curve.knee.good_per_second) == (32, 12200)
    assert curve.knee.ttft_p99_seconds == 0.42
    assert curve.knee.because == "at 48 goodput is 7.4e+03/s, TTFT p99 0.68 s"


def test_the_second_published_table_has_its_knee_at_16() -> None:
    knee = sweep((8, 2100, 0.1), (16, 3330, 0.2), (24, 2420, 0.6), (32, 800, 0.9)).knee
    assert knee is not None
    assert knee.running == 16


def test_a_plateau_has_its_knee_at_its_begin_once_first_tokens_are_late() -> None:
    knee = sweep((4, 50, 0.1), (8, 98, 0.2), (16, 100, 0.4), (32, 99, 0.9)).knee
    assert knee is not None
    assert knee.running == 8  # 98 is within 5 % of 100
    assert knee.because == "at 32 goodput is 99/s, TTFT p99 0.9 s"


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([], "0 of 3 loads seen"),
        ([(8, 10, 0.1)], "1 of 3 loads seen"),
        ([(8, 10, 0.1), (64, 5, 2.0)], "2 of 3 loads seen"),
        # 15.9, 17 and 31 are in three bins, and less than a doubling apart
        ([(15.9, 10, 0.1), (17, 12, 0.1), (31, 5, 2.0)], "only loads of 15.9 to 31 running requests seen"),
        ([(4, 10, 0.1), (8, 20, 0.1), (16, 40, 0.2)], "goodput does not fall up to 16 running requests"),
        ([(4, 10, 0.1), (8, 20, 0.1), (16, 19.5, 0.2)], "goodput does not fall up to 16 running requests"),
        (
            [(4, 40, 0.1), (8, 20, 0.6), (16, 4, 2.0)],
            "goodput is best at the lowest load seen, 4 running requests",
        ),
        (  # 39 is less than 5 % below 40, which is seen at another load
            [(4, 39, 0.1), (8, 40, 0.6), (16, 4, 2.0)],
            "goodput is within noise of the best at the lowest load seen, 4 running requests",
        ),
        ([(4, 0, 3), (8, 0, 3), (16, 0, 3)], "no request was within the objective"),
        ([(0, 0, 0)] * 9, "0 of 3 loads seen"),
    ],
)
def test_no_knee_is_named_where_the_data_do_not_cover_it(
    rows: list[tuple[float, float, float]], why: str
) -> None:
    curve = sweep(*rows)
    assert (curve.knee, curve.withheld) == (None, why)


def test_a_bin_needs_three_windows_and_shows_its_quartiles() -> None:
    points = [
        LoadPoint(10, good, 0.5, ttft) for good, ttft in ((1, 0.1), (2, 0.2), (3, None), (8, 0.4), (16, 0.5))
    ]
    points += [LoadPoint(40, 1)] * 2
    (only,) = load_curve(points, 0.5).bins
    # 10 lies between 8 and 11.3; quartiles of 1 2 3 8 16 are the second and the fourth
    assert (only.low, round(only.high, 2), only.points) == (8, 11.31, 5)
    assert (only.good_per_second.low, only.good_per_second.median, only.good_per_second.high) == (2, 3, 8)
    # of 0.1 0.2 0.4 0.5: middle 0.3, quarter of the way 0.1 + 0.75 * 0.1
    assert only.ttft_p99_seconds is not None
    assert only.ttft_p99_seconds.median == pytest.approx(0.3)
    assert only.ttft_p99_seconds.low == pytest.approx(0.175)


def test_noise_makes_no_knee() -> None:
    for seed in range(20):
        points = [
            point
            for place, running in enumerate((4, 8, 16, 32))
            for point in windows(running, (50, 100, 104, 106)[place], 0.2, noise=0.15, seed=seed)
        ]
        assert load_curve(points, 0.5).knee is None, seed


def test_a_knee_is_found_through_noise() -> None:
    for seed in range(20):
        points = [
            point
            for running, good, ttft in (
                (8, 52, 0.21),
                (16, 98, 0.37),
                (32, 122, 0.42),
                (48, 74, 0.68),
                (64, 21, 1.2),
            )
            for point in windows(running, good, ttft, count=30, noise=0.1, seed=seed)
        ]
        knee = load_curve(points, 0.5).knee
        assert knee is not None, seed
        assert knee.running == pytest.approx(32), seed


rows = st.lists(
    st.tuples(st.floats(0.1, 1000), st.floats(0, 1e4), st.none() | st.floats(0, 100)), max_size=40
)


@settings(max_examples=60, deadline=None)
@given(rows, st.randoms(use_true_random=False))
def test_order_and_unit_do_not_matter(rows: list[tuple[float, float, float | None]], random: Random) -> None:
    points = [LoadPoint(running, good, None, ttft) for running, good, ttft in rows]
    one = load_curve(points, 1.0)
    random.shuffle(points)
    other = load_curve(points, 1.0)
    assert [b.points for b in one.bins] == [b.points for b in other.bins]
    assert (one.knee is None) == (other.knee is None)
    assert bool(one.withheld) != (one.knee is not None)
    scaled = load_curve(
        [LoadPoint(p.running, 4 * p.good_per_second, None, p.ttft_p99_seconds) for p in points], 1.0
    )
    if one.knee is None or scaled.knee is None:
        assert one.knee is scaled.knee
    else:
        assert scaled.knee.running == pytest.approx(one.knee.running)
        assert scaled.knee.good_per_second == pytest.approx(4 * one.knee.good_per_second)
