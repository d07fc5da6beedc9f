"""Replicas of one pool that are not set up alike: other knob values, or another engine version."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from types import MappingProxyType

from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import EngineKind, Role
from enginetop.fleet.reading import ConfigValue
from enginetop.fleet.signals import KNOBS
from enginetop.fleet.snapshot import ReplicaSnapshot
from tui.view import numbers

DIFFERS = "≠"
"""Stands beside a name whose set-up is not that of most of its pool."""

_VERSION = "version"
_TOLD = 2
"""So many settings that differ are spelled out; the rest is counted."""

Setup = tuple[object, ...]
_Pool = tuple[str | None, Role, EngineKind]


@frozen
class Mixed:
    """What differs: names of settings by target URL, and the values of a pool in words."""

    settings: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    words: Mapping[_Pool, str] = field(default_factory=lambda: MappingProxyType({}))

    def words_of(self, member: ReplicaSnapshot) -> str:
        """What differs in the pool of this replica: `max_num_seqs 64 ×3, 32 ×1`; empty when nothing does."""
        return self.words.get(_pool(member), "")


class MixedMemory:
    """Compares pools anew only when a set-up has changed."""

    def __init__(self) -> None:
        self._setups: dict[str, tuple[Mapping[str, ConfigValue], _Pool, Setup]] = {}
        self._mixed = Mixed()

    def mixed(self, replicas: Sequence[ReplicaSnapshot]) -> Mixed:
        """What differs within the pools of these replicas."""
        before, fresh, same = self._setups, {}, len(replicas) == len(self._setups)
        for one in replicas:
            url, known = one.target.url, before.get(one.target.url)
            if known is not None and known[0] is one.config and known[2][0] == one.engine_version:
                pool = known[1]
                if pool[0] == one.model and pool[1] is one.role and pool[2] is one.engine:
                    fresh[url] = known
                    continue
            entry = (one.config, _pool(one), setup_of(one))
            same = same and known is not None and known[1:] == entry[1:]
            fresh[url] = entry
        self._setups = fresh
        if not same:
            self._mixed = compare_setups([(url, pool, setup) for url, (_, pool, setup) in fresh.items()])
        return self._mixed


def setup_of(replica: ReplicaSnapshot) -> Setup:
    """Its engine version and knob values; None where one is not known."""
    config = replica.config
    return (
        replica.engine_version,
        *(config[knob].value if knob in config else None for knob in KNOBS),
    )


def compare_setups(members: Sequence[tuple[str, _Pool, Setup]]) -> Mixed:
    """Hold each member against the value that most of its pool have; where two are even, nobody has it."""
    pools: dict[_Pool, list[tuple[str, Setup]]] = {}
    for url, pool, setup in members:
        pools.setdefault(pool, []).append((url, setup))
    settings: dict[str, tuple[str, ...]] = {}
    words: dict[_Pool, str] = {}
    for pool, own in pools.items():
        told = []
        for place, name in enumerate((_VERSION, *KNOBS)):
            found = Counter(setup[place] for _, setup in own if setup[place] is not None)
            if len(found) < 2:
                continue
            (usual, most), (_, second), *_ = found.most_common()
            told.append(f"{name} {', '.join(f'{_text(value)} ×{n}' for value, n in found.most_common(3))}")
            for url, setup in own:
                if setup[place] is not None and (setup[place] != usual or most == second):
                    settings[url] = (*settings.get(url, ()), name)
        if told:
            more = f"; +{len(told) - _TOLD} more" if len(told) > _TOLD else ""
            words[pool] = "; ".join(told[:_TOLD]) + more
    return Mixed(settings, words)


def _pool(replica: ReplicaSnapshot) -> _Pool:
    return (replica.model, replica.role, replica.engine)


def _text(value: object) -> str:
    return numbers.knob(value) if isinstance(value, int | float) else str(value)
