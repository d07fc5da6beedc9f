"""The paged KV cache: blocks in use, free blocks, and shared prefixes that stay in free blocks until evicted.

As in vLLM, a freed block keeps its content and goes to the end of a queue; new blocks are taken from its
front. A prefix that nobody uses therefore survives as long as the queue has not gone round once. Only shared
prefixes are remembered: no other content of this traffic is ever asked for twice.
"""

from __future__ import annotations

from collections import deque


class _Run:
    """Neighbours in the queue of free blocks; `prefix` None: of no further use."""

    __slots__ = ("blocks", "prefix")

    def __init__(self, blocks: int, prefix: _Prefix | None) -> None:
        self.blocks = blocks
        self.prefix = prefix


class _Prefix:
    """A shared prefix: how many of its first blocks are cached, and how many requests hold them."""

    __slots__ = ("blocks", "holders", "run")

    def __init__(self) -> None:
        self.blocks = 0
        self.holders = 0
        self.run: _Run | None = None


class BlockPool:
    """All KV blocks of one engine.

    A request's own blocks are counted by the request. `free` counts blocks that can be had, cached ones
    included; it may fall below zero while blocks are shared out, until a preemption has given some back.
    A prefix is held and let go as a whole, whatever part of it a request found.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.free = capacity
        self._queue: deque[_Run] = deque([_Run(capacity, None)])
        self._queued = capacity
        self._prefixes: dict[int, _Prefix] = {}

    @property
    def usage_ratio(self) -> float:
        """Share of the blocks that requests use."""
        return 1.0 - self.free / self.capacity

    def take(self, blocks: int) -> None:
        """Hand out `blocks`, the longest unused first."""
        self.free -= blocks
        self._evict()

    def give(self, blocks: int) -> None:
        """Take `blocks` back; their content is of no further use."""
        if blocks:
            self.free += blocks
            self._append(blocks, None)
            self._evict()

    def cached_blocks(self, prefix: int, wanted: int) -> int:
        """How many of the first `wanted` blocks of a prefix are cached."""
        known = self._prefixes.get(prefix)
        return min(known.blocks, wanted) if known is not None else 0

    def blocks_to_hold(self, prefix: int) -> int:
        """Free blocks that holding the prefix would put to use."""
        known = self._prefixes.get(prefix)
        return 0 if known is None or known.holders else known.blocks

    def hold(self, prefix: int) -> None:
        """Keep the cached blocks of a prefix from being evicted, until `release`."""
        known = self._prefixes.setdefault(prefix, _Prefix())
        known.holders += 1
        if known.run is not None:
            self.free -= known.blocks
            self._queued -= known.blocks
            known.run.blocks = 0
            known.run = None

    def extend(self, prefix: int, blocks: int) -> int:
        """A holder has computed the first `blocks` of the prefix.

        Returns how many of them were not cached so far: those of the holder's own blocks now belong to it.
        """
        known = self._prefixes[prefix]
        gained = max(0, blocks - known.blocks)
        known.blocks += gained
        return gained

    def release(self, prefix: int) -> None:
        """End a `hold`; with the last one the prefix goes to the end of the queue."""
        known = self._prefixes[prefix]
        known.holders -= 1
        if not known.holders and known.blocks:
            self.free += known.blocks
            known.run = self._append(known.blocks, known)
            self._evict()

    def _append(self, blocks: int, prefix: _Prefix | None) -> _Run:
        self._queued += blocks
        if prefix is None and self._queue and self._queue[-1].prefix is None:
            last = self._queue[-1]
            last.blocks += blocks
            return last
        run = _Run(blocks, prefix)
        self._queue.append(run)
        return run

    def _evict(self) -> None:
        """Shorten the queue from its front to what is free; a prefix loses its last blocks first."""
        surplus = self._queued - max(self.free, 0)
        while surplus > 0:
            run = self._queue[0]
            if run.blocks <= surplus:
                self._queue.popleft()
            evicted = min(run.blocks, surplus)
            run.blocks -= evicted
            self._queued -= evicted
            surplus -= evicted
            if run.prefix is not None and evicted:
                run.prefix.blocks -= evicted
                if not run.prefix.blocks:
                    run.prefix.run = None
