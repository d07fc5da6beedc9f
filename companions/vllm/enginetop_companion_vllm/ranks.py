"""One change on all ranks or on none. A rank is one EngineCore; each answers for itself.

With several ranks a change is first taken for a few seconds, then held for its ttl once every rank has taken
it: whatever is lost in between, no rank keeps what another does not have.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from enginetop_companion.board import Answer

log = logging.getLogger("vllm.plugins.enginetop")

CallAll = Callable[[str, dict[str, Any]], Awaitable[list[dict[str, Any]]]]
"""Calls a verb on every rank that this process can reach; one answer a rank, in the order of ranks."""

PROVISIONAL_SECONDS = 15.0
"""How long a rank keeps a change that was not confirmed."""


class Ranks:
    """All ranks of one engine. `total` ranks must confirm; `timeout` is in seconds, a long step included."""

    def __init__(self, call_all: CallAll, total: int, timeout: float = 10.0) -> None:
        self._call_all = call_all
        self.total = total
        self._timeout = timeout
        self._unanswered = False
        self._undoing: set[asyncio.Future[Any]] = set()

    async def sheet(self) -> Answer:
        """Instance, rows of the first rank, and how many ranks have the same rows."""
        answers = await self._ask("sheet", {})
        if not answers or answers[0].status != 200:
            return answers[0] if answers else _nobody(self.total)
        first = answers[0].body
        agree = [one for one in answers if one.status == 200 and _values(one) == _values(answers[0])]
        instances = "".join(str(one.body.get("instance")) for one in answers)
        instance = (
            first["instance"] if len(answers) == 1 else hashlib.sha256(instances.encode()).hexdigest()[:32]
        )
        body = {"instance": instance, "applied": len(agree), "total": self.total, "knobs": first["knobs"]}
        return Answer(200, body)

    async def view(self) -> dict[str, Any] | None:
        """What API servers must know of the first rank; None when it does not answer."""
        answers = await self._ask("view", {})
        return answers[0].body if answers and answers[0].status == 200 else None

    async def change(self, asked: dict[str, Any]) -> Answer:
        """Apply a change everywhere; otherwise nowhere, with the refusal that all gave, or 503."""
        ticket = uuid.uuid4().hex
        several = self.total > 1
        first = asked | {"ticket": ticket}
        if several:
            sheet = await self.sheet()
            if sheet.status != 200 or sheet.body["applied"] < self.total:
                return Answer(
                    503,
                    {"error": "not every rank can be reached, or they differ"} | _count(sheet, self.total),
                )
            first["ttl_seconds"] = PROVISIONAL_SECONDS
        answers = await self._ask("change", first)
        if self._all_took_it(answers) and several:
            answers = await self._ask("hold", first | {"ttl_seconds": asked["ttl_seconds"]})
        if self._all_took_it(answers):
            return self._confirmed(answers)
        words = {one.status for one in answers}
        if len(answers) == self.total and len(words) == 1:
            return answers[0]
        self._undo(asked["knob"], ticket)
        return Answer(
            503, {"error": "not every rank could apply it; none has", "applied": 0, "total": self.total}
        )

    async def reset(self, name: str) -> Answer:
        """Back to the start value on every rank that answers; 503 where one did not."""
        answers = await self._ask("reset", {"knob": name})
        if self._all_took_it(answers):
            return self._confirmed(answers)
        if answers and {one.status for one in answers} == {404}:
            return answers[0]
        done = sum(one.status == 200 for one in answers)
        return Answer(503, {"error": "not every rank answered", "applied": done, "total": self.total})

    async def set_objective(self, objective: list[float]) -> Answer:
        """Keep the objective for all API servers."""
        answers = await self._ask("objective", {"objective": objective})
        return answers[0] if answers else _nobody(self.total)

    async def _ask(self, verb: str, asked: dict[str, Any]) -> list[Answer]:
        """Every rank's answer; none at all when one of them failed or did not answer in time (said once)."""
        call = asyncio.ensure_future(self._call_all(verb, asked))
        # Not cancelled when it is late: vLLM's client still expects to deliver the answer.
        await asyncio.wait({call}, timeout=self._timeout)
        problem: object = "too late"
        if call.done():
            problem = call.exception()
        else:
            call.add_done_callback(lambda done: done.cancelled() or done.exception())
        if problem is not None:
            if not self._unanswered:
                log.warning("enginetop companion: %s was not answered: %r", verb, problem)
            self._unanswered = True
            return []
        self._unanswered = False
        raw = call.result()
        return [Answer(int(one["status"]), {k: v for k, v in one.items() if k != "status"}) for one in raw]

    def _all_took_it(self, answers: list[Answer]) -> bool:
        return len(answers) == self.total and all(one.status == 200 for one in answers)

    def _confirmed(self, answers: list[Answer]) -> Answer:
        return Answer(200, answers[0].body | {"applied": len(answers), "total": self.total})

    def _undo(self, name: str, ticket: str) -> None:
        """Queued behind the change itself, so that one which comes late is taken back as well."""
        task = asyncio.get_running_loop().create_task(self._ask("undo", {"knob": name, "ticket": ticket}))
        self._undoing.add(task)
        task.add_done_callback(self._undoing.discard)


def _values(answer: Answer) -> list[tuple[Any, Any, Any]]:
    return [(row["name"], row["value"], row["version"]) for row in answer.body["knobs"]]


def _count(sheet: Answer, total: int) -> dict[str, Any]:
    return {"applied": sheet.body.get("applied", 0), "total": total}


def _nobody(total: int) -> Answer:
    return Answer(503, {"error": "the engine did not answer", "applied": 0, "total": total})
