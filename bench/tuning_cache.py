"""What the grid of `bench.tuning` is worth, kept in a file as long as the simulator is the same.

The key is a hash over the simulator's sources, the space's and the subject; a random tenth of what is taken
from the file is worked out again, and a difference is an error.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import random
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache, cached_property
from itertools import groupby, repeat
from pathlib import Path

from bench.tuning_space import Settings, Subject, Worth, grid, worth

_ROOT = Path(__file__).resolve().parents[1]
_SIMULATOR = "enginetop.simulator."
_FIRST = ("enginetop/simulator/fleet_model.py", "bench/tuning_space.py")
_VERIFIED_SHARE = 0.1


class StaleCacheError(Exception):
    """A kept figure is not what the simulator says now."""


@cache
def simulator_hash() -> str:
    """Of every source that a figure depends on: the fleet's model and what it imports of the simulator."""
    digest, asked, seen = hashlib.sha256(), [_ROOT / name for name in _FIRST], set[Path]()
    while asked:
        path = asked.pop()
        if path not in seen:
            seen.add(path)
            asked += _imported(path.read_text())
    for path in sorted(seen):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _imported(source: str) -> list[Path]:
    """The modules of the simulator that a source imports."""
    return [
        _ROOT.joinpath(*node.module.split(".")).with_suffix(".py")
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(_SIMULATOR)
    ]


class GridCache:
    """Worths by subject, settings and seed, in one JSON file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.verified = 0

    @cached_property
    def _known(self) -> dict[str, dict[str, list[float]]]:
        """What the file holds, read when it is first asked for."""
        document = json.loads(self._path.read_text()) if self._path.exists() else {}
        same = document.get("simulator") == simulator_hash()
        return document["worths"] if same else {}

    def grid_of(self, subject: Subject, seed: int) -> dict[Settings, Worth]:
        """Every setting of the grid with its worth.

        Raises:
            StaleCacheError: a kept figure is wrong.
        """
        known = self._known.setdefault(f"{_identity(subject)}/{seed}", {})
        every = grid(subject)
        kept = [one for one in every if _name(one) in known]
        again = random.Random().sample(kept, k=round(_VERIFIED_SHARE * len(kept)))
        with ProcessPoolExecutor(os.cpu_count()) as workers:
            for one, value in zip(
                again, workers.map(worth, repeat(subject), again, repeat(seed)), strict=True
            ):
                if known[_name(one)] != _told(value):
                    raise StaleCacheError(f"{subject.name} {one}: kept {known[_name(one)]}, now {value}")
            families = _families(one for one in every if _name(one) not in known)
            for found in workers.map(family_worth, repeat(subject), families, repeat(seed)):
                known |= {_name(one): _told(value) for one, value in found.items()}
        self.verified += len(again)
        return {one: _worth_of(known[_name(one)]) for one in every}

    def save(self) -> None:
        """Write all that is known."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        document = {"simulator": simulator_hash(), "worths": self._known}
        self._path.write_text(json.dumps(document, indent=None, separators=(",", ":"), sort_keys=True))


def _families(settings: Iterable[Settings]) -> list[tuple[Settings, ...]]:
    """Settings that differ in `max_num_seqs` alone, the largest first."""

    def others(one: Settings) -> Settings:
        return replace(one, max_num_seqs=0)

    ordered = sorted(settings, key=lambda one: (others(one), -one.max_num_seqs))
    return [tuple(members) for _, members in groupby(ordered, key=others)]


def family_worth(subject: Subject, family: tuple[Settings, ...], seed: int) -> dict[Settings, Worth]:
    """The worth of each. A cap that was never reached is worth as much as any lower one that would not be."""
    found: dict[Settings, Worth] = {}
    last: Worth | None = None
    for one in family:
        if last is None or last.most_running is None or last.most_running >= one.max_num_seqs:
            last = worth(subject, one, seed)
        found[one] = last
    return found


def _told(value: Worth) -> list[float]:
    return [value.goodput, value.truncated_ratio]


def _worth_of(told: list[float]) -> Worth:
    goodput, truncated = told
    return Worth(goodput, truncated)


def _identity(subject: Subject) -> str:
    return f"{subject.name}-{hashlib.sha256(repr(subject.scenario).encode()).hexdigest()[:12]}"


def _name(settings: Settings) -> str:
    return ",".join(str(value) for value in settings.as_dict().values())
