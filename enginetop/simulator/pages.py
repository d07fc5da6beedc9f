"""Writes the metrics page of a simulated engine, in the text format of Prometheus's Python client.

A `PageTemplate` is made once for an engine's life: between two scrapes only the numbers change, so only they
are written anew.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from enginetop.simulator.family import Family
from enginetop.simulator.metrics import Histogram
from enginetop.simulator.model import EngineModel

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


RANK_LABELS = frozenset({"engine", "dp_rank"})
"""Labels that name a data-parallel rank."""


class PageTemplate:
    """The page of one process through its life: fixed text, and which number stands behind each piece of it.

    `ranks` are the engines of the process, one a data-parallel rank, and `labels` those that name each rank's
    series. `created_at` is the Unix time that counts say they began at; None: they say nothing of it.
    """

    def __init__(
        self,
        layout: Iterable[Family],
        ranks: Sequence[EngineModel],
        labels: Sequence[Mapping[str, str]],
        created_at: float | None,
    ) -> None:
        self._families = tuple((family, _groups(family, ranks)) for family in layout)
        pieces: list[str] = []
        text = ""
        for family, groups in self._families:
            text += _head(family.name, family.help, family.kind)
            created = ""
            for common, group in zip(labels, groups, strict=False):
                own = {name: value for name, value in common.items() if name in family.common}
                for line in _lines(family, own, family.read(group[0], 0.0)):
                    pieces.append(text + line)
                    text = "\n"
                if created_at is not None:
                    created += _created(family, own, created_at)
            if created and family.has_created:
                text += _created_head(family) + created
        self._pieces = pieces
        self._end = text

    def render(self, seconds: float) -> bytes:
        """The page, `seconds` after the process began."""
        numbers: list[float] = []
        for family, groups in self._families:
            for group in groups:
                value = family.read(group[0], seconds)
                if len(group) > 1:
                    value = _sum([value, *(family.read(model, seconds) for model in group[1:])])
                if isinstance(value, Histogram):
                    numbers.extend(accumulate(value.counts))
                    numbers.extend((numbers[-1], value.sum))
                else:
                    numbers.extend(value)
        parts = [""] * (2 * len(self._pieces) + 1)
        parts[0:-1:2] = self._pieces
        parts[1::2] = map(number_text, numbers)
        parts[-1] = self._end
        return "".join(parts).encode()


def number_text(value: float) -> str:
    """A number as Prometheus's Python client writes it: a float, with an exponent from a million on."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    text = repr(float(value))
    if -1e6 < value < 1e6 or "e" in text:
        return text
    whole, _, fraction = text.partition(".")
    return f"{whole[0]}.{whole[1:]}{fraction}".rstrip("0.") + f"e+{len(whole) - 1:02d}"


def _groups(family: Family, ranks: Sequence[EngineModel]) -> tuple[tuple[EngineModel, ...], ...]:
    """Whose numbers each block of a family's series holds."""
    if not RANK_LABELS.isdisjoint(family.common):
        return tuple((model,) for model in ranks)
    return (tuple(ranks) if family.summed else (ranks[0],),)


def _sum(values: Sequence[Sequence[float] | Histogram]) -> Sequence[float] | Histogram:
    first = values[0]
    if not isinstance(first, Histogram):
        return [sum(column) for column in zip(*values, strict=True)]
    total = Histogram(first.bounds)
    for value in values:
        if isinstance(value, Histogram):
            total.counts = [mine + its for mine, its in zip(total.counts, value.counts, strict=True)]
            total.sum += value.sum
    return total


def _lines(family: Family, labels: dict[str, str], value: Sequence[float] | Histogram) -> Iterable[str]:
    """Each sample line of `family` up to its number."""
    if isinstance(value, Histogram):
        labels = {**labels, **dict(family.children[0])}
        for bound in (*map(number_text, value.bounds), "+Inf"):
            yield f"{family.name}_bucket{_label_text({**labels, 'le': bound})} "
        yield f"{family.name}_count{_label_text(labels)} "
        yield f"{family.name}_sum{_label_text(labels)} "
    else:
        for child in family.children:
            yield f"{family.name}{_label_text({**labels, **dict(child)})} "


def _created(family: Family, labels: dict[str, str], begun_at: float) -> str:
    moment = number_text(begun_at)
    return "".join(
        f"{_created_name(family)}{_label_text({**labels, **dict(child)})} {moment}\n"
        for child in family.children
    )


def _created_head(family: Family) -> str:
    return _head(_created_name(family), family.help, "gauge")


def _created_name(family: Family) -> str:
    stem = family.name.removesuffix("_total") if family.kind == "counter" else family.name
    return f"{stem}_created"


def _head(name: str, text: str, kind: str) -> str:
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"


def _label_text(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in sorted(labels.items())) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
