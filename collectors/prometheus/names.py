"""Which series are asked of a Prometheus: those that the mapping tables read, spelled as they are there."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from collectors.engines import companion
from collectors.engines.detect import TABLES
from collectors.engines.mapping import Row, Table
from collectors.engines.matching import SIMULATED_GAUGE

START_TIME = "process_start_time_seconds"
"""Changes when a process restarts; asked of the jobs of engines only."""

_MOST_CHARACTERS = 3000
"""Names in one query: its address stays below what proxies allow."""
_SLACK_SECONDS = 1.0
"""So much longer is a range than the time that it covers."""

_TABLES: tuple[Table, ...] = tuple(table for engine in TABLES for table in engine.tables)
_ROWS: tuple[tuple[Row, tuple[str, ...]], ...] = (
    *((row, tuple(filter(None, row.prefixes or table.prefixes))) for table in _TABLES for row in table.rows),
    *((row, row.prefixes) for row in companion.ROWS),
)
PREFIXES: tuple[str, ...] = tuple(
    sorted(
        {*chain.from_iterable(prefixes for _, prefixes in _ROWS), *(p for t in _TABLES for p in t.prefixes)}
    )
)
"""How the names of every engine's series begin."""

_READ_FAMILIES = frozenset(
    prefix + name for row, prefixes in _ROWS for prefix in prefixes for name in row.names
)


def wanted_names(known: Iterable[str], *, births: bool = True) -> tuple[str, ...]:
    """Of all names of a server those that are worth asking for, in order.

    Buckets and birth times that no table reads are left out (without `births` all of these: a process's start
    tells as much); everything else of an engine stays, since its counts show progress and its information
    series tell settings.
    """
    return tuple(sorted(name for name in known if _wanted(name, births)))


def _wanted(name: str, births: bool) -> bool:
    if name == SIMULATED_GAUGE:
        return True
    if not name.startswith(PREFIXES):
        return False
    family, _, part = name.rpartition("_")
    if part == "created":
        return births and not _READ_FAMILIES.isdisjoint((family, f"{family}_total"))
    return part != "bucket" or family in _READ_FAMILIES


def selectors(names: Sequence[str], jobs: Sequence[str], parts: int = 1) -> Iterator[str]:
    """Instant selectors for these names of these jobs, at least `parts` of about the same weight.

    Series that name a `server` are a router's copies.
    """
    job = f'job=~"{one_of(jobs)}",server=""'
    wanted = (*names, START_TIME)
    for part in range(min(parts, len(wanted))):
        for batch in batches(wanted[part::parts]):
            yield f'{{__name__=~"{one_of(batch)}",{job}}}'


def batches(names: Iterable[str]) -> Iterator[Sequence[str]]:
    """The names in parts, each short enough for one query."""
    batch: list[str] = []
    for name in names:
        if batch and sum(map(len, batch)) + len(batch) + len(name) > _MOST_CHARACTERS:
            yield batch
            batch = []
        batch.append(name)
    if batch:
        yield batch


def one_of(words: Iterable[str]) -> str:
    """A regular expression that matches exactly these words, as a PromQL string holds it."""
    return "|".join(map(_literal, words))


def _literal(word: str) -> str:
    escaped = "".join(f"\\{c}" if c in ".+*?()|[]{}^$\\" else c for c in word)
    return escaped.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def range_over(begin: float, end: float) -> str:
    """The range of a query at Unix time `end` that reaches back to `begin`, that moment included."""
    return f"[{math.ceil(end - begin + _SLACK_SECONDS)}s]"
