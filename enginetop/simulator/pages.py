"""Writes the metrics page of a simulated engine, in the text format of vLLM 0.32's Python frontend.

A `PageTemplate` is made once for an engine's life: between two scrapes only the numbers change, so only they
are written anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

from enginetop.simulator.families import Family
from enginetop.simulator.metrics import Histogram
from enginetop.simulator.model import EngineModel

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class PageTemplate:
    """The page of one process through its life: fixed text, and which number stands behind each piece of it.

    `ranks` are the engines of the process, one a data-parallel rank; a family without the label `engine` is
    the first one's. `begun_at` is when the process began, in Unix seconds.
    """

    def __init__(self, layout: Iterable[Family], ranks: Sequence[EngineModel], begun_at: float) -> None:
        self._families = tuple(
            (family, tuple(ranks) if "engine" in family.common else tuple(ranks[:1])) for family in layout
        )
        model_name = ranks[0].settings.model
        pieces: list[str] = []
        text = ""
        for family, models in self._families:
            text += _head(family.name, family.help, family.kind)
            created = ""
            for rank, model in enumerate(models):
                common = {"engine": str(rank), "model_name": model_name}
                labels = {name: value for name, value in common.items() if name in family.common}
                for line in _lines(family, labels, family.read(model, 0.0)):
                    pieces.append(text + line)
                    text = "\n"
                created += _created(family, labels, begun_at)
            if family.has_created:
                text += _created_head(family) + created
        self._pieces = pieces
        self._end = text

    def render(self, seconds: float) -> bytes:
        """The page, `seconds` after the process began."""
        numbers: list[float] = []
        for family, models in self._families:
            for model in models:
                value = family.read(model, seconds)
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
    text = repr(float(value))
    if -1e6 < value < 1e6 or "e" in text:
        return text
    whole, _, fraction = text.partition(".")
    return f"{whole[0]}.{whole[1:]}{fraction}".rstrip("0.") + f"e+{len(whole) - 1:02d}"


def _lines(family: Family, labels: dict[str, str], value: Sequence[float] | Histogram) -> Iterable[str]:
    """Each sample line of `family` up to its number."""
    if isinstance(value, Histogram):
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
