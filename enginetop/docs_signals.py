"""`docs/signals.md` from the catalogues: `python -m enginetop.docs_signals FILE` writes it.

A test holds the file against the catalogues, so that every signal of a snapshot is told, with its formula.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from collectors.engines.detect import TABLES
from enginetop.docs_tables import mark, table_lines
from enginetop.fleet.beyond_catalogue import BEYOND, Beyond, Form
from enginetop.fleet.bound_by import WORDS
from enginetop.fleet.burn import WINDOWS
from enginetop.fleet.derive import MEASURES_OF, OWN_MEANS
from enginetop.fleet.facts import RATIOS
from enginetop.fleet.model import STATE_ORDER
from enginetop.fleet.signals import DISTRIBUTIONS, MEASURES, SCALARS, MeasureKind, Signal

_INTRODUCTION = """\
# Glossary of signals

Written by `make docs` from the catalogues (`enginetop/fleet/signals.py`, `beyond_catalogue.py`); a test
fails when it is not what they say. Names, units and meanings are those of the JSON of `enginetop snapshot`,
of own rules (`docs/alerts.md`) and of the series `enginetop_replica_<signal>`. Which raw series stand behind
a measure, and since which release, is in `docs/engines.md`.

- **Window**: 60 s, or `--window`. An increase is taken series by series, restarts of the engine included,
  from the newest page at or before its start to the last page; per second means by the time between those
  two. Nothing is extrapolated. Where no pages came for so long that this is more than twice the window, all
  that is counted is `estimated`, an average over that time: a replica back from an outage, for one window.
- **Quantiles** follow Prometheus's rule: rank q x n, the bucket that reaches it, linear inside; `low` and
  `high` are its bounds. Past the last bucket there is no number, only `≥` that bound. Percentiles of a fleet
  come from merged buckets and are never averaged.
- **Missing is not zero**: null with a quality (`unsupported`, `unknown`, `stale`, `suspect`, `invalid`) and
  a reason; `estimated` has one too.
- **Ranks and fleets**: counters and queues are summed over data-parallel ranks and over replicas that are
  up, ratios formed anew from the sums. A router's view adds nothing while an engine's own page is read.
- In the last column `(0.7.3)` means since that release, `○` that the measure is worked out from others.
"""

_WORKED_OUT = {
    "reasoning_share_ratio": "sum of `reasoning_tokens` / sum of `output_tokens` in the window",
    "reasoning_budget_hit_ratio": "requests that reached their thinking budget / those of which it is known",
    "reasoning_kv_tokens": "`requests_running` x mean of `reasoning_tokens` / 2: the least that they hold",
    "power_watts": "sum over the GPUs that serve the replica, as the driver or an exporter tells",
    "energy_joules_per_token": "mean power of the window / `generation_tokens_per_second`",
    "cost_per_million_tokens": "`[cost] per_gpu_hour` x GPUs / tokens per hour x 1 000 000",
    "cost_per_million_good_tokens": "`cost_per_million_tokens` / share of requests within the objective",
}
"""Formulas of signals that are no plain reading of measures; their modules: thinking, gpus, efficiency."""

_ANYWHERE = {
    "reasoning_share_ratio": "as `reasoning_tokens`",
    "reasoning_tokens": "companions, request records, the probe",
    "reasoning_budget_hit_ratio": "as `reasoning_tokens`, where a budget is known",
    "reasoning_kv_tokens": "as `reasoning_tokens`",
    "power_watts": "GPUs of this machine or `--gpu-exporter`",
    "energy_joules_per_token": "where power is known",
    "cost_per_million_tokens": "where `[cost]` and the GPUs are known",
    "cost_per_million_good_tokens": "the same, with goodput",
    **{
        f"models_{state}": "llama.cpp in router mode"
        for state in ("loaded", "loading", "sleeping", "unloaded")
    },
}
"""Who tells what is on no engine's metrics page."""

_FIGURES: tuple[tuple[str, str], ...] = (
    (
        "goodput, `requests_per_second`",
        (
            "requests per second within both halves of the objective. `exact` counts single requests (a "
            "companion, records); else hard bounds `low` and `high` from histograms, and `independent`, the "
            "product of both shares"
        ),
    ),
    ("attainment", "share of requests within the objective's TTFT, TPOT, or both (`joint`)"),
    (
        "burn",
        (
            "bad share over a long and a short window / (1 - target); a row fires when both are above its "
            f"threshold ({', '.join(f'{threshold:g}' for *_, threshold in WINDOWS)}). SRE Workbook, chapter 5"
        ),
    ),
    ("`bound_by`", f"share of the window that a replica was held by each of `{' '.join(WORDS)}`"),
    ("state", f"the first that applies of `{' '.join(STATE_ORDER)}`; the screen's words: `docs/keys.md`"),
    ("age", "seconds since the last good page, by the clock of this machine"),
    ("pace", "scrapes made against scrapes asked for, and dropped turns: how late we are ourselves"),
)

_FORMS = {
    Form.TOTAL: "gauge {0}, summed",
    Form.MAXIMUM: "gauge {0}, the largest",
    Form.AVERAGE: "gauge {0}, mean over ranks",
    Form.SHARE_NOW: "{0} / {1}, both now",
    Form.RATE: "increase of {0} / seconds",
    Form.SHARE: "increase of {0} / increase of {1}",
    Form.DISTRIBUTION: "histogram {0} over the window",
}


def page() -> str:
    """The whole text of `docs/signals.md`."""
    head = ("signal", "on screen", "unit", "meaning", "formula", "told by")
    parts = [
        _INTRODUCTION,
        "## Numbers\n",
        *table_lines(head, map(_row, SCALARS)),
        "## Distributions\n",
        "`count`, `sum`, `mean`, `p50`, `p90`, `p95`, `p99` over the window.\n",
        *table_lines(head, map(_row, DISTRIBUTIONS)),
        "## Figures that follow\n",
        *table_lines(("figure", "meaning"), _FIGURES),
        "## Beyond the core\n",
        "In a snapshot (`beyond`) only where a page exports them.\n",
    ]
    for group, rows in groupby(BEYOND, key=lambda row: row.group):
        parts += [f"### {group[0].upper()}{group[1:]}\n", *table_lines(head, map(_beyond_row, rows))]
    return "\n".join(parts).rstrip() + "\n"


def _row(signal: Signal) -> Sequence[str]:
    told = _told_by(signal.name, MEASURES_OF.get(signal.name, ()))
    return (f"`{signal.name}`", signal.title, signal.unit, signal.meaning, formula(signal.name), told)


def _beyond_row(row: Beyond) -> Sequence[str]:
    made = _FORMS[row.form].format(*(f"`{measure}`" for measure in row.measures))
    return (f"`{row.name}`", row.title, row.unit, row.meaning, made, _told_by(row.name, row.measures))


def formula(name: str) -> str:
    """How a signal of the core comes from measures of the window."""
    if name in _WORKED_OUT:
        return _WORKED_OUT[name]
    if name in RATIOS:
        over = " / ".join(f"increase of `{measure}`" for measure in RATIOS[name])
        own = f"; else the gauge `{OWN_MEANS[name]}`" if name in OWN_MEANS else ""
        each = {"spec_accepted_length": "1 + ", "spec_acceptance_per_position": "for each position: "}
        return f"{each.get(name, '')}{over}{own}"
    (measure,) = MEASURES_OF[name]
    match MEASURES[measure]:
        case MeasureKind.HISTOGRAM:
            return f"increase of the buckets of `{measure}`"
        case MeasureKind.COUNTER:
            return f"increase of `{measure}`" + (" / seconds" if name.endswith("per_second") else "")
        case MeasureKind.GAUGE:
            over = "maximum" if name.endswith("ratio") else "sum"
            return f"gauge `{measure}` of the last good page, {over} over ranks"


def _told_by(name: str, measures: Sequence[str]) -> str:
    """Engines and gateways, with their marks; workers that are read behind a router are their engines."""
    if name in _ANYWHERE:
        return _ANYWHERE[name]
    told = {
        table.title: mark(table, name, measures) for table in TABLES if "behind a router" not in table.title
    }
    return ", ".join(
        title if since == "●" else f"{title} ({since})" for title, since in told.items() if since != "–"
    )


if __name__ == "__main__":
    Path(sys.argv[1] if len(sys.argv) > 1 else "docs/signals.md").write_text(page(), encoding="utf-8")
