"""`docs/engines.md` from the mapping tables: `python -m enginetop.docs_tables FILE` writes it.

A test holds the file against the tables, so that it cannot say what the code does not do.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from collectors.engines.base import EngineTable, SidePage
from collectors.engines.companion import ROWS as COMPANION_ROWS
from collectors.engines.detect import TABLES
from collectors.gpu.exporter_tables import EXPORTERS, GpuExporter
from collectors.origin import METRICS_PATHS
from enginetop.fleet.beyond_catalogue import BEYOND
from enginetop.fleet.changeable import CHANGEABLE
from enginetop.fleet.derive import MEASURES_OF, OWN_MEANS
from enginetop.fleet.model import EngineKind
from enginetop.fleet.signals import KNOBS

_INTRODUCTION = """\
# What is read of which engine

Written by `make docs` from the mapping tables (`collectors/engines/`); a test fails when it is not what they
say. `●` every release that is read has it, `0.7.3` since that release, `○` worked out from the raw series
named below, `–` no release exports it. A signal that a page does not hold is null with the reason, never 0;
`enginetop doctor URL` tells both, and the remedy.
"""
_GATEWAYS = """\
## Signals of routers and gateways

A router's view: it never adds to sums while an engine's page is scraped.
"""
_BEYOND = """\
## Beyond the core

Shown where a page exports it.
"""
_COMPANION = """\
## What companions add

The same for every engine: exact counts of single requests, on the engine's own page.
"""
_EXPORTERS = """\
## What is read of GPU exporters

Named with `--gpu-exporter URL` or `[[gpu_exporters]]`, or scraped by the `--prometheus` that is read. A GPU
is joined with its replicas by the first that tells: the UUID on an engine's own page, the pod that the
exporter says it serves (a GPU without one is free), the host. Markers for "not known" are missing, never 0;
figures are as old as their last change.
"""


def page() -> str:
    """The whole text of `docs/engines.md`."""
    engines = [table for table in TABLES if table.kind is not EngineKind.ROUTER]
    gateways = [table for table in TABLES if table.kind is EngineKind.ROUTER]
    beyond = {row.name: row.measures for row in BEYOND}
    parts = [
        _INTRODUCTION,
        "## Signals of engines\n",
        *_matrix(engines, MEASURES_OF),
        _GATEWAYS,
        *_matrix(gateways, MEASURES_OF),
        _BEYOND,
        *_matrix(engines, beyond),
        *_matrix(gateways, beyond),
        "## What can be changed\n",
        *_knobs(),
        _COMPANION,
        *table_lines(
            ("measure", "raw names"),
            ((row.measure, code(f"enginetop_{name}" for name in row.names)) for row in COMPANION_ROWS),
        ),
        _EXPORTERS,
        *_exporters(),
        *(line for table in TABLES for line in _engine(table)),
    ]
    return "\n".join(parts).rstrip() + "\n"


def _matrix(tables: Sequence[EngineTable], signals: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Signals down, engines across; a signal that none of them has is left out."""
    rows = [
        (f"`{name}`", *(mark(table, name, measures) for table in tables))
        for name, measures in signals.items()
    ]
    return table_lines(
        ("signal", *(table.title for table in tables)), (row for row in rows if set(row[1:]) != {"–"})
    )


def mark(table: EngineTable, signal: str, measures: Sequence[str]) -> str:
    """Whether a signal is read, and since when: all its measures, or the one that stands in for them."""
    stand_in = OWN_MEANS.get(signal)
    if not all(measure in table.sources for measure in measures):
        if stand_in is None or stand_in not in table.sources:
            return "–"
        measures = (stand_in,)
    releases = [_since(table, measure) for measure in measures]
    if "○" in releases:
        return "○"
    return ", ".join(release for release in dict.fromkeys(releases) if release != "●") or "●"


def _since(table: EngineTable, measure: str) -> str:
    """The first release of a measure; or one of the other marks of the introduction."""
    told = [one.since().get(measure, "") for one in table.tables if measure in one.sources()]
    if not told:
        return "○"
    return told[0] if all(told) else "●"


def _knobs() -> Iterator[str]:
    rows = (
        (_title(kind), *(f"{change.apply.replace('_', ' ')}: {change.how}" for change in knobs.values()))
        for kind, knobs in CHANGEABLE.items()
    )
    return table_lines(("engine", *(f"`{knob}`" for knob in KNOBS)), rows)


def _title(kind: EngineKind) -> str:
    return next(table.title for table in TABLES if table.kind is kind)


def _exporters() -> Iterator[str]:
    """Fields down, exporters across: the series of each, first choice first."""
    fields = dict.fromkeys(figure.field for one in EXPORTERS for figure in one.figures)
    rows = ((f"`{field}`", *(_told(one, field) for one in EXPORTERS)) for field in fields)
    faults = ("broken", *(code(dict.fromkeys(f.name for f in one.faults)) or "–" for one in EXPORTERS))
    return table_lines(("field", *(f"{one.title} `{one.page}`" for one in EXPORTERS)), (*rows, faults))


def _told(exporter: GpuExporter, field: str) -> str:
    ways = [
        " + ".join(
            [*(f"`{name}`" for name in figure.names), *(f"`{name}` if there" for name in figure.may_add)]
        )
        + (f" of `{figure.where[0]}` {' or '.join(filter(None, figure.where[1]))}" if figure.where else "")
        for figure in exporter.figures
        if figure.field == field
    ]
    remark = exporter.remarks.get(field)
    return "; ".join(ways) + (f" ({remark})" if ways and remark else "") or "–"


def _engine(table: EngineTable) -> Iterator[str]:
    yield f"## {table.title}\n"
    if table.reads:
        yield f"- Read: {table.reads}."
    if table.changes:
        yield f"- Can be changed: {table.changes}."
    if table.enable_hint:
        yield f"- Metrics page: {table.enable_hint}."
    yield f"- Asked: {_asked(table)}.\n"
    if table.never:
        yield from table_lines(
            ("never asked", "because it"), ((f"`{path}`", why) for path, why in table.never)
        )
    yield from table_lines(
        ("measure", "raw names, newest first", "since"),
        ((measure, code(names), _since(table, measure)) for measure, names in table.sources.items()),
    )
    remedies = {m: how for one in table.tables for m, how in one.enable.items()}
    reasons = {m: why for one in table.tables for m, why in one.unsupported.items()}
    missing = {**dict.fromkeys(remedies, ""), **reasons}
    if missing:
        yield from table_lines(
            ("may be missing", "because", "to have it"),
            ((measure, why, remedies.get(measure, "")) for measure, why in missing.items()),
        )


def _asked(table: EngineTable) -> str:
    """The pages in words, with how often each is asked."""
    sides = sorted(table.side_pages, key=lambda side: not side.before_metrics)
    pages = [_side(side) for side in sides if side.before_metrics]
    barred = {path for path, _ in table.never}
    metrics = [path for path in METRICS_PATHS if path not in barred]
    pages.append(f"the metrics page ({' or '.join(f'`{path}`' for path in metrics)})")
    pages += [_side(side) for side in sides if not side.before_metrics]
    if table.liveness_path:
        pages.append(f"`{table.liveness_path}` when the metrics page hangs")
    return ", ".join(pages)


def _side(side: SidePage) -> str:
    often = "each time" if side.every_scrape else "once a start"
    needed = ", if the pages before it call for it" if side.when else ""
    return f"`{side.request}` ({often}{', first' if side.before_metrics else ''}{needed})"


def table_lines(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of a Markdown table, an empty one at its end."""
    yield f"| {' | '.join(map(_escaped, head))} |"
    yield f"|{' --- |' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(map(_escaped, row))} |"
    yield ""


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def code(names: Iterable[str]) -> str:
    """Names as code, in a row."""
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    Path(sys.argv[1] if len(sys.argv) > 1 else "docs/engines.md").write_text(page(), encoding="utf-8")
