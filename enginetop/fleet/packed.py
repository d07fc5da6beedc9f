"""Snapshots in a third of their memory, to be kept: numbers in one array, the rest shared."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from enginetop.fleet.model import Quality
from enginetop.fleet.snapshot import (
    Distribution,
    FleetSnapshot,
    ModelSummary,
    Quantile,
    RankSnapshot,
    ReplicaSnapshot,
    Scalar,
    Signals,
    SignalValue,
)

_MOST_SHAPES = 4096
"""Notes hold numbers, so shapes may go on without end; beyond so many, sharing starts anew."""


_VALUE, _LOW, _HIGH, _CENSORED = 1, 2, 4, 8
"""Which numbers of a quantile there are, and whether it is censored."""

_OFTEN_EQUAL = ("config", "events", "advice", "sources", "bound_by", "goodput", "totals")
"""Parts of a replica that are kept once as long as they do not change."""


class _Shape(NamedTuple):
    """All of a signal but its numbers. `length`: of a list of numbers; None: one number, or none at all."""

    unit: str
    quality: Quality
    note: str
    has_value: bool
    length: int | None = None
    has_mean: bool = False
    worst: tuple[tuple[str, str], ...] | None = None
    has_sum: bool = False
    quantiles: tuple[tuple[str, int], ...] | None = None
    """The mean first, under the name `mean`; None: a scalar."""


class _Layout:
    """The shapes of all signals of a set, and where the numbers of each begin."""

    __slots__ = ("places",)

    def __init__(self, shapes: tuple[tuple[str, _Shape, int], ...]) -> None:
        self.places: Mapping[str, tuple[_Shape, int]] = {name: (shape, at) for name, shape, at in shapes}


class PackedSignals(Mapping[str, SignalValue]):
    """Signals that are built anew each time one is read; equal to those that were packed."""

    __slots__ = ("_layout", "_numbers")

    def __init__(self, layout: _Layout, numbers: array[float]) -> None:
        self._layout, self._numbers = layout, numbers

    def same_as(self, other: PackedSignals) -> bool:
        """Whether both hold the same; None and NaN included."""
        return self._layout is other._layout and self._numbers.tobytes() == other._numbers.tobytes()

    def __getitem__(self, name: str) -> SignalValue:
        shape, at = self._layout.places[name]
        return _unpacked(shape, iter(self._numbers[at:]))

    def __contains__(self, name: object) -> bool:
        return name in self._layout.places

    def __iter__(self) -> Iterator[str]:
        return iter(self._layout.places)

    def __len__(self) -> int:
        return len(self._layout.places)


class Packer:
    """Packs snapshots; what two sets of signals have in common beside numbers is kept once."""

    def __init__(self) -> None:
        self._shapes: dict[_Shape, _Shape] = {}
        self._layouts: dict[tuple[tuple[str, _Shape, int], ...], _Layout] = {}
        self._former: dict[str, ReplicaSnapshot] = {}

    def pack(self, snapshot: FleetSnapshot) -> FleetSnapshot:
        """The same snapshot in less memory; reading a signal of it costs more."""
        fleet = snapshot.fleet
        models = tuple(self._model(model) for model in fleet.models)
        packed_fleet = replace(
            fleet, signals=self.signals(fleet.signals), beyond=self.signals(fleet.beyond), models=models
        )
        replicas = tuple(self._replica(one) for one in snapshot.replicas)
        self._former = {replica.target.url: replica for replica in replicas}
        return replace(snapshot, fleet=packed_fleet, replicas=replicas)

    def signals(self, signals: Signals) -> PackedSignals:
        """The same signals in less memory."""
        numbers = array("d")
        shapes: list[tuple[str, _Shape, int]] = []
        for name, value in signals.items():
            at = len(numbers)
            shape = _shape(value, numbers)
            shapes.append((name, self._shapes.setdefault(shape, shape), at))
        if len(self._shapes) > _MOST_SHAPES or len(self._layouts) > _MOST_SHAPES:
            self._shapes.clear()
            self._layouts.clear()
        key = tuple(shapes)
        layout = self._layouts.get(key)
        if layout is None:
            layout = self._layouts[key] = _Layout(key)
        return PackedSignals(layout, numbers[:])  # a copy has no room to grow

    def _replica(self, replica: ReplicaSnapshot) -> ReplicaSnapshot:
        own = self.signals(replica.signals)
        ranks = tuple(RankSnapshot(rank.labels, self._rank(rank.signals, own)) for rank in replica.ranks)
        packed = replace(replica, signals=own, beyond=self.signals(replica.beyond), ranks=ranks)
        former = self._former.get(replica.target.url)
        if former is None:
            return packed
        pairs = ((name, getattr(former, name)) for name in _OFTEN_EQUAL)
        return replace(packed, **{name: old for name, old in pairs if old == getattr(replica, name)})

    def _rank(self, signals: Signals, own: PackedSignals) -> Signals:
        """A replica's only rank says the same as the replica."""
        packed = self.signals(signals)
        return own if packed.same_as(own) else packed

    def _model(self, model: ModelSummary) -> ModelSummary:
        return replace(model, signals=self.signals(model.signals))


def _shape(value: SignalValue, numbers: array[float]) -> _Shape:
    """The shape of a signal; its numbers are appended in the order in which `_unpacked` reads them."""
    if isinstance(value, Scalar):
        return _scalar_shape(value, numbers)
    for number in (value.count, value.sum):
        if number is not None:
            numbers.append(number)
    named = (("mean", value.mean), *value.quantiles.items())
    return _Shape(
        value.unit,
        value.quality,
        value.note,
        has_value=value.count is not None,
        has_sum=value.sum is not None,
        quantiles=tuple((name, _quantile_shape(quantile, numbers)) for name, quantile in named),
    )


def _scalar_shape(scalar: Scalar, numbers: array[float]) -> _Shape:
    value = scalar.value
    if isinstance(value, tuple):
        numbers.extend(value)
    elif value is not None:
        numbers.append(value)
    if scalar.mean is not None:
        numbers.append(scalar.mean)
    return _Shape(
        scalar.unit,
        scalar.quality,
        scalar.note,
        has_value=value is not None,
        length=len(value) if isinstance(value, tuple) else None,
        has_mean=scalar.mean is not None,
        worst=None if scalar.worst is None else tuple(scalar.worst.items()),
    )


def _quantile_shape(quantile: Quantile, numbers: array[float]) -> int:
    there = _CENSORED if quantile.censored else 0
    for part, flag in ((quantile.value, _VALUE), (quantile.low, _LOW), (quantile.high, _HIGH)):
        if part is not None:
            numbers.append(part)
            there |= flag
    return there


def _unpacked(shape: _Shape, numbers: Iterator[float]) -> SignalValue:
    if shape.quantiles is None:
        value: float | tuple[float, ...] | None = None
        if shape.length is not None:
            value = tuple(next(numbers) for _ in range(shape.length))
        elif shape.has_value:
            value = next(numbers)
        mean = next(numbers) if shape.has_mean else None
        worst = None if shape.worst is None else dict(shape.worst)
        return Scalar(value, shape.unit, shape.quality, shape.note, mean, worst)
    count = next(numbers) if shape.has_value else None
    total = next(numbers) if shape.has_sum else None
    quantiles = {name: _quantile(one, numbers) for name, one in shape.quantiles}
    middle = quantiles.pop("mean")
    return Distribution(count, total, middle, quantiles, shape.unit, shape.quality, shape.note)


def _quantile(there: int, numbers: Iterator[float]) -> Quantile:
    value = next(numbers) if there & _VALUE else None
    low = next(numbers) if there & _LOW else None
    high = next(numbers) if there & _HIGH else None
    return Quantile(value, low, high, bool(there & _CENSORED))
