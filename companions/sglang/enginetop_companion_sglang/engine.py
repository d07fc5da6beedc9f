"""The knobs of all schedulers as one board: values, versions and leases live here, in the server process.

The schedulers only do what they are told. A lease that ends is told to them by this process, without any
request: when this process is gone, so are they. What they say of themselves is read back after every change.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from enginetop_companion.board import Answer, Board, Bounds
from enginetop_companion.settings import Objective

RETRY_SECONDS = 1.0
"""How soon a value that is not in force everywhere is told again."""
PATIENCE_SECONDS = 10.0
"""How long schedulers may take for an answer, a long step included."""

ALIASES = {"chunked_prefill_size": "max_num_batched_tokens", "max_running_requests": "max_num_seqs"}
"""SGLang's own names of knobs, taken as well."""

T = TypeVar("T")


class UnansweredError(Exception):
    """The schedulers did not answer in time, or not as they should."""


class Schedulers(Protocol):
    """One answer for each data-parallel rank; its tensor-parallel ranks do the same in the same order."""

    async def read(self) -> Sequence[Mapping[str, Any] | None]:
        """What each says of its knobs, `SchedulerSide.description`. None: nothing."""

    async def write(self, values: Mapping[str, int]) -> Sequence[bool]:
        """Tell all of them these values of knobs; each takes all or none."""


class ToldKnob:
    """One knob of the board, whose value is told to the schedulers later.

    `confirmed` is the value that all of them have; None: not known.
    """

    def __init__(self, row: Mapping[str, Any]) -> None:
        self.name: str = row["name"]
        self.unit: str = row["unit"]
        self.start: int = row["start"]
        self._bounds = Bounds(row["low"], row["start"], row["note"], row["step"])
        self.wanted = self.start
        self.confirmed: int | None = self.start

    def bounds(self) -> Bounds:
        """What is accepted: the same at all times."""
        return self._bounds

    def write(self, value: int) -> None:
        """Keep the value until it is told."""
        self.wanted = value


class Engine:
    """All knobs of one server; see `enginetop_companion.api.Engine`.

    `ranks` is what the schedulers said at first: at least one, all the same. `clock` never goes back.
    """

    def __init__(
        self,
        schedulers: Schedulers,
        ranks: Sequence[Mapping[str, Any]],
        objective: Objective,
        clock: Callable[[], float],
        log: logging.Logger,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._schedulers = schedulers
        self._knobs = {knob.name: knob for knob in map(ToldKnob, ranks[0]["knobs"])}
        self._board = Board(self._knobs.values())
        self._instance = uuid.uuid4().hex
        self._objective = objective
        self._clock = clock
        self._log = log
        self._patience_seconds = patience_seconds
        self._turn = asyncio.Lock()
        self._stirred = asyncio.Event()
        self._late: asyncio.Task[Any] | None = None
        self._ranks = len(ranks)
        self.on_objective: Callable[[Objective], None] = lambda _: None

    async def sheet(self) -> Answer:
        """`applied` of `total` ranks say that they have the values of the board."""
        async with self._turn:
            await self._let_go()
            try:
                ranks = await self._ask(self._schedulers.read())
            except UnansweredError as error:
                return self._not_applied(str(error))
            agree = sum(
                all(_value(rank, one.name) == one.wanted for one in self._knobs.values()) for rank in ranks
            )
            head = {"instance": self._instance, "applied": agree, "total": len(ranks)}
            return Answer(200, head | {"knobs": self._board.rows(self._clock())})

    async def change(self, asked: dict[str, Any]) -> Answer:
        """On all ranks or on none: what not all confirm is taken back, and the answer is 503."""
        name, ticket = ALIASES.get(asked["knob"], asked["knob"]), uuid.uuid4().hex
        async with self._turn:
            await self._let_go()
            answer = self._board.change(asked | {"knob": name, "ticket": ticket}, self._clock())
            if answer.status != 200:
                return answer
            why = await self._put_in_force()
            if why:
                self._board.undo(name, ticket, self._clock())
                await self._put_in_force()
                answer = self._not_applied(why)
            else:
                answer = Answer(200, answer.body | {"applied": self._ranks, "total": self._ranks})
        self._stirred.set()
        return answer

    async def reset(self, name: str) -> Answer:
        """Back to the start value, to stay. 503: not all ranks have it yet, and are told again."""
        async with self._turn:
            answer = self._board.reset(ALIASES.get(name, name), self._clock())
            if answer.status != 200:
                return answer
            why = await self._put_in_force()
            if why:
                answer = self._not_applied(why)
            else:
                answer = Answer(200, answer.body | {"applied": self._ranks, "total": self._ranks})
        self._stirred.set()
        return answer

    async def set_objective(self, objective: list[float]) -> Answer:
        """Judge requests by it from now on."""
        self._objective = Objective(*objective)
        self.on_objective(self._objective)
        return Answer(200, {})

    def objective(self) -> Objective:
        """The objective in force."""
        return self._objective

    async def keep(self) -> None:
        """Let leases end when they are over, and tell again what is not in force, until this is cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stirred.wait(), self._pause())
            self._stirred.clear()
            try:
                async with self._turn:
                    await self._let_go()
                    await self._put_in_force()
            except Exception as error:  # noqa: BLE001 - whatever happens, the next lease must end too
                self._log.warning("enginetop companion: %r", error)
                await asyncio.sleep(RETRY_SECONDS)

    def _pause(self) -> float | None:
        if any(knob.wanted != knob.confirmed for knob in self._knobs.values()):
            return RETRY_SECONDS
        deadline = self._board.next_deadline()
        return None if deadline is None else max(0.0, deadline - self._clock())

    async def _let_go(self) -> None:
        over = self._board.expire(self._clock())
        for name in over:
            value = self._knobs[name].wanted
            self._log.warning("enginetop companion: %s is back at %s, nobody renewed the change", name, value)
        if over:
            await self._put_in_force()

    async def _put_in_force(self) -> str:
        """Tell the schedulers what they have not confirmed, and read it back. Why not all have it, if so."""
        moved = [knob for knob in self._knobs.values() if knob.wanted != knob.confirmed]
        if not moved:
            return ""
        wanted = {knob.name: knob.wanted for knob in moved}
        for knob in moved:
            knob.confirmed = None
        try:
            taken = await self._ask(self._schedulers.write(wanted))
            ranks = await self._ask(self._schedulers.read())
        except UnansweredError as error:
            return str(error)
        self._ranks = len(ranks)
        for knob in moved:
            if ranks and all(_value(rank, knob.name) == wanted[knob.name] for rank in ranks):
                knob.confirmed = wanted[knob.name]
        if all(taken) and all(knob.confirmed is not None for knob in moved):
            return ""
        return "not every rank has taken it"

    async def _ask(self, question: Coroutine[Any, Any, T]) -> T:
        """The answer. Never cancelled: SGLang would give a later question the answer to this one."""
        if self._late is not None and not self._late.done():
            question.close()
            raise UnansweredError("the schedulers have not answered yet")
        task = asyncio.ensure_future(question)
        await asyncio.wait({task}, timeout=self._patience_seconds)
        if not task.done():
            self._late = task
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            raise UnansweredError("the schedulers did not answer in time")
        error = task.exception()
        if error is not None:
            raise UnansweredError(f"the schedulers cannot be asked: {type(error).__name__}")
        return task.result()

    def _not_applied(self, why: str) -> Answer:
        return Answer(503, {"error": why, "applied": 0, "total": self._ranks})


def _value(rank: Mapping[str, Any] | None, name: str) -> int | None:
    rows = rank["knobs"] if rank is not None else ()
    return next((row["value"] for row in rows if row["name"] == name), None)
