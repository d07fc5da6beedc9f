"""A plain model of one engine: queue, prefill in chunks, decode, a paged KV cache, preemption by recompute.

Pure: time is what `advance` is told, and the outcome does not depend on the instants at which it is called.
A step that computes prompt tokens is taken one at a time; steps that only decode are taken in runs during
which the batch does not change, which is what makes a fleet of them cheap.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from enginetop.fleet.snapshot import Slo
from enginetop.simulator.live_knobs import KnobState, LiveKnobs
from enginetop.simulator.metrics import EngineMetrics
from enginetop.simulator.request import Request
from enginetop.simulator.scenario import EngineSettings
from enginetop.simulator.traffic import Arrivals

_ADMISSION_RESERVE = 0.01
"""Share of the KV blocks that stays free when a request is admitted beside others."""


class Step(NamedTuple):
    """One engine step: how long, how many requests decoded in it, and the tokens that vLLM counts for it.

    `tokens` is what was generated, and the computed part of each prompt that was completed.
    """

    seconds: float
    decoding: int
    tokens: int


class EngineModel:
    """One engine from its start to its end. All times are seconds since it began.

    `history` bounds how many ended requests `finished` keeps, and `steps` sixteen times as many steps.
    """

    def __init__(self, settings: EngineSettings, source: Arrivals, slo: Slo, history: int = 2000) -> None:
        self.settings = settings
        self.metrics = EngineMetrics(settings.max_model_len, settings.num_speculative_tokens, slo)
        self.now = 0.0
        self.waiting: deque[Request] = deque()
        self.finished: deque[Request] = deque(maxlen=history)
        self.steps: deque[Step] = deque(maxlen=16 * history)
        self.busy_seconds = 0.0
        self._source = source
        self._knobs = LiveKnobs(settings)
        self._running: list[Request] = []
        self._decoding: list[Request] = []
        self._prefilling: list[Request] = []
        self._chunks: list[tuple[Request, int]] = []
        self._chunked_step_seconds: float | None = None
        self._free_blocks = settings.kv_blocks
        self._kv_tokens = 0
        self._per_step = 1 + settings.num_speculative_tokens

    @property
    def requests_running(self) -> int:
        """Requests in the batch."""
        return len(self._running)

    @property
    def kv_usage_ratio(self) -> float:
        """Share of the KV blocks in use; blocks of the shared prefix are not counted."""
        return 1.0 - self._free_blocks / self.settings.kv_blocks

    def knobs(self) -> tuple[KnobState, ...]:
        """The knobs that can be changed while the engine runs."""
        return self._knobs.states()

    def set_knob(self, name: str, value: int) -> KnobState:
        """Change a knob from the next step on. Raises UnknownKnobError or KnobBoundsError."""
        return self._knobs.set(name, value)

    def unfinished(self) -> list[Request]:
        """The requests in the batch and in the queue, with the times known so far."""
        for request in self._decoding:
            request.last_token_at = self.now
        return [*self._running, *self.waiting]

    def advance(self, to: float) -> None:
        """Complete every step that ends at or before `to`; going back does nothing."""
        while True:
            self._take_arrivals()
            if self._chunked_step_seconds is not None:
                if self.now + self._chunked_step_seconds > to:
                    return
                self._finish_chunked_step(self._chunked_step_seconds)
            elif self._prefilling or (self.waiting and self._admissible(self.waiting[0])):
                self._begin_chunked_step()
            elif self._decoding:
                if not self._decode(to):
                    return
            elif self._source.next_arrival_at <= to:
                self.now = self._source.next_arrival_at
            else:
                return

    def _take_arrivals(self) -> None:
        while self._source.next_arrival_at <= self.now:
            self.waiting.append(Request(self._source.pop()))

    # Steps with prompt tokens

    def _begin_chunked_step(self) -> None:
        scheduled = len(self._decoding) * self._per_step
        budget = self._knobs.max_num_batched_tokens - scheduled
        chunks: list[tuple[Request, int]] = []
        for request in self._prefilling:
            budget -= self._add_chunk(chunks, request, budget)
        while budget > 0 and self.waiting and self._admissible(self.waiting[0]):
            request = self.waiting.popleft()
            self._admit(request)
            budget -= self._add_chunk(chunks, request, budget)
        scheduled += sum(tokens for _, tokens in chunks)
        self._chunks = chunks
        self._chunked_step_seconds = self._step_seconds(scheduled)

    @staticmethod
    def _add_chunk(chunks: list[tuple[Request, int]], request: Request, budget: int) -> int:
        tokens = min(budget, request.prefill_target - request.computed_tokens)
        if tokens > 0:
            chunks.append((request, tokens))
        return tokens

    def _admissible(self, request: Request) -> bool:
        if len(self._running) >= self._knobs.max_num_seqs:
            return False
        reserve = int(_ADMISSION_RESERVE * self.settings.kv_blocks) if self._running else 0
        return self._blocks_for(request) + reserve <= self._free_blocks

    def _admit(self, request: Request) -> None:
        if request.first_scheduled_at is None:
            request.first_scheduled_at = self.now
            self.metrics.admitted(request)
        request.prefill_target = request.own_tokens
        request.blocks = self._blocks_for(request)
        self._free_blocks -= request.blocks
        self._kv_tokens += request.drawn.cached_tokens
        self._running.append(request)
        self._prefilling.append(request)

    def _finish_chunked_step(self, seconds: float) -> None:
        decoding = len(self._decoding)
        self.now += seconds
        self._chunked_step_seconds = None
        tokens, ended = self._emit(1)
        self._kv_tokens += tokens
        for request, chunk in self._chunks:
            request.computed_tokens += chunk
            self._kv_tokens += chunk
            if request.computed_tokens == request.prefill_target:
                tokens += self._complete_prefill(request)
                if request.generated_tokens == request.drawn.output_tokens:
                    ended.append(request)
        self._prefilling = [
            request for request in self._prefilling if request.computed_tokens < request.prefill_target
        ]
        self._record(seconds, decoding, tokens)
        self._settle(ended)

    def _complete_prefill(self, request: Request) -> int:
        """The token that a completed prefill yields; returns the tokens that vLLM counts for it."""
        counted = 1
        if request.first_token_at is None:
            request.first_token_at = self.now
            self.metrics.prompt_done(request)
            counted += request.prefill_target
        else:
            gap = self.now - (request.last_token_at or 0.0)
            request.gaps_seconds.append(gap)
            self.metrics.inter_token_latency.observe(gap)
        request.last_token_at = self.now
        request.generated_tokens += 1
        self.metrics.generation_tokens += 1
        self._kv_tokens += 1
        self._decoding.append(request)
        return counted

    # Steps that only decode

    def _decode(self, to: float) -> bool:
        """Decode until something changes or `to` is reached; False when not one more step ends by `to`."""
        decoding = len(self._decoding)
        scheduled = decoding * self._per_step
        steps = self._steps_without_change()
        if steps == 1:
            seconds = self._step_seconds(scheduled)
            if self.now + seconds > to:
                return False
            self.now += seconds
            tokens, ended = self._emit(1)
            self._kv_tokens += tokens
            self._record(seconds, decoding, tokens)
            self._settle(ended)
            return True
        done = 0
        for tokens in self._coming_tokens(steps):
            seconds = self._step_seconds(scheduled)
            if self.now + seconds > to:
                break
            done += 1
            self.now += seconds
            self._kv_tokens += tokens
            self._record(seconds, decoding, tokens)
            if self.now >= self._source.next_arrival_at:
                break
        if not done:
            return False
        _, ended = self._emit(done)
        self._settle(ended)
        return True

    def _steps_without_change(self) -> int:
        """How many steps surely pass before a request can end or the KV blocks can run out; at least 1.

        With speculation a last step may be cut short, and is therefore always taken alone.
        """
        missing = min(request.drawn.output_tokens - request.generated_tokens for request in self._decoding)
        steps = -(-missing // self._per_step)
        if self._per_step > 1:
            steps -= 1
        blocks_each = self._free_blocks // len(self._decoding)
        return max(1, min(steps, blocks_each * self.settings.block_size // self._per_step))

    def _coming_tokens(self, steps: int) -> list[int]:
        """Tokens generated by all in each of the next steps, none of which ends a request."""
        decoding = len(self._decoding)
        if self._per_step == 1:
            return [decoding] * steps
        coming = [
            request.drawn.accepted[request.decode_steps : request.decode_steps + steps]
            for request in self._decoding
        ]
        return [decoding + sum(column) for column in zip(*coming, strict=True)]

    # What both kinds of steps share

    def _step_seconds(self, scheduled: int) -> float:
        drafts = self.settings.num_speculative_tokens if self._decoding else 0
        return self.settings.step.seconds(scheduled, self._kv_tokens, drafts)

    def _record(self, seconds: float, decoding: int, tokens: int) -> None:
        self.busy_seconds += seconds
        self.metrics.inter_token_latency.observe(seconds, decoding)
        self.metrics.iteration_tokens.observe(tokens)
        self.steps.append(Step(seconds, decoding, tokens))

    def _emit(self, steps: int) -> tuple[int, list[Request]]:
        """Let every decoding request take `steps` steps; returns the tokens, and who has all of its own."""
        speculating = self._per_step > 1
        total = 0
        ended = []
        for request in self._decoding:
            gained = steps
            if speculating:
                gained += self._accept(request, steps)
            request.decode_steps += steps
            missing = request.drawn.output_tokens - request.generated_tokens
            if gained >= missing:
                gained = missing
                ended.append(request)
            request.generated_tokens += gained
            total += gained
        self.metrics.generation_tokens += total
        return total, ended

    def _accept(self, request: Request, steps: int) -> int:
        """Accepted draft tokens of the next `steps` draft steps of `request`, also counted by position."""
        accepted = request.drawn.accepted[request.decode_steps : request.decode_steps + steps]
        counts = self.metrics.speculation
        counts.drafts += steps
        for position in range(counts.positions):
            reached = accepted.count(position + 1)
            for reached_position in range(position + 1):
                counts.accepted_at[reached_position] += reached
        return sum(accepted)

    def _settle(self, ended: list[Request]) -> None:
        """After a step: take the ended requests out, then give the others room for their next step."""
        for request in ended:
            request.last_token_at = self.now
            self._leave_batch(request)
            self.metrics.ended(request)
            self.finished.append(request)
        for request in self._decoding:
            missing = self._blocks_for(request) - request.blocks
            if missing:
                request.blocks += missing
                self._free_blocks -= missing
        while self._free_blocks < 0:
            self._preempt(self._running[-1])

    def _preempt(self, request: Request) -> None:
        if request in self._prefilling:
            self._prefilling.remove(request)
        else:
            request.last_token_at = self.now
        self._leave_batch(request)
        request.computed_tokens = 0
        request.preemptions += 1
        self.metrics.preemptions += 1
        self.waiting.appendleft(request)

    def _leave_batch(self, request: Request) -> None:
        self._kv_tokens -= request.context_tokens
        self._free_blocks += request.blocks
        request.blocks = 0
        self._running.remove(request)
        if request in self._decoding:
            self._decoding.remove(request)

    def _blocks_for(self, request: Request) -> int:
        """Blocks for what it has and for the tokens of its next step."""
        return -(-(request.own_tokens + self._per_step) // self.settings.block_size)
