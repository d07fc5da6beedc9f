"""vLLM's `/v1/runtime_config`, where a version has it: the cap on running requests, in dev mode only.

No release has it yet (0.33 is the newest that was read): it is proposed upstream, and its answers are those
of that proposal. A version without the route is not written to.
"""

from __future__ import annotations

from enginetop.fleet.foreign_json import field_at, whole
from enginetop.fleet.knobs import KnobTransport
from tuners.control.knob_api import ReplyKind
from tuners.control.stock.exchange import StockError, answer_words, ask, version_at
from tuners.control.stock.live_board import LiveKnob, Standing

PATH = "/v1/runtime_config"
_VALUE, _CAPACITY = "max_num_running_seqs", "max_num_seqs_capacity"
_KNOB = "max_num_seqs"


class VllmRuntimeConfig:
    """A `LiveApi`. The cap is lowered from the start value and back: who runs above it runs on."""

    def __init__(self, transport: KnobTransport) -> None:
        self._transport = transport

    def read(self) -> Standing:
        """See `LiveApi`."""
        document = ask(self._transport, "GET", PATH)
        value, capacity = whole(field_at(document, _VALUE)), whole(field_at(document, _CAPACITY))
        if value is None or capacity is None:
            raise StockError(f"{PATH} tells no {_VALUE} and {_CAPACITY}", ReplyKind.MISSING)
        note = "several engines behind one address answer as one"
        knob = LiveKnob(_KNOB, (value,), capacity, 1, capacity, "requests", note)
        return Standing(
            (knob,), instance="runtime_config", version=version_at(self._transport, "/version", "version")
        )

    def write(self, knob: str, value: int) -> str:  # noqa: ARG002 - there is one
        """See `LiveApi`."""
        document = ask(self._transport, "PATCH", PATH, {_VALUE: value})
        told = whole(field_at(document, _VALUE))
        return answer_words(told)
