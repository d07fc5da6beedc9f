"""The requests that a simulated engine receives, drawn one after the other from a seeded generator.

What is drawn does not depend on the engine's settings, so that two settings can be compared on the same
requests; only the drafts' luck is drawn apart, for engines that speculate.
"""

from __future__ import annotations

import math
import random
from typing import Protocol

from enginetop.fleet.frozen import frozen
from enginetop.simulator.arrivals import ArrivalClock, Spells
from enginetop.simulator.scenario import EngineSettings, Lengths, Traffic
from enginetop.simulator.speculation import Luck

NO_PREFIX = -1
_FEWEST_ANSWER_TOKENS = 2
"""So that every request has a time per output token."""


@frozen
class DrawnRequest:
    """All that is decided about a request before it arrives. Times are seconds since the engine began.

    The prompt starts with `prefix_tokens` of the shared prefix `prefix` (whole blocks; `NO_PREFIX`: of none).
    Unless something stops it, the model thinks for `reasoning_tokens` and then answers in `answer_tokens`.
    `abort_point` is the share of the output after which the client hangs up, None: it does not.
    `accepted[i]` is how many drafted tokens draft step i gets right when all positions are drafted.
    `thinking_token_budget` is the request's own, None: it leaves that to the engine.
    `asked_at` is when the client asked, where that was before it came to this engine; `transferred_tokens` of
    its prompt come computed from another engine.
    """

    arrival_at: float
    prompt_tokens: int
    answer_tokens: int
    reasoning_tokens: int = 0
    max_tokens: int = 2048
    prefix: int = NO_PREFIX
    prefix_tokens: int = 0
    abort_point: float | None = None
    accepted: bytes = b""
    asked_at: float | None = None
    transferred_tokens: int = 0
    thinking_token_budget: int | None = None


class Arrivals(Protocol):
    """Where an engine's requests come from, in the order of their arrival."""

    @property
    def next_arrival_at(self) -> float:
        """When the next request arrives; infinite if none is known."""

    def pop(self) -> DrawnRequest:
        """Take the next request; `next_arrival_at` moves to the one after it."""


class RequestSource:
    """An endless stream of requests for one engine; equal seeds give equal streams.

    `share` is its share of the traffic's rate, `offset` the second of the fleet at which the engine began,
    `spells` the bursts and lulls that it shares with other engines (None: its own).
    """

    def __init__(
        self,
        traffic: Traffic,
        engine: EngineSettings,
        seed: str,
        share: float = 1.0,
        offset: float = 0.0,
        spells: Spells | None = None,
    ) -> None:
        self.clock = ArrivalClock(traffic, share, offset, f"{seed}/arrivals", spells)
        self._traffic = traffic
        self._random = random.Random(seed)
        self._luck: Luck | None = None
        if engine.num_speculative_tokens:
            self._luck = Luck(engine.acceptance[: engine.num_speculative_tokens], f"{seed}/drafts")
        self._block_size = engine.block_size
        self._longest = engine.max_model_len - traffic.max_tokens - traffic.shared_prefix_tokens
        self._next_arrival_at = self.clock.after(0.0)

    @property
    def next_arrival_at(self) -> float:
        """When the next request arrives."""
        return self._next_arrival_at

    def pop(self) -> DrawnRequest:
        """Take the next request; `next_arrival_at` moves to the one after it."""
        traffic, draw = self._traffic, self._random
        lengths = traffic.prompt_tokens
        if traffic.long_ratio and draw.random() < traffic.long_ratio:
            lengths = traffic.long_prompt_tokens
        prompt = self._length(lengths, 1)
        prefix, prefix_tokens = NO_PREFIX, 0
        if draw.random() < traffic.shared_prefix_ratio:
            # Whole blocks are shared, and the last prompt token is always computed.
            prefix = draw.randrange(traffic.shared_prefixes)
            prefix_tokens = traffic.shared_prefix_tokens // self._block_size * self._block_size
            prompt += traffic.shared_prefix_tokens
        reasoning = self._length(traffic.reasoning_tokens, 0)
        answer = self._length(traffic.answer_tokens, _FEWEST_ANSWER_TOKENS)
        aborts = draw.random() < traffic.abort_ratio
        point = draw.random()
        request = DrawnRequest(
            arrival_at=self._next_arrival_at,
            prompt_tokens=prompt,
            answer_tokens=answer,
            reasoning_tokens=reasoning,
            max_tokens=traffic.max_tokens,
            prefix=prefix,
            prefix_tokens=prefix_tokens,
            abort_point=point if aborts else None,
            # A draft step yields a token at least, however short the drafts become.
            accepted=self._luck.draw(min(reasoning + answer, traffic.max_tokens) - 1) if self._luck else b"",
        )
        self._next_arrival_at = self.clock.after(self._next_arrival_at)
        return request

    def _length(self, lengths: Lengths, least: int) -> int:
        if lengths.median <= 0:
            return least
        drawn = round(self._random.lognormvariate(math.log(lengths.median), lengths.sigma))
        return max(least, min(drawn, self._longest))
