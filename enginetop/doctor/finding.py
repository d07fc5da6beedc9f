"""A finding: one thing that was looked at, how it is, and what mends it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from enginetop.fleet.frozen import frozen


class Level(StrEnum):
    """How grave a finding is; the order is that of gravity."""

    OK = "ok"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@frozen
class Finding:
    """`area` is what was looked at (`terminal`, `config`, `reach`, `page`, `engine`, ...), `target` the name
    of the target it belongs to, empty for this machine. `what` and `fix` are one line each; an empty fix
    means that there is nothing to do.
    """

    area: str
    level: Level
    what: str
    fix: str = ""
    target: str = ""


def worst(findings: Iterable[Finding]) -> Level:
    """The gravest level among findings; OK when there are none."""
    order = list(Level)
    return max((finding.level for finding in findings), key=order.index, default=Level.OK)
