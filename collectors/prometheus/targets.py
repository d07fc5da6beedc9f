"""What a Prometheus scrapes, as a list of targets that we scrape ourselves."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from collectors.discovery.listing import Listed, ListingError, role_of, target_at
from collectors.fetch import NO_CREDENTIALS, Credentials
from collectors.json_fields import text
from collectors.prometheus.client import PrometheusClient, PrometheusError
from collectors.prometheus.members import pod_identity
from collectors.prometheus.names import PREFIXES, one_of
from enginetop.fleet.foreign_json import field_at

_TIMEOUT_SECONDS = 10.0
_RECENT_SECONDS = 3600.0
_IDENTITIES = ("pod", "name")


class PrometheusTargets:
    """The active targets of the jobs that have engines. A `Source`.

    A target's identity is its pod; its address is the one that the Prometheus scrapes.
    """

    every_seconds = 15.0
    note = ""

    def __init__(self, url: str, credentials: Credentials = NO_CREDENTIALS) -> None:
        """ValueError when the URL is none."""
        if urlsplit(url).scheme not in ("http", "https") or "@" in url:
            raise ValueError("write prometheus:http(s)://host:port, without credentials")
        self.title = f"prometheus {url}"
        self._url = url
        self._credentials = credentials

    def look(self) -> Sequence[Listed]:
        """A target for each that is scraped with an engine's series. ListingError: the server says none."""
        client = PrometheusClient(self._url, self._credentials, timeout_seconds=_TIMEOUT_SECONDS)
        try:
            now = client.now()
            match = f'{{__name__=~"(?:{one_of(PREFIXES)}).+"}}'
            jobs = set(client.label_values("job", now - _RECENT_SECONDS, now, match))
            entries = client.active_targets()
        except PrometheusError as error:
            raise ListingError(str(error)) from None
        finally:
            client.close()
        listed = (_listed(entry) for entry in entries if text(entry, "labels", "job") in jobs)
        return [one for one in listed if one is not None]


def _listed(entry: object) -> Listed | None:
    """One entry of `activeTargets`; None when it names no address that can be asked."""
    labels = field_at(entry, "labels")
    if not isinstance(labels, dict):
        return None
    words = {str(name): str(value) for name, value in labels.items()}
    try:
        parts = urlsplit(text(entry, "scrapeUrl") or "")
        target = target_at(
            parts.netloc,
            scheme=parts.scheme,
            metrics_path=parts.path or None,
            name=next((words[label] for label in _IDENTITIES if words.get(label)), ""),
            model=words.get("model"),
            role=role_of(words.get("role")),
            pod=pod_identity(words),
            container=words.get("container", ""),
        )
    except ValueError:
        return None
    return Listed(target, pod_identity(words))
