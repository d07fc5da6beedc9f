"""Sinks over HTTP: a plain webhook, Slack's form of one, Alertmanager's API v2.

They post through a function that is given to them; addresses and tokens stay with whoever made it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from enginetop.alerts.rule import FIRING
from enginetop.alerts.runbook import runbook_command
from enginetop.alerts.sinks.courier import Delivery
from enginetop.alerts.sinks.notice import Notice, alert_key
from enginetop.fleet.frozen import frozen

RESEND_SECONDS = 60.0
"""Alertmanager forgets what it does not hear of again."""
DEAD_MAN_SECONDS = 300.0
"""For so long an alert stays in Alertmanager when we are gone: five missed repeats."""

_MOST_PER_POST = 200
_NEVER = frozenset({400, 413, 415, 422})
"""Answers that say that this body will never do; all others may be different tomorrow."""


@frozen
class PostAnswer:
    """What a POST brought: the status, or None without an answer; `detail` says why, without any secret."""

    status: int | None
    detail: str = ""


Post = Callable[[bytes], PostAnswer]
"""Posts a JSON body; bounded in time, raises nothing."""


class WebhookSink:
    """Posts one JSON object a notice. `body` makes it."""

    resend_seconds: float | None = None

    def __init__(self, name: str, post: Post, body: Callable[[Notice], Mapping[str, Any]]) -> None:
        self.name = name
        self._post = post
        self._body = body

    def deliver(self, notices: Sequence[Notice]) -> Delivery:
        """See `Sink`."""
        for taken, notice in enumerate(notices):
            problem, refused = _problem(self._post(_json(self._body(notice))))
            if problem:
                return Delivery(taken, problem, refused)
        return Delivery(len(notices))


class AlertmanagerSink:
    """Posts alerts to one Alertmanager; each of several peers is a sink of its own.

    An alert is its labels; numbers stand in annotations, since a label that changed would be another alert.
    """

    resend_seconds: float | None = RESEND_SECONDS

    def __init__(self, name: str, post: Post, now: Callable[[], float]) -> None:
        self.name = name
        self._post = post
        self._now = now

    def deliver(self, notices: Sequence[Notice]) -> Delivery:
        """See `Sink`. One alert that is refused must not take the rest of its batch with it."""
        batch = notices[:_MOST_PER_POST]
        problem, refused = self._try(batch)
        if refused and len(batch) > 1:
            batch = batch[:1]
            problem, refused = self._try(batch)
        if problem:
            return Delivery(0, problem, refused)
        if len(batch) == len(notices):
            return Delivery(len(batch))
        rest = self.deliver(notices[len(batch) :])
        return Delivery(len(batch) + rest.taken, rest.problem, rest.refused)

    def _try(self, notices: Sequence[Notice]) -> tuple[str, bool]:
        newest = {alert_key(notice.alert): notice for notice in notices}
        now = self._now()
        return _problem(self._post(_json([alertmanager_alert(notice, now) for notice in newest.values()])))


def plain_body(notice: Notice) -> Mapping[str, Any]:
    """The object that `watch` prints, with an `id` that repeats only when the delivery does."""
    return notice.document()


def slack_body(notice: Notice) -> Mapping[str, Any]:
    """A Slack message of one line; also what Mattermost and Rocket.Chat take."""
    alert = notice.alert
    head = "resolved" if alert.state != FIRING else alert.severity
    model = alert.labels.get("model", "")
    called = "" if alert.name in alert.target else f"{alert.name} "
    where = f"{called}{alert.target}{f' ({model})' if model else ''}"
    text = f"[{head}] {alert.rule} {where}: {alert.summary}"
    return {"text": text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")}


def alertmanager_alert(notice: Notice, now: float) -> dict[str, Any]:
    """One item of a POST to `/api/v2/alerts`; `now` in Unix seconds."""
    alert = notice.alert
    ends = now + DEAD_MAN_SECONDS if alert.state == FIRING else min(notice.at, now)
    labels = {**alert.labels, "alertname": alert.rule, "severity": alert.severity, "target": alert.target}
    numbers = {"value": alert.value, "threshold": alert.threshold}
    return {
        "labels": {name: value for name, value in labels.items() if value},
        "annotations": {
            "summary": alert.summary,
            **({"name": alert.name} if alert.name else {}),
            **{name: f"{number:.6g}" for name, number in numbers.items() if number is not None},
            **({"runbook": runbook} if (runbook := runbook_command(alert.rule)) else {}),
        },
        "startsAt": _rfc3339(min(alert.since, ends)),
        "endsAt": _rfc3339(ends),
    }


def _rfc3339(at: float) -> str:
    return datetime.fromtimestamp(at, tz=UTC).isoformat(timespec="milliseconds")


def _json(document: Any) -> bytes:
    return json.dumps(document, allow_nan=False).encode()


def _problem(answer: PostAnswer) -> tuple[str, bool]:
    """What went wrong, empty for nothing, and whether it will go wrong for ever."""
    if answer.status is None:
        return answer.detail or "no answer", False
    if 200 <= answer.status < 300:
        return "", False
    said = f": {answer.detail}" if answer.detail else ""
    return f"the receiver answers {answer.status}{said}", answer.status in _NEVER
