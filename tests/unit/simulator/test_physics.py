"""TPOT against batch size: the engine model beside an independent table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.physics import calibrate, judge, read_table, simulate

ROWS = read_table()


def test_the_table_is_read() -> None:
    assert len(ROWS) == 52
    assert {row.tp for row in ROWS} == {2, 4, 8}
    first = ROWS[0]
    assert (first.tp, first.batch, first.step_tokens, first.tpot_ms) == (2, 48, 4047, 37.766)


@pytest.mark.parametrize("turn", [0, 1], ids=["every-second-row", "the-others"])
def test_calibrated_on_half_of_the_rows_it_is_right_on_the_other_half(turn: int) -> None:
    """Within 10 % for each tensor-parallel size; the second turn leaves out each group's first row."""
    rows = [row for tp in (2, 4, 8) for row in [one for one in ROWS if one.tp == tp][turn:]]
    verdicts = judge(rows)
    assert [verdict.tp for verdict in verdicts] == [2, 4, 8]
    for verdict in verdicts:
        assert len(verdict.judged) >= 3
        for row, tpot_ms in verdict.judged:
            assert tpot_ms == pytest.approx(row.tpot_ms, rel=0.10), row


def test_the_constants_are_of_the_size_of_the_hardware() -> None:
    """Qwen3-32B has 65.5 GB of bf16 weights: reading them takes 6.8 ms on two H200s, 1.7 ms on eight. Their
    64 GFLOP a token take 32 us on two at the dense peak of 989 TFLOP/s, and more in practice.
    """
    two, eight = (calibrate([row for row in ROWS if row.tp == tp]) for tp in (2, 8))
    assert 6.8 < two.base_ms < 14.0
    assert 1.7 < eight.base_ms < 7.0
    assert 32.0 < two.per_token_us < 80.0
    assert two.per_kv_token_ns == pytest.approx(27.3, abs=0.1)


def test_a_wrong_cost_of_a_token_would_show() -> None:
    group = [row for row in ROWS if row.tp == 2]
    step = calibrate(group)
    wrong = replace(step, per_token_us=1.3 * step.per_token_us)
    assert simulate(group[-1], wrong) > 1.15 * group[-1].tpot_ms
