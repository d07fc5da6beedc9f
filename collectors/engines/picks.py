"""Single samples of a page, found once a layout: what a reader computes from, or shows as a setting."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from collectors.engines.mapping import Labels
from collectors.engines.samples import ROUTER_LABELS
from collectors.page import Layout, Page
from enginetop.fleet.foreign_json import model_name
from enginetop.fleet.reading import EMPTY, ConfigValue

Pick = int | None
"""Index of a sample in the layout, None where the page has none."""


def spelled(prefixes: Sequence[str], *names: str) -> tuple[str, ...]:
    """Full names in order of preference: each name under each prefix."""
    return tuple(prefix + name for name in names for prefix in prefixes)


def samples(layout: Layout, names: Sequence[str], wanted: Labels = EMPTY) -> Iterator[tuple[int, Labels]]:
    """Index and labels of the engine's own samples with one of the names and all of the wanted labels."""
    known = frozenset(names)
    for index, name in enumerate(layout.names):
        if name in known:
            labels = layout.labels[index]
            own = ROUTER_LABELS.isdisjoint(labels)
            if own and all(labels.get(label) == value for label, value in wanted.items()):
                yield index, labels


def first(layout: Layout, names: Sequence[str], wanted: Labels = EMPTY) -> Pick:
    """The first sample of the most preferred name that the page has."""
    found = [index for index, _ in samples(layout, names, wanted)]
    return min(found, key=lambda index: (names.index(layout.names[index]), index), default=None)


def first_labels(layout: Layout, names: Sequence[str]) -> Labels:
    """The labels of the first sample with one of the names: an information series; empty without one."""
    return next((labels for _, labels in samples(layout, names)), EMPTY)


def value_at(page: Page, pick: Pick) -> float:
    """The number of a sample, NaN without one."""
    return math.nan if pick is None else page.values[pick]


def product(page: Page, one: Pick, other: Pick) -> float:
    """The product of two samples, NaN unless both are positive."""
    result = value_at(page, one) * value_at(page, other)
    return result if result > 0 and math.isfinite(result) else math.nan


def settings_on(page: Page, picks: Mapping[str, Pick]) -> Mapping[str, ConfigValue]:
    """Settings that are values of samples, as whole numbers; the sample's name is the source."""
    found: dict[str, ConfigValue] = {}
    for setting, pick in picks.items():
        value = value_at(page, pick)
        if pick is not None and 0 < value < 2**53 and value == int(value):
            found[setting] = ConfigValue(int(value), page.layout.names[pick])
    return MappingProxyType(found)


def typed(label: str | None) -> int | float | str | bool | None:
    """A setting as it was before it became a label; empty and "None" are no value."""
    if label is None or label.lower() in ("", "none"):
        return None
    if label.lower() in ("true", "false"):
        return label.lower() == "true"
    try:
        return int(label)
    except ValueError:
        try:
            value = float(label)
        except ValueError:
            return label
        return value if math.isfinite(value) else None


def first_named(layout: Layout, prefixes: Sequence[str]) -> str | None:
    """The first model name, no placeholder, among the labels of the engine's own samples."""
    own = tuple(prefixes)
    named = (
        model_name(labels.get("model_name"))
        for name, labels in zip(layout.names, layout.labels, strict=True)
        if name.startswith(own) and ROUTER_LABELS.isdisjoint(labels)
    )
    return next(filter(None, named), None)
