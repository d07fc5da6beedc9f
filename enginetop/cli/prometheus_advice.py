"""Advice on a fleet that a Prometheus tells of: what withholds it there, and how it can be had."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from collectors.replay import Finish
from enginetop.cli import knob_paths
from enginetop.cli.settings import Settings
from enginetop.fleet.model import Target
from enginetop.fleet.snapshot import Advice, FleetSnapshot, ReplicaSnapshot
from enginetop.fleet.thinking import BUDGET as THINKING_BUDGET
from tuners.control.knob_api import KnobClient

KEPT = "what a Prometheus keeps of it does not tell: --direct-knobs asks the engine itself"
ASKED = "the engine was asked itself (--direct-knobs) and does not tell, or cannot be reached from here"


class NamesWhatIsMissing:
    """Finishes snapshots: rows that are withheld for a setting that is not known say how it can be had."""

    def __init__(self, advise: Finish, *, direct: bool) -> None:
        self._advise = advise
        self._said = ASKED if direct else KEPT
        self._known: dict[str, tuple[ReplicaSnapshot, ReplicaSnapshot]] = {}

    def __call__(self, snapshot: FleetSnapshot) -> FleetSnapshot:
        """The snapshot with advice. A replica that is the same object as before stays so."""
        advised = self._advise(snapshot)
        before, self._known = self._known, {}
        for replica in advised.replicas:
            known = before.get(replica.target.url)
            told = known[1] if known is not None and known[0] is replica else self._told(replica)
            self._known[replica.target.url] = (replica, told)
        return replace(advised, replicas=tuple(told for _, told in self._known.values()))

    def _told(self, replica: ReplicaSnapshot) -> ReplicaSnapshot:
        rows = tuple(map(self._row, replica.advice))
        return replica if rows == replica.advice else replace(replica, advice=rows)

    def _row(self, row: Advice) -> Advice:
        if row.action != "withheld" or row.current is not None or row.knob == THINKING_BUDGET:
            return row  # how long thoughts may be is told by requests and companions alone
        return replace(row, because=(*row.because, self._said))


def clients_of_anybody(settings: Settings) -> Callable[[str], KnobClient | None]:
    """The knobs of whatever target is asked for, by its URL: who is scraped is not known beforehand."""
    known: dict[str, KnobClient | None] = {}

    def client(url: str) -> KnobClient | None:
        if url not in known:
            known[url] = knob_paths.knob_clients(settings, (Target(url, url),))(url)
        return known[url]

    return client
