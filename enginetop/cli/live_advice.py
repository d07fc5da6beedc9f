"""Advice on a live fleet: the rules, and the knobs as their engines tell them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType

from enginetop.fleet.knobs import KnobSheet
from enginetop.fleet.snapshot import FleetSnapshot
from enginetop.fleet.thinking import BUDGET
from tuners.advice import Advisor
from tuners.control.knob_api import REFUSALS, KnobClient

Clients = Callable[[str], KnobClient | None]

_EVERY_SECONDS = 10.0
_AFTER_REFUSAL_SECONDS = 60.0
_THREADS = 8


class LiveAdvice:
    """Finishes the snapshots of a live engine with advice; call it from one thread.

    Replicas whose pages carry a companion's counts, and those of `configured` (URLs), are asked for their
    knobs every ten seconds, in daemon threads, so that no snapshot waits for an answer; others are never
    asked. `new_clients` is called when there is somebody to ask. A knob API that cannot be reached leaves
    what was known.
    """

    def __init__(
        self,
        new_clients: Callable[[], Clients],
        tell_budget: Callable[[str, float | None], None] = lambda _url, _tokens: None,
        configured: Collection[str] = (),
    ) -> None:
        """`tell_budget` is told the thinking budget of each target (by URL) whose knobs were read anew."""
        self._new_clients = new_clients
        self._configured = frozenset(configured)
        self._tell_budget = tell_budget
        self._told: Mapping[str, KnobSheet] = {}
        self._clients: Clients | None = None
        self._advisor = Advisor(lambda: self.sheets)
        self._due = 0.0
        self._not_before: dict[str, float] = {}
        self._reading = 0
        self._lock = threading.Lock()
        self.sheets: Mapping[str, KnobSheet] = MappingProxyType({})
        """The newest sheets by target URL; replaced, never changed."""

    def __call__(self, snapshot: FleetSnapshot) -> FleetSnapshot:
        """The snapshot with advice."""
        if self.sheets is not self._told:
            self._told = self.sheets
            for url, sheet in self._told.items():
                knob = sheet.knob(BUDGET)
                self._tell_budget(url, knob.value if knob is not None else None)
        if snapshot.at >= self._due and not self._reading:
            wanted = [
                replica.target.url
                for replica in snapshot.replicas
                if ("requests_judged" in replica.totals or replica.target.url in self._configured)
                and self._not_before.get(replica.target.url, 0.0) <= snapshot.at
            ]
            if wanted:
                self._due = snapshot.at + _EVERY_SECONDS
                self._ask(wanted, snapshot.at)
        return self._advisor(snapshot)

    def _ask(self, urls: Sequence[str], at: float) -> None:
        if self._clients is None:
            self._clients = self._new_clients()
        stripes = [urls[i::_THREADS] for i in range(min(_THREADS, len(urls)))]
        self._reading = len(stripes)
        for stripe in stripes:
            reader = threading.Thread(
                target=self._read, args=(self._clients, stripe, at), name="enginetop-knobs", daemon=True
            )
            reader.start()

    def _read(self, clients: Clients, urls: Sequence[str], at: float) -> None:
        try:
            for url in urls:
                client = clients(url)
                if client is not None:
                    self._take(url, client, at)
        finally:
            with self._lock:
                self._reading -= 1

    def _take(self, url: str, client: KnobClient, at: float) -> None:
        reply = client.read()
        with self._lock:
            if reply.sheet is not None:
                self.sheets = MappingProxyType({**self.sheets, url: reply.sheet})
            elif reply.kind in REFUSALS:
                self._not_before[url] = at + _AFTER_REFUSAL_SECONDS
