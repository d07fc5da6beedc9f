"""Who may change an engine: what can be told of its control routes without calling one of them.

Only pages that change nothing are asked, without a key: an OpenAPI listing, or a page that the same key
guards. Whatever that does not tell is said to be unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from enginetop.doctor.finding import Finding, Level
from enginetop.fleet.model import EngineKind

LISTING = "/openapi.json"
_AREA = "control"
_UNTOLD = "whether its control routes are open cannot be told without asking them"

_VLLM_DEVELOPMENT = frozenset(
    {
        "/sleep",
        "/wake_up",
        "/pause",
        "/resume",
        "/abort_requests",
        "/reset_prefix_cache",
        "/reset_mm_cache",
        "/reset_encoder_cache",
        "/collective_rpc",
        "/release_kv_cache_memory",
    }
)
"""Routes that vLLM mounts with VLLM_SERVER_DEV_MODE=1 only, and never guards."""

KEYLESS: Mapping[EngineKind, tuple[str, ...]] = MappingProxyType(
    {
        EngineKind.VLLM: (LISTING,),
        EngineKind.SGLANG: ("/v1/models",),
        EngineKind.LLAMACPP: ("/props",),
        EngineKind.LMDEPLOY: ("/v1/models",),
        EngineKind.DYNAMO: (LISTING,),
    }
)
"""Pages without side effects that are asked without a key, by engine."""


@dataclass(frozen=True, slots=True)
class AdminFacts:
    """`statuses`: what the pages of `KEYLESS` answered to a request without a key (no answer: missing).

    `routes`: the paths that the OpenAPI listing names; None: there is no listing.
    """

    statuses: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    routes: frozenset[str] | None = None


def admin_findings(kind: EngineKind, facts: AdminFacts, *, dynamo_worker: bool = False) -> Iterator[Finding]:
    """What is known about who may change this engine. `dynamo_worker`: it runs as a worker of Dynamo."""
    if dynamo_worker:
        yield Finding(
            _AREA,
            Level.INFO,
            "a Dynamo worker's system port has no authentication: /engine/* pauses, flushes and aborts",
            "let no other network reach DYN_SYSTEM_PORT",
        )
        return
    if kind is EngineKind.VLLM:
        yield _vllm(facts)
    elif kind is EngineKind.SGLANG:
        yield _keyed(
            facts,
            "/v1/models",
            "without --api-key its controls (pause, flush, abort, weights) are open unless --admin-api-key "
            "is set, which cannot be told without asking",
            "start it with --admin-api-key",
        )
    elif kind is EngineKind.LLAMACPP:
        yield _keyed(
            facts,
            "/props",
            "no --api-key: LoRA scales, slots and (router) model loading are open",
            "start it with --api-key where others reach the port",
        )
    elif kind is EngineKind.LMDEPLOY:
        yield _keyed(
            facts,
            "/v1/models",
            "no --api-keys: sleep, weight updates and aborts are open",
            "start it with --api-keys where others reach the port",
        )
    elif kind is EngineKind.DYNAMO:
        yield _dynamo(facts)
    elif kind is EngineKind.TGI:
        yield Finding(_AREA, Level.OK, "nothing of it can be changed at run time")
    else:
        yield Finding(_AREA, Level.INFO, _UNTOLD)


def _vllm(facts: AdminFacts) -> Finding:
    if facts.routes is None:
        return Finding(_AREA, Level.INFO, f"no {LISTING}: {_UNTOLD}")
    open_routes = sorted(_VLLM_DEVELOPMENT & facts.routes)
    if open_routes:
        shown = ", ".join(open_routes[:3]) + (f" and {len(open_routes) - 3} more" if open_routes[3:] else "")
        return Finding(
            _AREA,
            Level.WARNING,
            f"development routes are open to whoever reaches the port: {shown}",
            "start it without VLLM_SERVER_DEV_MODE",
        )
    return Finding(_AREA, Level.OK, "no development routes are mounted")


def _dynamo(facts: AdminFacts) -> Finding:
    if facts.routes is None:
        return Finding(_AREA, Level.INFO, f"no {LISTING}: {_UNTOLD}")
    if "/busy_threshold" in facts.routes:
        return Finding(
            _AREA,
            Level.WARNING,
            "POST /busy_threshold, which sheds requests, is open to whoever reaches the port",
            "start the frontend with DYN_DISABLE_FRONTEND_ADMIN_API=1",
        )
    return Finding(_AREA, Level.OK, "the frontend's admin routes are not mounted")


def _keyed(facts: AdminFacts, page: str, exposed: str, fix: str) -> Finding:
    status = facts.statuses.get(page)
    if status in (401, 403):
        return Finding(_AREA, Level.OK, "its controls need a key")
    if status == 200:
        return Finding(_AREA, Level.INFO, exposed, fix)
    return Finding(_AREA, Level.INFO, _UNTOLD)
