"""Gateways whose default thinking budget is set by a hook of the config file, and the engines behind them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING

from collectors.secrets import without_secrets
from enginetop.cli.one_each import OneEach
from enginetop.fleet.frozen import frozen
from enginetop.fleet.knobs import BY_HAND, KnobAnswer
from enginetop.fleet.model import Target
from enginetop.fleet.plan import VIA_GATEWAY
from enginetop.simulator.knob_api import KnobApi
from tuners.control.gateway import KNOB, Gateway
from tuners.control.knob_api import HttpKnobClient, KnobClient, KnobReply, PassingClient, ReplyKind
from tuners.control.stock.exchange import StockError
from tuners.control.stock.live_board import LiveBoard

if TYPE_CHECKING:
    from enginetop.fleet.config import Config
    from enginetop.fleet.restart_tables import GatewayTable

_LONGEST_SECONDS = 60.0
"""A change under way is looked at and renewed between two runs of a hook."""


@frozen
class GatewaySetting:
    """One gateway: the command behind its hook, and which targets it leads to (shell patterns)."""

    name: str
    hook: str
    command: tuple[str, ...]
    timeout_seconds: float
    targets: tuple[str, ...]

    def leads_to(self, target: Target) -> bool:
        """Whether a target is behind it, by its name or its address."""
        shown = (target.name, target.url, target.url.partition("://")[2])
        return any(fnmatchcase(one, pattern) for one in shown for pattern in self.targets)


def gateway_setting(table: GatewayTable, config: Config) -> GatewaySetting:
    """The setting of a `[[gateways]]` entry; hooks are looked up by their names."""
    hook = config.hooks[table.hook]
    seconds = min(hook.timeout_seconds, _LONGEST_SECONDS)
    return GatewaySetting(table.name, table.hook, hook.command, seconds, table.targets)


class GatewayPath:
    """A `KnobTransport` to a gateway's hook; what cannot be read says why, and what a person has to do."""

    def __init__(self, setting: GatewaySetting) -> None:
        self.gateway = Gateway(
            setting.name,
            setting.hook,
            setting.command,
            timeout_seconds=setting.timeout_seconds,
            environment={"ENGINETOP_GATEWAY": setting.name},
            clock=time.monotonic,
            clean=without_secrets,
        )
        board = LiveBoard(self.gateway, writer=VIA_GATEWAY, engine_name=VIA_GATEWAY)
        self._api = KnobApi(board, time.monotonic)
        self._lock = threading.Lock()

    def request(self, method: str, path: str, body: bytes | None = None) -> KnobAnswer:
        """See `KnobTransport`."""
        with self._lock:
            try:
                return self._api.request(method, path, body)
            except StockError as error:
                if error.kind is ReplyKind.MISSING and method != "GET":
                    return KnobAnswer(error.status, json.dumps({"detail": str(error)}).encode())
                return KnobAnswer(None, detail=f"{error}{BY_HAND}{self.gateway.by_hand}")


class Reaching(PassingClient):
    """A `KnobClient` of a gateway, which says whom it reaches, and what a person would run."""

    def __init__(self, client: KnobClient, reaches: tuple[str, ...], by_hand: str) -> None:
        super().__init__(client)
        self._reaches, self._by_hand = reaches, by_hand

    def read(self) -> KnobReply:
        """See `KnobClient`."""
        reply = super().read()
        if reply.sheet is None:
            return reply
        rows = (replace(row, reaches=self._reaches, by_hand=self._by_hand) for row in reply.sheet.knobs)
        return replace(reply, sheet=replace(reply.sheet, knobs=tuple(rows)))

    def examine(self) -> KnobReply:
        """See `KnobClient`. A gateway is no engine that anybody might change."""
        return self.read()


class BehindGateway(PassingClient):
    """A `KnobClient` of an engine and of the gateway before it (`SeveralPaths`); it writes the engine's own.

    The engine's own thinking budget counts where it has one: it can be tried on one engine.
    """

    def __init__(self, own: KnobClient, gateway: KnobClient) -> None:
        super().__init__(own)
        self._gateway = gateway

    def by(self, via: str) -> KnobClient:
        """See `SeveralPaths`."""
        return self._gateway if via == VIA_GATEWAY else self.passes_to

    def read(self) -> KnobReply:
        """See `KnobClient`."""
        return self._joined(super().read())

    def examine(self) -> KnobReply:
        """See `KnobClient`."""
        return self._joined(super().examine())

    def _joined(self, own: KnobReply) -> KnobReply:
        if own.sheet is not None and own.sheet.knob(KNOB) is not None:
            return own
        told = self._gateway.read()
        if told.sheet is None or own.sheet is None:
            return own if told.sheet is None else told
        rows = (replace(row, via=told.sheet.writer, instance=told.sheet.instance) for row in told.sheet.knobs)
        return replace(own, sheet=replace(own.sheet, knobs=(*own.sheet.knobs, *rows)))


_paths: OneEach[GatewaySetting, GatewayPath] = OneEach()


def behind_gateways(
    clients: Mapping[str, KnobClient], settings: Sequence[GatewaySetting], targets: Sequence[Target]
) -> dict[str, KnobClient]:
    """The clients of targets (by URL), with the gateway that leads to each. One path a gateway for all who
    ask in this process, since it knows what is on loan.
    """
    led = {target.url: next((one for one in settings if one.leads_to(target)), None) for target in targets}
    found = dict(clients)
    for setting in settings:
        reaches = tuple(url for url, leader in led.items() if leader is setting)
        path = _paths.get(setting, partial(GatewayPath, setting))
        gateway = Reaching(HttpKnobClient(path), reaches, path.gateway.by_hand)
        found |= {url: BehindGateway(clients[url], gateway) for url in reaches if url in clients}
    return found
