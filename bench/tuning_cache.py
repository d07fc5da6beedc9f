"""What the grid of `bench.tuning` is worth, kept in a file as long as the simulator is the same.

The key is a hash over the simulator's sources, the space's and the subject; a random tenth of what is taken
from the file is worked out again, and a difference is an error.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path

from bench.tuning_space import Settings, Subject, Worth, grid, worth

_ROOT = Path(__file__).resolve().parents[1]
_SOURCES = ("enginetop/simulator", "bench/tuning_space.py")
_VERIFIED_SHARE = 0.1


class StaleCacheError(Exception):
    """A kept figure is not what the simulator says now."""


@cache
def simulator_hash() -> str:
    """Of every source that a figure depends on."""
    digest = hashlib.sha256()
    for place in _SOURCES:
        path = _ROOT / place
        for source in sorted(path.glob("*.py")) if path.is_dir() else (path,):
            digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


class GridCache:
    """Worths by subject, settings and seed, in one JSON file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, dict[str, list[float]]] = {}
        self.verified = 0
        if path.exists():
            document = json.loads(path.read_text())
            if document.get("simulator") == simulator_hash():
                self._known = document["worths"]

    def grid_of(self, subject: Subject, seed: int) -> dict[Settings, Worth]:
        """Every setting of the grid with its worth.

        Raises:
            StaleCacheError: a kept figure is wrong.
        """
        key = f"{_identity(subject)}/{seed}"
        known = self._known.setdefault(key, {})
        every = grid(subject)
        missing = [one for one in every if _name(one) not in known]
        kept = [one for one in every if _name(one) in known]
        again = random.Random().sample(kept, k=round(_VERIFIED_SHARE * len(kept)))
        asked = (*missing, *again)
        with ProcessPoolExecutor(os.cpu_count()) as workers:
            fresh = list(workers.map(worth, [subject] * len(asked), asked, [seed] * len(asked)))
        for one, value in zip(asked, fresh, strict=True):
            told = known.setdefault(_name(one), [value.goodput, value.truncated_ratio])
            if told != [value.goodput, value.truncated_ratio]:
                raise StaleCacheError(f"{subject.name} {one}: kept {told}, now {value}")
        self.verified += len(again)
        return {one: Worth(*known[_name(one)]) for one in every}

    def save(self) -> None:
        """Write all that is known."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        document = {"simulator": simulator_hash(), "worths": self._known}
        self._path.write_text(json.dumps(document, indent=None, separators=(",", ":"), sort_keys=True))


def _identity(subject: Subject) -> str:
    return f"{subject.name}-{hashlib.sha256(repr(subject.scenario).encode()).hexdigest()[:12]}"


def _name(settings: Settings) -> str:
    return ",".join(str(value) for value in settings.as_dict().values())
