"""One engine: a queue, prefill in chunks beside the decoding requests, paged KV with prefix reuse, preemption
by recompute, speculation.

Pure: time is what `advance` is told, and the outcome does not depend on the instants at which it is called.
A step that computes prompt tokens is taken one at a time; steps that only decode are taken in runs during
which the batch does not change, which is what makes a fleet of them cheap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from enginetop.fleet.model import Role
from enginetop.fleet.snapshot import Slo
from enginetop.simulator.faults import Chance, Conditions
from enginetop.simulator.live_knobs import KnobState
from enginetop.simulator.metrics import EngineMetrics
from enginetop.simulator.request import Request
from enginetop.simulator.scenario import EngineSettings
from enginetop.simulator.scheduler import Scheduler
from enginetop.simulator.traffic import Arrivals, DrawnRequest
from enginetop.simulator.truth import Truth, is_within


class Step(NamedTuple):
    """One engine step: how long, how many requests decoded in it, and the tokens that vLLM counts for it.

    `tokens` is what was generated, and the computed part of each prompt that was completed.
    """

    seconds: float
    decoding: int
    tokens: int


class EngineModel:
    """One engine (one data-parallel rank) from its start to its end. Times are seconds since it began.

    `history` bounds how many ended requests `finished` keeps; with `keeps_steps`, `steps` holds sixteen times
    as many steps.
    `truth` and `conditions` may outlive it; `seed` decides whom
    faults hit. An engine for prefill ends its requests at the first token and puts them into `outbox`, to be
    taken from there.
    """

    def __init__(
        self,
        settings: EngineSettings,
        source: Arrivals,
        slo: Slo,
        *,
        history: int = 2000,
        keeps_steps: bool = True,
        truth: Truth | None = None,
        conditions: Conditions | None = None,
        seed: str = "",
    ) -> None:
        self.settings = settings
        self.slo = slo
        self.truth = Truth() if truth is None else truth
        self.now = 0.0
        self.finished: deque[Request] = deque(maxlen=history)
        self.steps: deque[Step] = deque(maxlen=16 * history)
        self.outbox: list[Request] = []
        self.busy_seconds = 0.0
        self._conditions = Conditions() if conditions is None else conditions
        self._chance = Chance(self._conditions, seed)
        self._source = source
        self._hands_over = settings.role is Role.PREFILL
        self._scheduler = Scheduler(settings)
        self._kv, self._batch = self._scheduler.kv, self._scheduler.batch
        self._chunked_step_seconds: float | None = None
        self._held_up_seconds = 0.0
        self._keeps_steps = keeps_steps
        self.metrics = self._fresh_metrics()

    @property
    def requests_running(self) -> int:
        """Requests in the batch."""
        return len(self._scheduler.running)

    @property
    def most_running(self) -> int:
        """The largest batch so far."""
        return self._scheduler.most_running

    @property
    def waiting(self) -> Sequence[Request]:
        """The requests in the queue."""
        return self._scheduler.waiting

    @property
    def kv_usage_ratio(self) -> float:
        """Share of the KV blocks in use, those of prefixes in use included; what is only cached is free."""
        return self._kv.usage_ratio

    def knobs(self) -> tuple[KnobState, ...]:
        """The knobs that can be changed while the engine runs."""
        return self._scheduler.knobs.states()

    def set_knob(self, name: str, value: int) -> KnobState:
        """Change a knob from the next step on; the thinking budget from the next arrival on.

        A lower `max_num_seqs` only stops admission: who runs, runs on.

        Raises:
            UnknownKnobError, KnobBoundsError: nothing is changed.
        """
        return self._scheduler.set_knob(name, value)

    def set_slo(self, slo: Slo) -> None:
        """Judge requests that end from now on by `slo`."""
        self.slo = slo
        self.metrics.judge_by(slo)

    def submit(self, drawn: DrawnRequest) -> Request:
        """Queue a request from outside of the engine's own traffic, at its `arrival_at`, which must not lie
        before the second last advanced to. What becomes of it can be read from the result.
        """
        request = self._request(drawn)
        self._scheduler.waiting.append(request)
        if not self._scheduler.running:
            self.now = max(self.now, drawn.arrival_at)
        return request

    def hold_up(self, begin: float, end: float) -> None:
        """The engine makes no progress from `begin`, the second last advanced to, until `end`."""
        if self._chunked_step_seconds is not None:
            self._chunked_step_seconds += end - begin
        elif self._batch.requests:
            self._held_up_seconds += end - begin
        else:
            self.now = max(self.now, end)

    def reset_metrics(self) -> None:
        """All counters begin anew; the engine works on."""
        self.metrics = self._fresh_metrics()

    def unfinished(self) -> list[Request]:
        """The requests in the batch and in the queue, with the times known so far."""
        for request in self._batch.requests:
            request.last_token_at = self.now
        return [*self._scheduler.running, *self._scheduler.waiting]

    def advance(self, to: float) -> None:
        """Complete every step that ends at or before `to`; going back does nothing."""
        while True:
            self._take_arrivals()
            if self._chunked_step_seconds is not None:
                if self.now + self._chunked_step_seconds > to:
                    return
                self._finish_chunked_step(self._chunked_step_seconds)
            elif self._scheduler.has_prompts:
                self._begin_chunked_step()
            elif self._batch.requests:
                if not self._decode(to):
                    return
            elif self._source.next_arrival_at <= to:
                self.now = self._source.next_arrival_at
            else:
                return

    def _fresh_metrics(self) -> EngineMetrics:
        settings = self.settings
        return EngineMetrics(settings.max_model_len, settings.num_speculative_tokens, self.slo, settings.kind)

    def _take_arrivals(self) -> None:
        while self._source.next_arrival_at <= self.now:
            self._scheduler.waiting.append(self._request(self._source.pop()))

    def _request(self, drawn: DrawnRequest) -> Request:
        budget = drawn.thinking_token_budget
        request = Request(
            drawn,
            thinking_token_budget=self._scheduler.knobs.thinking_token_budget if budget is None else budget,
            fails=self._chance.fails(),
            only_first_token=self._hands_over,
        )
        self._batch.prepare(request)
        return request

    # Steps with prompt tokens

    def _begin_chunked_step(self) -> None:
        scheduled, fresh = self._scheduler.plan_step(self.now)
        for request in fresh:
            self.metrics.admitted(request)
        self._chunked_step_seconds = self._step_seconds(scheduled) + self._held_up_seconds
        self._held_up_seconds = 0.0

    def _finish_chunked_step(self, seconds: float) -> None:
        decoding = len(self._batch)
        self.now += seconds
        self._chunked_step_seconds = None
        tokens, ended = self._batch.emit(1, self.metrics.speculation)
        self.metrics.generation_tokens += tokens
        self._kv.tokens += tokens
        computed, complete = self._scheduler.prefill.compute()
        self._kv.tokens += computed
        for request in complete:
            tokens += self._complete_prefill(request)
            if request.generated_tokens == request.output_tokens:
                ended.append(request)
        self._record([seconds], decoding, [tokens])
        self._settle(ended)

    def _complete_prefill(self, request: Request) -> int:
        """The token that a completed prefill yields; returns the tokens that vLLM counts for it."""
        counted = 1
        if request.first_token_at is None:
            request.first_token_at = self.now
            self.metrics.prompt_done(request)
            counted += request.prompt_tokens_computed
        else:
            gap = self.now - (request.last_token_at or 0.0)
            request.gaps_seconds.append(gap)
            self.metrics.inter_token_latency.observe(gap)
        self._kv.share_prefix(request)
        request.last_token_at = self.now
        request.generated_tokens += 1
        self.metrics.generation_tokens += 1
        self._kv.tokens += 1
        self._batch.add(request)
        return counted

    # Steps that only decode

    def _decode(self, to: float) -> bool:
        """Decode until something changes or `to` is reached; False when not one more step ends by `to`."""
        step, batch = self.settings.step, self._batch
        decoding, slowness = len(batch), self._conditions.slowness
        fixed_ms = step.fixed_ms(decoding * batch.per_step, batch.drafts)
        next_arrival_at = self._source.next_arrival_at
        now, kv_tokens, held_up = self.now, self._kv.tokens, self._held_up_seconds
        coming = batch.coming_tokens(self._scheduler.steps_without_change())
        durations: list[float] = []
        for tokens in coming:
            seconds = (fixed_ms + step.per_kv_token_ns * kv_tokens / 1e6) / 1e3 * slowness + held_up
            if now + seconds > to:
                break
            now += seconds
            kv_tokens += tokens
            held_up = 0.0
            durations.append(seconds)
            if now >= next_arrival_at:
                break
        if not durations:
            return False
        self.now, self._kv.tokens, self._held_up_seconds = now, kv_tokens, held_up
        self._record(durations, decoding, coming)
        tokens, ended = batch.emit(len(durations), self.metrics.speculation)
        self.metrics.generation_tokens += tokens
        self._settle(ended)
        return True

    # What both kinds of steps share

    def _step_seconds(self, scheduled: int) -> float:
        drafts = self._batch.drafts if self._batch.requests else 0
        return self.settings.step.seconds(scheduled, self._kv.tokens, drafts) * self._conditions.slowness

    def _record(self, durations: Sequence[float], decoding: int, tokens: Sequence[int]) -> None:
        """Count some steps; `tokens` goes on beyond them where fewer were taken than planned."""
        for seconds in durations:
            self.busy_seconds += seconds
        if decoding:
            self.metrics.inter_token_latency.observe_each(durations, decoding)
        self.metrics.iteration_tokens.observe_each(tokens[: len(durations)])
        if self._keeps_steps:
            self.steps.extend([Step(s, decoding, t) for s, t in zip(durations, tokens, strict=False)])

    def _settle(self, ended: list[Request]) -> None:
        """After a step: take the ended requests out, then give the others room for their next step."""
        for request in ended:
            request.last_token_at = self.now
            self._scheduler.leave(request)
            self._end(request)
        self.metrics.preemptions += self._scheduler.make_room(self.now)

    def _end(self, request: Request) -> None:
        self.metrics.ended(request)
        self.finished.append(request)
        if self._hands_over:
            self.outbox.append(request)
            return
        within = is_within(request, self.slo)
        spoilt = within and self._chance.spoils()
        within = within and not spoilt
        self.metrics.judge(request, within)
        self.truth.ended(request, within, spoilt)
