"""Every signal that a rule reads, taken away: advice names what it lacks, or can do without it.

Which signals those are is not written down: they are what is looked up while advice is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from enginetop.fleet.model import Quality
from enginetop.fleet.snapshot import Advice, Scalar, Signals, SignalValue
from tests.tui.snapshots import no_distribution
from tests.unit.tuners import test_budget_raising, test_speculation, test_thinking
from tests.unit.tuners.test_bad_evidence import BUDGET, DRAFTS, SEEN, THINKING
from tests.unit.tuners.test_bad_evidence import CASES as LOWERING
from tuners.advice import RULES
from tuners.case import Case
from tuners.knob_values import Knobs

CASES: Mapping[str, tuple[Case, str]] = {
    **{name: (case, knob) for name, (case, knob, _) in LOWERING.items()},
    "raise budget": (
        Case(
            test_budget_raising.queueing(),
            test_budget_raising.KNOBS,
            test_budget_raising.full(),
            test_budget_raising.rising(),
            held_seconds=60.0,
        ),
        BUDGET,
    ),
    "one draft more": (
        Case(
            test_speculation.drafting((0.85, 0.80), generated=200.0),
            replace(test_speculation.KNOBS, drafts=2),
            test_speculation.steps(),
            held_seconds=60.0,
        ),
        DRAFTS,
    ),
    "raise the cap": (
        Case(
            test_thinking.pressed(
                {
                    "preemptions": 0.0,
                    "kv_usage_ratio": 0.5,
                    "reasoning_tokens": test_thinking.window(p95=1000),
                }
            ),
            Knobs(2048, 64, thinking=1024),
            held_seconds=60.0,
            thoughts=SEEN,
        ),
        THINKING,
    ),
}


class Watched(Mapping[str, SignalValue]):
    """Signals that remember which of them were looked up."""

    def __init__(self, signals: Signals) -> None:
        self._signals = signals
        self.read: dict[str, None] = {}

    def __getitem__(self, name: str) -> SignalValue:
        self.read[name] = None
        return self._signals[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._signals)

    def __len__(self) -> int:
        return len(self._signals)


def advised(case: Case, knob: str, signals: Signals) -> Advice:
    """The row, made anew of these signals."""
    return RULES[knob].advise(replace(case, replica=replace(case.replica, signals=signals)))


def read_by(name: str) -> list[str]:
    """The signals that the advice of a case looks at."""
    case, knob = CASES[name]
    watched = Watched(case.replica.signals)
    advised(case, knob, watched)
    return list(watched.read)


def test_there_is_advice_to_lose_and_it_rests_on_signals() -> None:
    for name, (case, knob) in CASES.items():
        assert RULES[knob].advise(case).proposed is not None, name
        assert len(read_by(name)) >= 5, name


def without_signal(name: str, signal: str, quality: Quality) -> Advice:
    """What is advised when a signal is not there."""
    case, knob = CASES[name]
    signals = case.replica.signals
    gone: SignalValue = no_distribution(quality)
    if isinstance(signals[signal], Scalar):
        gone = Scalar(None, "", quality)
    return advised(case, knob, {**signals, signal: gone})


def needed_by(knob: str) -> set[str]:
    """The signals without which one of the cases of a knob has no advice."""
    return {
        signal
        for name, (_, of) in CASES.items()
        for signal in (read_by(name) if of == knob else ())
        if without_signal(name, signal, Quality.UNSUPPORTED).proposed is None
    }


@pytest.mark.parametrize(("name", "signal"), [(name, signal) for name in CASES for signal in read_by(name)])
@pytest.mark.parametrize("quality", [Quality.UNSUPPORTED, Quality.STALE])
def test_a_signal_taken_away_is_named_or_not_needed(name: str, signal: str, quality: Quality) -> None:
    case, knob = CASES[name]
    before, found = RULES[knob].advise(case), without_signal(name, signal, quality)
    if (found.action, found.proposed) != (before.action, before.proposed):
        assert (found.action, found.proposed) == ("withheld", None), found
        assert any(signal in text for text in found.because), found.because
