"""What Prometheus says of a scrape that failed, as a failure of ours. Source: its scraper, and Go's net."""

from __future__ import annotations

from enginetop.fleet.observation import FailureKind

_SCRAPE_ERRORS: tuple[tuple[tuple[str, ...], FailureKind], ...] = (
    (("x509", "tls", "certificate"), FailureKind.TLS),
    (("no such host", "lookup "), FailureKind.DNS),
    (("deadline exceeded", "timeout", "timed out"), FailureKind.TIMEOUT),
    (("body size limit",), FailureKind.TOO_LARGE),
    (("unexpected eof",), FailureKind.TRUNCATED),
    (("expected", "invalid", "parse", "sample limit", "content-type"), FailureKind.PROTOCOL),
)


def failure_of(why: str) -> tuple[FailureKind, int | None]:
    """What an error of Prometheus's scraper means: a failure of the connection, or an HTTP status."""
    text = why.lower()
    _, named, status = text.partition("http status ")
    if named and status[:3].isdigit():
        return FailureKind.SERVER_ERROR, int(status[:3])
    for words, kind in _SCRAPE_ERRORS:
        if any(word in text for word in words):
            return kind, None
    return FailureKind.REFUSED, None
