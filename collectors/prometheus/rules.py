"""Recording rules for a Prometheus: the signals of engines by instance, made from the mapping tables.

They make dashboards cheap and keep history for long. Where a measure has several names the first one that an
instance exports counts (`or`), as in the tables; two spellings are never added. Only what one expression can
say truly is said: measures whose series are totals and their breakdown, or copies by shard, have no rule.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from itertools import chain

from collectors.engines.detect import TABLES
from collectors.engines.mapping import Row, Table
from collectors.prometheus.names import one_of
from enginetop.fleet.signals import MEASURES, MeasureKind

GROUP = "enginetop"
WINDOW = "5m"
QUANTILES = (("p50", "0.5"), ("p95", "0.95"), ("p99", "0.99"))
KEPT_BUCKETS = frozenset({"ttft_seconds", "tpot_seconds"})
"""Of these the buckets themselves are kept too: what an objective is counted from, whatever it is."""
_BY = "job, instance"


def rate_name(measure: str) -> str:
    """The rule of a counter: what it gains a second."""
    return f"enginetop:{measure}:rate{WINDOW}"


def buckets_name(measure: str) -> str:
    """The rule of a histogram's buckets: what each (by `le`) gains a second."""
    return f"enginetop:{measure}:buckets_rate{WINDOW}"


def rule_file(known: Collection[str] | None = None) -> str:
    """A rule file (YAML). `known`: only of series with these names; None: of all that the tables know."""
    lines = ["groups:", f"- name: {GROUP}", "  rules:"]
    for name, expression in rules(known):
        lines += [f"  - record: {name}", f"    expr: {json.dumps(expression)}"]
    return "\n".join(lines) + "\n"


def rules(known: Collection[str] | None = None) -> Iterator[tuple[str, str]]:
    """Name and expression of each rule, in the order of the measures."""
    for measure, kind in MEASURES.items():
        suffix = {MeasureKind.HISTOGRAM: "_bucket", MeasureKind.COUNTER: "_total"}.get(kind, "")
        series = [
            (f'{{__name__="{name}",{_where(row)}server=""}}', row.scale)
            for name, row in _names(measure, suffix)
            if known is None or name in known
        ]
        if not series:
            continue
        if kind is MeasureKind.HISTOGRAM:
            buckets = " or ".join(f"sum by ({_BY}, le) (rate({one}[{WINDOW}]))" for one, _ in series)
            if measure in KEPT_BUCKETS:
                yield buckets_name(measure), buckets
            for word, quantile in QUANTILES:
                yield f"enginetop:{measure}:{word}_{WINDOW}", f"histogram_quantile({quantile}, {buckets})"
        elif kind is MeasureKind.COUNTER:
            rates = (f"sum by ({_BY}) (rate({one}[{WINDOW}])){_times(scale)}" for one, scale in series)
            yield rate_name(measure), " or ".join(rates)
        else:
            how = "max" if measure.endswith("_ratio") else "sum"
            gauges = (f"{how} by ({_BY}) ({one}){_times(scale)}" for one, scale in series)
            yield f"enginetop:{measure}", " or ".join(gauges)


def _names(measure: str, suffix: str) -> Iterator[tuple[str, Row]]:
    """The names of the series of a measure, engine after engine, the preferred one first."""
    for table in chain.from_iterable(engine.tables for engine in TABLES):
        rows = [row for row in table.rows if row.measure == measure]
        if len(rows) != 1 or not _simple(table, rows[0]) or (suffix == "_bucket" and rows[0].scale != 1.0):
            continue
        for name in rows[0].names:
            for prefix in rows[0].prefixes or table.prefixes:
                yield f"{prefix}{name}{suffix}", rows[0]


def _simple(table: Table, row: Row) -> bool:
    """Whether the sum over an instance's series is the measure."""
    conditions = row.unless or row.only_with or row.total_label or row.position_label
    if row.where and row.kind is not MeasureKind.COUNTER:
        return False
    return not (conditions or table.router_view or table.shard_labels or row.slo_labels)


def _where(row: Row) -> str:
    """The matchers that keep the children of a row."""
    told = (f'{label}=~"{one_of(sorted(values))}",' for label, values in sorted(row.where.items()))
    return "".join(told)


def _times(scale: float) -> str:
    return f" * {scale:g}" if scale != 1.0 else ""
