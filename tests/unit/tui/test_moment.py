"""Which moment is shown, and how old that is: by hand, on a clock that the test turns."""

from __future__ import annotations

from dataclasses import replace

from enginetop.fleet.change import ChangeState
from tests.tui.changes import OBSERVED, FakeControl
from tests.tui.snapshots import AT, FakeSource, fleet, replica
from tui.moment import Moment
from tui.view.picture import Picture

FIRST = fleet([replica("a1")], at=AT, sequence=1)
SECOND = fleet([replica("a1")], at=AT + 2, sequence=2)


class Hands:
    """A clock: seconds since whenever."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def moment(control: FakeControl | None = None) -> tuple[Moment, FakeSource, Hands]:
    source, clock = FakeSource(FIRST), Hands()
    made = Moment(source, Picture(title="prod"), control=control, clock=clock, now=lambda: AT)
    made.take()
    made.hear()
    made.remember()
    return made, source, clock


def test_it_goes_on_to_the_newest_and_keeps_what_never_changes() -> None:
    shown, source, _ = moment()
    source.snapshot = SECOND
    assert shown.picture().snapshot is FIRST  # not taken yet
    shown.take()
    picture = shown.picture()
    assert (picture.snapshot, picture.title, picture.paused_seconds) == (SECOND, "prod", None)
    assert shown.picture().memory is picture.memory  # one memory for all pictures


def test_a_frozen_picture_stays_and_gets_older() -> None:
    shown, source, clock = moment()
    shown.freeze()
    clock.now += 3.0
    shown.freeze()  # once more changes nothing
    source.snapshot = SECOND
    shown.take()
    picture = shown.picture()
    assert (picture.snapshot, picture.paused_seconds, picture.silent_seconds) == (FIRST, 3.0, 3.0)
    assert shown.live is FIRST
    shown.go_live()
    shown.take()
    assert (shown.picture().snapshot, shown.picture().paused_seconds) == (SECOND, None)


def test_the_past_is_so_far_behind_the_newest() -> None:
    shown, source, _ = moment()
    source.snapshot = SECOND
    shown.take()
    shown.remember()
    shown.travel.step(shown.live, -1)
    assert shown.shown is not None
    assert shown.shown.at == AT
    assert shown.live is SECOND
    assert shown.picture().behind_seconds == 2.0


def test_what_ages_without_news() -> None:
    shown, _, clock = moment()
    assert not shown.ages(clock.now)
    clock.now += 6.1  # more than three intervals of 2 s
    assert shown.ages(clock.now)
    shown.hear()
    assert not shown.ages(clock.now)
    shown.freeze()
    assert shown.ages(clock.now)


def test_a_trial_counts_down_between_two_pictures() -> None:
    control = FakeControl(changes=(OBSERVED,))
    shown, _, clock = moment(control)
    assert not shown.ages(clock.now)  # painted just now
    clock.now += 0.5
    assert shown.ages(clock.now - 0.5)
    shown.hear_of_changes()
    shown.take()
    clock.now += 4.0
    assert shown.picture().changes_age_seconds == 4.0
    control.changes = (replace(OBSERVED, state=ChangeState.DONE),)
    shown.take()
    assert not shown.ages(clock.now - 4.0)
