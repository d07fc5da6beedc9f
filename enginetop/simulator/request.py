"""A request on its way through a simulated engine; once it has ended, the exact truth about it."""

from __future__ import annotations

from enginetop.simulator.traffic import DrawnRequest


class Request:
    """What was drawn, and what became of it. Times are seconds since the engine began.

    `computed_tokens` is how far the prompt (after a preemption: the whole context) is computed, cached tokens
    left out; the request decodes once that is `prefill_target`. `gaps_seconds` holds the times between two
    tokens with a preemption in between; all other gaps are steps of the engine.
    """

    __slots__ = (
        "blocks",
        "computed_tokens",
        "decode_steps",
        "drawn",
        "first_scheduled_at",
        "first_token_at",
        "gaps_seconds",
        "generated_tokens",
        "last_token_at",
        "preemptions",
        "prefill_target",
    )

    def __init__(self, drawn: DrawnRequest) -> None:
        self.drawn = drawn
        self.computed_tokens = 0
        self.prefill_target = 0
        self.generated_tokens = 0
        self.decode_steps = 0
        self.blocks = 0
        self.preemptions = 0
        self.gaps_seconds: list[float] = []
        self.first_scheduled_at: float | None = None
        self.first_token_at: float | None = None
        self.last_token_at: float | None = None

    @property
    def own_tokens(self) -> int:
        """Tokens of its context that no other request shares."""
        return self.drawn.prompt_tokens - self.drawn.cached_tokens + self.generated_tokens

    @property
    def context_tokens(self) -> int:
        """Tokens that are in the KV cache for it while it runs."""
        if self.computed_tokens < self.prefill_target:
            return self.drawn.cached_tokens + self.computed_tokens
        return self.drawn.prompt_tokens + self.generated_tokens

    @property
    def ttft_seconds(self) -> float:
        """From arrival to the first token; needs that it has one, as all below."""
        return _known(self.first_token_at) - self.drawn.arrival_at

    @property
    def queue_seconds(self) -> float:
        """From arrival to the first time in the batch."""
        return _known(self.first_scheduled_at) - self.drawn.arrival_at

    @property
    def prefill_seconds(self) -> float:
        """From the first time in the batch to the first token."""
        return _known(self.first_token_at) - _known(self.first_scheduled_at)

    @property
    def decode_seconds(self) -> float:
        """From the first token to the last, preemptions included."""
        return _known(self.last_token_at) - _known(self.first_token_at)

    @property
    def e2e_seconds(self) -> float:
        """From arrival to the last token."""
        return _known(self.last_token_at) - self.drawn.arrival_at

    @property
    def tpot_seconds(self) -> float:
        """Decode time per output token after the first, of an ended request."""
        return self.decode_seconds / (self.drawn.output_tokens - 1)


def _known(moment: float | None) -> float:
    if moment is None:
        raise ValueError("the request has not come so far")
    return moment
