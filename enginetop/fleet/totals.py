"""Running totals of a replica since it was first seen: what a block between two instants is cut from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple
from weakref import WeakKeyDictionary

from enginetop.fleet.reached import Reached
from enginetop.fleet.reading import Part
from enginetop.fleet.slots import Pick, Slots, pick_of

TOTALS: Mapping[str, tuple[str, Part]] = MappingProxyType(
    {
        **{
            measure: (measure, Part.VALUE)
            for measure in (
                "requests_judged",
                "requests_judged_failed",
                "requests_within_slo",
                "requests_finished",
                "requests_aborted",
                "requests_errored",
                "preemptions",
                "generation_tokens",
                "prompt_tokens_processed",
                "prefix_hits",
                "prefill_steps",
                "prefill_step_tokens",
                "spec_drafts",
                "spec_draft_tokens",
                "spec_accepted_tokens",
            )
        },
        "iteration_tokens.count": ("iteration_tokens", Part.COUNT),
        "iteration_tokens.sum": ("iteration_tokens", Part.SUM),
    }
)
"""Totals that are kept: name, measure and the part of it that is added up over all series. Beside them those
of `BUCKET_TOTALS`.
"""

BUCKET_TOTALS = frozenset({"reasoning_tokens"})
"""Histograms whose buckets are kept as well, for shares over longer than a window."""


class _Sums(NamedTuple):
    """The slots of all totals one behind the other, and for each total which of them are added."""

    pick: Pick
    spans: tuple[tuple[str, int, int], ...]


_places: WeakKeyDictionary[Slots, Mapping[str, tuple[int, ...]]] = WeakKeyDictionary()
_sums: WeakKeyDictionary[Slots, _Sums] = WeakKeyDictionary()


def bucket_total(measure: str, bound: float) -> str:
    """The name of the total of observations of at most `bound`."""
    return f"{measure}.le.{float(bound)!r}"


def bucket_totals(totals: Mapping[str, float], measure: str) -> dict[float, float]:
    """Observations of at most each bucket bound, in order; empty where none are kept."""
    return {bound: totals[name] for bound, name in _buckets_among(tuple(totals), measure)}


@lru_cache(maxsize=256)
def _buckets_among(names: tuple[str, ...], measure: str) -> tuple[tuple[float, str], ...]:
    start = f"{measure}.le."
    return tuple(sorted((float(name[len(start) :]), name) for name in names if name.startswith(start)))


class RunningTotals:
    """Sums over series of their increases. They never fall: not at a restart, and not when a target's series
    are forgotten because there were too many of them.
    """

    def __init__(self) -> None:
        self._before: dict[str, float] = {}
        self._now: Mapping[str, float] = MappingProxyType({})
        self._taken: tuple[Slots, Reached] | None = None
        """What was taken last and is not added up yet."""

    @property
    def values(self) -> Mapping[str, float]:
        """By name of `TOTALS`; a name that the target never had a series for is missing."""
        if self._taken is not None:
            self._now = MappingProxyType(self._added_up(*self._taken))
            self._taken = None
        return self._now

    def take(self, slots: Slots, reached: Reached, *, fallen: bool = False) -> None:
        """Take how far every slot has come since first sight, or since `begin_anew`; it is added up when the
        totals are asked for. `fallen`: some came back from where they were before, which counts then.
        """
        if fallen:
            self._now = self.values
        self._taken = slots, reached

    def begin_anew(self) -> None:
        """The increases that come from now on start from zero again."""
        self._before = dict(self.values)

    def _added_up(self, slots: Slots, reached: Reached) -> dict[str, float]:
        now, before, sums = dict(self._now), self._before, _sums_of(slots)
        numbers = reached.picked(sums.pick)
        for name, begin, end in sums.spans:
            total = numbers[begin] if end - begin == 1 else sum(numbers[begin:end])
            if before:
                total += before.get(name, 0.0)
            if total >= now.get(name, 0.0):
                now[name] = total
        return now


def increase(slots: Slots, name: str, start: Sequence[float], end: Sequence[float]) -> float | None:
    """What the total `name` gained between two pages (see `Reached.since`). None: it has no series."""
    places = _places_of(slots).get(name)
    if places is None:
        return None
    return sum([end[slot] - start[slot] for slot in places])


def _places_of(slots: Slots) -> Mapping[str, tuple[int, ...]]:
    """For each total the slots that are added; those without any are left out."""
    places = _places.get(slots)
    if places is None:
        wanted = {key: name for name, key in TOTALS.items()}
        found: dict[str, list[int]] = {}
        for slot, one in enumerate(slots.series):
            name = wanted.get((one.measure, one.part))
            if one.part is Part.BUCKET and one.measure in BUCKET_TOTALS:
                name = bucket_total(one.measure, one.le)
            if name is not None:
                found.setdefault(name, []).append(slot)
        places = _places[slots] = {name: tuple(members) for name, members in found.items()}
    return places


def _sums_of(slots: Slots) -> _Sums:
    sums = _sums.get(slots)
    if sums is None:
        picks: list[int] = []
        spans = []
        for name, places in _places_of(slots).items():
            spans.append((name, len(picks), len(picks) + len(places)))
            picks += places
        sums = _sums[slots] = _Sums(pick_of(picks), tuple(spans))
    return sums
