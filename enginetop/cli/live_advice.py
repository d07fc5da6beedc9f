"""Advice on a live fleet: the rules, and the knobs as their engines tell them."""

from __future__ import annotations

import math
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
        self._asked_at = -math.inf
        self._refused_at: dict[str, float] = {}
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
        if not self._reading and not _is_recent(self._asked_at, snapshot.at, _EVERY_SECONDS):
            self._forget_others({replica.target.url for replica in snapshot.replicas})
            wanted = [
                replica.target.url
                for replica in snapshot.replicas
                if ("requests_judged" in replica.totals or replica.target.url in self._configured)
                and not _is_recent(
                    self._refused_at.get(replica.target.url, -math.inf), snapshot.at, _AFTER_REFUSAL_SECONDS
                )
            ]
            if wanted:
                self._asked_at = snapshot.at
                self._ask(wanted, snapshot.at)
        return self._advisor(snapshot)

    def _forget_others(self, there: Collection[str]) -> None:
        """Nobody is being asked now."""
        if any(url not in there for url in (*self.sheets, *self._refused_at)):
            self.sheets = MappingProxyType({url: one for url, one in self.sheets.items() if url in there})
            self._refused_at = {url: at for url, at in self._refused_at.items() if url in there}

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
                self._refused_at[url] = at


def _is_recent(then: float, now: float, seconds: float) -> bool:
    """Whether it was within so many seconds; what lies in the future, by a clock since set back, was not."""
    return 0.0 <= now - then < seconds
