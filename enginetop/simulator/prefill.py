"""Chunked prefill: prompts that are computed bit by bit, in steps shared with the decoding requests."""

from __future__ import annotations

from enginetop.simulator.request import Request


class ChunkedPrefill:
    """Requests whose prompts are not computed yet, in the order of their admission, and their next chunks.

    A step is planned by `plan` and `add`, and taken by `compute`.
    """

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self._chunks: list[tuple[Request, int]] = []

    @property
    def planned_tokens(self) -> int:
        """Prompt tokens of the planned step."""
        return sum(tokens for _, tokens in self._chunks)

    def plan(self, budget: int) -> int:
        """Begin a plan with the requests that are here; returns what is left of `budget` tokens."""
        self._chunks = []
        for request in self.requests:
            budget -= self._take_chunk(request, budget)
        return budget

    def add(self, request: Request, budget: int) -> int:
        """Take in an admitted request and plan its first chunk; returns what is left of `budget` tokens."""
        self.requests.append(request)
        return budget - self._take_chunk(request, budget)

    def compute(self) -> tuple[int, list[Request]]:
        """Take the planned step; returns the tokens computed, and the requests whose prompts are complete."""
        tokens, complete = 0, []
        for request, chunk in self._chunks:
            request.computed_tokens += chunk
            tokens += chunk
            if request.computed_tokens == request.prefill_target:
                complete.append(request)
        self._chunks = []
        self.requests = [request for request in self.requests if _is_incomplete(request)]
        return tokens, complete

    def _take_chunk(self, request: Request, budget: int) -> int:
        tokens = min(budget, request.prefill_target - request.computed_tokens)
        if tokens <= 0:
            return 0
        self._chunks.append((request, tokens))
        return tokens


def _is_incomplete(request: Request) -> bool:
    return request.computed_tokens < request.prefill_target
