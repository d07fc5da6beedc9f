"""A taint on one Dynamo worker, by `/engine/update/model_taints` of its system port: there, or not there.

Run on 1.6.1: the router honours it at once, for requests that name it (`routing_constraints`: required ones
are a filter, preferred ones weigh for or against); a request that names none goes anywhere as before. The
route replaces all taints, so that those of others are sent along; no route tells them, and the worker's own
yes counts for nothing: what its card in the discovery folder says afterwards does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from enginetop.fleet.knobs import KnobTransport
from tuners.control.knob_api import ReplyKind
from tuners.control.stock.exchange import StockError, ask
from tuners.control.stock.live_board import LiveKnob, Standing

PATH = "/engine/update/model_taints"
KNOB = "tainted"
_OF_TOPOLOGY = "dynamo.topology/"
"""Taints that Dynamo makes by itself; it refuses them in a request."""
_NOTE = "keeps away, or draws, only requests that name the taint {}"


@dataclass(frozen=True, slots=True)
class Card:
    """What the discovery says of a worker: its id, new with each start of it, and its taints."""

    worker: str
    taints: frozenset[str]


class WorkerTaint:
    """A `LiveApi` over one worker. `card` looks into the discovery anew; None: the worker is not there."""

    def __init__(self, transport: KnobTransport, card: Callable[[], Card | None], taint: str) -> None:
        self._transport = transport
        self._card = card
        self._taint = taint

    def read(self) -> Standing:
        """See `LiveApi`."""
        found = self._found()
        knob = LiveKnob(KNOB, (int(self._taint in found.taints),), 0, 0, 1, "", _NOTE.format(self._taint))
        return Standing((knob,), instance=found.worker)

    def write(self, knob: str, value: int) -> str:  # noqa: ARG002 - there is one
        """See `LiveApi`."""
        others = {one for one in self._found().taints if not one.startswith(_OF_TOPOLOGY)} - {self._taint}
        wanted = sorted(others | {self._taint} if value else others)
        document = ask(self._transport, "POST", PATH, {"taints": wanted})
        told = document.get("taints") if isinstance(document, Mapping) else None
        return f"200 with {told}"[:120]

    def _found(self) -> Card:
        found = self._card()
        if found is None:
            raise StockError("no card of this worker in the discovery folder", ReplyKind.MISSING)
        return found
