"""Pages of a window: which replace one another, what is said of them, and which are still there."""

from __future__ import annotations

from array import array

from enginetop.fleet.increase import NONE, Step
from enginetop.fleet.reached import Reached
from enginetop.fleet.reading import Columns
from enginetop.fleet.samples import MOST_SAMPLES, Samples

SHAPE, OTHER_SHAPE = Columns(()), Columns(())


def step(reached: Reached, returned: int | None = None, sum_fallen: int | None = None) -> Step:
    one, other = (NONE if slot is None else frozenset({slot}) for slot in (returned, sum_fallen))
    return Step(reached, (), one, other)


def somewhere() -> Reached:
    return Reached.at(array("d"))


def test_a_page_is_held_until_it_is_replaced_or_outdated() -> None:
    samples, same = Samples(10.0), somewhere()
    samples.append(1.0, SHAPE, step(same))
    first = samples[-1]
    samples.append(3.0, SHAPE, step(same))
    former = samples[-1]
    assert samples.holds(first)
    assert samples.holds(former)
    samples.append(2.0, SHAPE, step(same))
    samples.append(4.0, SHAPE, step(same))
    assert not samples.holds(former), "as far as the page at 4 s, and older than that one"
    samples.append(5.0, SHAPE, step(same))
    newest = samples[-1]
    samples.append(5.0, SHAPE, step(somewhere()))
    assert not samples.holds(newest), "at the instant of the newest page, which came further"
    samples.append(12.5, SHAPE, step(somewhere()))
    assert not samples.holds(first)
    assert [samples[place].at for place in range(len(samples))] == [2.0, 4.0, 5.0, 12.5]


def test_what_is_said_of_a_page_is_said_of_those_after_its_predecessor_alone() -> None:
    samples = Samples(10.0)
    for at, returned in ((1.0, None), (2.0, 7), (3.0, 7), (4.0, None)):
        samples.append(at, SHAPE, step(somewhere(), returned))
    told = [[sorted(about.returned) for about in samples.after(place)] for place in range(4)]
    assert told == [[[7], [7], []], [[7], []], [], []]


def test_a_page_tells_what_those_that_it_replaces_told() -> None:
    samples = Samples(MOST_SAMPLES / 10)  # pages nearer than 0.1 s are one
    samples.append(1.0, SHAPE, step(somewhere()))
    samples.append(3.0, SHAPE, step(somewhere(), returned=1))
    samples.append(4.0, SHAPE, step(somewhere(), returned=2, sum_fallen=5))
    samples.append(2.0, SHAPE, step(somewhere(), returned=3))
    (about,) = samples.after(0)
    assert (sorted(about.returned), sorted(about.sums_fallen)) == ([1, 2, 3], [5])
    samples.append(2.05, SHAPE, step(somewhere(), sum_fallen=6))
    samples.append(2.5, SHAPE, step(somewhere()))
    assert [(sorted(about.returned), sorted(about.sums_fallen)) for about in samples.after(0)] == [
        ([1, 2, 3], [5]),
        ([], [6]),
    ]
    samples.append(2.55, SHAPE, step(somewhere()))
    samples.append(2.58, SHAPE, step(somewhere()))
    assert [samples[place].at for place in range(len(samples))] == [1.0, 2.0, 2.5, 2.58]


def test_pages_of_which_the_same_is_said_share_it_and_no_others_do() -> None:
    samples = Samples(10.0)
    for at, shape in ((1.0, SHAPE), (2.0, SHAPE), (3.0, OTHER_SHAPE), (4.0, SHAPE)):
        samples.append(at, shape, step(somewhere()))
    first, second, third, fourth = (samples[place].about for place in range(4))
    assert first is second
    assert [about.columns for about in (first, third, fourth)] == [SHAPE, OTHER_SHAPE, SHAPE]


def test_nothing_is_left_of_what_is_forgotten() -> None:
    samples = Samples(10.0)
    samples.append(1.0, SHAPE, step(somewhere(), returned=1))
    forgotten = samples[-1]
    samples.clear()
    assert (len(samples), samples.holds(forgotten), samples.newest_until(5.0)) == (0, False, -1)
    samples.append(0.5, SHAPE, step(somewhere()))
    samples.append(2.0, SHAPE, step(somewhere()))
    assert [about.returned for about in samples.after(0)] in ([], [NONE])
