"""Who may change an engine beside us: what can be told of its control routes without calling one of them.

One table of admin surfaces, for `doctor`, which names them, and for preflight, which refuses open ones. Only
pages that change nothing are asked, without a key: an OpenAPI listing, a state, a page that the same key
guards. Whatever they do not tell is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from enum import StrEnum
from types import MappingProxyType

from enginetop.fleet.foreign_json import decoded
from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import EngineKind, Role

LISTING = "/openapi.json"
SGLANG_INFO = ("/server_info", "/get_server_info")
"""The second one is the name up to 0.5.x. It shows keys in clear: only whether there are any is taken."""
_ASLEEP = "/is_sleeping"
_MODELS, _PROPS = "/v1/models", "/props"
_MOST_ROUTES = 2000
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
_TRTLLM_CONTROL = frozenset({"/release_memory", "/resume_memory", "/update_weights"})


class Openness(StrEnum):
    """Whether whoever reaches the port can change an engine. `NOTHING`: nothing of it can be changed."""

    OPEN = "open"
    GUARDED = "guarded"
    NOTHING = "nothing"
    UNKNOWN = "unknown"


@frozen
class AdminSurface:
    """What is known of one engine's control routes, as one line; `fix` closes what is open.

    `grave`: nobody runs an engine that way on purpose in production.
    """

    openness: Openness
    what: str
    fix: str = ""
    grave: bool = False


@frozen
class AdminFacts:
    """`statuses`: what the pages of `KEYLESS` answered to a request without a key (no answer: missing).

    `routes`: the paths that the OpenAPI listing names; None: there is no listing. `keys`: whether the engine
    says that a key is set; None: it does not say. `key_shown`: it tells that key to whoever asks.
    """

    statuses: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    routes: frozenset[str] | None = None
    keys: bool | None = None
    key_shown: bool = False


@frozen
class _Surface:
    """`pages` are asked in this order until one of them is there."""

    pages: tuple[str, ...]
    judge: Callable[[AdminFacts], AdminSurface]


def admin_surface(kind: EngineKind, role: Role, stack: str | None, facts: AdminFacts) -> AdminSurface:
    """What is known of who may change an engine of this kind, which runs within `stack` in this role."""
    if stack == "dynamo" and role not in (Role.GATEWAY, Role.ROUTER):
        return AdminSurface(
            Openness.OPEN,
            "a Dynamo worker's system port has no authentication: /engine/* pauses, flushes and aborts",
            "let no other network reach DYN_SYSTEM_PORT",
        )
    surface = _SURFACES.get(kind)
    return surface.judge(facts) if surface else AdminSurface(Openness.UNKNOWN, _UNTOLD)


def facts_of(answers: Mapping[str, tuple[int, bytes]]) -> AdminFacts:
    """The facts in the answers (status and body) of pages of `KEYLESS`, whatever their bodies hold."""
    routes: frozenset[str] | None = None
    keys: tuple[bool | None, bool] = (None, False)
    for page, (status, body) in answers.items():
        if status != 200:
            continue
        if page == LISTING:
            routes = _routes(decoded(body))
        elif page in SGLANG_INFO:
            keys = sglang_keys(decoded(body))
    return AdminFacts({page: status for page, (status, _) in answers.items()}, routes, *keys)


def sglang_keys(info: object) -> tuple[bool | None, bool]:
    """Whether SGLang's `/server_info` says that a key is set, and whether it shows one in clear.

    None: it does not say. No key leaves this function.
    """
    if not isinstance(info, Mapping) or not {"api_key", "admin_api_key"} <= info.keys():
        return None, False
    found = [info[name] for name in ("api_key", "admin_api_key") if info[name]]
    return bool(found), any(isinstance(key, str) and key.strip("*") for key in found)


def _routes(listing: object) -> frozenset[str] | None:
    paths = listing.get("paths") if isinstance(listing, Mapping) else None
    return frozenset(list(paths)[:_MOST_ROUTES]) if isinstance(paths, Mapping) else None


def _vllm(facts: AdminFacts) -> AdminSurface:
    open_routes = sorted(_VLLM_DEVELOPMENT & (facts.routes or frozenset()))
    if facts.routes is None and facts.statuses.get(_ASLEEP) == 200:
        open_routes = ["/sleep", "/wake_up"]  # of the same router, though nothing lists them
    if open_routes:
        shown = ", ".join(open_routes[:3]) + (f" and {len(open_routes) - 3} more" if open_routes[3:] else "")
        return AdminSurface(
            Openness.OPEN,
            f"development routes are open to whoever reaches the port: {shown}",
            "start it without VLLM_SERVER_DEV_MODE",
            grave=True,
        )
    if facts.routes is None:
        return AdminSurface(Openness.UNKNOWN, f"no {LISTING}: {_UNTOLD}")
    return AdminSurface(Openness.GUARDED, "no development routes are mounted")


def _sglang(facts: AdminFacts) -> AdminSurface:
    if facts.key_shown:
        return AdminSurface(
            Openness.OPEN,
            "its /server_info tells the key of its controls to whoever reaches the port",
            "start it with --api-key beside --admin-api-key, and change the key",
            grave=True,
        )
    if facts.keys:
        return AdminSurface(Openness.GUARDED, "its controls need a key")
    if facts.keys is False:
        return AdminSurface(
            Openness.OPEN,
            "no key is set: pause, flush, abort, weights and /set_internal_state are open to whoever reaches "
            "the port",
            "start it with --api-key and --admin-api-key",
        )
    told = [facts.statuses.get(page) for page in (*SGLANG_INFO, _MODELS)]
    if 401 in told or 403 in told:
        return AdminSurface(Openness.GUARDED, "its controls need a key")
    if 200 in told:
        return AdminSurface(
            Openness.UNKNOWN,
            "without --api-key its controls (pause, flush, abort, weights) are open unless --admin-api-key "
            "is set, which cannot be told without asking",
            "start it with --admin-api-key",
        )
    return AdminSurface(Openness.UNKNOWN, _UNTOLD)


def _dynamo(facts: AdminFacts) -> AdminSurface:
    if facts.routes is None:
        return AdminSurface(Openness.UNKNOWN, f"no {LISTING}: {_UNTOLD}")
    if "/busy_threshold" in facts.routes:
        return AdminSurface(
            Openness.OPEN,
            "POST /busy_threshold, which sheds requests, is open to whoever reaches the port",
            "start the frontend with DYN_DISABLE_FRONTEND_ADMIN_API=1",
            grave=True,
        )
    return AdminSurface(Openness.GUARDED, "the frontend's admin routes are not mounted")


def _trtllm(facts: AdminFacts) -> AdminSurface:
    mounted = sorted(_TRTLLM_CONTROL & (facts.routes or frozenset()))
    if not mounted:
        return AdminSurface(Openness.UNKNOWN, _UNTOLD)
    return AdminSurface(
        Openness.UNKNOWN,
        f"{', '.join(mounted)} are mounted: older versions ask for no key there, newer ones for signed "
        f"requests, and which it is cannot be told without asking",
    )


def _keyed(page: str, exposed: str, fix: str) -> _Surface:
    """An engine whose one key guards `page` and its controls alike."""

    def judge(facts: AdminFacts) -> AdminSurface:
        status = facts.statuses.get(page)
        if status in (401, 403):
            return AdminSurface(Openness.GUARDED, "its controls need a key")
        if status == 200:
            return AdminSurface(Openness.OPEN, exposed, fix)
        return AdminSurface(Openness.UNKNOWN, _UNTOLD)

    return _Surface((page,), judge)


def _nothing(_: AdminFacts) -> AdminSurface:
    return AdminSurface(Openness.NOTHING, "nothing of it can be changed at run time")


_SURFACES: Mapping[EngineKind, _Surface] = MappingProxyType(
    {
        EngineKind.VLLM: _Surface((LISTING, _ASLEEP), _vllm),
        EngineKind.SGLANG: _Surface((*SGLANG_INFO, _MODELS), _sglang),
        EngineKind.LLAMACPP: _keyed(
            _PROPS,
            "no --api-key: LoRA scales, slots and loading of models (router) are open to whoever reaches the "
            "port",
            "start it with --api-key where others reach the port",
        ),
        EngineKind.LMDEPLOY: _keyed(
            _MODELS,
            "no --api-keys: sleep, weight updates and aborts are open to whoever reaches the port",
            "start it with --api-keys where others reach the port",
        ),
        EngineKind.DYNAMO: _Surface((LISTING,), _dynamo),
        EngineKind.TRTLLM: _Surface((LISTING,), _trtllm),
        EngineKind.TGI: _Surface((), _nothing),
    }
)

KEYLESS: Mapping[EngineKind, tuple[str, ...]] = MappingProxyType(
    {kind: surface.pages for kind, surface in _SURFACES.items()}
)
"""Pages without side effects that are asked without a key, by engine."""
