"""Mappings that work out what they are asked for, and that a tick asks for little."""

from __future__ import annotations

from collections import Counter

import pytest

from bench.memory import Fleet
from bench.page_server import MovingPage
from enginetop.fleet.growth import Growth
from enginetop.fleet.histogram import HistogramIncrease
from enginetop.fleet.label_set import LabelSet
from enginetop.fleet.lazy import Lazy, joint_names, overlaid


def halves(asked: list[str], names: tuple[str, ...] = ("4", "odd", "6")) -> Lazy[str, float]:
    """Half of each number; words are not there."""

    def work(name: str) -> float | None:
        asked.append(name)
        return int(name) / 2 if name.isdigit() else None

    return Lazy(names, work)


class TestLazy:
    def test_nothing_is_worked_out_before_it_is_asked_for_and_nothing_twice(self) -> None:
        asked: list[str] = []
        values = halves(asked)
        assert asked == []
        assert (values["4"], values.get("4"), values["4"]) == (2.0, 2.0, 2.0)
        assert asked == ["4"]

    def test_a_name_without_a_value_is_not_there(self) -> None:
        asked: list[str] = []
        values = halves(asked)
        assert "odd" not in values
        assert values.get("odd") is None
        assert values.get("odd", 7.0) == 7.0
        with pytest.raises(KeyError):
            values["odd"]
        assert asked == ["odd"]

    def test_a_name_beyond_the_names_is_never_asked_for(self) -> None:
        asked: list[str] = []
        values = halves(asked)
        assert "8" not in values
        with pytest.raises(KeyError):
            values["8"]
        assert asked == []

    def test_it_is_a_mapping_in_the_order_of_its_names(self) -> None:
        assert list(halves([]).items()) == [("4", 2.0), ("6", 3.0)]
        assert len(halves([])) == 2
        assert halves([]) == {"6": 3.0, "4": 2.0}
        assert {**halves([])} == {"4": 2.0, "6": 3.0}

    def test_whether_there_is_any_is_known_with_the_first(self) -> None:
        asked: list[str] = []
        assert halves(asked, ("odd", "4", "6"))
        assert asked == ["odd", "4"]
        assert not halves([], ("odd",))

    def test_what_is_laid_over_it_goes_first_and_works_nothing_out(self) -> None:
        asked: list[str] = []
        values = overlaid(halves(asked), {"6": 0.5, "new": 9.0})
        assert asked == []
        assert list(values.items()) == [("4", 2.0), ("6", 0.5), ("new", 9.0)]
        assert "6" not in asked

    def test_what_was_asked_before_is_at_hand_in_what_lies_over_it(self) -> None:
        asked: list[str] = []
        values = halves(asked)
        assert values["4"] == 2.0
        over = overlaid(values, {})
        assert over["4"] == 2.0
        assert over["6"] == values["6"] == 3.0
        assert asked == ["4", "6"]

    def test_what_comes_later_is_worked_out_when_it_is_asked_for_and_goes_first(self) -> None:
        asked: list[str] = []
        values = halves(asked)
        assert values["4"] == 2.0
        work = {"4": 40.0, "more": 7.0}
        over = overlaid(values, {"6": 0.5}, ("4", "more"), lambda name: work.pop(name))
        assert len(work) == 2
        assert [over["4"], over["4"], over["6"], over["more"]] == [40.0, 40.0, 0.5, 7.0]
        assert over.get("odd") is None
        assert list(over) == ["4", "6", "more"]
        assert asked == ["4", "odd"]

    def test_names_of_several(self) -> None:
        assert joint_names([halves([]), {"x": 1}]) == {"4", "odd", "6", "x"}
        assert joint_names([]) == frozenset()


class TestATick:
    """A regression here would be silent: every number stays right, only slower."""

    @pytest.fixture
    def measures(self, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
        """How often the slots of a measure are added up."""
        found: Counter[str] = Counter()
        gain = Growth.increase

        def counted_gain(growth: Growth, slots: list[int]) -> float:
            found["sums"] += 1
            return gain(growth, slots)

        whole = LabelSet.increase

        def counted_histogram(label_set: LabelSet, growth: Growth) -> HistogramIncrease:
            found["histograms"] += 1
            return whole(label_set, growth)

        monkeypatch.setattr(Growth, "increase", counted_gain)
        monkeypatch.setattr(LabelSet, "increase", counted_histogram)
        return found

    def test_a_tick_adds_up_what_is_judged_and_kept_and_no_more(self, measures: Counter[str]) -> None:
        replicas, ticks = 4, 3
        fleet, page = Fleet(replicas, 1.0), MovingPage()
        for tick in range(ticks):
            fleet.look(1_764_446_400.0 + tick, page.at(tick))
        assert fleet.latest is not None
        each = measures["histograms"] / replicas / (ticks - 1)  # the first page has no increase yet
        assert 0 < each <= 4  # TTFT, TPOT, ITL and the queue: what is judged
        before = measures["histograms"]
        for replica in fleet.latest.replicas:
            assert len([*replica.signals.values(), *replica.beyond.values()]) > 30
        assert measures["histograms"] - before >= 2 * replicas  # those that nobody had asked for
