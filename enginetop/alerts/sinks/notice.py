"""A notice: one thing to tell about one alert, and its forms on disk and on the wire."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from enginetop.alerts.runbook import runbook_command
from enginetop.fleet.document import alert_document
from enginetop.fleet.frozen import frozen
from enginetop.fleet.snapshot import Alert

AlertKey = tuple[str, str, str, tuple[tuple[str, str], ...]]


@frozen
class Notice:
    """That an alert fires, or is resolved, since `at`. `number` counts the notices of a journal."""

    number: int
    at: float
    alert: Alert

    @property
    def id(self) -> str:
        """The same for every delivery of this notice, another one for every other notice."""
        text = json.dumps([*alert_key(self.alert), self.alert.since, self.alert.state, self.at])
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    def document(self) -> dict[str, Any]:
        """The notice as JSON tells it: an event of `watch` with an `id` for those who count."""
        told = {**alert_document(self.alert), "runbook": runbook_command(self.alert.rule)}
        return {"event": "alert", "at": self.at, "id": self.id, **told}


def alert_key(alert: Alert) -> AlertKey:
    """What makes an alert itself to receivers: rule, severity, target and labels."""
    return alert.rule, alert.severity, alert.target, tuple(sorted(alert.labels.items()))


def notice_of(document: Mapping[str, Any]) -> Notice:
    """A notice from its stored form. ValueError, KeyError or TypeError when it is none."""
    alert = document["alert"]
    return Notice(
        number=int(document["n"]),
        at=float(document["at"]),
        alert=Alert(
            rule=str(alert["rule"]),
            severity=str(alert["severity"]),
            state=str(alert["state"]),
            target=str(alert["target"]),
            since=float(alert["since"]),
            value=None if alert["value"] is None else float(alert["value"]),
            threshold=None if alert["threshold"] is None else float(alert["threshold"]),
            summary=str(alert["summary"]),
            labels={str(name): str(value) for name, value in alert["labels"].items()},
            name=str(alert.get("name", "")),
        ),
    )


def stored(notice: Notice, done: list[str]) -> dict[str, Any]:
    """The stored form; `done` names the sinks that have it."""
    return {"n": notice.number, "at": notice.at, "alert": alert_document(notice.alert), "done": done}
