"""Evidence in arrays is read as the records it was told."""

from __future__ import annotations

import sys

from hypothesis import given, settings
from hypothesis import strategies as st

from tuners.evidence import EvidenceLog
from tuners.moments import Moment
from tuners.rows import RowLog, column, known, known_points
from tuners.step_time import StepWindow

_number = st.floats(-1e12, 1e12)
_moments = st.builds(Moment, _number, *[st.none() | _number] * 4)
WINDOWS = [StepWindow(100.0 * n, 0.01 * n, float(n % 3)) for n in range(1, 9)]


@settings(max_examples=50, deadline=None)
@given(st.lists(_moments, max_size=12), st.integers(1, 6), st.integers(0, 2), st.integers(0, 2))
def test_records_are_those_that_were_told(told: list[Moment], most: int, newest: int, oldest: int) -> None:
    log, expected = RowLog(Moment, most), list[Moment]()
    for one in told:
        log.append(one)
        expected = [*expected, one][-most:]
    if newest + oldest <= len(expected):
        log.drop(newest=newest, oldest=oldest)
        expected = expected[oldest : len(expected) - newest]
    rows = log.rows
    assert [rows[place] for place in range(-len(rows), len(rows))] == expected * 2
    assert list(rows) == expected
    assert list(rows[1::2]) == expected[1::2]
    assert len(rows) == len(log) == len(expected)
    for name in ("at", "running", "generated_tokens"):
        assert (
            list(column(rows, name))
            == list(column(expected, name))
            == [getattr(one, name) for one in expected]
        )
    assert list(known(rows, "waiting")) == [one.waiting for one in expected if one.waiting is not None]
    both = [(one.running, one.waiting) for one in expected if None not in (one.running, one.waiting)]
    assert list(known_points(rows, "running", "waiting")) == both


def test_what_was_read_does_not_change() -> None:
    log = RowLog(StepWindow, 5)
    for window in WINDOWS[:5]:
        log.append(window)
    rows = log.rows
    for window in WINDOWS[5:]:
        log.append(window)
    assert list(rows) == WINDOWS[:5]
    assert list(log.rows) == WINDOWS[3:]
    assert (log.number(0, "tokens"), log.number(-1, "seconds")) == (400.0, 0.08)
    log.clear()
    assert (len(log), list(log.rows)) == (0, [])


def test_a_number_that_is_none_stays_what_it_is_where_it_may_not_be_none() -> None:
    log = RowLog(StepWindow, 2)
    log.append(StepWindow(float("nan"), 1.0))
    assert list(known(log.rows, "tokens")) != [None]
    assert len(known(log.rows, "tokens")) == 1


def test_full_evidence_takes_eight_bytes_a_number() -> None:
    """By hand: 240 windows of three numbers and 300 pages of five, 8 bytes each, a sixteenth too long."""
    log = EvidenceLog()
    for number in range(1000):
        log._windows.append(StepWindow(float(number), 0.01))
        log._moments.append(Moment(float(number), 1.0, 2.0, 0.5, float(number)))
    spent = sys.getsizeof(log._windows._numbers) + sys.getsizeof(log._moments._numbers)
    assert spent <= (240 * 3 + 300 * 5) * 8 * 17 // 16 + 2 * 80 + 200
