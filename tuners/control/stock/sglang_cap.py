"""SGLang's `/set_internal_state`: the cap on running requests, all of its scheduler that it changes.

With one pipeline stage `pp_max_micro_batch_size` caps admission (run on 0.5.23: 8 to 2 under load); with
several it is something else and is left alone. Versions to 0.5.14 answer true to anything and change nothing:
what `/server_info` says afterwards counts. That page holds keys; nothing but numbers is taken from it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from enginetop.fleet.foreign_json import whole
from enginetop.fleet.knobs import KnobTransport
from tuners.control.knob_api import ReplyKind
from tuners.control.stock.exchange import StockError, ask
from tuners.control.stock.live_board import LiveKnob, Standing

PATH = "/set_internal_state"
_INFO = ("/server_info", "/get_server_info")  # the second one up to 0.5.x
_NAMES = ("pp_max_micro_batch_size", "max_micro_batch_size")  # the second one in 0.5.2
_KNOB = "max_num_seqs"
OPEN = "its admin routes are open to whoever reaches it: no key is set"


class SglangCap:
    """A `LiveApi`. Each data-parallel rank has the cap for itself; running requests are never killed."""

    def __init__(self, transport: KnobTransport) -> None:
        self._transport = transport

    def read(self) -> Standing:
        """See `LiveApi`."""
        info = self._info()
        stages = whole(info.get("pp_size")) or 1
        if stages > 1:
            words = f"with {stages} pipeline stages {_NAMES[0]} caps no admission"
            raise StockError(words, ReplyKind.MISSING)
        states = info.get("internal_states")
        states = [state for state in states if isinstance(state, Mapping)] if isinstance(states, list) else []
        name = _name(states)
        values = [whole(state.get(name)) for state in states]
        most = [whole(state.get("effective_max_running_requests_per_dp")) for state in states]
        ceilings = [found for found in (*most, whole(info.get("max_running_requests"))) if found]
        if not values or None in values or not ceilings:
            raise StockError(f"/server_info tells no {name} of its ranks", ReplyKind.MISSING)
        knob = LiveKnob(
            _KNOB,
            tuple(value for value in values if value is not None),
            whole(info.get(name)) or min(ceilings),
            1,
            min(ceilings),
            "requests",
            _note(info),
        )
        version = info.get("version")
        return Standing((knob,), _instance(info), version if isinstance(version, str) else "")

    def write(self, knob: str, value: int) -> str:  # noqa: ARG002 - there is one
        """See `LiveApi`."""
        states = self._info().get("internal_states")
        name = _name([state for state in states if isinstance(state, Mapping)] if states else [])
        answer = ask(self._transport, "POST", PATH, {"server_args": {name: value}})
        said = answer if isinstance(answer, list) else [answer]
        if not all(one is True or isinstance(one, Mapping) for one in said):
            raise StockError(f"{PATH} answered {json.dumps(said)[:80]}", ReplyKind.OUT_OF_BOUNDS)
        return json.dumps(said)[:80]

    def _info(self) -> Mapping[str, Any]:
        for path in _INFO:
            try:
                document = ask(self._transport, "GET", path)
            except StockError as error:
                if error.kind is ReplyKind.MISSING and path != _INFO[-1]:
                    continue
                raise
            if isinstance(document, Mapping):
                return document
            break
        raise StockError("/server_info answered no object")


def _name(states: list[Mapping[str, Any]]) -> str:
    return next((name for name in _NAMES if any(name in state for state in states)), _NAMES[0])


def _note(info: Mapping[str, Any]) -> str:
    known = "api_key" in info and "admin_api_key" in info
    return OPEN if known and info["api_key"] is None and info["admin_api_key"] is None else ""


def _instance(info: Mapping[str, Any]) -> str:
    """What differs from start to start: the seed that was drawn, and how long the start took."""
    marks = json.dumps([info.get("random_seed"), info.get("startup_time")], sort_keys=True, default=str)
    return hashlib.sha256(marks.encode()).hexdigest()[:12]
