"""Dynamo's `/busy_threshold`: the load from which a worker is busy; when all are, the frontend sheds (529).

Run on 1.6.1: in force with the next load that a worker reports, kept by that one frontend process, back at
its start value when that restarts. A threshold that is set cannot be cleared any more (null changes nothing),
and none neutralises it: at 1.0 a frontend still sheds once more blocks are wanted than there are. So only
thresholds that are set already are knobs; one that enginetop brought in could not be taken back.
"""

from __future__ import annotations

from collections.abc import Mapping

from enginetop.fleet.foreign_json import field_at
from enginetop.fleet.frozen import frozen
from enginetop.fleet.knobs import KnobTransport
from tuners.control.knob_api import ReplyKind
from tuners.control.stock.exchange import OPENAPI, StockError, answer_words, ask, version_at
from tuners.control.stock.live_board import LiveKnob, Standing

PATH = "/busy_threshold"


@frozen
class _Threshold:
    """`scale` turns Dynamo's number into that of the knob: its fractions are percents here."""

    scale: int
    max: int
    unit: str
    note: str = ""

    def knob_value(self, told: object) -> int | None:
        """The knob's value; None: not set, or nothing that could be set again exactly as it is."""
        if not isinstance(told, int | float) or isinstance(told, bool) or not 0 <= told <= self.max:
            return None
        value = round(told * self.scale)
        return value if value <= self.max and self.dynamo_value(value) == told else None

    def dynamo_value(self, value: int) -> int | float:
        """What Dynamo is told."""
        return value if self.scale == 1 else value / self.scale


_LOOKS = 4
"""Looks after a write: an address that several frontends share hands them to one after the other."""
_TRIES = 8
_LARGEST = 1 << 40
_THRESHOLDS = {
    "active_decode_blocks_threshold": _Threshold(
        100, 100, "percent", "100 sheds too, once more blocks are wanted than there are"
    ),
    "active_prefill_tokens_threshold": _Threshold(1, _LARGEST, "tokens"),
    "active_prefill_tokens_threshold_frac": _Threshold(100, _LARGEST, "percent"),
}
_SHARED = "of one frontend process: several behind one address answer as one"


class BusyThreshold:
    """A `LiveApi` over one frontend, for one model. Who was admitted runs on; 0 would shed everybody."""

    def __init__(self, transport: KnobTransport, model: str) -> None:
        self._transport = transport
        self._model = model

    def read(self) -> Standing:
        """See `LiveApi`."""
        told = self._told()
        knobs = tuple(
            LiveKnob(name, (value,), None, 1, threshold.max, threshold.unit, _words(threshold.note, _SHARED))
            for name, threshold in _THRESHOLDS.items()
            if (value := threshold.knob_value(told.get(name))) is not None
        )
        if not knobs:
            words = f"{PATH} tells no threshold of {self._model} that could be set again once it was changed"
            raise StockError(f"{words}; start the frontend with one", ReplyKind.MISSING)
        return Standing(
            knobs, instance="busy_threshold", version=version_at(self._transport, OPENAPI, "info", "version")
        )

    def write(self, knob: str, value: int) -> str:
        """See `LiveApi`. Where one answer has the value and another has not, several frontends share the
        address: each of them gets its former value again, and the write is refused.
        """
        former = self._value(knob)
        said = self._set(knob, value)
        found = [self._value(knob) for _ in range(_LOOKS)]
        if former is not None and value in found and any(one != value for one in found):
            for attempt in range(_TRIES):
                self._set(knob, former)
                looks = _LOOKS + attempt % 2  # so that the next write reaches another one of them
                if {self._value(knob) for _ in range(looks)} == {former}:
                    break
            words = f"several frontends answer here, each with a threshold of its own: {found}"
            raise StockError(f"{words}; name each by its own address", ReplyKind.OUT_OF_BOUNDS)
        return answer_words(said)

    def _set(self, knob: str, value: int) -> int | None:
        body = {"model": self._model, knob: _THRESHOLDS[knob].dynamo_value(value)}
        document = ask(self._transport, "POST", PATH, body)
        told = field_at(document, knob)
        return _THRESHOLDS[knob].knob_value(told)

    def _value(self, knob: str) -> int | None:
        return _THRESHOLDS[knob].knob_value(self._told().get(knob))

    def _told(self) -> Mapping[str, object]:
        document = ask(self._transport, "GET", PATH)
        rows = field_at(document, "thresholds")
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row, Mapping) and row.get("model") == self._model:
                return row
        raise StockError(f"{PATH} tells of no model {self._model!r:.80}", ReplyKind.MISSING)


def _words(*parts: str) -> str:
    return "; ".join(filter(None, parts))
