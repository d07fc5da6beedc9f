"""Any run of pages against a second implementation of the contract's words.

The reference walks a list of pages with dictionaries and knows nothing of slots, totals or layouts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginetop.fleet.facts import Facts, merge_parts
from enginetop.fleet.history import TargetHistory
from enginetop.fleet.reading import Columns, Part, Reading, Series

COUNTERS = {
    "a": Series("generation_tokens", "", "a"),
    "b": Series("requests_finished", "", "b"),
    "c": Series("requests_finished", "", "c"),
}
BUCKETS = {
    f"{group}{name}": Series("ttft_seconds", "", f"{group}{name}", part, le, group=group)
    for group in ("x", "y")
    for name, part, le in (
        ("le1", Part.BUCKET, 1.0),
        ("inf", Part.BUCKET, math.inf),
        ("sum", Part.SUM, math.nan),
        ("count", Part.COUNT, math.nan),
    )
}
ALL = {**COUNTERS, **BUCKETS}


@dataclass(frozen=True)
class Page:
    """Numbers by key (a key may be missing, a number may be NaN), a start token and births by key."""

    at: float
    numbers: dict[str, float]
    token: float | None
    births: dict[str, float] = field(default_factory=dict)


@st.composite
def runs(draw: st.DrawFn) -> list[Page]:
    """Processes that count, restart, forget series and lose lines; the clock only goes on."""
    at = 0.0
    token = draw(st.sampled_from([None, 1.0]))
    births = {"a": 1.0, "b": 1.0}
    now: dict[str, float] = {key: float(draw(st.integers(0, 40))) for key in COUNTERS}
    for group in ("x", "y"):
        low = draw(st.integers(0, 20))
        count = low + draw(st.integers(0, 20))
        now |= {f"{group}le1": low, f"{group}inf": count, f"{group}sum": 2.0 * count, f"{group}count": count}
    late = draw(st.sets(st.sampled_from(sorted(COUNTERS)), max_size=2))
    pages = []
    for i in range(draw(st.integers(2, 12))):
        at += draw(st.sampled_from([1.0, 2.0, 5.0]))
        event = draw(st.sampled_from(["", "", "", "restart", "rebirth", "drop", "drop group"]))
        if event == "restart":
            token = None if token is None else token + 1
            births = {key: birth + 1 for key, birth in births.items()}
            now = dict.fromkeys(now, 0.0)
        elif event == "rebirth":
            births["a"] += 1
            now["a"] = 0.0
        elif event == "drop":
            now["c"] = 0.0
        elif event == "drop group":
            now |= {key: 0.0 for key in now if key.startswith("x")}
        for key in COUNTERS:
            now[key] += draw(st.integers(0, 30))
        for group in ("x", "y"):
            low, high = draw(st.integers(0, 9)), draw(st.integers(0, 9))
            now[f"{group}le1"] += low
            now[f"{group}inf"] += low + high
            now[f"{group}count"] += low + high
            now[f"{group}sum"] += low * 0.5 + high * 2
        hidden = draw(st.sets(st.sampled_from(sorted(ALL)), max_size=2))
        numbers = {
            key: number for key, number in now.items() if key not in hidden and (i > 3 or key not in late)
        }
        for key in draw(st.sets(st.sampled_from(sorted(ALL)), max_size=1)):
            if key in numbers:
                numbers[key] = math.nan
        pages.append(Page(at, numbers, token, dict(births)))
    return pages


def reference(pages: list[Page], start: int) -> dict[str, float]:
    """Increase of every key from page `start` to the last, step by step as the contract says."""
    gained = dict.fromkeys(ALL, 0.0)
    last: dict[str, float] = {}
    births: dict[str, float] = {}
    token: float | None = None
    for index, page in enumerate(pages):
        here = {key: number for key, number in page.numbers.items() if not math.isnan(number)}
        restarted = page.token is not None and token is not None and page.token != token
        fallen = {key for key in here if key in last and here[key] < last[key] and not key.endswith("sum")}
        reborn = {
            key
            for key, birth in page.births.items()
            if key in page.numbers and births.get(key, birth) != birth
        }
        for key in ALL:
            group = [other for other in ALL if key[0] in "xy" and other[0] == key[0]] or [key]
            reset = restarted or any(other in fallen or other in reborn for other in group)
            if reset:
                step = here.get(key, 0.0)
                last[key] = here.get(key, 0.0)
            elif key in here:
                # On the first page without a number: there is nothing to count from.
                before = last.get(key, here[key] if key in pages[0].numbers else 0.0)
                step = here[key] - before if index else 0.0
                last[key] = here[key]
            else:
                step = 0.0
            if index > start:
                gained[key] += step
        births |= {key: birth for key, birth in page.births.items() if key in page.numbers}
        token = page.token if page.token is not None else token
    return gained


def observations(pages: list[Page], start: int, group: str, gained: dict[str, float]) -> float:
    """What a label set counted: the most that one of its lines tells, of those on both end pages."""
    lines = {f"{group}{name}" for name in ("count", "inf", "le1")}
    for page in (pages[start], pages[-1]):
        if any(key.startswith(group) for key in page.numbers):
            lines &= set(page.numbers)
    return max((gained[key] for key in lines), default=0.0)


def history_of(pages: list[Page]) -> TargetHistory:
    history = TargetHistory(keep_seconds=1000)
    shapes: dict[tuple[str, ...], Columns] = {}
    for page in pages:
        keys = tuple(page.numbers)
        births = tuple(key for key in page.births if key in page.numbers)
        if keys not in shapes:
            shapes[keys] = Columns(
                tuple(ALL[key] for key in keys), birth_groups=tuple((keys.index(key),) for key in births)
            )
        history.append(
            Reading(
                page.at,
                shapes[keys],
                [page.numbers[key] for key in keys],
                [page.births[key] for key in births],
                start_token=page.token,
            )
        )
    return history


@settings(max_examples=50, deadline=None)
@given(runs(), st.integers(0, 11))
def test_increases_are_those_of_the_contract(pages: list[Page], start: int) -> None:
    start = min(start, len(pages) - 2)
    window = history_of(pages).window(pages[-1].at - pages[start].at)
    assert window is not None
    assert (window.since, window.at) == (pages[start].at, pages[-1].at)
    gained = reference(pages, start)
    facts = window.total
    told = {
        "generation_tokens": gained["a"],
        "requests_finished": gained["b"] + gained["c"],
    }
    for measure, expected in told.items():
        found = facts.gains.get(measure)
        if found is None:  # not on the last page, never a number, or flipping: said, not guessed
            assert measure in facts.gaps
        else:
            assert found.increase == expected >= 0
            assert found.per_second * window.seconds == pytest.approx(expected)
    histogram = facts.histograms.get("ttft_seconds")
    if histogram is not None:
        assert histogram.count == sum(observations(pages, start, group, gained) for group in ("x", "y"))
        assert list(histogram.cumulative) == sorted(histogram.cumulative)
        assert min(histogram.cumulative, default=0) >= 0


@settings(max_examples=25, deadline=None)
@given(st.lists(runs(), min_size=3, max_size=3))
def test_merging_is_associative(three: list[list[Page]]) -> None:
    def numbers(facts: Facts) -> tuple[object, ...]:
        return (
            facts.parts,
            {name: round(gain.per_second, 9) for name, gain in facts.gains.items()},
            {
                name: (one.count, one.bounds, one.cumulative)
                for name, one in facts.histograms.items()
                if one.count
            },
            {name: (gap.quality, gap.parts) for name, gap in facts.gaps.items()},
        )

    windows = [history_of(pages).window(1000) for pages in three]
    one, two, last = [window.total for window in windows if window is not None]
    flat = numbers(merge_parts([one, two, last]))
    assert numbers(merge_parts([merge_parts([one, two]), last])) == flat
    assert numbers(merge_parts([one, merge_parts([two, last])])) == flat
