"""The arithmetic of a token budget: the worked numbers of the tuning guide."""

from __future__ import annotations

import pytest

from tuners import prefill


@pytest.mark.parametrize(
    ("budget", "decoding", "drafts", "room"),
    [(512, 256, 0, 256), (2048, 128, 3, 1536), (2048, 200, 0, 1848), (512, 256, 4, -768)],
)
def test_room(budget: int, decoding: int, drafts: int, room: int) -> None:
    assert prefill.room(budget, decoding, drafts) == room


def test_chunks() -> None:
    assert prefill.chunks(30_000, 1536) == 20
    assert prefill.chunks(30_000, 1536) * 0.035 == pytest.approx(0.70)
    assert prefill.chunks(1536, 1536) == 1


def test_demand_against_capacity() -> None:
    # 6 requests/s of 1200 tokens against steps of 2048 with 64 decoding, 35 ms each
    capacity = prefill.tokens_per_second(prefill.room(2048, 64), 0.035)
    assert capacity == pytest.approx(56_686, abs=1)
    assert 6 * 1200 / capacity == pytest.approx(0.127, abs=0.0005)


@pytest.mark.parametrize(("seqs", "drafts", "floor"), [(256, 4, 1280), (16, 4, 80), (256, 0, 256)])
def test_the_floor(seqs: int, drafts: int, floor: int) -> None:
    assert prefill.least_budget(seqs, drafts) == floor
