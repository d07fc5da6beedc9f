"""How fast the error budget burns: counts of requests over hours and days, in rings of known size.

Burn = bad / (1 - target), bad = 1 - requests within the objective / requests ended, over a long and a short
window at once (Google SRE Workbook, ch. 5). Requests within the objective are completed ones x the share that
was counted one by one, else the product of the shares within its two halves (an estimate).
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Mapping
from typing import Protocol
from weakref import WeakKeyDictionary

from enginetop.fleet.frozen import frozen
from enginetop.fleet.histogram import canonical_bound
from enginetop.fleet.reading import Part
from enginetop.fleet.slots import Slots
from enginetop.fleet.snapshot import BurnRow, Slo

WINDOWS: tuple[tuple[float, float, float], ...] = (
    (3600.0, 300.0, 14.4),
    (6 * 3600.0, 1800.0, 6.0),
    (24 * 3600.0, 7200.0, 3.0),
    (72 * 3600.0, 6 * 3600.0, 1.0),
)
"""Long window and short window in seconds, and the threshold that both must be above."""

PAGE_THRESHOLD = 6.0
"""Burn from which somebody is woken: the two fast pairs are pages, the slow ones tickets."""

FEW_REQUESTS, FEWEST_BAD = 100.0, 10.0
"""Where fewer requests than the first ended in the long window, nothing fires below this many bad ones."""

TIERS: tuple[tuple[float, float], ...] = (
    (5.0, 300.0),
    (15.0, 3600.0),
    (120.0, 6 * 3600.0),
    (1800.0, 72 * 3600.0),
)
"""Spacing and reach in seconds of each ring; a window is read from the first one that reaches far enough."""

FINEST_SECONDS = TIERS[0][0]


def is_reachable(threshold: float, target: float) -> bool:
    """Whether a threshold can be reached at all: when all requests are bad they burn 1 / (1 - target)."""
    return threshold * (1.0 - target) <= 1.0 + 1e-12


_WITHIN = "requests_within_slo"
_FIELDS = 8
Counts = tuple[float, float, float, float, float, float, float, float]
"""Ended, completed, judged one by one, those of them within the objective; then of the histograms of TTFT and
of TPOT the requests, and those within the limit.
"""

NO_COUNTS: Counts = (0.0,) * 8

_Weights = tuple[tuple[int, float], ...]


class BySlot(Protocol):
    """A number for each slot, looked up one at a time."""

    def __getitem__(self, slot: int, /) -> float:
        """The number of this slot."""


class RequestCounter:
    """What one replica's pages add to `Counts`, page by page."""

    def __init__(self, slo: Slo) -> None:
        self.limits = slo.limits
        self._asked_for = slo.source != "default"
        self._totals: Counts | None = None
        self._for_another = 0.0

    def take(self, slots: Slots, increases: BySlot, totals: Mapping[str, float]) -> Counts:
        """The increase of the counts since the former page; of the first page none.

        `increases` (by slot) and `totals` (names of `totals.TOTALS`) are running ones. What the engine side
        counted for another objective than one that was asked for is not among those judged one by one.
        """
        ended = totals.get("requests_finished", totals.get("requests_judged", 0.0))
        failed = totals.get("requests_judged_failed", 0.0)
        if "requests_finished" in totals:
            lost = totals.get("requests_aborted", 0.0) + totals.get("requests_errored", 0.0)
        else:
            lost = failed
        judged = totals.get("requests_judged", 0.0) - failed if _WITHIN in totals else 0.0
        sums = (sum([increases[slot] * weight for slot, weight in row]) for row in _plan(slots, self.limits))
        ttft, ttft_within, tpot, tpot_within = sums
        now: Counts = (
            ended,
            ended - lost,
            judged,
            totals.get(_WITHIN, 0.0),
            ttft,
            min(ttft, ttft_within),
            tpot,
            min(tpot, tpot_within),
        )
        before, self._totals = self._totals, now
        elsewhere = self._counts_for_another(slots, increases)
        if before is None:
            return NO_COUNTS
        # a target whose series were forgotten counts from zero again
        a, b, c, d, e, f, g, h = (
            new - old if new >= old else 0.0 for new, old in zip(now, before, strict=True)
        )
        return (a, b, 0.0, 0.0, e, f, g, h) if elsewhere else (a, b, c, d, e, f, g, h)

    def _counts_for_another(self, slots: Slots, increases: BySlot) -> bool:
        if not self._asked_for:
            return False
        others, own = _counted_for(slots, self.limits)
        before, self._for_another = self._for_another, sum([increases[slot] for slot in others])
        return self._for_another > before or (bool(others) and not own)


class _Ring:
    """Running counts at the first page of every span of `spacing` seconds, back to `reach` seconds."""

    __slots__ = ("_counts", "_reach", "_spacing", "_times")

    def __init__(self, spacing: float, reach: float) -> None:
        self._spacing, self._reach = spacing, reach
        self._times = array("d")
        self._counts = array("d")

    def add(self, at: float, counts: array[float]) -> None:
        times = self._times
        while times and times[-1] > at:  # the clock was set back
            times.pop()
            del self._counts[-_FIELDS:]
        if times and times[-1] == at:  # another replica's page of the same instant
            self._counts[-_FIELDS:] = counts
            return
        if times and times[-1] // self._spacing == at // self._spacing:
            return
        times.append(at)
        self._counts.extend(counts)
        outdated = bisect_right(times, at - self._reach) - 1
        if outdated > 0:
            del times[:outdated]
            del self._counts[: outdated * _FIELDS]

    def before(self, at: float) -> array[float] | None:
        """The counts at the newest sample not after `at`."""
        index = bisect_right(self._times, at) - 1
        return None if index < 0 else self._counts[index * _FIELDS : (index + 1) * _FIELDS]


@frozen
class _Bad:
    ended: float
    ratio: float


def burn_bytes() -> int:
    """The most that the counts of three days take: numbers of 8 bytes, in arrays a sixteenth too long."""
    samples = sum(int(reach / spacing) + 2 for spacing, reach in TIERS)
    return samples * 8 * (1 + _FIELDS) * 17 // 16


class BurnHistory:
    """Counts of three days, of one replica or of the fleet.

    Memory: at most 60 + 240 + 180 + 144 samples and one more a ring, of nine numbers of 8 bytes: 45 kB (57 kB
    of resident memory, measured over three days). A
    window begins at most one spacing of its ring before its time: 5 s of 5 min, 15 s of an hour, 2 min of
    6 h, half an hour of a day; it ends at the first page of the newest 5 s.
    """

    def __init__(self) -> None:
        self._totals = array("d", NO_COUNTS)
        self._rings = [(reach, _Ring(spacing, reach)) for spacing, reach in TIERS]

    def add(self, at: float, counts: Counts) -> None:
        """Take what was counted up to Unix time `at` since the former call."""
        totals = self._totals
        for index, count in enumerate(counts):
            if count:
                totals[index] += count
        for _, ring in self._rings:
            ring.add(at, totals)

    def rows(self, now: float, target: float) -> tuple[BurnRow, ...]:
        """A row for each pair of `WINDOWS` that ends at Unix time `now`, for the objective's `target`."""
        budget = 1.0 - target
        rows = []
        for long_seconds, short_seconds, threshold in WINDOWS:
            long, short = self._bad(now, long_seconds), self._bad(now, short_seconds)
            firing = (
                long is not None
                and short is not None
                and min(long.ratio, short.ratio) > threshold * budget
                and (long.ended >= FEW_REQUESTS or long.ended * long.ratio >= FEWEST_BAD)
            )
            rows.append(
                BurnRow(
                    long_seconds,
                    short_seconds,
                    None if long is None else long.ratio / budget,
                    None if short is None else short.ratio / budget,
                    threshold,
                    firing,
                    reachable=is_reachable(threshold, target),
                )
            )
        return tuple(rows)

    def _bad(self, now: float, seconds: float) -> _Bad | None:
        """The share of requests that were not within the objective; None where it is not known."""
        ring = next(ring for reach, ring in self._rings if reach >= seconds)
        start = ring.before(now - seconds)
        if start is None:
            return None
        gained = [end - begin for end, begin in zip(self._totals, start, strict=True)]
        ended, completed, judged, within, ttft, ttft_within, tpot, tpot_within = gained
        if ended <= 0:
            # nothing ended, so nothing was bad; a replica that counts no requests at all tells nothing
            return _Bad(0.0, 0.0) if self._totals[0] > 0 else None
        if completed <= 0:
            return _Bad(ended, 1.0)
        if judged > 0:
            share = within / judged
        elif ttft > 0 and tpot > 0:
            share = (ttft_within / ttft) * (tpot_within / tpot)
        else:
            return None
        return _Bad(ended, min(1.0, max(0.0, 1.0 - share * completed / ended)))


_objectives: WeakKeyDictionary[Slots, dict[tuple[float, float], tuple[tuple[int, ...], bool]]] = (
    WeakKeyDictionary()
)


def _counted_for(slots: Slots, limits: tuple[float, float]) -> tuple[tuple[int, ...], bool]:
    """The slots that count requests within other objectives, and whether one counts those within `limits`."""
    known = _objectives.setdefault(slots, {})
    found = known.get(limits)
    if found is None:
        named = {slot: one.slo for slot, one in enumerate(slots.series) if one.measure == _WITHIN}
        others = tuple(slot for slot, slo in named.items() if slo is not None and slo != limits)
        found = known[limits] = others, len(others) < len(named)
    return found


_plans: WeakKeyDictionary[Slots, dict[tuple[float, float], tuple[_Weights, ...]]] = WeakKeyDictionary()


def _plan(slots: Slots, limits: tuple[float, float]) -> tuple[_Weights, ...]:
    """Slots and weights whose sums are: TTFT count, TTFT within, TPOT count, TPOT within."""
    plans = _plans.setdefault(slots, {})
    plan = plans.get(limits)
    if plan is None:
        ttft, tpot = limits
        plan = plans[limits] = (
            *_weights(slots, "ttft_seconds", ttft),
            *_weights(slots, "tpot_seconds", tpot),
        )
    return plan


def _weights(slots: Slots, measure: str, limit: float) -> tuple[_Weights, _Weights]:
    """How to count a histogram's observations, and those within `limit`: linear inside its bucket, as in
    `HistogramIncrease.share_within`. A label set that ends below the limit is not counted.
    """
    label_sets: dict[tuple[str, str], list[int]] = {}
    for slot, one in enumerate(slots.series):
        if one.measure == measure and one.part is not Part.VALUE:
            label_sets.setdefault((one.rank, one.group), []).append(slot)
    counts: list[tuple[int, float]] = []
    within: list[tuple[int, float]] = []
    edge = canonical_bound(limit)
    for members in label_sets.values():
        bounds = {
            canonical_bound(slots.series[slot].le): slot
            for slot in members
            if slots.series[slot].part is Part.BUCKET
        }
        totals = [slot for slot in members if slots.series[slot].part is Part.COUNT]
        totals = totals or [slot for bound, slot in bounds.items() if bound == float("inf")]
        high = min((bound for bound in bounds if bound >= edge), default=float("inf"))
        if high == float("inf") or not totals:
            continue
        counts += [(slot, 1.0) for slot in totals]
        low = max((bound for bound in bounds if bound < edge), default=0.0)
        inside = 1.0 if high == edge else (limit - low) / (high - low)
        within.append((bounds[high], inside))
        if low in bounds and inside < 1.0:
            within.append((bounds[low], 1.0 - inside))
    return tuple(counts), tuple(within)
