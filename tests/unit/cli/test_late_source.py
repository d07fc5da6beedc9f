"""A source that is made when it is started: until then it has nothing, then it is the one that was made."""

from __future__ import annotations

import pytest

from enginetop.cli.late_source import LateSource
from enginetop.fleet.errors import ConfigError
from enginetop.fleet.ports import FleetSource
from tests.tui.snapshots import FakeSource, fleet, replica


class Made:
    """Counts what was made."""

    def __init__(self) -> None:
        self.sources: list[FakeSource] = []

    def __call__(self) -> FleetSource:
        self.sources.append(FakeSource())
        return self.sources[-1]


def test_nothing_is_made_before_the_start() -> None:
    made = Made()
    late = LateSource(made)
    late.subscribe(lambda: None)
    late.request_refresh()
    late.stop()
    assert (late.latest(), late.finished(), made.sources) == (None, False, [])


def test_who_subscribed_before_the_start_is_told_and_can_leave() -> None:
    made, told = Made(), list[str]()
    late = LateSource(made)
    gone = late.subscribe(lambda: told.append("gone"))
    early = late.subscribe(lambda: told.append("early"))
    gone()
    late.start()
    later = late.subscribe(lambda: told.append("later"))
    (source,) = made.sources
    source.publish(fleet([replica("a")]))
    assert told == ["early", "later"]
    assert late.latest() is source.latest() is not None
    early()
    later()
    gone()
    source.publish(fleet([replica("a")]))
    assert told == ["early", "later"]


def test_calls_reach_the_source_that_was_made() -> None:
    made = Made()
    late = LateSource(made)
    late.start()
    late.request_refresh()
    late.stop()
    (source,) = made.sources
    assert (source.started, source.refreshes, source.stopped) == (1, 1, 1)


def test_why_it_cannot_be_made_is_raised_by_the_start() -> None:
    def fail() -> FleetSource:
        raise ConfigError("no")

    late = LateSource(fail)
    with pytest.raises(ConfigError, match="no"):
        late.start()
    late.stop()
