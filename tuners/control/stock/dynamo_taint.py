"""A taint on one Dynamo worker, by `/engine/update/model_taints` of its system port: there, or not there.

Run on 1.6.1: the KV router honours it at once, for requests that name it (`routing_constraints`: required
ones are a filter, preferred ones weigh for or against); other routers do not look, and a request that names
none goes anywhere as before. The route replaces all taints, so that those of others are sent along; no route
tells them, and the worker's own yes counts for nothing: what its card in the discovery folder says afterwards
does. The two are held together by the worker's id, which stands on its page of metrics and is new with each
start.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from enginetop.fleet.foreign_json import field_at
from enginetop.fleet.knobs import KnobTransport
from tuners.control.knob_api import ReplyKind
from tuners.control.stock.exchange import StockError, ask, raw
from tuners.control.stock.live_board import LiveKnob, Standing

PATH = "/engine/update/model_taints"
KNOB = "tainted"
_METRICS = "/metrics"
_WORKER = re.compile(rb'^dynamo_component_\w+\{(?:[^}\n]*,)?worker_id="([0-9a-f]{1,16})"', re.MULTILINE)
_OF_TOPOLOGY = "dynamo.topology/"
"""Taints that Dynamo makes by itself; it refuses them in a request."""
_NOTE = "of the KV router: keeps away, or draws, only requests that name the taint {}"


class WorkerTaint:
    """A `LiveApi` over one worker. `taints` looks into the discovery anew, for a worker's id (hex); None: no
    card of it is there.
    """

    def __init__(
        self, transport: KnobTransport, taints: Callable[[str], frozenset[str] | None], taint: str
    ) -> None:
        self._transport = transport
        self._taints = taints
        self._taint = taint

    def read(self) -> Standing:
        """See `LiveApi`."""
        worker, taints = self._found()
        knob = LiveKnob(KNOB, (int(self._taint in taints),), 0, 0, 1, "", _NOTE.format(self._taint))
        return Standing((knob,), instance=worker)

    def write(self, knob: str, value: int) -> str:  # noqa: ARG002 - there is one
        """See `LiveApi`."""
        _, taints = self._found()
        others = {one for one in taints if not one.startswith(_OF_TOPOLOGY)} - {self._taint}
        wanted = sorted(others | {self._taint} if value else others)
        document = ask(self._transport, "POST", PATH, {"taints": wanted})
        told = field_at(document, "taints")
        return f"200 with {told}"[:120]

    def _found(self) -> tuple[str, frozenset[str]]:
        page = _WORKER.search(raw(self._transport, "GET", _METRICS))
        if page is None:
            raise StockError(f"{_METRICS} names no worker of Dynamo", ReplyKind.MISSING)
        worker = page.group(1).decode()
        taints = self._taints(worker)
        if taints is None:
            raise StockError(f"no card of worker {worker} in the discovery folder", ReplyKind.MISSING)
        return worker, taints
