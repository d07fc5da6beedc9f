"""What the requests of one engine hold of its KV cache: blocks of their own, and shared prefixes."""

from __future__ import annotations

from enginetop.simulator.kv import BlockPool
from enginetop.simulator.request import Request
from enginetop.simulator.traffic import NO_PREFIX

_ADMISSION_RESERVE = 0.01
"""Share of the KV blocks that stays free when a request is admitted beside others."""


class KvHoldings:
    """The KV cache of an engine, shared out among the requests in its batch in blocks of `block_size` tokens.

    `tokens` are those that the requests have in the cache: every step reads them.
    """

    def __init__(self, blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.tokens = 0
        self._pool = BlockPool(blocks)

    @property
    def usage_ratio(self) -> float:
        """Share of the blocks in use, those of prefixes in use included; what is only cached is free."""
        return self._pool.usage_ratio

    @property
    def free_blocks(self) -> int:
        """Blocks that can be had; below zero while more are shared out than there are."""
        return self._pool.free

    def has_room_for(self, request: Request, per_step: int, *, alone: bool) -> bool:
        """Whether a request of `per_step` tokens a step can be admitted; `alone`: to an empty batch."""
        pool, drawn = self._pool, request.drawn
        wanted = drawn.prompt_tokens + request.generated_tokens + per_step
        if drawn.prefix != NO_PREFIX:
            blocks = self._blocks(wanted - self._cached_blocks(request) * self.block_size)
            blocks += pool.blocks_to_hold(drawn.prefix)
        else:
            blocks = self._blocks(wanted)
        reserve = 0 if alone else int(_ADMISSION_RESERVE * pool.capacity)
        return blocks + reserve <= pool.free

    def find_prefix(self, request: Request) -> None:
        """Hold the prefix of a request, and count as cached what there is of it."""
        if request.drawn.prefix != NO_PREFIX:
            request.cached_tokens = self._cached_blocks(request) * self.block_size
            self._pool.hold(request.drawn.prefix)
            request.holds_prefix = True

    def seat(self, request: Request, per_step: int) -> None:
        """Give a request the blocks for its own tokens and for its first step."""
        request.blocks = self._blocks(request.own_tokens + per_step)
        self._pool.take(request.blocks)
        self.tokens += request.cached_tokens + request.computed_tokens

    def share_prefix(self, request: Request) -> None:
        """What `request` has computed of its prefix, and nobody before it, becomes the cache's own."""
        if not request.holds_prefix:
            return
        blocks = request.drawn.prefix_tokens // self.block_size
        gained = self._pool.extend(request.drawn.prefix, blocks)
        request.blocks -= gained
        request.cached_tokens += gained * self.block_size
        request.computed_tokens -= gained * self.block_size
        request.prefill_target -= gained * self.block_size

    def take(self, blocks: int) -> None:
        """Hand out blocks that requests have claimed for their next step."""
        self._pool.take(blocks)

    def leave(self, request: Request) -> None:
        """Take back everything that a request holds."""
        self.tokens -= request.context_tokens
        self._pool.give(request.blocks)
        if request.holds_prefix:
            self._pool.release(request.drawn.prefix)
            request.holds_prefix = False
        request.blocks = 0

    def _cached_blocks(self, request: Request) -> int:
        drawn = request.drawn
        return self._pool.cached_blocks(drawn.prefix, drawn.prefix_tokens // self.block_size)

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.block_size)
