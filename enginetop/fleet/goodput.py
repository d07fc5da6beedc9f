"""Attainment and goodput from exact counts: every request judged one by one, by the engine's companion.

Formulas: share within the SLO = requests within it / completed requests; goodput = (finished - aborted -
errored) per second x that share. Nothing here is estimated from histograms.
"""

from __future__ import annotations

from collections.abc import Iterable

from enginetop.fleet.facts import Facts, WindowFacts
from enginetop.fleet.model import Quality
from enginetop.fleet.snapshot import Goodput, Scalar, Signals, Slo

NO_ESTIMATES = "estimates not built yet"

_FINISHED = "requests_finished"
_INCOMPLETE = ("requests_aborted", "requests_errored")
_JUDGED, _FAILED, _WITHIN = "requests_judged", "requests_judged_failed", "requests_within_slo"

_SEVERAL = "requests were counted for several objectives in the window: the objective was changed"

_Objective = tuple[float, float]


def goodput(signals: Signals, window: WindowFacts | None, slo: Slo) -> Goodput:
    """Goodput of one replica.

    `signals` are those shown, `window` what it told (None: nothing that holds now). The quality is `ok` where
    every engine counts exactly, `estimated` where a part of them does, else `unknown` or `suspect`; the note
    says why, or which objective the engine side counts for where that is not `slo`.
    """
    if window is None:
        return _counted(signals, None, slo)
    several = sum(increase > 0 for increase in window.total.within_slo.values()) > 1
    return _counted(signals, window.total, slo, doubt=_SEVERAL if several else "")


def fleet_goodput(signals: Signals, facts: Facts | None, slo: Slo, parts: Iterable[Goodput]) -> Goodput:
    """Goodput of the replicas that `parts` belong to, as one: sums of their counts.

    Replicas may count for different objectives, each for its own model's. As for the rest see `goodput`.
    """
    doubt = next((part.note for part in parts if part.quality is Quality.SUSPECT), "")
    return _counted(signals, facts, slo, doubt=doubt)


def _counted(signals: Signals, facts: Facts | None, slo: Slo, doubt: str = "") -> Goodput:
    shown = signals["requests_finished_per_second"]
    offered = shown.number if isinstance(shown, Scalar) else None
    if facts is None:
        return Goodput(offered, note=NO_ESTIMATES)
    judged, within = facts.increase(_JUDGED), facts.increase(_WITHIN)
    failed = _or_nothing(facts, _FAILED)
    if judged is None or within is None or failed is None:
        return Goodput(offered, note=_why(facts))
    counted_for = _objective(facts)
    completed = judged - failed
    if completed <= 0:
        return Goodput(offered, counted_for=counted_for, note="no request was completed in the window")
    if doubt or within > completed:
        return Goodput(
            offered,
            counted_for=counted_for,
            quality=Quality.SUSPECT,
            note=doubt or "more requests within the SLO than completed",
        )
    exact = within / completed
    rate = _completed_per_second(facts)
    notes = []
    covered = facts.parts - max(_uncounted(facts, measure) for measure in (_JUDGED, _WITHIN))
    if covered < facts.parts:
        notes.append(f"exact counts from {covered} of {facts.parts} engines")
    if counted_for is not None and counted_for != (slo.ttft_seconds, slo.tpot_seconds):
        ttft, tpot = counted_for
        notes.append(f"counted for TTFT {ttft:g} s and TPOT {tpot:g} s, not for the configured SLO")
    return Goodput(
        offered_per_second=offered,
        good_per_second=None if rate is None else rate * exact,
        exact=exact,
        counted_for=counted_for,
        quality=Quality.OK if covered == facts.parts else Quality.ESTIMATED,
        note="; ".join(notes),
    )


def _objective(facts: Facts) -> _Objective | None:
    """The objective that requests were counted for; None when it is not named, or not one.

    An engine side counts for one objective at a time; series of former ones stay on the page and stand still.
    """
    growing = [slo for slo, increase in facts.within_slo.items() if increase > 0]
    candidates = growing or list(facts.within_slo)
    return candidates[0] if len(candidates) == 1 else None


def _completed_per_second(facts: Facts) -> float | None:
    """Finished minus aborted and errored; None where the engine does not count requests."""
    finished = facts.gains.get(_FINISHED)
    if finished is None:
        return None
    return finished.per_second - sum(
        facts.gains[measure].per_second for measure in _INCOMPLETE if measure in facts.gains
    )


def _or_nothing(facts: Facts, measure: str) -> float | None:
    """An increase; 0 where the series comes with its first event, None where it cannot be believed."""
    increase = facts.increase(measure)
    if increase is not None:
        return increase
    gap = facts.gaps.get(measure)
    return None if gap is not None and gap.quality is Quality.SUSPECT else 0.0


def _uncounted(facts: Facts, measure: str) -> int:
    gap = facts.gaps.get(measure)
    return gap.parts if gap is not None else 0


def _why(facts: Facts) -> str:
    gap = next((facts.gaps[name] for name in (_JUDGED, _WITHIN, _FAILED) if name in facts.gaps), None)
    return NO_ESTIMATES if gap is None or not gap.note else f"{NO_ESTIMATES}; exact counts: {gap.note}"
