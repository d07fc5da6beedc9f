"""What has been told, what is still to be told, and to whom. Pure.

Told is what follows from the alerts of a snapshot: a firing alert that nothing keeps quiet is told once; one
that was told is told once more when it is over. Silence or inhibition that comes later takes nothing back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from enginetop.alerts.rule import FIRING, RESOLVED
from enginetop.alerts.sinks.notice import AlertKey, Notice, alert_key, notice_of, stored
from enginetop.fleet.snapshot import Alert

MOST_WAITING = 1000
"""Notices that a sink may be behind; beyond that its oldest are dropped and counted."""

Accepts = Callable[[Alert], bool]


class Ledger:
    """The account of notices for some sinks, each with the alerts that it wants to hear of."""

    def __init__(self, sinks: Mapping[str, Accepts]) -> None:
        self._accepts = dict(sinks)
        self._waiting: dict[str, dict[int, Notice]] = {name: {} for name in sinks}
        self._told: dict[AlertKey, Notice] = {}
        self._done: dict[int, set[str]] = {}
        self._last = 0
        self._new = set(sinks)
        self.dropped: dict[str, int] = dict.fromkeys(sinks, 0)

    def due(self, at: float, alerts: Iterable[Alert]) -> list[Notice]:
        """What is to be told about these alerts, all there are, and has not been yet."""
        notices: list[Notice] = []
        fires: set[AlertKey] = set()
        over: dict[AlertKey, Alert] = {}
        for alert in alerts:
            key = alert_key(alert)
            if alert.state == FIRING:
                fires.add(key)
                quiet = alert.inhibited_by or alert.silenced_by
                if key not in self._told and not quiet:
                    notices.append(Notice(self._last + 1 + len(notices), at, alert))
            elif alert.state == RESOLVED:
                over[key] = alert
        for key, told in self._told.items():
            if key not in fires:
                alert = over.get(key) or replace(told.alert, state=RESOLVED)
                notices.append(Notice(self._last + 1 + len(notices), at, alert))
        return notices

    def add(self, notice: Notice) -> None:
        """Take a notice into the account; every sink that wants it will have it waiting."""
        self._last = max(self._last, notice.number)
        key = alert_key(notice.alert)
        if notice.alert.state == FIRING:
            self._told[key] = notice
        else:
            self._told.pop(key, None)
        done = self._done.setdefault(notice.number, set())
        for name, waiting in self._waiting.items():
            if name not in done and self._accepts[name](notice.alert):
                waiting[notice.number] = notice
                if len(waiting) > MOST_WAITING:
                    self.settle(name, [next(iter(waiting))])
                    self.dropped[name] += 1

    def settle(self, sink: str, numbers: Iterable[int]) -> None:
        """These notices need not be told to this sink any more."""
        for number in numbers:
            self._waiting.get(sink, {}).pop(number, None)
            self._done.setdefault(number, set()).add(sink)

    def waiting(self, sink: str) -> Sequence[Notice]:
        """What a sink has not been told, oldest first."""
        return tuple(self._waiting[sink].values())

    def firing(self, sink: str) -> Sequence[Notice]:
        """What a sink knows to be firing."""
        waiting = self._waiting[sink]
        return tuple(
            notice
            for notice in self._told.values()
            if notice.number not in waiting and self._accepts[sink](notice.alert)
        )

    def loaded(self) -> None:
        """All stored lines were taken. A sink that is new hears of what fires, not of what is long over."""
        live = {notice.number for notice in self._told.values()}
        for name in self._new:
            self._waiting[name] = {n: notice for n, notice in self._waiting[name].items() if n in live}

    def told(self) -> Sequence[Alert]:
        """The alerts that fire as far as anybody was told."""
        return tuple(notice.alert for notice in self._told.values())

    def lines(self) -> Iterator[dict[str, Any]]:
        """All that a later run has to know, and nothing else."""
        yield {"sinks": sorted(self._waiting)}
        live = {notice.number: notice for notice in self._told.values()}
        for waiting in self._waiting.values():
            live.update(waiting)
        self._done = {number: done for number, done in self._done.items() if number in live}
        for number in sorted(live):
            yield stored(live[number], sorted(self._done.get(number, ())))

    def load(self, document: Mapping[str, Any]) -> None:
        """Take one stored line. ValueError, KeyError, TypeError or AttributeError when it is none."""
        if "sinks" in document:
            self._new -= {str(name) for name in document["sinks"]}
        elif "alert" in document:
            notice = notice_of(document)
            self._done[notice.number] = {str(name) for name in document.get("done", ())}
            self.add(notice)
        else:
            self.settle(str(document["sink"]), [int(document["n"])])
