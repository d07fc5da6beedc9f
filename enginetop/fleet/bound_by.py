"""What limits a replica: one word a page, and its shares of the window.

The words are the contract's. A limit is only named with evidence on the page: preemptions and the KV cache
first (work is destroyed), then requests that wait while a configured limit is reached, then objectives that
are missed without a queue. KV use alone is no limit: a prefix cache that is kept fills it too.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from types import MappingProxyType

from enginetop.fleet.facts import WindowFacts
from enginetop.fleet.model import Quality
from enginetop.fleet.quickly_made import quickly_made
from enginetop.fleet.reading import ConfigValue
from enginetop.fleet.snapshot import Distribution, Signals, Slo

WORDS: tuple[str, ...] = (
    "kv",
    "sequences",
    "token_budget",
    "prefill",
    "decode",
    "queue",
    "capacity",
    "none",
    "unknown",
)
"""In the order in which shares are listed."""

UNKNOWN: Mapping[str, float] = MappingProxyType({"unknown": 1.0})

KV_FULL_RATIO = 0.95
"""From here on preemptions are near; alone it is no trouble: a prefix cache that is kept fills it too."""

_REACHED = 0.9
"""A configured limit counts as reached a little below it, since gauges are samples (a heuristic)."""

_ROUNDING_SECONDS = 1e-6
_MOST_SPANS = 4096


@quickly_made
class Load:
    """One page of an engine; None: not told.

    `preempted`: since the former page. `running` and `waiting` are requests of all ranks, `most_running` what
    `max_num_seqs` allows them together, `kv_ratio` the fullest rank's use of its KV cache. `step_tokens` is
    the p90 of tokens per step over the window, `budget_tokens` the most that a step may hold. `ttft_late`
    and `tpot_late`: the p95 of the window is over the objective.
    """

    running: float | None
    waiting: float | None
    kv_ratio: float | None = None
    preempted: bool = False
    most_running: float | None = None
    step_tokens: float | None = None
    budget_tokens: float | None = None
    ttft_late: bool | None = None
    tpot_late: bool | None = None


def bound_by(load: Load) -> str:
    """The word of one page, of `WORDS`."""
    if load.preempted:
        return "kv"
    if load.running is None or load.waiting is None:
        return "unknown"
    full = _reached(load.step_tokens, load.budget_tokens)
    if load.waiting > 0:
        return _bound_with_a_queue(load, full)
    if load.running <= 0:
        return "none"
    if load.tpot_late:
        return "token_budget" if full else "decode"
    return "prefill" if load.ttft_late else "none"


def _bound_with_a_queue(load: Load, full: bool | None) -> str:
    if load.kv_ratio is not None and load.kv_ratio >= KV_FULL_RATIO:
        return "kv"
    if load.ttft_late and load.tpot_late:
        return "capacity"  # both objectives are missed: no knob trades one for the other
    crowded = _reached(load.running, load.most_running)
    if crowded:
        return "sequences"
    if full:
        return "token_budget"
    return "unknown" if crowded is None or full is None else "queue"


def load_of(
    signals: Signals,
    window: WindowFacts,
    config: Mapping[str, ConfigValue],
    slo: Slo,
    *,
    preempted: bool,
) -> Load:
    """What the last page and its window say about limits."""
    levels = window.total.levels
    running, waiting, kv = (
        levels.get(name) for name in ("requests_running", "requests_waiting", "kv_usage_ratio")
    )
    seqs, budget = (_setting(config, name) for name in ("max_num_seqs", "max_num_batched_tokens"))
    return Load(
        running=running.total if running else None,
        waiting=waiting.total if waiting else None,
        kv_ratio=kv.maximum if kv else None,
        preempted=preempted,
        most_running=seqs * running.parts if seqs is not None and running is not None else None,
        step_tokens=None if budget is None else _quantile(signals, "iteration_tokens", "p90"),
        budget_tokens=budget,
        ttft_late=_late(signals, "ttft_seconds", slo.ttft_seconds),
        tpot_late=_late(signals, "tpot_seconds", slo.tpot_seconds),
    )


class BoundShares:
    """The words of the pages of a window; each holds for the time since the page before it."""

    def __init__(self, window_seconds: float) -> None:
        self._window_seconds = window_seconds
        self._spans = array("d")  # begin and end of each, oldest first
        self._words: list[str] = []  # theirs
        self._seconds = dict.fromkeys(WORDS, 0.0)
        self._newest: tuple[float, str] | None = None

    def add(self, at: float, word: str) -> None:
        """Take the word of the page of Unix time `at`."""
        spans, words = self._spans, self._words
        if self._newest is not None and at > self._newest[0]:
            if len(words) == _MOST_SPANS:
                self._forget(0)
            spans.extend((self._newest[0], at))
            words.append(word)
            self._seconds[word] += at - self._newest[0]
        elif self._newest is not None:
            while spans and spans[-1] > at:  # the clock was set back
                self._forget(len(words) - 1)
        self._newest = (at, word)
        while spans and spans[1] <= at - self._window_seconds:
            self._forget(0)
        if not spans:
            self._seconds = dict.fromkeys(WORDS, 0.0)  # nor is anything left of rounding

    def _forget(self, span: int) -> None:
        began, ended = self._spans[2 * span : 2 * span + 2]
        self._seconds[self._words.pop(span)] -= ended - began
        del self._spans[2 * span : 2 * span + 2]

    @property
    def shares(self) -> Mapping[str, float]:
        """Share of the window by word; they add up to 1. A single page speaks for all of it."""
        if self._newest is None:
            return UNKNOWN
        at, word = self._newest
        if not self._spans:
            return {word: 1.0}
        seconds = self._seconds.copy()
        seconds[self._words[0]] -= max(0.0, at - self._window_seconds - self._spans[0])
        held = {name: span for name, span in seconds.items() if span > _ROUNDING_SECONDS}
        total = sum(held.values())
        return {name: span / total for name, span in held.items()} if held else {word: 1.0}


def _reached(value: float | None, limit: float | None) -> bool | None:
    return None if value is None or limit is None else value >= _REACHED * limit


def _setting(config: Mapping[str, ConfigValue], name: str) -> float | None:
    found = config.get(name)
    value = None if found is None else found.value
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        return None
    return float(value)


def _quantile(signals: Signals, name: str, key: str) -> float | None:
    """The quantile; of a censored one what it is at least."""
    signal = signals[name]
    if not isinstance(signal, Distribution) or signal.quality is Quality.SUSPECT:
        return None
    return signal.quantiles[key].at_least


def _late(signals: Signals, name: str, limit: float) -> bool | None:
    p95 = _quantile(signals, name, "p95")
    return None if p95 is None else p95 > limit
