"""An engine that is nothing but its knobs, for the tests of this folder."""

from __future__ import annotations

from dataclasses import replace

from enginetop.simulator.live_knobs import KnobState, LiveKnobs
from enginetop.simulator.scenario import EngineSettings, StepTime

START = {
    "max_num_batched_tokens": 512,
    "max_num_seqs": 16,
    "num_speculative_tokens": 4,
    "thinking_token_budget": -1,
}
BUDGET, SEQS, DRAFTS, THINKING = START


SETTINGS = EngineSettings(
    model="m",
    max_model_len=1000,
    gpus=1,
    kv_blocks=100,
    step=StepTime(10.0, 0.0, 0.0),
    acceptance=(0.8, 0.6, 0.4, 0.3),
    max_num_batched_tokens=512,
    max_num_seqs=16,
    num_speculative_tokens=4,
)


class Engine:
    """The knobs of an engine without the engine; it refuses a budget below one decode step at any time.

    `fixed` knobs take no other value, as the draft length with several ranks.
    """

    def __init__(self, settings: EngineSettings = SETTINGS) -> None:
        self.running = 0
        self.fixed: set[str] = set()
        self._knobs = LiveKnobs(settings, lambda: self.running)

    @property
    def values(self) -> dict[str, int]:
        return {state.name: state.value for state in self.knobs()}

    def knobs(self) -> tuple[KnobState, ...]:
        return tuple(
            replace(state, min=state.value, max=state.value) if state.name in self.fixed else state
            for state in self._knobs.states()
        )

    def set_knob(self, name: str, value: int) -> KnobState:
        return self._knobs.set(name, value)
