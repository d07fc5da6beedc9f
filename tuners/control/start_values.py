"""The values of the knobs that an engine is started with: in force, there to stay, or on loan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from enginetop.fleet.model import EngineKind
from tuners.control.flags import FLAGS, can_set, value_of
from tuners.control.restartable import StartKnob, Values


def start_knobs(argv: Sequence[str], kind: EngineKind) -> tuple[StartKnob, ...]:
    """The knobs that flags of this command set, with their values as started."""
    return tuple(
        StartKnob(knob, value_of(argv, flag), flag.min, flag.max, flag.unit)
        for knob, flag in FLAGS.get(kind, {}).items()
        if can_set(argv, flag)
    )


class StartValues:
    """What an engine runs with, by knob. `present` is in force, or on its way; `lasting` is there to stay.

    A present value that is not the lasting one is on loan for a time, which begins by `hold`; a change counts
    up the knob's version.
    """

    def __init__(self, knobs: Iterable[StartKnob], present: Values) -> None:
        self.present = {knob.name: present.get(knob.name, knob.start) for knob in knobs}
        self.lasting = dict(self.present)
        self._versions = dict.fromkeys(self.present, 0)
        self._expiries: dict[str, float] = {}

    def version(self, name: str) -> int:
        """How often the value was changed."""
        return self._versions[name]

    def loan_seconds(self, name: str, now: float) -> float | None:
        """How long the present value stays on loan; None: it is not."""
        expiry = self._expiries.get(name)
        return None if expiry is None else max(0.0, expiry - now)

    def put(self, values: Values) -> None:
        """Make these the present values."""
        for name, value in values.items():
            if self.present[name] != value:
                self.present[name] = value
                self._versions[name] += 1

    def hold(self, name: str, ttl_seconds: float | None, now: float) -> None:
        """Keep the present value for so long; None: for good."""
        if ttl_seconds is None:
            self.lasting[name] = self.present[name]
            self._expiries.pop(name, None)
        else:
            self._expiries[name] = now + ttl_seconds

    def adopt(self, found: Values) -> dict[str, int | None]:
        """Take over, for good, what somebody else has set; returns what was other than here."""
        others = {
            name: value
            for name, value in found.items()
            if name in self.present and value != self.present[name]
        }
        self.put(others)
        self.lasting.update(others)
        self.end_loans(others)
        return others

    def end_loans(self, names: Iterable[str]) -> None:
        """These values are on loan no more."""
        for name in names:
            self._expiries.pop(name, None)

    def take_expired(self, now: float) -> list[str]:
        """The knobs whose loan is over; it ends by this call."""
        over = [name for name, moment in self._expiries.items() if moment <= now]
        self.end_loans(over)
        return over

    def on_trial(self) -> str | None:
        """A knob whose present value is not there to stay; None: all are."""
        return next((name for name, value in self.present.items() if value != self.lasting[name]), None)
