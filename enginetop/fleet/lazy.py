"""Mappings whose values are worked out when they are asked for first.

A page of a loaded engine tells some hundred figures; of a replica that nobody looks at, a tick asks for a
third of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, TypeVar, overload

K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)
T = TypeVar("T")

_UNASKED: Any = object()
_NOTHING: Mapping[Any, Any] = MappingProxyType({})


class Lazy(Mapping[K, V_co]):
    """What `work` gives for each of `names`, in their order; what was asked for is kept.

    A name for which `work` gives None is not there. `told` are values that are known beforehand. `work` is a
    pure function of things that never change: several threads may ask for the same name at once.
    """

    __slots__ = ("_known", "_work", "names")

    def __init__(
        self,
        names: Collection[K],
        work: Callable[[K], V_co | None],
        told: Mapping[K, V_co | None] = _NOTHING,
    ) -> None:
        self.names = names
        """All names that may be there."""
        self._work = work
        self._known: dict[K, V_co | None] = dict(told)

    def __getitem__(self, name: K) -> V_co:
        value: V_co | None = self._known.get(name, _UNASKED)
        if value is _UNASKED:
            if name not in self.names:
                raise KeyError(name)
            value = self._known[name] = self._work(name)
        if value is None:
            raise KeyError(name)
        return value

    @overload
    def get(self, name: K, /) -> V_co | None: ...

    @overload
    def get(self, name: K, default: V_co | T, /) -> V_co | T: ...

    def get(self, name: K, default: T | None = None, /) -> V_co | T | None:
        """The value, or `default` where there is none."""
        value: V_co | None = self._known.get(name, _UNASKED)
        if value is _UNASKED:
            if name not in self.names:
                return default
            value = self._known[name] = self._work(name)
        return default if value is None else value

    def __contains__(self, name: object) -> bool:
        return name in self.names and self.get(name) is not None  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[K]:
        return (name for name in self.names if self.get(name) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return any(True for _ in self)

    def whole(self) -> dict[K, V_co]:
        """All values; those that nobody asked for before are worked out, and not kept here."""
        known, work = self._known, self._work
        values = ((name, known[name] if name in known else work(name)) for name in self.names)
        return {name: value for name, value in values if value is not None}

    def __repr__(self) -> str:
        return repr(dict(self))


def overlaid(
    values: Mapping[K, V_co],
    told: Mapping[K, V_co],
    later: Collection[K] = (),
    work: Callable[[K], V_co | None] | None = None,
) -> Mapping[K, V_co]:
    """`values` with those of `told` in their place or behind them, and in that of `later` what `work` gives.

    None of `values` is worked out for it. What was asked of them before is at hand in one step.
    """
    names: Collection[K]
    if isinstance(values, Lazy):
        names, known = values.names, values._known.copy()
    else:
        names, known = values.keys(), {}
    if not all(name in names for name in (*told, *later)):
        names = dict.fromkeys((*names, *told, *later))
    find: Callable[[K], V_co | None] = values.get
    if work is not None:
        before, own = values.get, work
        for name in later:
            known.pop(name, None)

        def find(name: K) -> V_co | None:
            return own(name) if name in later else before(name)

    known.update(told)
    return Lazy(names, find, known)


def joint_names(mappings: Iterable[Mapping[str, object]]) -> frozenset[str]:
    """All names that may be in any of the mappings."""
    return _union(frozenset(possible_names(one) for one in mappings))


def possible_names(mapping: Mapping[str, object]) -> frozenset[str]:
    """The names that may be in a mapping; nothing is worked out."""
    names = mapping.names if isinstance(mapping, Lazy) else mapping
    return names if isinstance(names, frozenset) else frozenset(names)


@lru_cache(maxsize=1024)
def _union(sets: frozenset[frozenset[str]]) -> frozenset[str]:
    return next(iter(sets)) if len(sets) == 1 else frozenset().union(*sets)
