"""Wiring of alerts: the book of a run, the audit that it looks at, the sinks and the desk."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from collectors.fetch import Credentials, FetchError
from enginetop.alerts.book import AlertBook
from enginetop.alerts.configured import configured_rules
from enginetop.alerts.objective_checks import NO_CHANGES
from enginetop.alerts.rule import Rule, Severity
from enginetop.alerts.sinks.courier import Sink
from enginetop.alerts.sinks.desk import Desk
from enginetop.alerts.sinks.file import FileSink
from enginetop.alerts.sinks.ledger import Accepts
from enginetop.alerts.sinks.outbox import Outbox
from enginetop.alerts.sinks.wire import (
    AlertmanagerSink,
    Post,
    PostAnswer,
    WebhookSink,
    plain_body,
    slack_body,
)
from enginetop.cli.alert_settings import AlertSettings, SinkSettings
from enginetop.cli.diagnostics import tell
from enginetop.cli.quiet_file import QuietFile
from enginetop.cli.settings import Settings, state_folder
from enginetop.fleet.change import AuditRow
from enginetop.fleet.foreign_json import clean_words, decoded, error_words
from enginetop.fleet.model import Target
from enginetop.fleet.snapshot import Alert

_ALERTMANAGER_PATH = "/api/v2/alerts"
_POST_SECONDS = 5.0
_MOST_ADDRESS_BYTES = 4096


def alert_rules(settings: Settings, targets: Sequence[Target] | None = None) -> Sequence[Rule]:
    """The rules in force. `targets` are those whose changes they look at; None: a replay, without changes."""
    changes = NO_CHANGES if targets is None else AuditNews(state_folder(), {target.url for target in targets})
    return configured_rules(settings.alerts.rules, settings.window_seconds, changes)


def quiet_file(folder: Path | None = None) -> QuietFile:
    """Silences and acknowledgements in a state folder, None: the user's."""
    return QuietFile((folder or state_folder()) / "quiet.json")


def alert_book(
    settings: Settings, targets: Sequence[Target] | None = None, quiet: QuietFile | None = None
) -> AlertBook:
    """A book with the rules in force; `targets` as in `alert_rules`.

    `quiet` None: the user's silences and acknowledgements, and a line where they cannot be read. A replay has
    those of the config file only.
    """
    if targets is None:
        return AlertBook(alert_rules(settings), settings.alerts.silences)
    if quiet is None:
        quiet = quiet_file()
        quiet.read()
        if quiet.problem:
            tell(quiet.problem)
    return AlertBook(alert_rules(settings, targets), settings.alerts.silences, quiet)


class AuditNews:
    """The rows of the audit about some targets, read again only when the file has changed."""

    def __init__(self, folder: Path, urls: Collection[str]) -> None:
        self._folder = folder
        self._urls = urls
        self._seen: tuple[int, int] | None = None
        self._rows: Sequence[AuditRow] = ()

    def __call__(self) -> Sequence[AuditRow]:
        """The rows, oldest first; those of before while the file cannot be read."""
        try:
            found = (self._folder / "audit.jsonl").stat()
        except OSError:
            return self._rows
        seen = (found.st_mtime_ns, found.st_size)
        if seen != self._seen:
            from tuners.control.audit import Audit

            self._seen = seen
            self._rows = tuple(row for row in Audit(self._folder).rows() if row.target in self._urls)
        return self._rows


def open_desk(settings: AlertSettings) -> tuple[Desk, Sequence[Alert]] | None:
    """The desk of the configured sinks and what it knows to be firing; None without sinks.

    ConfigError when another process delivers for the same config file.
    """
    if not settings.sinks:
        return None
    for sink in settings.sinks:
        if problem := _sink_problem(sink):
            tell(f"{settings.origin}: sink {sink.name}: {problem}; until then its alerts wait")
    named = hashlib.sha256(str(Path(settings.origin).resolve()).encode()).hexdigest()[:12]
    outbox = Outbox(
        state_folder() / "alerts" / f"{named}.jsonl",
        {sink.name: _accepts(sink.severity) for sink in settings.sinks},
    )
    return Desk(outbox, [_sink(sink) for sink in settings.sinks], time.monotonic), outbox.told()


def _accepts(severity: str) -> Accepts:
    least = Severity(severity).rank
    return lambda alert: Severity(alert.severity).rank >= least


def _sink(settings: SinkSettings) -> Sink:
    if settings.kind == "file":
        return FileSink(settings.name, Path(settings.path or ""))
    if settings.kind == "alertmanager":
        address = (settings.url or "").rstrip("/") + _ALERTMANAGER_PATH
        return AlertmanagerSink(settings.name, _post(lambda: address, settings.credentials), time.time)
    body = slack_body if settings.kind == "slack" else plain_body
    return WebhookSink(settings.name, _post(lambda: _secret_address(settings), settings.credentials), body)


def _sink_problem(settings: SinkSettings) -> str:
    """Why nothing could be delivered now: who is paged by it should know before the first alert."""
    try:
        settings.credentials.authorization()
        if settings.url_env is not None or settings.url_file is not None:
            _secret_address(settings)
    except FetchError as error:
        return error.detail
    except ValueError as error:
        return str(error)
    folder = Path(settings.path).parent if settings.path else None
    if folder is not None and not _is_writable(folder):
        return f"the folder {folder} is not there, or not writable"
    return ""


def _is_writable(folder: Path) -> bool:
    try:
        return folder.is_dir() and os.access(folder, os.W_OK)
    except OSError:  # a name that is too long for any, a folder around it that cannot be looked into
        return False


def _secret_address(settings: SinkSettings) -> str:
    """The address of a webhook, read anew for every POST; ValueError without it when it cannot be used."""
    if settings.url_env is not None:
        address, source = os.environ.get(settings.url_env, ""), f"the variable {settings.url_env}"
    else:
        source = f"the file {settings.url_file}"
        try:
            with Path(settings.url_file or "").open(encoding="utf-8") as file:
                address = file.read(_MOST_ADDRESS_BYTES)
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            raise ValueError(
                f"no address: {source} cannot be read: {(reason or 'unknown').lower()}"
            ) from None
    address = address.strip()
    try:
        parts = urlsplit(address)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:  # its words repeat the address, which is a secret
        usable = False
    if not usable:
        raise ValueError(f"no address: {source} holds none")
    return address


def _post(address: Callable[[], str], credentials: Credentials) -> Post:
    """A POST to an address that is read when it is needed. What goes wrong is told without the address."""

    def post(body: bytes) -> PostAnswer:
        from collectors.control_http import HttpKnobTransport

        try:
            parts = urlsplit(address())
            base, path = f"{parts.scheme}://{parts.netloc}", parts.path or "/"
        except ValueError as error:
            return PostAnswer(None, str(error))
        query = f"?{parts.query}" if parts.query else ""
        transport = HttpKnobTransport(base, credentials, timeout_seconds=_POST_SECONDS)
        answer = transport.request("POST", path + query, body)
        secrets = (parts.netloc, parts.path, parts.query)
        return PostAnswer(answer.status, _without(answer.detail, *secrets) or _said(answer.body, *secrets))

    return post


def _said(body: bytes, *secrets: str) -> str:
    """What a receiver answers, without its address: Slack in plain text, most others in JSON."""
    text = _without(body.decode("utf-8", "ignore"), *secrets)
    document = decoded(text)
    plain = document if isinstance(document, str) else "" if document or text.lstrip()[:1] == "<" else text
    return _without(error_words(document) or clean_words(plain), *secrets)


def _without(detail: str, *secrets: str) -> str:
    for secret in secrets:
        if len(secret) > 1:
            detail = detail.replace(secret, "…")
    return detail
