"""What a restart board needs of an engine: how it is seen, begun anew, and what its start sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from enginetop.fleet.frozen import frozen

Values = Mapping[str, int | None]


class RestartError(Exception):
    """A restart that did not work; the text is one line."""


class NothingDoneError(RestartError):
    """It was not even begun: the engine runs as it did."""


@frozen
class Load:
    """What can be seen of an engine: whether it answers as ready, and how many requests it has (running and
    waiting; None: not known).
    """

    ready: bool
    requests: int | None


@frozen
class StartKnob:
    """A knob that the engine's start sets: its start value (None: the engine's own) and its bounds."""

    name: str
    start: int | None
    min: int
    max: int
    unit: str


class Restartable(Protocol):
    """One engine that can be started anew with other values. Nothing here blocks for long."""

    def load(self) -> Load:
        """What can be seen of it now."""

    def begin(self, values: Values) -> None:
        """Begin to start it anew with these values.

        RestartError when that fails, NothingDoneError when the engine runs on as it did.
        """

    def poll(self) -> bool:
        """Whether a new process was started, or nothing was to be. RestartError when that failed, or when the
        engine ended by itself.
        """

    def by_hand(self, values: Values) -> str:
        """The exact command that a person has to run to start it with these values."""
