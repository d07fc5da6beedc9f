"""The part in each scheduler process: handlers beside SGLang's own, and a word on them in its internal state.

A change rides SGLang's `set_internal_state`: taken between two steps, in the same order on every
tensor-parallel rank, and by every data-parallel rank. Nothing is decided here, so that all ranks do the same;
values, leases and versions are the server process's. The keys carry a secret that only processes of this
server know: the route of the same name, which is open on a server without keys, cannot reach them.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from enginetop_companion_sglang.checked_parts import INTERNAL_STATE
from enginetop_companion_sglang.scheduler_knobs import (
    CHUNK,
    PREFILL,
    RATIO,
    RUNNING,
    STOCK_KEYS,
    LiveKnob,
    chunk_knob,
    prefill_knob,
    ratio_knob,
    refused_mode,
    running_knob,
)

log = logging.getLogger("sglang.enginetop")

PLACE = "enginetop"
"""Our key in the internal state."""
_OWN = "_enginetop_companion"


def key_of(name: str, secret: str) -> str:
    """The key of `set_internal_state` that sets the knob `name`."""
    return STOCK_KEYS.get(name) or f"enginetop.{secret}.{name}"


class SchedulerSide:
    """The knobs of one scheduler, as it was started. `absent` says why others are not there."""

    def __init__(self, scheduler: Any, contexts: Any) -> None:
        self.knobs: list[LiveKnob] = []
        self.absent: dict[str, str] = {}
        self._take(RUNNING, lambda: running_knob(scheduler, contexts))
        try:
            refused = refused_mode(scheduler, contexts)
        except AttributeError as error:
            self.absent["others"] = f"the mode of this scheduler is not known: {error}"
            return
        makers: tuple[tuple[str, Callable[[Any], LiveKnob | None]], ...] = (
            (CHUNK, chunk_knob),
            (PREFILL, prefill_knob),
            (RATIO, ratio_knob),
        )
        for name, make in makers:
            self._take(name, partial(make, scheduler), refused)

    def _take(self, name: str, make: Callable[[], LiveKnob | None], refused: str = "") -> None:
        try:
            knob = make()
        except (AttributeError, TypeError) as error:
            self.absent[name] = f"not in this version: {error}"
            return
        if knob is None:
            self.absent[name] = "prefill is not chunked"
        else:
            self.knobs.append(knob.fixed(refused) if refused else knob)

    def description(self) -> dict[str, Any]:
        """What the server process is told."""
        return {"knobs": [knob.row() for knob in self.knobs], "absent": self.absent}


def side_of(controller: Any) -> SchedulerSide:
    """The companion of the scheduler behind this controller, made at the first look: before any change."""
    scheduler = controller.scheduler
    here = getattr(scheduler, _OWN, None)
    if not isinstance(here, SchedulerSide):
        here = SchedulerSide(scheduler, importlib.import_module("sglang.srt.runtime_context"))
        setattr(scheduler, _OWN, here)
    return here


def add_handlers(secret: str) -> Callable[..., Any]:
    """AFTER hook of `_update_handlers`: the dict with ours in it. Never raises."""

    def after(handlers: dict[str, Any], controller: Any, *_: Any) -> dict[str, Any]:
        try:
            theirs = importlib.import_module(INTERNAL_STATE)
            ours = {
                key_of(knob.name, secret): _handler(knob, theirs)
                for knob in side_of(controller).knobs
                if knob.name not in STOCK_KEYS
            }
        except Exception as error:  # noqa: BLE001 - the scheduler goes on without us
            log.warning("enginetop companion: no knobs in this scheduler: %r", error)
            return handlers
        return handlers | ours

    return after


def add_description(output: Any, controller: Any, *_: Any) -> Any:
    """AFTER hook of `get_internal_state`: one more key. Never raises."""
    try:
        output.internal_state[PLACE] = side_of(controller).description()
    except Exception as error:  # noqa: BLE001 - the scheduler goes on without us
        log.warning("enginetop companion: no knobs in this scheduler: %r", error)
    return output


def _handler(knob: LiveKnob, theirs: Any) -> Any:
    def validate(_key: str, value: float) -> None:
        refusal = knob.refusal(value)
        if refusal:
            raise theirs.UpdateRejected(refusal)

    def apply(_key: str, value: float) -> dict[str, Any]:
        knob.write(int(value))
        return {}

    return theirs._UpdateHandler(validate, apply)
