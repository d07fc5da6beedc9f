"""Goodput: requests within the objective, counted one by one or estimated from histograms.

Formulas: exact share = requests within the objective / completed requests, where the engine's companion
judges single requests; else bounds from histograms (`attainment`). Goodput = (finished - aborted - errored)
per second x that share.
"""

from __future__ import annotations

from collections.abc import Sequence

from enginetop.fleet.attainment import Attainment, attainment, own_attainment, times
from enginetop.fleet.facts import Facts, WindowFacts
from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import Quality
from enginetop.fleet.snapshot import Goodput, Signals, Slo, number_of

NOTHING_NOW = "nothing known of now"

_FINISHED = "requests_finished"
_ABORTED, _ERRORED = "requests_aborted", "requests_errored"
_JUDGED, _FAILED, _WITHIN = "requests_judged", "requests_judged_failed", "requests_within_slo"

ERRORS_SHARE = 0.05
"""Share of requests ended in an error above which an engine fails its users: what the usual objective, 95 %,
lets miss in all."""

ERRORS_MIN_PER_SECOND = 0.05
"""Three errors a minute: fewer say nothing of a share."""

_SEVERAL = "requests were counted for several objectives in the window: the objective was changed"

_Objective = tuple[float, float]


@frozen
class Part:
    """One replica of a fleet: its goodput, what its window told, and its objective."""

    goodput: Goodput
    facts: Facts
    slo: Slo


@frozen
class _Exact:
    """What was counted. `covered`: all engines count."""

    share: float | None = None
    counted_for: _Objective | None = None
    quality: Quality = Quality.UNKNOWN
    note: str = ""


def goodput(signals: Signals, window: WindowFacts | None, slo: Slo) -> Goodput:
    """Goodput of one replica.

    `signals` are those shown, `window` what it told (None: nothing that holds now). The quality is `ok` where
    every engine counts exactly, `estimated` where a part of them does or histograms tell bounds, `stale`
    where only an old rate of requests is known, else `unknown` or `suspect`; the note says why, or which
    objective the engine side counts for where that is not `slo`.
    """
    if window is None:
        return _nothing_now(signals)
    facts = window.total
    several = sum(increase > 0 for increase in facts.within_slo.values()) > 1
    exact = _counted(facts, slo, doubt=_SEVERAL if several else "", own=True)
    return _goodput(signals, facts, exact, attainment(signals, facts, slo))


def fleet_goodput(signals: Signals, facts: Facts | None, slo: Slo, parts: Sequence[Part]) -> Goodput:
    """Goodput of the replicas `parts` as one: sums of their counts, buckets merged at common bounds.

    Replicas may count for different objectives, each for its own model's; then each is held against its own,
    and `slo` is only what is shown. Where one counts for another than its own there is no exact share: bounds
    say what is known of all. As for the rest see `goodput`.
    """
    if facts is None:
        return _nothing_now(signals)
    doubt = next((part.goodput.note for part in parts if part.goodput.quality is Quality.SUSPECT), "")
    own = all(part.slo is slo or part.slo.limits == slo.limits for part in parts)
    exact = _counted(facts, slo, doubt=doubt, own=own)
    if own:
        return _goodput(signals, facts, exact, attainment(signals, facts, slo))
    elsewhere = sum(_counts_for_another(part) for part in parts)
    if elsewhere and exact.share is not None:
        exact = _Exact(note=f"{elsewhere} of {len(parts)} engines count for another SLO than theirs")
    shares = own_attainment(signals, facts, [(part.facts, part.slo) for part in parts])
    return _goodput(signals, facts, exact, shares)


def fleet_objective(objectives: Sequence[Slo], default: Slo) -> Slo:
    """The objective of a fleet: the one that all its replicas have, else `default`."""
    first = objectives[0] if objectives else default
    return first if all(slo is first or slo == first for slo in objectives) else default


def _goodput(signals: Signals, facts: Facts, exact: _Exact, shares: Attainment) -> Goodput:
    rate = _completed_per_second(facts)
    quality, notes = exact.quality, [exact.note]
    if exact.share is None and shares.joint.low is not None and quality is Quality.UNKNOWN:
        quality = Quality.ESTIMATED
    if exact.share is None or exact.quality is not Quality.OK:
        notes.append(shares.note)
    return Goodput(
        offered_per_second=number_of(signals, "requests_finished_per_second"),
        good_per_second=None if rate is None or exact.share is None else rate * exact.share,
        exact=exact.share,
        counted_for=exact.counted_for,
        quality=quality,
        note="; ".join(note for note in notes if note),
        ttft=shares.ttft,
        tpot=shares.tpot,
        joint=shares.joint,
        within_per_second=times(shares.joint, rate),
        completed_per_second=rate,
        errored_per_second=None if rate is None else _per_second(facts, _ERRORED),
    )


def _nothing_now(signals: Signals) -> Goodput:
    offered = number_of(signals, "requests_finished_per_second")
    return Goodput(note=NOTHING_NOW) if offered is None else Goodput(offered, quality=Quality.STALE)


def _counted(facts: Facts, slo: Slo, doubt: str, *, own: bool) -> _Exact:
    """What the engine side counted. `own`: `slo` is what every replica is held against.

    Counts for another objective say nothing of one that somebody asked for; where nobody did, they are the
    only objective that anybody chose, and are told with its name.
    """
    judged = facts.increase(_JUDGED)
    within = None if judged is None else facts.increase(_WITHIN)
    failed = None if within is None else _or_nothing(facts, _FAILED)
    if judged is None or within is None or failed is None:
        return _Exact(note=_why(facts))
    counted_for = _objective(facts)
    completed = judged - failed
    if completed <= 0:
        return _Exact(None, counted_for, note="no request was completed in the window")
    if doubt or within > completed:
        return _Exact(
            None,
            counted_for,
            Quality.SUSPECT,
            doubt or "more requests within the SLO than completed",
        )
    if own and slo.source != "default" and (other := _other_objective(facts, slo.limits)) is not None:
        note = "the engine side counts for TTFT {:g} s and TPOT {:g} s, not for this SLO".format(*other)
        return _Exact(None, counted_for, note=note)
    notes = []
    covered = facts.parts - max(_uncounted(facts, measure) for measure in (_JUDGED, _WITHIN))
    if covered < facts.parts:
        notes.append(f"exact counts from {covered} of {facts.parts} engines")
    if counted_for is not None and counted_for != slo.limits:
        ttft, tpot = counted_for
        notes.append(f"counted for TTFT {ttft:g} s and TPOT {tpot:g} s, not for the configured SLO")
    if average := facts.estimated.get(_JUDGED):
        notes.append(average)
    quality = Quality.OK if covered == facts.parts and not average else Quality.ESTIMATED
    return _Exact(within / completed, counted_for, quality, "; ".join(notes))


def _objective(facts: Facts) -> _Objective | None:
    """The objective that requests were counted for; None when it is not named, or not one.

    An engine side counts for one objective at a time; series of former ones stay on the page and stand still.
    """
    candidates = _objectives(facts)
    return candidates[0] if len(candidates) == 1 else None


def _objectives(facts: Facts) -> list[_Objective | None]:
    return [slo for slo, increase in facts.within_slo.items() if increase > 0] or list(facts.within_slo)


def _other_objective(facts: Facts, limits: _Objective) -> _Objective | None:
    """An objective that requests were counted for and that is named, and not `limits`."""
    return next((one for one in _objectives(facts) if one is not None and one != limits), None)


def _counts_for_another(part: Part) -> bool:
    return part.slo.source != "default" and _other_objective(part.facts, part.slo.limits) is not None


def _completed_per_second(facts: Facts) -> float | None:
    """Finished minus aborted and errored; None where the engine does not count requests.

    Where an abort is counted before its request has ended, more may be aborted than finished in a window.
    """
    finished = facts.gains.get(_FINISHED)
    if finished is None:
        return None
    return max(0.0, finished.per_second - _per_second(facts, _ABORTED) - _per_second(facts, _ERRORED))


def _per_second(facts: Facts, measure: str) -> float:
    gain = facts.gains.get(measure)
    return 0.0 if gain is None else gain.per_second


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
    found = (facts.gaps.get(name) for name in (_JUDGED, _WITHIN, _FAILED))
    gap = next((gap for gap in found if gap is not None), None)
    return f"no exact counts: {gap.note}" if gap is not None and gap.note else ""
