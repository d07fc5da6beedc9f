"""The decoding requests of one engine: what each gains in a step, and when the first of them ends."""

from __future__ import annotations

from collections.abc import Sequence

from enginetop.simulator.metrics import SpeculationCounts
from enginetop.simulator.request import Request
from enginetop.simulator.speculation import capped, count_accepted, steps_to_gain


class DecodeBatch:
    """All requests that decode in every step, with `drafts` drafted tokens each.

    A request yields one token a step and what is accepted of its drafts. Its luck is drawn beforehand, so
    that the step in which it ends is known.
    """

    def __init__(self, drafts: int) -> None:
        self.requests: list[Request] = []
        self.drafts = drafts
        self.per_step = 1 + drafts

    def __len__(self) -> int:
        return len(self.requests)

    def prepare(self, request: Request) -> None:
        """Fit the luck of a request to the present draft length; it may be in the batch or not."""
        if self.drafts:
            # A request without luck of its own (from outside of the engine's traffic) has no hits.
            accepted = capped(request.drawn.accepted, self.drafts)
            request.accepted = accepted.ljust(request.output_tokens, b"\0")

    def change_drafts(self, drafts: int) -> None:
        """Draft `drafts` tokens from the next step on."""
        self.drafts = drafts
        self.per_step = 1 + drafts
        for request in self.requests:
            self.prepare(request)
            self._plan(request)
            request.grows_at = 0

    def add(self, request: Request) -> None:
        """A request has its first token, or has been computed anew."""
        self.requests.append(request)
        self._plan(request)
        request.grows_at = 0

    def steps_to_first_end(self) -> int:
        """How many steps it takes until a request has all of its tokens."""
        return min([request.steps_left for request in self.requests])

    def coming_tokens(self, steps: int) -> Sequence[int]:
        """Tokens that all together gain in each of the next steps; none may end before the last of them."""
        number = len(self.requests)
        if not self.drafts:
            return [number] * steps
        tokens = [number + sum(column) for column in zip(*self._hits(steps), strict=True)]
        for request in self.requests:
            if request.steps_left == steps:
                end = request.decode_steps + steps
                gained = steps + sum(request.accepted[request.decode_steps : end])
                tokens[-1] -= gained - (request.output_tokens - request.generated_tokens)
        return tokens

    def emit(self, steps: int, counts: SpeculationCounts) -> tuple[int, list[Request]]:
        """Let every request take `steps` steps; returns the tokens gained, and who has all of its own."""
        if not self.drafts:
            for request in self.requests:
                request.generated_tokens += steps
                request.steps_left -= steps
            ended = [request for request in self.requests if not request.steps_left]
            return steps * len(self.requests), ended
        hits = self._hits(steps)
        counts.drafts += steps * len(hits)
        counts.draft_tokens += steps * len(hits) * self.drafts
        count_accepted(b"".join(hits), counts.accepted_at, self.drafts)
        total = 0
        ended = []
        for request, accepted in zip(self.requests, hits, strict=True):
            gained = steps + sum(accepted)
            request.decode_steps += steps
            request.steps_left -= steps
            if not request.steps_left:
                gained = request.output_tokens - request.generated_tokens
                ended.append(request)
            request.generated_tokens += gained
            total += gained
        return total, ended

    def claim_blocks(self, block_size: int) -> int:
        """Give every request the blocks that it may need in its next step; returns how many are new."""
        needed, per_step = 0, self.per_step
        for request in self.requests:
            generated = request.generated_tokens
            if generated >= request.grows_at:
                wanted = request.own_tokens + per_step
                blocks = -(-wanted // block_size)
                if blocks > request.blocks:
                    needed += blocks - request.blocks
                    request.blocks = blocks
                request.grows_at = generated + request.blocks * block_size - wanted + 1
        return needed

    def _hits(self, steps: int) -> list[bytes]:
        return [
            request.accepted[request.decode_steps : request.decode_steps + steps] for request in self.requests
        ]

    def _plan(self, request: Request) -> None:
        missing = request.output_tokens - request.generated_tokens
        if self.drafts:
            missing = steps_to_gain(request.accepted, request.decode_steps, missing)
        request.steps_left = missing
