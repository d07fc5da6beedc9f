"""Dynamo's planner, `/v1/min-endpoints`: how few workers, and how few and many GPUs, it may scale to.

Run on 1.6.1, its API and checks without a deployment: on loopback alone (port 9086), without a key. Which
floors there are depends on the planner's mode; a floor above its GPU budget is refused. Kept by that process:
gone at its restart.
"""

from __future__ import annotations

from collections.abc import Mapping

from enginetop.fleet.foreign_json import field_at, whole
from enginetop.fleet.knobs import KnobTransport
from tuners.control.knob_api import ReplyKind
from tuners.control.stock.exchange import StockError, answer_words, ask
from tuners.control.stock.live_board import LiveKnob, Standing

PATH = "/v1/min-endpoints"
_MOST = 4096
_LARGEST = 1 << 40
_FLOORS = {"min_endpoint": 0, "prefill_min_endpoint": 1, "decode_min_endpoint": 1}
"""Each with the least that it may be."""
_BUDGETS = ("min_gpu_budget", "max_gpu_budget")
_NO_LIMIT = -1
_NOTE = "the planner starts and stops workers to keep it; whoever is on its machine may change it"


class PlannerFloors:
    """A `LiveApi` over one planner. What it scales to is the planner's doing, in its own time."""

    def __init__(self, transport: KnobTransport) -> None:
        self._transport = transport

    def read(self) -> Standing:
        """See `LiveApi`."""
        document = ask(self._transport, "GET", PATH)
        told = document if isinstance(document, Mapping) else {}
        budget = whole(told.get("max_gpu_budget"))
        most = budget if budget is not None and 0 < budget < _MOST else _MOST  # a worker has at least a GPU
        bounds = {
            **{name: (least, most, "workers") for name, least in _FLOORS.items()},
            **dict.fromkeys(_BUDGETS, (_NO_LIMIT, _MOST, "GPUs")),
        }
        knobs = tuple(
            LiveKnob(name, (value,), None, least, most, unit, _NOTE)
            for name, (least, most, unit) in bounds.items()
            if (value := whole(told.get(name))) is not None and abs(value) <= _LARGEST
        )
        mode = told.get("mode")
        if not knobs or not isinstance(mode, str):
            raise StockError(f"{PATH} tells no floors", ReplyKind.MISSING)
        return Standing(knobs, instance=f"planner-{mode[:32]}")

    def write(self, knob: str, value: int) -> str:
        """See `LiveApi`."""
        document = ask(self._transport, "PATCH", PATH, {knob: value})
        told = whole(field_at(document, knob))
        return answer_words(told)
