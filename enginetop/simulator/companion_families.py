"""What a companion adds to the page of a simulated engine of any kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from enginetop.simulator.family import Family, Labels, each
from enginetop.simulator.metrics import EngineMetrics, Histogram
from enginetop.simulator.truth import FINISH_REASONS


def companion_families(
    objectives: Sequence[tuple[float, float]], reasons: bool, common: frozenset[str], summed: bool = False
) -> tuple[Family, ...]:
    """Exact counts of requests as their clients saw them, and that this is a simulation.

    `objectives` are the pairs of TTFT and TPOT (seconds) that requests are counted for, `reasons` tells
    whether the model thinks before it answers. `common` and `summed`: as in `Family`.
    """

    def family(
        name: str,
        kind: str,
        text: str,
        read: Callable[[EngineMetrics], Sequence[float] | Histogram],
        children: tuple[Labels, ...] = ((),),
    ) -> Family:
        return Family(f"enginetop_{name}", kind, text, lambda e, _: read(e.metrics), children, common, summed)

    pairs = tuple((("tpot_seconds", str(tpot)), ("ttft_seconds", str(ttft))) for ttft, tpot in objectives)
    return (
        Family(
            "enginetop_simulated",
            "gauge",
            "1: a simulation, not an engine.",
            lambda _model, _seconds: (1,),
            common=common,
        ),
        family("ttft_seconds", "histogram", "Time to first token, finer.", lambda m: m.fine_first_token),
        family("tpot_seconds", "histogram", "Time per output token, finer.", lambda m: m.fine_per_token),
        *(
            [family("reasoning_tokens", "histogram", "Reasoning length.", lambda m: m.reasoning_tokens)]
            if reasons
            else []
        ),
        family(
            "requests_total",
            "counter",
            "Ended requests by outcome.",
            lambda m: tuple(m.judged.values()),
            each("outcome", *FINISH_REASONS),
        ),
        family(
            "requests_within_slo_total",
            "counter",
            "Requests answered in full and within the SLO.",
            lambda m: tuple(m.within.get(objective, 0) for objective in objectives),
            pairs,
        ),
    )
