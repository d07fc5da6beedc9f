"""The short form of the soak: every fault once, each seen, over and told."""

from __future__ import annotations

import pytest

from bench.soak import measure

pytestmark = pytest.mark.verify

_MOST_MIB = 250.0
"""Far above what sixteen replicas take; an endless answer that is kept goes far beyond it."""

_INTERVAL_SECONDS = 1.0
_LONGEST_SILENCE_SECONDS = 60.0
"""A screen draws every few seconds. One that waits for a call that never comes is silent for ever."""

_SLACK_SECONDS = 2.0
"""What a machine that others use too may take beyond the two intervals in which a fault is visible."""


@pytest.mark.timeout(1800)
def test_every_fault_is_seen_and_over_and_its_alert_told() -> None:
    figures, rows = measure(minutes=0, replicas=16, interval=_INTERVAL_SECONDS, hold=4.0)
    assert len(rows) == 16
    assert [row.fault for row in rows if not row.state] == []
    latest = 2 * _INTERVAL_SECONDS + _SLACK_SECONDS
    assert [row for row in rows if row.visible_seconds is None] == []
    assert [row for row in rows if (row.visible_seconds or 0.0) - row.starved_seconds > latest] == []
    assert figures["never_recovered"] == []
    assert figures["alerts_lost"] == []
    silence = figures["longest_silence_of_screen_seconds"]
    assert isinstance(silence, float)
    assert silence < _LONGEST_SILENCE_SECONDS
    for process in ("watch", "screen"):
        held = figures[process]
        assert isinstance(held, dict)
        assert held["descriptors_last"] <= held["descriptors_after_warm_up"] + 4
        assert held["threads_last"] <= held["threads_most"] <= 12
        assert held["rss_mib_last"] < _MOST_MIB
