"""Targets whose knobs are changed by an API that their engine has by itself, as the config file says."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from collectors.control_http import HttpKnobTransport
from collectors.fetch import NO_CREDENTIALS, Credentials
from collectors.home import at_home
from enginetop.cli.one_each import OneEach
from enginetop.cli.targets import parse_target
from enginetop.fleet.knobs import KnobAnswer, KnobBoard, KnobTransport
from enginetop.fleet.model import EngineKind, Target, same_host
from enginetop.simulator.knob_api import KnobApi
from tuners.control.knob_api import ReplyKind
from tuners.control.restart_board import RestartBoard
from tuners.control.restart_move import Patience
from tuners.control.restartable import Load, Restartable, RestartError, StartKnob, Values
from tuners.control.stock import switches
from tuners.control.stock.dynamo_busy import BusyThreshold
from tuners.control.stock.dynamo_planner import PlannerFloors
from tuners.control.stock.dynamo_taint import WorkerTaint
from tuners.control.stock.exchange import StockError
from tuners.control.stock.live_board import LiveBoard
from tuners.control.stock.llamacpp_router import RouterModel
from tuners.control.stock.sglang_cap import SglangCap
from tuners.control.stock.triton_model import TritonModel
from tuners.control.stock.vllm_runtime import VllmRuntimeConfig

if TYPE_CHECKING:
    from enginetop.fleet.restart_tables import EngineApiTable

_TOLD = (ReplyKind.UNAUTHORIZED, ReplyKind.MISSING)
"""Failures that say for certain that asking again will not help."""


class EngineApiPath:
    """A `KnobTransport` to an engine's own API. What is needed is read at the first request; until it can be,
    every request says why not.
    """

    def __init__(self, table: EngineApiTable, target: Target, credentials: Credentials, state: Path) -> None:
        self._table, self._target, self._credentials, self._state = table, target, credentials, state
        self._lock = threading.Lock()
        self._api: KnobApi | None = None

    def request(self, method: str, path: str, body: bytes | None = None) -> KnobAnswer:
        """See `KnobTransport`."""
        with self._lock:
            try:
                if self._api is None:
                    self._api = KnobApi(self._board(), time.monotonic)
                return self._api.request(method, path, body)
            except RestartError as error:
                return KnobAnswer(None, detail=str(error))
            except StockError as error:
                if error.kind in _TOLD:
                    return KnobAnswer(error.status, json.dumps({"detail": str(error)}).encode())
                return KnobAnswer(None, detail=str(error))

    def _board(self) -> KnobBoard:
        from enginetop.cli.engine_look import EngineLook

        table = self._table
        address = table.url or self._target.url
        look = EngineLook(self._target, self._credentials)
        same = same_host(parse_target(address).host, self._target.host)
        credentials = self._credentials if same else NO_CREDENTIALS  # a key goes to whom it was given for
        name = re.sub(r"[^A-Za-z0-9.-]", "_", self._target.name)
        return board(
            table,
            HttpKnobTransport(address, credentials),
            look,
            wanted=self._state / "restart" / f"{name}.wanted",
            address=address,
        )


def board(
    table: EngineApiTable,
    transport: KnobTransport,
    look: Callable[[], Load],
    *,
    wanted: Path,
    address: str,
) -> KnobBoard:
    """The board that a table names, over a transport to the engine's own API. RestartError when the engine
    does not have it.
    """
    if table.path == "vllm_runtime":
        return LiveBoard(VllmRuntimeConfig(transport), writer=table.path, engine_name=EngineKind.VLLM)
    if table.path == "sglang_cap":
        return LiveBoard(SglangCap(transport), writer=table.path, engine_name=EngineKind.SGLANG)
    if table.path == "dynamo_busy":
        assert table.model is not None  # the config file's schema sees to it
        busy = BusyThreshold(transport, table.model)
        return LiveBoard(busy, writer=table.path, engine_name=EngineKind.DYNAMO)
    if table.path == "dynamo_taint":
        assert table.cards is not None  # the config file's schema sees to these
        assert table.taint is not None
        taints = partial(_taints, at_home(table.cards))
        tainted = WorkerTaint(transport, taints, table.taint)
        return LiveBoard(tainted, writer=table.path, engine_name=EngineKind.DYNAMO)
    if table.path == "dynamo_planner":
        return LiveBoard(PlannerFloors(transport), writer=table.path, engine_name=EngineKind.DYNAMO)
    patience = Patience(table.drain_seconds, table.ready_seconds, table.cut_requests)
    engine, knobs, present, kind, instance = _restartable(table, transport, look, wanted, address)
    return RestartBoard(
        engine,
        knobs,
        writer=table.path,
        instance=instance,  # the same after a crash of ours: what was on trial is found and undone
        engine_name=kind,
        patience=patience,
        present=present,
    )


def _taints(folder: Path, worker: str) -> frozenset[str] | None:
    """See `WorkerTaint`."""
    from collectors.discovery.dynamo_folder import taints_of

    try:
        return taints_of(folder, worker)
    except OSError as error:
        raise StockError(f"the discovery folder: {error.strerror}", ReplyKind.MISSING) from None


def _restartable(
    table: EngineApiTable, transport: KnobTransport, look: Callable[[], Load], wanted: Path, address: str
) -> tuple[Restartable, tuple[StartKnob, ...], Values | None, EngineKind, str]:
    if table.path == "llamacpp_router":
        assert table.model is not None  # the config file's schema sees to these
        assert table.preset is not None
        preset = at_home(table.preset)
        model = RouterModel(transport, table.model, preset, wanted=wanted, address=address)
        return model, model.knobs(), None, model.kind, table.model
    if table.path == "triton_load":
        assert table.model is not None
        loaded = TritonModel(transport, table.model, look, kept=wanted.with_suffix(".found"), address=address)
        return loaded, loaded.knobs(), loaded.present(), loaded.kind, table.model
    vllm = table.path == "vllm_switches"
    kind = EngineKind.VLLM if vllm else EngineKind.LMDEPLOY
    turned = switches.Switches(transport, switches.VLLM if vllm else switches.LMDEPLOY, look, address=address)
    return turned, turned.knobs(), turned.present(), kind, "switches"


_paths: OneEach[tuple[str, EngineApiTable], EngineApiPath] = OneEach()


def engine_api_path(
    table: EngineApiTable, target: Target, credentials: Credentials, state: Path
) -> EngineApiPath:
    """The path to a target; one for all who ask in this process, since it knows what is under way."""
    return _paths.get((target.url, table), lambda: EngineApiPath(table, target, credentials, state))
