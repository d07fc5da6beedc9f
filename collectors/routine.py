"""How a scrape of a steady target goes: as the one before, which need not be thought about again."""

from __future__ import annotations

from collections.abc import Sequence

from collectors.answer import Answer
from collectors.meaning import miss_of
from enginetop.fleet.frozen import frozen


@frozen
class Routine:
    """A scrape that asks one page at `path`, of an engine that names itself so in its `server` header."""

    path: str
    server: str | None

    def ends_with(self, answers: Sequence[Answer]) -> bool:
        """Whether these are such a scrape, and it went well."""
        if len(answers) != 1:
            return False
        answer = answers[0]
        same = answer.path == self.path and answer.headers.get("server") == self.server
        return same and miss_of(answer) is None
