"""The part in EngineCore: a method on the class, called between steps, and a thread that wakes it when idle.

All values, versions and leases live here, so that several API servers agree and a lease ends without them.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from typing import Any

from enginetop_companion import settings
from enginetop_companion.board import Answer, Board
from enginetop_companion_vllm.alarm import Alarm
from enginetop_companion_vllm.knobs import SERVED, knobs_of
from enginetop_companion_vllm.private_parts import missing_parts, version_problem

log = logging.getLogger("vllm.plugins.enginetop")

METHOD = "enginetop_companion"
"""Name of the utility method on EngineCore, and of the companion's place on one EngineCore."""
_PLACE = "_enginetop_companion"


def register() -> None:
    """Entry point `vllm.general_plugins`: put the utility method on EngineCore. Never raises."""
    if not settings.is_on(os.environ):
        return
    try:
        import vllm
        from vllm.v1.engine.core import EngineCore

        problem = version_problem(vllm.__version__)
        if problem:
            log.warning("enginetop companion steps aside: %s", problem)
            return
        setattr(EngineCore, METHOD, call)
    except Exception as error:  # noqa: BLE001 - serving goes on without us, whatever is missing
        log.warning("enginetop companion steps aside: %r", error)


def call(self: Any, verb: str, asked: dict[str, Any]) -> dict[str, Any]:
    """The utility method. `self` is the EngineCore; runs in its loop, between two steps. Never raises."""
    try:
        here = getattr(self, _PLACE, None)
        if here is None:
            here = EngineSide(self)
            setattr(self, _PLACE, here)
        answer = here.answer(verb, asked)
    except Exception as error:  # noqa: BLE001 - vLLM would log a traceback at every call
        answer = Answer(501, {"error": f"{type(error).__name__}: {error}"})
    return {"status": answer.status, **answer.body}


class EngineSide:
    """The companion of one EngineCore. Raises AttributeError where a part of the scheduler is missing."""

    def __init__(self, core: Any) -> None:
        missing = missing_parts(core.scheduler)
        if missing:
            raise AttributeError(missing)
        limits, knobs = knobs_of(core)
        self._board = Board(knobs, limits.floors)
        self._instance = uuid.uuid4().hex
        self._objective: list[float] | None = None
        self._alarm: Alarm | None = None
        if hasattr(core, "input_queue"):
            self._listen_for_the_alarm(core)

    def answer(self, verb: str, asked: dict[str, Any]) -> Answer:
        """Do what is asked: `sheet view change hold undo reset objective expire`."""
        now = time.monotonic()
        self._expire(now)
        match verb:
            case "sheet":
                return Answer(200, {"instance": self._instance, "knobs": self._board.rows(now)})
            case "view":
                return Answer(200, {"objective": self._objective, "served": self._served(now)})
            case "change":
                answer = self._board.change(asked, now)
            case "hold":
                answer = self._board.hold(asked["knob"], asked["ticket"], asked["ttl_seconds"], now)
            case "undo":
                answer = self._board.undo(asked["knob"], asked["ticket"], now)
            case "reset":
                answer = self._board.reset(asked["knob"], now)
            case "objective":
                self._objective = asked["objective"]
                return Answer(200, {})
            case "expire":
                answer = Answer(200, {})
            case _:
                return Answer(400, {"error": "no such verb"})
        self._set_alarm()
        return answer

    def _served(self, now: float) -> dict[str, dict[str, Any]]:
        """What API servers apply, by knob."""
        standing = {name: self._board.value(name) for name in SERVED}
        return {
            name: {
                "value": one.value,
                "expires_in_seconds": None if one.lease is None else one.lease.deadline - now,
                "former": None if one.lease is None else one.lease.former,
            }
            for name, one in standing.items()
            if one is not None
        }

    def _expire(self, now: float) -> None:
        for name in self._board.expire(now):
            standing = self._board.value(name)
            value = standing.value if standing else None
            log.warning("enginetop companion: %s is back at %s, nobody renewed the change", name, value)

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.set(self._board.next_deadline())

    def _listen_for_the_alarm(self, core: Any) -> None:
        """An idle EngineCore blocks on its input queue; a wake-up through it is taken between two steps."""
        from vllm.v1.engine import EngineCoreRequestType

        wake_up = EngineCoreRequestType.WAKEUP
        theirs = core._handle_client_request

        def ours(request_type: Any, request: Any) -> None:
            if request_type is wake_up:
                call(core, "expire", {})
            theirs(request_type, request)

        core._handle_client_request = ours
        self._alarm = Alarm(lambda: core.input_queue.put_nowait((wake_up, None)))
