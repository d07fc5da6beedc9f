"""The scheduler of one engine: who waits, who is in the batch, and who has to leave it."""

from __future__ import annotations

from collections import deque

from enginetop.simulator.decoding import DecodeBatch
from enginetop.simulator.holdings import KvHoldings
from enginetop.simulator.live_knobs import KnobState, LiveKnobs
from enginetop.simulator.prefill import ChunkedPrefill
from enginetop.simulator.request import Request
from enginetop.simulator.scenario import EngineSettings


class Scheduler:
    """The queue, and the running requests: those whose prompts are computed (`prefill`), and those that
    decode (`batch`). First come, first served. `most_running` is the largest number of them so far.
    """

    def __init__(self, settings: EngineSettings) -> None:
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.most_running = 0
        self.knobs = LiveKnobs(settings, lambda: len(self.running))
        self.kv = KvHoldings(settings.kv_blocks, settings.block_size)
        self.prefill = ChunkedPrefill()
        self.batch = DecodeBatch(settings.num_speculative_tokens)

    @property
    def has_prompts(self) -> bool:
        """Whether the next step computes prompt tokens."""
        return bool(self.prefill.requests) or self._can_admit()

    def set_knob(self, name: str, value: int) -> KnobState:
        """See `EngineModel.set_knob`."""
        state = self.knobs.set(name, value)
        if name == "num_speculative_tokens":
            self.batch.change_drafts(value)
            for request in (*self.prefill.requests, *self.waiting):
                self.batch.prepare(request)
        return state

    def plan_step(self, now: float) -> tuple[int, list[Request]]:
        """Plan a step with prompt tokens, and admit whoever has room; returns the tokens of the step, and who
        is in the batch for the first time.
        """
        fresh: list[Request] = []
        scheduled = len(self.batch) * self.batch.per_step
        budget = self.prefill.plan(self.knobs.max_num_batched_tokens - scheduled)
        while budget > 0 and self._can_admit():
            request = self.waiting.popleft()
            self._admit(request, now, fresh)
            budget = self.prefill.add(request, budget)
        return scheduled + self.prefill.planned_tokens, fresh

    def steps_without_change(self) -> int:
        """Steps until the first request ends, or as many as the free KV blocks surely suffice for."""
        batch = self.batch
        blocks_each = self.kv.free_blocks // len(batch)
        room = blocks_each * self.kv.block_size // batch.per_step
        return max(1, min(batch.steps_to_first_end(), room))

    def make_room(self, now: float) -> int:
        """Give all that decode the blocks for their next step; returns how many were preempted for them, the
        newest first.
        """
        preempted = 0
        needed = self.batch.claim_blocks(self.kv.block_size)
        if needed:
            self.kv.take(needed)
            while self.kv.free_blocks < 0:
                self._preempt(self.running[-1], now)
                preempted += 1
        return preempted

    def leave(self, request: Request) -> None:
        """Take a request out of the batch, with all that it holds."""
        self.kv.leave(request)
        self.running.remove(request)
        if request in self.batch.requests:
            self.batch.requests.remove(request)

    def _can_admit(self) -> bool:
        if not self.waiting or len(self.running) >= self.knobs.max_num_seqs:
            return False
        return self.kv.has_room_for(self.waiting[0], self.batch.per_step, alone=not self.running)

    def _admit(self, request: Request, now: float, fresh: list[Request]) -> None:
        self.kv.find_prefix(request)
        if request.first_scheduled_at is None:
            request.first_scheduled_at = now
            request.first_cached_tokens = request.cached_tokens
            request.computed_tokens = request.drawn.transferred_tokens
            fresh.append(request)
        request.prefill_target = request.own_tokens
        self.kv.seat(request, self.batch.per_step)
        self.running.append(request)
        self.most_running = max(self.most_running, len(self.running))

    def _preempt(self, request: Request, now: float) -> None:
        if request in self.prefill.requests:
            self.prefill.requests.remove(request)
        else:
            request.last_token_at = now
        self.leave(request)
        request.computed_tokens = 0
        request.cached_tokens = 0
        request.preemptions += 1
        self.waiting.appendleft(request)
