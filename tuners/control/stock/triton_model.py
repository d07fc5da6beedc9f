"""A model of Triton with `--model-control-mode=explicit`: unloaded, and loaded with another configuration.

The override is the whole configuration, not a patch. It is unloaded first, as Triton's documentation says:
memory for two copies is rarely there. A server in another mode refuses the unloading, and nothing is done.
"""

from __future__ import annotations

import copy
import json
import shlex
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from enginetop.fleet.foreign_json import whole
from enginetop.fleet.knobs import KnobTransport
from enginetop.fleet.model import EngineKind
from tuners.control.files import write_synced
from tuners.control.restartable import Load, NothingDoneError, RestartError, StartKnob, Values
from tuners.control.stock.exchange import StockError, ask

_INDEX = "/v2/repository/index"
_READY, _GONE = "READY", "UNAVAILABLE"
_UNLOADING, _LOADING = "unloading", "loading"
_SEATS, _QUEUE = "max_num_seqs", "max_queue_size"
_LONGEST_QUEUE = 1 << 20


class TritonModel:
    """A `Restartable` model. `look` counts its requests; `kept` is a file that holds the configuration as it
    was found, for the next start of enginetop and for a person who has to do our work.
    """

    kind = EngineKind.TRITON

    def __init__(
        self, transport: KnobTransport, model: str, look: Callable[[], Load], *, kept: Path, address: str
    ) -> None:
        """RestartError when the configuration of the model cannot be read."""
        self._transport, self._model = transport, model
        self._look, self._kept, self._address = look, kept, address.rstrip("/")
        self._base = f"/v2/models/{quote(model, safe='')}"
        self._repository = f"/v2/repository/models/{quote(model, safe='')}"
        self._step = ""
        self._to: Values = {}
        self._found = self._read_config()
        self._start = self._kept_config() or self._found

    def knobs(self) -> tuple[StartKnob, ...]:
        """The knobs that its configuration sets. The batch of an engine build is an upper bound."""
        seats, queue = _seats(self._start), _queue(self._start)
        found = []
        if seats:
            found.append(StartKnob(_SEATS, seats, 1, seats, "requests"))
        if queue is not None:
            found.append(StartKnob(_QUEUE, queue, 0, _LONGEST_QUEUE, "requests"))
        return tuple(found)

    def present(self) -> Values:
        """The values in force."""
        return {knob.name: _value(self._found, knob.name) for knob in self.knobs()}

    def load(self) -> Load:
        """See `Restartable`."""
        try:
            state, _ = self._state()
        except RestartError:
            return Load(ready=False, requests=None)
        return Load(state == _READY, self._look().requests)

    def begin(self, values: Values) -> None:
        """See `Restartable`."""
        try:
            if not self._kept.exists():
                self._kept.parent.mkdir(parents=True, exist_ok=True)
                write_synced(self._kept, json.dumps(self._start).encode())
        except OSError as error:
            raise NothingDoneError(f"{self._kept}: {error.strerror or error}") from None
        self._to, self._step = dict(values), _UNLOADING
        if self._runs_with(values):
            self._step = ""
            self._forget()
            return
        try:
            ask(self._transport, "POST", f"{self._repository}/unload", {})
        except StockError as error:
            if error.answered and self._is_ready():
                self._to, self._step = {}, ""
                raise NothingDoneError(str(error)) from None

    def poll(self) -> bool:
        """See `Restartable`."""
        if not self._to:
            return True  # nothing of ours is in force: what it does is its own business
        try:
            state, reason = self._state()
        except RestartError:
            return not self._step  # no answer is no end; the board's patience is
        if self._step == _UNLOADING:
            if state == _GONE and reason in ("", "unloaded"):
                self._load()
            elif state == _GONE:
                raise RestartError(f"it could not be unloaded: {reason}")
            return False
        if state == _GONE:
            raise RestartError(f"it is not loaded: {reason or 'unloaded'}")
        if self._step == _LOADING:
            if state != _READY:
                return False
            self._check()
            self._step = ""
        return True

    def by_hand(self, values: Values) -> str:
        """See `Restartable`."""
        wanted = self._kept.with_suffix(".wanted")
        with suppress(OSError):
            write_synced(wanted, json.dumps(self._body(values)).encode())
        url = shlex.quote(f"{self._address}{self._repository}/load")
        return f"curl -fsS -X POST -d @{shlex.quote(str(wanted))} {url}"

    def _load(self) -> None:
        try:
            ask(self._transport, "POST", f"{self._repository}/load", self._body(self._to))
        except StockError as error:
            if error.answered:
                raise RestartError(str(error)) from None
            # it loads for longer than an answer is waited for: the index tells
        self._step = _LOADING

    def _check(self) -> None:
        """Whether it was loaded with what was asked for."""
        config = self._read_config()
        for knob, value in self._to.items():
            if _value(config, knob) != value:
                raise RestartError(f"it was loaded with {knob} {_value(config, knob)}, not {value}")
        self._forget()

    def _forget(self) -> None:
        """The kept file goes when all is as it was."""
        if all(_value(self._start, knob) == value for knob, value in self._to.items()):
            self._to = {}
            with suppress(OSError):
                self._kept.unlink(missing_ok=True)

    def _is_ready(self) -> bool:
        try:
            return self._state()[0] == _READY
        except RestartError:
            return False

    def _runs_with(self, values: Values) -> bool:
        """Whether it is loaded with these values already: nothing was unloaded."""
        try:
            config = self._read_config()
        except RestartError:
            return False
        same = all(_value(config, knob) == value for knob, value in values.items())
        return same and self._is_ready()

    def _body(self, values: Values) -> dict[str, Any]:
        return {"parameters": {"config": json.dumps(_edited(self._start, values))}}

    def _state(self) -> tuple[str, str]:
        """The state of its newest version and the reason for it."""
        try:
            listed = ask(self._transport, "POST", _INDEX, {})
        except StockError as error:
            raise RestartError(str(error)) from None
        states = [
            (str(one.get("state", _GONE)), str(one.get("reason", "")))
            for one in (listed if isinstance(listed, list) else ())
            if isinstance(one, Mapping) and one.get("name") == self._model
        ]
        if not states:
            raise RestartError(f"Triton knows no model {self._model!r}")
        ready = [found for found in states if found[0] == _READY]
        return ready[0] if ready else states[-1]

    def _read_config(self) -> dict[str, Any]:
        try:
            document = ask(self._transport, "GET", f"{self._base}/config")
        except StockError as error:
            raise RestartError(str(error)) from None
        if not isinstance(document, dict) or document.get("name") != self._model:
            raise RestartError(f"{self._base}/config is not the configuration of {self._model}")
        return document

    def _kept_config(self) -> dict[str, Any] | None:
        try:
            document = json.loads(self._kept.read_bytes())
        except (OSError, ValueError, RecursionError):
            return None
        return document if isinstance(document, dict) and document.get("name") == self._model else None


def _seats(config: Mapping[str, Any]) -> int | None:
    return whole(config.get("max_batch_size"))


def _parameter(config: Mapping[str, Any]) -> dict[str, Any] | None:
    parameters = config.get("parameters")
    found = parameters.get(_QUEUE) if isinstance(parameters, Mapping) else None
    return found if isinstance(found, dict) else None


def _queue(config: Mapping[str, Any]) -> int | None:
    text = (_parameter(config) or {}).get("string_value")
    return (
        int(text) if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 10 else None
    )


def _value(config: Mapping[str, Any], knob: str) -> int | None:
    return _seats(config) if knob == _SEATS else _queue(config)


def _edited(config: Mapping[str, Any], values: Values) -> dict[str, Any]:
    made = copy.deepcopy(dict(config))
    if (seats := values.get(_SEATS)) is not None:
        made["max_batch_size"] = seats
    if (queue := values.get(_QUEUE)) is not None:
        parameter = _parameter(made)
        assert parameter is not None  # the knob is not there otherwise
        parameter["string_value"] = str(queue)
    return made
