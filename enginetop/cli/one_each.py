"""Things of which one is made for all who ask in this process, since each knows what is under way."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Made = TypeVar("Made")


class OneEach(Generic[Key, Made]):
    """One thing for each key, made when it is first asked for; from any thread."""

    def __init__(self) -> None:
        self._made: dict[Key, Made] = {}
        self._making = threading.Lock()

    def get(self, key: Key, make: Callable[[], Made]) -> Made:
        """The thing of this key; what `make` raises is raised, and it is made at the next call."""
        with self._making:
            if key not in self._made:
                self._made[key] = make()
            return self._made[key]
