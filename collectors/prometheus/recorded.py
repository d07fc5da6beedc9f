"""The requests of the last days as recording rules of ours have kept them, for the burn of the error budget.

Raw samples of days are too many to read at a start, and the long windows of the burn would fill only as time
goes by. Where the rules that `enginetop rules` prints are recorded, their counts are laid before the live
ones. Nothing else is read of them: every figure of now has one code path, over raw samples.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate, chain
from math import isfinite

from collectors.engines.detect import TABLES
from collectors.prometheus.client import PrometheusClient
from collectors.prometheus.names import one_of
from collectors.prometheus.rules import buckets_name, rate_name
from enginetop.fleet.burn import Counts
from enginetop.fleet.histogram import HistogramIncrease, canonical_bound
from enginetop.fleet.model import EngineKind

FINISHED = rate_name("requests_finished")
_LOST = (rate_name("requests_aborted"), rate_name("requests_errored"))
_HALVES = ("ttft_seconds", "tpot_seconds")
_SPANS = ((72 * 3600.0, 3600.0, 300.0), (3600.0, 0.0, 60.0))
"""From and until how long before the end, and the seconds between two counts."""
_GATEWAYS = tuple(
    sorted(
        prefix
        for prefix in {
            "dynamo_frontend_",
            *chain.from_iterable(
                table.prefixes for one in TABLES if one.kind is EngineKind.ROUTER for table in one.tables
            ),
        }
        if not any(
            prefix in table.prefixes
            for one in TABLES
            if one.kind not in (EngineKind.ROUTER, EngineKind.DYNAMO)
            for table in one.tables
        )
    )
)
"""How names begin that only routers and gateways export: their requests are those of the engines behind."""

Points = Mapping[float, float]


def recorded_counts(
    client: PrometheusClient, limits: tuple[float, float], end: float
) -> Sequence[tuple[float, Counts]]:
    """What ended in the days before Unix time `end`, oldest first: times, and counts since the time before.

    `limits` are the seconds of TTFT and TPOT within the objective. Empty where no such rule is recorded.
    PrometheusError as the client.
    """
    jobs = client.label_values("job", end - _SPANS[0][0], end, f'{{__name__="{FINISHED}"}}')
    if not jobs:
        return ()
    match = f'{{__name__=~"(?:{one_of(_GATEWAYS)}).+"}}'
    engines = sorted({*jobs} - {*client.label_values("job", end - 3600.0, end, match)})
    found: list[tuple[float, Counts]] = []
    for since, until, step in _SPANS if engines else ():
        found += _counts(client, one_of(engines), limits, (end - since, end - until), step)
    return found


def _counts(
    client: PrometheusClient, jobs: str, limits: tuple[float, float], span: tuple[float, float], step: float
) -> Sequence[tuple[float, Counts]]:
    first, last = math.ceil(span[0] / step) * step, span[1]

    def summed(name: str, *by: str) -> Mapping[tuple[str, ...], Points]:
        series = client.over(f'sum by ({", ".join(by)}) ({name}{{job=~"{jobs}"}})', first, last, step)
        return {
            tuple(str(one["metric"].get(label, "")) for label in by): {
                float(at): count for at, value in one["values"] if isfinite(count := float(value) * step)
            }
            for one in series
        }

    ended = summed(FINISHED).get((), {})
    lost = [summed(name).get((), {}) for name in _LOST]
    halves = [
        _within(summed(buckets_name(measure), "job", "le"), limit)
        for measure, limit in zip(_HALVES, limits, strict=True)
    ]
    found: list[tuple[float, Counts]] = []
    for at, requests in sorted(ended.items()):
        failed = sum(gone.get(at, 0.0) for gone in lost)
        (ttft, ttft_within), (tpot, tpot_within) = (half.get(at, (0.0, 0.0)) for half in halves)
        completed = max(0.0, requests - failed)
        found.append((at, (requests, completed, 0.0, 0.0, ttft, ttft_within, tpot, tpot_within)))
    return found


def _within(buckets: Mapping[tuple[str, ...], Points], limit: float) -> Mapping[float, tuple[float, float]]:
    """By time, the observations and those within the limit, worked out as for a live histogram.

    `buckets` are by job and bound: jobs are of one engine each, and engines differ in their bounds.
    """
    told: defaultdict[tuple[float, str], dict[float, float]] = defaultdict(dict)
    for (job, le), points in buckets.items():
        try:
            bound = canonical_bound(float(le))
        except ValueError:
            continue
        for at, value in points.items():
            told[(at, job)][bound] = value
    found: defaultdict[float, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    for (at, _), counts in told.items():
        count = counts.pop(math.inf, None)
        if count is None:
            continue
        bounds = tuple(sorted(counts))
        cumulative = tuple(min(value, count) for value in accumulate((counts[b] for b in bounds), max))
        share = HistogramIncrease(bounds, cumulative, count, None).share_within(limit).value
        if share is not None:
            before = found[at]
            found[at] = before[0] + count, before[1] + share * count
    return found
