"""The nouns of a fleet: targets, engines, roles, states, qualities."""

from __future__ import annotations

from enum import StrEnum
from ipaddress import ip_address
from urllib.parse import urlsplit

from enginetop.fleet.frozen import frozen

LOCAL_HOST = "localhost"
"""Under this name the GPUs of this machine are reported."""

_LOOPBACK_HOSTS = frozenset({LOCAL_HOST, "127.0.0.1", "::1"})


class EngineKind(StrEnum):
    """The engine whose series a page holds. `ROUTER` is a gateway's view, never an engine."""

    VLLM = "vllm"
    SGLANG = "sglang"
    TRTLLM = "trtllm"
    TRITON = "triton"
    DYNAMO = "dynamo"
    LLAMACPP = "llamacpp"
    TGI = "tgi"
    LMDEPLOY = "lmdeploy"
    ROUTER = "router"
    UNKNOWN = "unknown"


class Role(StrEnum):
    """What a replica does in its pool."""

    AGGREGATED = "aggregated"
    PREFILL = "prefill"
    DECODE = "decode"
    ROUTER = "router"
    GATEWAY = "gateway"
    UNKNOWN = "unknown"


def is_router(engine: EngineKind, role: Role) -> bool:
    """Whether a page is a router's or gateway's view of engines rather than an engine's own."""
    return engine is EngineKind.ROUTER or role in (Role.ROUTER, Role.GATEWAY)


class ReplicaState(StrEnum):
    """State of a replica; the first that applies in the order of `STATE_ORDER` wins."""

    DOWN = "down"
    UNAUTHORIZED = "unauthorized"
    LOADING = "loading"
    NO_ENGINE_METRICS = "no_engine_metrics"
    STALE = "stale"
    DRAINING = "draining"
    PAUSED = "paused"
    SLEEPING = "sleeping"
    NO_PROGRESS = "no_progress"
    IDLE = "idle"
    OK = "ok"
    UNKNOWN = "unknown"


STATE_ORDER: tuple[ReplicaState, ...] = tuple(ReplicaState)

UP_STATES: frozenset[ReplicaState] = frozenset(
    {
        ReplicaState.OK,
        ReplicaState.IDLE,
        ReplicaState.PAUSED,
        ReplicaState.DRAINING,
        ReplicaState.SLEEPING,
        ReplicaState.NO_PROGRESS,
    }
)
"""Replicas in these states count in fleet sums and merges."""


class Quality(StrEnum):
    """How far a value may be believed. All but `OK` and `ESTIMATED` explain a null or an old value."""

    OK = "ok"
    ESTIMATED = "estimated"
    STALE = "stale"
    SUSPECT = "suspect"
    UNSUPPORTED = "unsupported"
    UNKNOWN = "unknown"
    INVALID = "invalid"


BELIEVED: frozenset[Quality] = frozenset({Quality.OK, Quality.ESTIMATED})
"""Qualities of values that something may rest on (an alert, a plot): not what is old or doubtful."""


@frozen
class LocalProcess:
    """The process on this machine that serves a target.

    `argv` is without what looks like a key. `unit` is the systemd service and `container` the short id of the
    container that it runs in; empty: none, or not to be seen from here.
    """

    pid: int
    argv: tuple[str, ...]
    unit: str = ""
    container: str = ""


@frozen
class Target:
    """One thing to scrape.

    `url` is the base URL without a trailing slash and is the target's identity everywhere. `metrics_path` is
    the page the user named, or None when it is to be found. `name` is what the screen calls it. `model` and
    `role` are what discovery tells of it; what its own page says of itself goes first. `pod`
    (`namespace/name`) and `container` are where an orchestrator runs it; empty: not known.
    """

    url: str
    name: str
    metrics_path: str | None = None
    model: str | None = None
    role: Role | None = None
    pod: str = ""
    container: str = ""
    inference_pool: str = ""
    """The inference pool of the Gateway API (`namespace/name`) that routes to it, or that it picks for."""
    process: LocalProcess | None = None
    """Where it was found among this machine's processes."""

    @property
    def host(self) -> str:
        """Host of the URL, lower case, IPv6 without brackets."""
        return (urlsplit(self.url).hostname or "").lower()

    @property
    def port(self) -> int:
        """Port of the URL, the scheme's default when none is written; behind `ssh` the server's own."""
        parts = urlsplit(self.url)
        if parts.scheme == "ssh":
            parts = urlsplit(f"http://{parts.path.removeprefix('/')}")
        return parts.port or (443 if parts.scheme == "https" else 80)


def is_address(host: str) -> bool:
    """Whether a host is written as an IP address, of a zone or not (`fe80::1%eth0`)."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def in_brackets(host: str) -> str:
    """A host as it stands before a port: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def same_host(one: str, other: str) -> bool:
    """Whether two host names mean the same machine as far as names can tell (all loopback names are one)."""
    one, other = one.lower(), other.lower()
    return one == other or (one in _LOOPBACK_HOSTS and other in _LOOPBACK_HOSTS)
