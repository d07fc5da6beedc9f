"""Is there work on a page? Only what the page tells counts."""

from __future__ import annotations

import pytest

from enginetop.fleet.model import Quality
from enginetop.fleet.reading import Absence, Columns, Reading
from enginetop.fleet.work import Work, work_of
from tests.support.history_pages import NAN, columns, value

BOTH = columns(value("requests_running"), value("requests_waiting"))
RANKS = columns(
    value("requests_running", rank="0"),
    value("requests_running", rank="1"),
    value("requests_waiting", rank="0"),
    value("requests_waiting", rank="1"),
    value("generation_tokens"),
)
RUNNING = columns(value("requests_running"), absent={"requests_waiting": Absence(Quality.UNSUPPORTED)})
LATE = columns(value("requests_running"), absent={"requests_waiting": Absence(Quality.UNKNOWN, "not yet")})
NEITHER = columns(value("generation_tokens"))


@pytest.mark.parametrize(
    ("shape", "values", "work"),
    [
        (BOTH, (3, 5), Work(3, 5, True)),
        (BOTH, (0, 1), Work(0, 1, True)),
        (BOTH, (0, 0), Work(0, 0, False)),
        (BOTH, (0, NAN), Work(0, None, None)),
        (BOTH, (NAN, 2), Work(None, 2, True)),
        (BOTH, (NAN, NAN), Work(None, None, None)),
        (BOTH, (float("inf"), 0), Work(None, 0, None)),
        (RANKS, (1, 2, 0, 4, 99), Work(3, 4, True)),
        (RANKS, (0, 0, 0, 0, 99), Work(0, 0, False)),
        (RANKS, (0, NAN, 0, 0, 99), Work(None, 0, None)),
        # Without a queue gauge nothing running is idle; a gauge that is yet to come might say more.
        (RUNNING, (0,), Work(0, None, False)),
        (RUNNING, (2,), Work(2, None, True)),
        (LATE, (0,), Work(0, None, None)),
        (NEITHER, (99,), Work(None, None, None)),
    ],
)
def test_work(shape: Columns, values: tuple[float, ...], work: Work) -> None:
    assert work_of(Reading(0.0, shape, values)) == work
