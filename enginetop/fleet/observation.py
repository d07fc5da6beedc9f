"""What one look at a target brought: a reading, or a failure, or nothing that changes what is known."""

from __future__ import annotations

from enum import StrEnum

from enginetop.fleet.frozen import frozen
from enginetop.fleet.quickly_made import quickly_made
from enginetop.fleet.reading import Reading


class FailureKind(StrEnum):
    """Why there is no good page. The first seven are a recording's `error` words."""

    TIMEOUT = "timeout"
    REFUSED = "refused"
    TLS = "tls"
    DNS = "dns"
    TRUNCATED = "truncated"
    TOO_LARGE = "too_large"
    PROTOCOL = "protocol"
    UNAUTHORIZED = "unauthorized"  # 401, 403
    LOADING = "loading"  # a 503 that says so
    NO_ENGINE_METRICS = "no_engine_metrics"  # HTML, 404, empty, only process metrics
    DISABLED = "disabled"  # 501: the page exists but is switched off
    SERVER_ERROR = "server_error"  # 5xx on the metrics page
    COLLECTOR = "collector"  # a fault of our own: shown, never hidden


CONNECTION_FAILURES: frozenset[FailureKind] = frozenset(
    {FailureKind.TIMEOUT, FailureKind.REFUSED, FailureKind.TLS, FailureKind.DNS}
)


@frozen
class Failure:
    """A failure as data.

    `detail` is one clean line for people; `answered` says that some path of the target answered.
    """

    kind: FailureKind
    at: float
    detail: str
    answered: bool = False


@quickly_made(eq=False)
class Observation:
    """The result of one scrape (live) or of the records of one instant (replay).

    At most one of `reading` and `failure` is set. Neither is set when the answers change nothing (a 404 on
    one path while another known path is good). `metrics_page` is False for a reading refreshed by side pages
    alone: it counts neither for the target's spacing nor for pages without progress.
    """

    at: float
    seconds: float
    reading: Reading | None = None
    failure: Failure | None = None
    metrics_page: bool = True
