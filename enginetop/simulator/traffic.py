"""The requests that a simulated replica receives, drawn one after the other from a seeded generator."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Protocol

from enginetop.simulator.scenario import EngineSettings, Lengths, Traffic

_FEWEST_OUTPUT_TOKENS = 2
"""So that every request has a time per output token."""


@dataclass(frozen=True, slots=True)
class DrawnRequest:
    """All that is decided about a request before it arrives. Times are seconds since the engine began.

    `output_tokens` includes `reasoning_tokens`, and is what the engine generates before the request ends by
    `finish_reason` (`stop`, `length`, `abort`). `accepted[i]` is how many drafted tokens its draft step i
    gets right; empty without speculation.
    """

    arrival_at: float
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    reasoning_tokens: int
    max_tokens: int
    finish_reason: str
    accepted: bytes = b""


class Arrivals(Protocol):
    """Where an engine's requests come from, in the order of their arrival."""

    @property
    def next_arrival_at(self) -> float:
        """When the next request arrives."""

    def pop(self) -> DrawnRequest:
        """Take the next request; `next_arrival_at` moves to the one after it."""


class RequestSource:
    """An endless stream of requests for one engine; equal seeds give equal streams."""

    def __init__(self, traffic: Traffic, engine: EngineSettings, seed: str) -> None:
        self._traffic = traffic
        self._engine = engine
        self._random = random.Random(seed)
        self._phase = self._random.uniform(0.0, 2.0 * math.pi)
        self._outcomes = range(engine.num_speculative_tokens + 1)
        chances = (*engine.acceptance, 0.0)
        self._outcome_ends = [1.0 - chance for chance in chances]
        self._next_arrival_at = 0.0
        self._draw_arrival()

    @property
    def next_arrival_at(self) -> float:
        """When the next request arrives."""
        return self._next_arrival_at

    def pop(self) -> DrawnRequest:
        """Take the next request; `next_arrival_at` moves to the one after it."""
        traffic, draw = self._traffic, self._random
        prompt = self._length(traffic.prompt_tokens, 1)
        cached = 0
        if draw.random() < traffic.shared_prefix_ratio:
            # Whole blocks are shared, and the last prompt token is always computed.
            cached = traffic.shared_prefix_tokens // self._engine.block_size * self._engine.block_size
            prompt += traffic.shared_prefix_tokens
        reasoning = self._length(traffic.reasoning_tokens, 0)
        output = reasoning + self._length(traffic.answer_tokens, _FEWEST_OUTPUT_TOKENS)
        reason = "stop"
        if output >= traffic.max_tokens:
            output, reason = traffic.max_tokens, "length"
        if draw.random() < traffic.abort_ratio:
            output, reason = draw.randint(_FEWEST_OUTPUT_TOKENS, output), "abort"
        request = DrawnRequest(
            arrival_at=self._next_arrival_at,
            prompt_tokens=prompt,
            cached_tokens=cached,
            output_tokens=output,
            reasoning_tokens=min(reasoning, output),
            max_tokens=traffic.max_tokens,
            finish_reason=reason,
            accepted=self._acceptance(output),
        )
        self._draw_arrival()
        return request

    def _length(self, lengths: Lengths, least: int) -> int:
        if lengths.median <= 0:
            return least
        drawn = round(self._random.lognormvariate(math.log(lengths.median), lengths.sigma))
        longest = self._engine.max_model_len - self._traffic.max_tokens - self._traffic.shared_prefix_tokens
        return max(least, min(drawn, longest))

    def _draw_arrival(self) -> None:
        """Poisson arrivals of a swinging rate, by thinning those of its peak."""
        traffic = self._traffic
        peak = traffic.requests_per_second * (1.0 + traffic.wave_ratio)
        at = self._next_arrival_at
        while True:
            at += self._random.expovariate(peak)
            angle = 2.0 * math.pi * at / traffic.wave_period_seconds + self._phase
            rate = traffic.requests_per_second * (1.0 + traffic.wave_ratio * math.sin(angle))
            if self._random.random() * peak < rate:
                self._next_arrival_at = at
                return

    def _acceptance(self, output_tokens: int) -> bytes:
        """Draft steps that surely suffice for all tokens after the first."""
        if not self._engine.num_speculative_tokens:
            return b""
        accepted = bytearray()
        missing = output_tokens - 1
        while missing > 0:
            drawn = self._random.choices(
                self._outcomes, cum_weights=self._outcome_ends, k=missing // len(self._outcomes) + 1
            )
            accepted.extend(drawn)
            missing -= len(drawn) + sum(drawn)
        return bytes(accepted)
