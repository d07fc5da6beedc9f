"""A request on its way through a simulated engine; once it has ended, the exact truth about it."""

from __future__ import annotations

import math

from enginetop.simulator.traffic import DrawnRequest

_FEWEST_OUTPUT_TOKENS = 2
_FAILING_OUTPUT_TOKENS = 2


class Request:
    """What was drawn, and what became of it. Times are seconds since the engine began.

    `output_tokens`, of which `reasoning_tokens` are thinking, is what the engine generates before the request
    ends by `finish_reason` (`stop`, `length`, `abort`, `error`); `truncated` says that a thinking budget cut
    the thinking short. `accepted` are the drafts' hits at the engine's present draft length. After
    `steps_left` more steps the request ends, and with `grows_at` generated tokens it needs another block.
    `cached_tokens` of the prompt were in the cache when it was last admitted, `first_cached_tokens` at first.
    `computed_tokens` is how far the prompt (after a preemption: the whole context) is computed, cached tokens
    left out; the request decodes once that is `prefill_target`. `gaps_seconds` holds the times
    between two tokens with a preemption in between; all other gaps are steps of the engine.
    """

    __slots__ = (
        "accepted",
        "blocks",
        "cached_tokens",
        "computed_tokens",
        "decode_steps",
        "drawn",
        "finish_reason",
        "first_cached_tokens",
        "first_scheduled_at",
        "first_token_at",
        "gaps_seconds",
        "generated_tokens",
        "grows_at",
        "holds_prefix",
        "last_token_at",
        "output_tokens",
        "preemptions",
        "prefill_target",
        "reasoning_tokens",
        "steps_left",
        "truncated",
    )

    def __init__(
        self,
        drawn: DrawnRequest,
        *,
        thinking_token_budget: int = -1,
        fails: bool = False,
        only_first_token: bool = False,
    ) -> None:
        """`thinking_token_budget` -1: none. `only_first_token`: the rest is another engine's."""
        self.drawn = drawn
        self.truncated = 0 <= thinking_token_budget < drawn.reasoning_tokens
        self.reasoning_tokens = thinking_token_budget if self.truncated else drawn.reasoning_tokens
        self.output_tokens = self.reasoning_tokens + drawn.answer_tokens
        self.finish_reason = "stop"
        if self.output_tokens >= drawn.max_tokens:
            self.output_tokens, self.finish_reason = drawn.max_tokens, "length"
        if drawn.abort_point is not None:
            cut = math.ceil(drawn.abort_point * self.output_tokens)
            self.output_tokens, self.finish_reason = max(_FEWEST_OUTPUT_TOKENS, cut), "abort"
        if fails:
            self.output_tokens, self.finish_reason = _FAILING_OUTPUT_TOKENS, "error"
        if only_first_token:
            self.output_tokens, self.finish_reason = 1, "length"
        self.reasoning_tokens = min(self.reasoning_tokens, self.output_tokens)
        self.accepted = drawn.accepted
        self.cached_tokens = 0
        self.first_cached_tokens = 0
        self.computed_tokens = 0
        self.prefill_target = 0
        self.generated_tokens = 0
        self.decode_steps = 0
        self.steps_left = 0
        self.grows_at = 0
        self.blocks = 0
        self.holds_prefix = False
        self.preemptions = 0
        self.gaps_seconds: list[float] = []
        self.first_scheduled_at: float | None = None
        self.first_token_at: float | None = None
        self.last_token_at: float | None = None

    @property
    def has_ended(self) -> bool:
        """Whether it has all of its tokens."""
        return self.generated_tokens >= self.output_tokens

    def hang_up(self) -> None:
        """Its client has gone: it ends with its next token, if it has not ended yet."""
        if not self.has_ended:
            self.output_tokens, self.finish_reason = self.generated_tokens + 1, "abort"
            self.reasoning_tokens = min(self.reasoning_tokens, self.output_tokens)
            self.steps_left = min(self.steps_left, 1)

    @property
    def own_tokens(self) -> int:
        """Tokens of its context that are not in the cache's shared blocks."""
        return self.drawn.prompt_tokens - self.cached_tokens + self.generated_tokens

    @property
    def context_tokens(self) -> int:
        """Tokens that are in the KV cache for it while it runs."""
        if self.computed_tokens < self.prefill_target:
            return self.cached_tokens + self.computed_tokens
        return self.drawn.prompt_tokens + self.generated_tokens

    @property
    def prompt_tokens_computed(self) -> int:
        """Prompt tokens that this engine computed for its first token."""
        return self.drawn.prompt_tokens - self.first_cached_tokens - self.drawn.transferred_tokens

    @property
    def ttft_seconds(self) -> float:
        """From arrival at this engine to the first token; needs that it has one, as all below."""
        return _known(self.first_token_at) - self.drawn.arrival_at

    @property
    def client_ttft_seconds(self) -> float:
        """From the client's asking to the first token."""
        asked_at = self.drawn.asked_at
        return _known(self.first_token_at) - (self.drawn.arrival_at if asked_at is None else asked_at)

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
        """Decode time per output token after the first, of an ended request; 0 where there is only one."""
        return self.decode_seconds / (self.output_tokens - 1) if self.output_tokens > 1 else 0.0


def _known(moment: float | None) -> float:
    if moment is None:
        raise ValueError("the request has not come so far")
    return moment
