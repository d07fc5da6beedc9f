"""A model of a llama.cpp router (`llama-server` without `-m`): unloaded, and loaded with other arguments.

The arguments stand in the router's preset file (`--models-preset`). Seen on b10434: unload and load alone
start the model as before; the file is read anew by `GET /models?reload=1` only, which unloads every model
whose section was changed; `extra_args` of `/models/load` are accepted and ignored; `/models/load` answers
`{"success":true}` to a model that then ends by itself. So what counts is the router's list: the arguments
that it would start a model with, and whether it is loaded. What llama.cpp says yes to without doing it
(`POST /props`, `speculative.n_max` of a request) is no path at all.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from enginetop.fleet.foreign_json import field_at
from enginetop.fleet.knobs import KnobTransport
from enginetop.fleet.model import EngineKind
from tuners.control.files import write_synced
from tuners.control.flags import FLAGS, Flag, edited, value_of
from tuners.control.restartable import Load, NothingDoneError, RestartError, StartKnob, Values
from tuners.control.start_values import start_knobs
from tuners.control.stock.exchange import StockError, ask, raw
from tuners.control.stock.preset_file import PresetFile

_LIST, _RELOAD = "/models", "/models?reload=1"
_LOAD, _UNLOAD = "/models/load", "/models/unload"
_UNLOADED, _LOADED = "unloaded", ("loaded", "sleeping")
_UNLOADING, _LOADING = "unloading", "loading"
_FLAGS = FLAGS[EngineKind.LLAMACPP]
_GAUGES = (b"llamacpp:requests_processing ", b"llamacpp:requests_deferred ")


class RouterModel:
    """A `Restartable` model. `preset` is the router's file as this machine sees it, `wanted` a file that is
    prepared for a person who has to do our work.
    """

    kind = EngineKind.LLAMACPP

    def __init__(
        self, transport: KnobTransport, model: str, preset: Path, *, wanted: Path, address: str
    ) -> None:
        """RestartError when the router does not tell of the model, or the file has no section for it."""
        self._transport, self._model = transport, model
        self._file = PresetFile(preset, model)
        self._wanted, self._address = wanted, address.rstrip("/")
        self._step = ""
        self._to: Values = {}
        self._touched: set[tuple[str, ...]] = set()
        self._argv = _arguments(self._status())
        self._file.read()

    def knobs(self) -> tuple[StartKnob, ...]:
        """The knobs that arguments of the model set, with their values as the router tells them."""
        return start_knobs(self._argv, self.kind)

    def load(self) -> Load:
        """See `Restartable`."""
        try:
            ready = self._status().get("value") in _LOADED
        except RestartError:
            return Load(ready=False, requests=None)
        return Load(ready, self._requests() if ready else None)

    def begin(self, values: Values) -> None:
        """See `Restartable`."""
        try:
            self._file.write(self._text(values))
        except RestartError as error:
            raise NothingDoneError(str(error)) from None
        except OSError as error:
            raise NothingDoneError(f"{self._file.path}: {error.strerror or error}") from None
        runs = self._runs_with(values)
        if not runs:
            try:
                self._post(_UNLOAD)
            except StockError as error:
                if error.answered and self._is_loaded():
                    with suppress(OSError):
                        self._file.take_back()
                    raise NothingDoneError(str(error)) from None
                # not running, or no answer: its state tells
        self._to, self._step = dict(values), "" if runs else _UNLOADING
        for knob, value in values.items():
            if value != value_of(self._argv, _FLAGS[knob]):
                self._touched |= {_FLAGS[knob].names, _FLAGS[knob].lifts}

    def poll(self) -> bool:
        """See `Restartable`."""
        if not self._to:
            return True  # nothing of ours is in force: what it does is its own business
        try:
            status = self._status()
        except RestartError:
            return not self._step  # no answer is no end; the board's patience is
        if self._step == _UNLOADING:
            if status.get("value") == _UNLOADED:
                self._load()
            return False
        if status.get("failed"):
            self._step = ""
            raise RestartError(f"{self._model} ended with exit code {status.get('exit_code')}")
        if self._step == _LOADING:
            if status.get("value") not in _LOADED:
                return False
            self._step = ""
            if self._as_found(self._to):
                self._to = {}
        return True

    def by_hand(self, values: Values) -> str:
        """See `Restartable`."""
        with suppress(OSError, RestartError):
            write_synced(self._wanted, self._text(values).encode())
        steps = [f"cp {shlex.quote(str(self._wanted))} {shlex.quote(str(self._file.path))}"]
        body = shlex.quote(json.dumps({"model": self._model}))
        post = f"curl -fsS -H 'Content-Type: application/json' -d {body} {shlex.quote(self._address)}"
        reload = f"curl -fsS {shlex.quote(self._address + _RELOAD)}"
        return f"{' && '.join(steps)}; {post}{_UNLOAD}; {reload} && {post}{_LOAD}"

    def _load(self) -> None:
        """Have the file read, see that it counts, and load."""
        try:
            ask(self._transport, "GET", _RELOAD)
        except StockError as error:
            raise RestartError(f"its preset file could not be read anew: {error}") from None
        argv = _arguments(self._status())
        for knob, value in self._to.items():
            found = value_of(argv, _FLAGS[knob])
            if found != value:
                raise RestartError(
                    f"it would still start with {knob} {found}: the router's own arguments rule, it reads "
                    f"another file than {self._file.path}, or it does not read it anew"
                )
        try:
            self._post(_LOAD)
        except StockError as error:
            if error.answered and "already running" not in str(error):
                raise RestartError(str(error)) from None
        self._step = _LOADING

    def _text(self, values: Values) -> str:
        """The file with these values: of each flag whose value differs from what the model has now."""
        wanted = edited(self._argv, self.kind, values)
        changes: dict[tuple[str, ...], int | None] = {}
        former: dict[tuple[str, ...], int | None] = {}
        for flag in _FLAGS.values():
            for names in filter(None, (flag.names, flag.lifts)):
                found, first = _value(wanted, names), _value(self._argv, names)
                if found != first:
                    changes[names] = found
                elif names in self._touched:
                    former[names] = first
        return self._file.with_values(changes, former)

    def _is_loaded(self) -> bool:
        try:
            return self._status().get("value") in _LOADED
        except RestartError:
            return False

    def _runs_with(self, values: Values) -> bool:
        """Whether it is loaded with these values already: nothing was unloaded."""
        try:
            status = self._status()
        except RestartError:
            return False
        argv = _arguments(status)
        same = all(value_of(argv, _FLAGS[knob]) == value for knob, value in values.items())
        return same and status.get("value") in _LOADED

    def _as_found(self, values: Values) -> bool:
        return all(value == value_of(self._argv, _FLAGS[knob]) for knob, value in values.items())

    def _requests(self) -> int | None:
        """Running and waiting; asked so that the router does not load what is not loaded."""
        query = f"?model={quote(self._model, safe='')}&autoload=false"
        try:
            page = raw(self._transport, "GET", f"/metrics{query}")
            values = [line.rpartition(b" ")[2] for line in page.splitlines() if line.startswith(_GAUGES)]
            return round(sum(map(float, values))) if values else None
        except (StockError, ValueError):
            pass
        try:
            slots = ask(self._transport, "GET", f"/slots{query}")
        except StockError:
            return None
        if not isinstance(slots, list):
            return None
        return sum(isinstance(slot, Mapping) and slot.get("is_processing") is True for slot in slots)

    def _post(self, path: str) -> None:
        ask(self._transport, "POST", path, {"model": self._model})

    def _status(self) -> Mapping[str, Any]:
        try:
            document = ask(self._transport, "GET", _LIST)
        except StockError as error:
            raise RestartError(str(error)) from None
        listed = field_at(document, "data")
        for one in listed if isinstance(listed, list) else ():
            if isinstance(one, Mapping) and one.get("id") == self._model:
                status = one.get("status")
                if isinstance(status, Mapping) and isinstance(status.get("value"), str):
                    return status
        raise RestartError(f"it is no router, or has no model {self._model!r}")


def _arguments(status: Mapping[str, Any]) -> tuple[str, ...]:
    argv = status.get("args")
    if not isinstance(argv, list) or not all(isinstance(word, str) for word in argv):
        raise RestartError("the router does not tell the arguments of its models")
    return tuple(argv)


def _value(argv: Sequence[str], names: tuple[str, ...]) -> int | None:
    return value_of(argv, Flag(names, ""))
