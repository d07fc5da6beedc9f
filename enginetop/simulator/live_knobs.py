"""The knobs of a simulated engine that can be changed while it runs, within what it was started with.

The limits are those of the real companion: buffers and graphs are sized at the start, so that a size can be
lowered and brought back, never raised above its start value; a raise needs a restart. The thinking budget is
a default for requests that set none, not a size, and may take any value.
"""

from __future__ import annotations

from collections.abc import Callable

from enginetop.fleet.frozen import frozen
from enginetop.simulator.scenario import EngineSettings

NO_BUDGET = -1
"""The thinking budget of an engine that sets none."""

UNITS: dict[str, str] = {
    "max_num_batched_tokens": "tokens",
    "max_num_seqs": "requests",
    "num_speculative_tokens": "tokens",
    "thinking_token_budget": "tokens",
}
"""Every live knob with the unit of its value."""


class UnknownKnobError(KeyError):
    """The engine has no live knob of that name."""


class KnobBoundsError(ValueError):
    """A value outside of what the engine takes live; `low` and `high` are inclusive."""

    def __init__(self, name: str, value: int, low: int, high: int) -> None:
        super().__init__(f"{name} = {value} is outside of {low} to {high}")
        self.low = low
        self.high = high


@frozen
class KnobState:
    """One live knob: its value, the engine's start value and the bounds of a live change (inclusive)."""

    name: str
    value: int
    start: int
    min: int
    max: int
    unit: str


class LiveKnobs:
    """The present values; `start` holds those that the engine was started with.

    At all times `max_num_batched_tokens >= max_num_seqs x (1 + num_speculative_tokens)`, and the same for the
    requests that `running` counts, so that every running request can decode in every step.
    """

    def __init__(self, start: EngineSettings, running: Callable[[], int] = lambda: 0) -> None:
        self.start = start
        self._running = running
        self.max_num_batched_tokens = start.max_num_batched_tokens
        self.max_num_seqs = start.max_num_seqs
        self.num_speculative_tokens = start.num_speculative_tokens
        self.thinking_token_budget = start.thinking_token_budget

    def state(self, name: str) -> KnobState:
        """One knob. Raises UnknownKnobError."""
        if name not in UNITS:
            raise UnknownKnobError(name)
        low, high = self._bounds(name)
        return KnobState(name, getattr(self, name), getattr(self.start, name), low, high, UNITS[name])

    def states(self) -> tuple[KnobState, ...]:
        """Every knob that this engine has; one without drafts has none for them."""
        drafts = self.start.num_speculative_tokens > 0
        return tuple(self.state(name) for name in UNITS if drafts or name != "num_speculative_tokens")

    def set(self, name: str, value: int) -> KnobState:
        """Change one knob. Raises UnknownKnobError or KnobBoundsError; nothing is changed then."""
        known = self.state(name)
        if not known.min <= value <= known.max:
            raise KnobBoundsError(name, value, known.min, known.max)
        setattr(self, name, value)
        return self.state(name)

    def _bounds(self, name: str) -> tuple[int, int]:
        per_request = 1 + self.num_speculative_tokens
        requests = max(self.max_num_seqs, self._running())
        if name == "max_num_batched_tokens":
            return requests * per_request, self.start.max_num_batched_tokens
        if name == "max_num_seqs":
            return 1, min(self.start.max_num_seqs, self.max_num_batched_tokens // per_request)
        if name == "num_speculative_tokens":
            most = self.max_num_batched_tokens // requests - 1
            return 0, min(self.start.num_speculative_tokens, most)
        return NO_BUDGET, self.start.max_model_len
