"""Engines that can be put to sleep, or paused, and woken: each such switch is a knob, 0 or 1.

Nothing is ever aborted: an engine with requests is not switched off, and vLLM is always told to wait (its own
default aborts what runs). Only what can be undone and read back is a switch: sleep level 2 throws the weights
away, and no version of TensorRT-LLM says whether its memory was released without a key of its own.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping

from enginetop.fleet.foreign_json import field_at
from enginetop.fleet.frozen import frozen
from enginetop.fleet.knobs import KnobTransport
from tuners.control.knob_api import ReplyKind
from tuners.control.restartable import Load, NothingDoneError, RestartError, StartKnob, Values
from tuners.control.stock.exchange import OPENAPI, StockError, ask, shown


@frozen
class Switch:
    """`on` and `off` are asked for by POST, `state` tells by `key` whether it is on.

    `needs` is a query parameter that `on` must declare: a version that does not know it would do something
    else.
    """

    knob: str
    on: str
    off: str
    state: str
    key: str
    needs: str = ""


ASLEEP, PAUSED = "asleep", "paused"

VLLM = (
    Switch(ASLEEP, "/sleep?level=1&mode=wait", "/wake_up", "/is_sleeping", "is_sleeping"),
    Switch(PAUSED, "/pause?mode=wait&clear_cache=false", "/resume", "/is_paused", "is_paused", needs="mode"),
)
LMDEPLOY = (Switch(ASLEEP, "/sleep?level=1", "/wakeup", "/is_sleeping", "is_sleeping"),)


class Switches:
    """A `Restartable`: the engine goes on to run, and serves nothing while a switch is on.

    `look` counts its requests. `address` is where a person finds it.
    """

    def __init__(
        self,
        transport: KnobTransport,
        switches: tuple[Switch, ...],
        look: Callable[[], Load],
        *,
        address: str,
    ) -> None:
        """RestartError when the engine has none of these switches."""
        self._transport = transport
        self._look = look
        self._address = address.rstrip("/")
        self._switches = self._offered(switches)
        self._wanted: dict[str, int] = {}
        self._said: dict[str, str] = {}

    def knobs(self) -> tuple[StartKnob, ...]:
        """The switches that this engine has. RestartError when their state cannot be read."""
        self.present()
        return tuple(StartKnob(switch.knob, 0, 0, 1, "") for switch in self._switches)

    def present(self) -> Values:
        """How they stand. RestartError when that cannot be read."""
        return {switch.knob: self._state(switch) for switch in self._switches}

    def load(self) -> Load:
        """See `Restartable`. Whoever sleeps has nothing to drain."""
        seen = self._look()
        try:
            off = any(self._state(switch) for switch in self._switches)
        except RestartError:
            return seen
        return Load(ready=True, requests=0) if off else seen

    def begin(self, values: Values) -> None:
        """See `Restartable`."""
        self._wanted, self._said = {}, {}
        try:
            present = self.present()
        except RestartError as error:
            raise NothingDoneError(str(error)) from None
        changes = [
            switch
            for switch in self._switches
            if values.get(switch.knob) is not None and values[switch.knob] != present[switch.knob]
        ]
        if any(values[switch.knob] for switch in changes) and not any(present.values()):
            requests = self._look().requests
            if requests != 0:
                many = "an unknown number of" if requests is None else f"{requests}"
                raise NothingDoneError(f"{many} requests still run, and none is aborted")
        for number, switch in enumerate(changes):
            self._turn(switch, bool(values[switch.knob]), first=number == 0)

    def poll(self) -> bool:
        """See `Restartable`."""
        for knob, value in self._wanted.items():
            switch = next(known for known in self._switches if known.knob == knob)
            try:
                state = self._state(switch)
            except RestartError:
                return False  # no answer is no end; the board's patience is
            if state == value:
                continue
            if knob in self._said:
                raise RestartError(f"{self._said[knob]}, and {switch.key} is still {_word(not value)}")
            return False  # waiting for requests takes longer than an answer: its state tells
        self._wanted = {}
        return True

    def by_hand(self, values: Values) -> str:
        """See `Restartable`."""
        ways = [switch.on if values.get(switch.knob) else switch.off for switch in self._switches]
        return " && ".join(f"curl -fsS -X POST {shlex.quote(self._address + way)}" for way in ways)

    def _turn(self, switch: Switch, on: bool, *, first: bool) -> None:
        path = switch.on if on else switch.off
        self._wanted[switch.knob] = int(on)
        try:
            ask(self._transport, "POST", path)
        except StockError as error:
            if error.kind is ReplyKind.BAD:
                self._said[switch.knob] = str(error)
            elif error.answered:
                self._wanted = {}
                refusal = NothingDoneError if first else RestartError
                raise refusal(str(error)) from None
        else:
            self._said[switch.knob] = f"{shown(path)} answered 200"

    def _state(self, switch: Switch) -> int:
        try:
            document = ask(self._transport, "GET", switch.state)
        except StockError as error:
            raise RestartError(str(error)) from None
        found = field_at(document, switch.key)
        if not isinstance(found, bool):
            raise RestartError(f"{switch.state} does not tell {switch.key}")
        return int(found)

    def _offered(self, switches: tuple[Switch, ...]) -> tuple[Switch, ...]:
        try:
            routes = declared(self._transport)
        except StockError as error:
            raise RestartError(f"what it can do is not told: {error}") from None
        found = tuple(
            switch
            for switch in switches
            if {shown(switch.on), shown(switch.off), switch.state} <= routes.keys()
            and (not switch.needs or switch.needs in routes[shown(switch.on)])
        )
        if not found:
            raise RestartError(f"it has no switch of {', '.join(switch.knob for switch in switches)}")
        return found


def declared(transport: KnobTransport) -> Mapping[str, frozenset[str]]:
    """The routes of an engine, each with the query parameters that it declares, by its own `/openapi.json`.

    StockError when it has none.
    """
    document = ask(transport, "GET", OPENAPI)
    paths = field_at(document, "paths")
    if not isinstance(paths, Mapping):
        raise StockError(f"{OPENAPI} names no paths", ReplyKind.MISSING)
    return {str(path): frozenset(_parameters(methods)) for path, methods in paths.items()}


def _parameters(methods: object) -> list[str]:
    found = []
    for operation in methods.values() if isinstance(methods, Mapping) else ():
        listed = operation.get("parameters") if isinstance(operation, Mapping) else None
        for one in listed if isinstance(listed, list) else ():
            name = one.get("name") if isinstance(one, Mapping) else None
            if isinstance(name, str):
                found.append(name)
    return found


def _word(value: bool) -> str:
    return "true" if value else "false"
