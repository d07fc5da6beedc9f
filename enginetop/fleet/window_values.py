"""Signals of one replica's window, kept while they stay true; and what its state lets be shown of them."""

from __future__ import annotations

import math
from array import array
from dataclasses import field
from types import MappingProxyType

from enginetop.fleet.beyond import beyond
from enginetop.fleet.beyond_catalogue import MEASURE_KINDS
from enginetop.fleet.changing import changed
from enginetop.fleet.derive import no_signals, rank_signals, signals
from enginetop.fleet.durations import duration_text
from enginetop.fleet.facts import Facts, WindowFacts
from enginetop.fleet.history import TargetHistory
from enginetop.fleet.lazy import overlaid
from enginetop.fleet.model import Quality, ReplicaState
from enginetop.fleet.quickly_made import quickly_made
from enginetop.fleet.signals import MeasureKind
from enginetop.fleet.snapshot import Distribution, RankSnapshot, Scalar, Signals, SignalValue

_VALUES_MEAN_NOTHING = frozenset(
    {
        ReplicaState.DOWN,
        ReplicaState.UNAUTHORIZED,
        ReplicaState.LOADING,
        ReplicaState.NO_ENGINE_METRICS,
        ReplicaState.UNKNOWN,
    }
)
"""In these states the last good page says nothing about now; in `stale` it is shown as old."""

_COUNTED = tuple(measure for measure, kind in MEASURE_KINDS.items() if kind is not MeasureKind.GAUGE)
"""The measures that a window is taken of: gauges are those of the last page."""


@quickly_made(eq=False)
class Values:
    """What the pages of a window say."""

    facts: WindowFacts
    signals: Signals
    ranks: tuple[RankSnapshot, ...]
    beyond: Signals


class WindowValues:
    """The values of `history` over the last `window_seconds` before any instant.

    They change when a page comes, and when the clock moves the baseline on to a later page.
    """

    def __init__(self, history: TargetHistory, window_seconds: float) -> None:
        self._history = history
        self._window_seconds = window_seconds
        self._later_pages = array("d")  # times of the pages after the baseline
        self._values: Values | None = None
        self._true_until = -math.inf

    def page_came(self, at: float) -> None:
        """The history has a new page, of Unix time `at`. Those that are not older (a clock that was set back)
        are no baselines any more.
        """
        while self._later_pages and self._later_pages[-1] >= at:
            self._later_pages.pop()
        self._later_pages.append(at)
        self._true_until = -math.inf

    def at(self, now: float, fresh_seconds: float = math.inf) -> Values | None:
        """The values at Unix time `now`, the same object while they are the same; None before a page.

        `fresh_seconds` is how long a page of this target is fresh. A window that begins in a longer time
        without pages reaches back to before it (contract: the baseline is the newest page *before* the
        window): where that more than doubles it, what it counts is an average, and said to be one.
        """
        if now >= self._true_until:
            facts = self._history.window(self._window_seconds, now)
            if facts is None:
                return None
            if facts.seconds - self._window_seconds > max(self._window_seconds, fresh_seconds):
                facts = averaged(facts)
            derived = signals(facts)
            self._values = Values(facts, derived, rank_signals(facts, derived), beyond(facts.total))
            self._true_until = self._next_move(max(facts.since, now - self._window_seconds))
        return self._values

    def _next_move(self, baseline: float) -> float:
        """When the next page becomes the baseline; the newest page never does."""
        pages, passed = self._later_pages, 0
        while len(pages) - passed > 1 and pages[passed] <= baseline:
            passed += 1
        del pages[:passed]
        return pages[0] + self._window_seconds if len(pages) > 1 else math.inf


def averaged(window: WindowFacts) -> WindowFacts:
    """The same facts; whatever was counted is an estimate of what happens now."""
    note = f"an average of {duration_text(window.seconds)}: no pages for most of it"
    estimated = dict.fromkeys(_COUNTED, note)

    def told(facts: Facts) -> Facts:
        return changed(facts, estimated=MappingProxyType({**estimated, **facts.estimated}))

    ranks = tuple(changed(rank, facts=told(rank.facts)) for rank in window.ranks)
    return changed(window, total=told(window.total), ranks=ranks)


@quickly_made(eq=False)
class Shown:
    """The values of a window as the state of their replica allows: as derived, old, or none.

    `facts` is None unless they say something about now.
    """

    signals: Signals
    ranks: tuple[RankSnapshot, ...] = ()
    beyond: Signals = field(default_factory=lambda: MappingProxyType({}))
    facts: WindowFacts | None = None


def shown(
    values: Values | None, state: ReplicaState, page_at: float | None, now: float, power: Scalar
) -> Shown:
    """What is shown at Unix time `now` of a replica whose newest page is of `page_at`.

    Where it is old, so is `power`; else power is not among it.
    """
    if values is None or page_at is None or state in _VALUES_MEAN_NOTHING:
        return Shown(no_signals(Quality.UNKNOWN, "no good page yet" if page_at is None else state.value))
    if state is not ReplicaState.STALE:
        return Shown(values.signals, values.ranks, values.beyond, values.facts)
    signals = overlaid(values.signals, {"power_watts": power})
    note = f"{duration_text(now - page_at)} old"
    ranks = tuple(RankSnapshot(rank.labels, aged(rank.signals, note)) for rank in values.ranks)
    return Shown(aged(signals, note), ranks, aged(values.beyond, note))


def aged(values: Signals, note: str) -> Signals:
    """The same values, said to be old; what has no value keeps its own reason."""
    return {name: _aged(value, note) for name, value in values.items()}


def _aged(signal: SignalValue, note: str) -> SignalValue:
    # Built by hand: `dataclasses.replace` costs three times as much, and a whole fleet may grow old at once.
    if isinstance(signal, Scalar):
        if signal.value is None:
            return signal
        return Scalar(signal.value, signal.unit, Quality.STALE, note, signal.mean, signal.worst)
    if signal.count is None:
        return signal
    return Distribution(
        signal.count, signal.sum, signal.mean, signal.quantiles, signal.unit, Quality.STALE, note
    )
