"""What histories take is known before: the promise, and the arrays as the interpreter measures them."""

from __future__ import annotations

import gc
import sys
from array import array
from collections.abc import Callable

import pytest

from enginetop.fleet.burn import BurnHistory, burn_bytes
from enginetop.fleet.history import TargetHistory, samples_bytes
from enginetop.fleet.load_log import LOAD_NAMES, LoadLog, load_log_bytes
from enginetop.fleet.memory import history_bytes
from enginetop.fleet.trends import TREND_NAMES
from tests.support.history_pages import INF, Told, columns, histogram, value


def test_a_fleet_of_256_vllm_replicas_at_2_s_by_hand() -> None:
    found = history_bytes(2.0, 60.0, 230)
    # 60 s at 2 s and two more: 32 samples of 230 numbers of 8 bytes and 240 bytes of their own
    assert found["samples"] == 32 * (230 * 8 + 240)
    # 451 points lie in nine blocks of 64 at most, one of which has room for 11 more; a time of 8 and
    # 14 figures of 4, and two headers of 80 a block
    assert len(TREND_NAMES) == 14
    assert found["trends"] == 587 * (8 + 14 * 4) + 9 * 160
    # 6 h at a minute: 361 points in seven blocks; a time and five figures
    assert len(LOAD_NAMES) == 5
    assert found["load_curve"] == 459 * (8 + 5 * 4) + 7 * 160
    # 62 + 242 + 182 + 146 samples of nine numbers of 8 bytes, a sixteenth too long
    assert found["burn"] == 632 * 72 * 17 // 16
    assert 256 * sum(found.values()) < 46e6


def test_a_shorter_interval_or_a_longer_window_takes_what_it_says() -> None:
    assert history_bytes(2.0, 300.0, 100)["samples"] == 152 * (800 + 240)
    assert history_bytes(0.001, 60.0, 100)["samples"] == 2050 * (800 + 240)  # however short the interval
    assert history_bytes(0.001, 60.0, 100)["trends"] < 400_000


def arrays_behind(*roots: object) -> int:
    """Bytes of all arrays that the objects hold, as the interpreter counts them."""
    seen: dict[int, object] = {}
    stack = list(roots)
    while stack:
        one = stack.pop()
        if id(one) in seen or isinstance(one, type | Callable):
            continue
        seen[id(one)] = one
        stack += gc.get_referents(one)
    return sum(sys.getsizeof(one) for one in seen.values() if isinstance(one, array))


def test_three_days_of_burn_take_no_more_than_promised() -> None:
    burn = BurnHistory()
    largest = 0
    for tick in range(int(3.5 * 86400 / 15)):
        burn.add(1e9 + 15.0 * tick, (1.0, 1.0, 0.0, 0.0, 1.0, 0.5, 1.0, 0.5))
        if tick % 500 == 0:
            largest = max(largest, arrays_behind(burn))
    assert 0.6 * burn_bytes() < largest < 1.01 * burn_bytes() + 9 * 80


@pytest.mark.parametrize("interval", [1.0, 2.0, 7.0])
def test_samples_take_no_more_than_promised(interval: float) -> None:
    shape = columns(
        value("kv_usage_ratio"), value("generation_tokens"), *histogram("ttft_seconds", (*range(1, 90), INF))
    )
    told = Told(shape, keep_seconds=120.0)
    count = len(shape.series)
    before = TargetHistory(120.0)
    for tick in range(300):
        told.page(tick * interval, 0.5, *[tick * place / 3 for place in range(1, count)])
    spent = arrays_behind(told.history) - arrays_behind(before)
    promised = samples_bytes(interval, 120.0, count)
    assert 0.7 * promised < spent < promised + 4 * 8 * count + 1000  # the newest page, and the one before it


def test_an_empty_log_takes_next_to_nothing() -> None:
    assert arrays_behind(LoadLog(60.0)) < 1000 < load_log_bytes(60.0)
