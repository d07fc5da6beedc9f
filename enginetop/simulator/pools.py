"""Prefill and decode pools: what a prefill replica has begun goes on at a decode replica, after a transfer.

Requests are dealt to the decode replicas in turn, whatever their state, so that what happens does not depend
on when one looks; one that is dealt to a dead replica is lost. Times are seconds of the fleet.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Protocol

from enginetop.simulator.request import Request
from enginetop.simulator.traffic import NO_PREFIX, DrawnRequest


class Mailbox:
    """Requests on their way to one rank of a decode replica; its `Arrivals` while it lives."""

    def __init__(self) -> None:
        self._requests: deque[DrawnRequest] = deque()
        self._offset = 0.0

    @property
    def next_arrival_at(self) -> float:
        """When the next request arrives, in seconds of the engine; infinite if none is known."""
        return self._requests[0].arrival_at - self._offset if self._requests else math.inf

    def open(self, life_at: float) -> int:
        """A new engine began at `life_at`; returns how many requests came before it and are lost."""
        self._offset = life_at
        lost = 0
        while self._requests and self._requests[0].arrival_at < life_at:
            self._requests.popleft()
            lost += 1
        return lost

    def deliver(self, request: DrawnRequest) -> None:
        """Put in a request, in the order of arrival."""
        self._requests.append(request)

    def pop(self) -> DrawnRequest:
        """Take the next request, with its times in seconds of the engine."""
        request = self._requests.popleft()
        asked_at = request.arrival_at if request.asked_at is None else request.asked_at
        return replace(
            request, arrival_at=request.arrival_at - self._offset, asked_at=asked_at - self._offset
        )


class HandsOver(Protocol):
    """A replica of a prefill pool."""

    def take_handed_over(self) -> Sequence[tuple[float, Request]]:
        """Requests that ended there since the last call, with the second of the fleet at which their engine
        began.
        """


class Receives(Protocol):
    """A replica of a decode pool."""

    def deliver(self, request: DrawnRequest) -> None:
        """Take a request that arrives later, in the order of arrival."""


class Relay:
    """Carries requests from `prefill` to `decode`. Call `carry` once the prefill replicas have lived until
    `to`, and before the decode replicas do.
    """

    def __init__(
        self, prefill: Sequence[HandsOver], decode: Sequence[Receives], transfer_seconds: float
    ) -> None:
        self._prefill = tuple(prefill)
        self._decode = tuple(decode)
        self._transfer_seconds = transfer_seconds
        self._turn = 0
        self._under_way: list[tuple[float, int, int, DrawnRequest]] = []
        self._number = count()

    def carry(self, to: float) -> None:
        """Deliver everything that arrives at or before `to`."""
        for place, replica in enumerate(self._prefill):
            for life_at, request in replica.take_handed_over():
                on = continued(request, life_at, self._transfer_seconds)
                heapq.heappush(self._under_way, (on.arrival_at, place, next(self._number), on))
        while self._under_way and self._under_way[0][0] <= to:
            arriving = heapq.heappop(self._under_way)[-1]
            self._decode[self._turn % len(self._decode)].deliver(arriving)
            self._turn += 1


def continued(request: Request, life_at: float, transfer_seconds: float) -> DrawnRequest:
    """What a decode replica gets of a request that a prefill engine, begun at `life_at`, has ended.

    All of the prompt's KV comes along but that of the last token, from which the answer starts.
    """
    return replace(
        request.drawn,
        arrival_at=life_at + (request.last_token_at or 0.0) + transfer_seconds,
        asked_at=life_at + request.drawn.arrival_at,
        prefix=NO_PREFIX,
        prefix_tokens=0,
        transferred_tokens=request.drawn.prompt_tokens - 1,
    )
