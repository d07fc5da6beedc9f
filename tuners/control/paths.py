"""The paths to the knobs of an engine: what each can change, what it touches, how a value is read back.

A path is found by asking, never assumed: an engine's knob sheet names the path that its knobs are changed by,
with the bounds of each knob and whether it needs a restart.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from enginetop.fleet.frozen import frozen
from enginetop.fleet.knobs import KnobRow, KnobSheet
from enginetop.fleet.model import EngineKind
from enginetop.fleet.plan import VIAS


@frozen
class Path:
    """One path. `touches` is its blast radius, `read_back` what confirms a value, `way_back` who takes a
    value back when the controller vanishes.
    `engine` has the path by itself, where `route` is among its own (empty: always).
    """

    name: str
    touches: str
    read_back: str
    way_back: str
    engine: EngineKind | None = None
    route: str = ""

    @property
    def counts_down(self) -> bool:
        """Whether a value goes back by itself when its ttl is over, though nobody of us is there."""
        return self.way_back != _NO_TTL

    @property
    def undone(self) -> str:
        """Who takes a value back when the controller vanishes, as a clause."""
        return f"if enginetop vanishes, {self.way_back} takes it back"


_NO_TTL = "the next start of enginetop"

PATHS: Mapping[str, Path] = MappingProxyType(
    {
        path.name: path
        for path in (
            Path(
                "knob_api",
                "one engine, which runs on",
                "the value that every rank confirms",
                "the engine's side, when the ttl is over,",
            ),
            Path(
                "process",
                "one engine: drained, restarted, its caches lost",
                "the flags of the process that runs, once it is ready",
                "`enginetop launch`, when the ttl is over,",
            ),
            Path(
                "systemd",
                "one unit: drained, restarted, its caches lost; a drop-in of its own beside it",
                "the drop-in, and the restarted unit once it is ready",
                _NO_TTL,
            ),
            Path(
                "file",
                "whatever the named hook restarts: drained first, its caches lost",
                "the file, and the engine once it is ready",
                _NO_TTL,
            ),
            Path(
                "kubernetes",
                "the object that owns the flags: one new replica beside it first where its kind allows that, "
                "then all of its own, by its own rollout",
                "the flags of the pods",
                _NO_TTL,
            ),
            Path(
                "vllm_runtime",
                "one engine, which runs on",
                "`/v1/runtime_config`, asked again",
                _NO_TTL,
                engine=EngineKind.VLLM,
                route="/v1/runtime_config",
            ),
            Path(
                "sglang_cap",
                "one engine, which runs on",
                "`internal_states` of `/server_info`, of every rank",
                _NO_TTL,
                engine=EngineKind.SGLANG,
            ),
            Path(
                "vllm_switches",
                "one engine: drained, then it serves nothing",
                "`/is_sleeping` and `/is_paused`",
                _NO_TTL,
                engine=EngineKind.VLLM,
                route="/sleep",
            ),
            Path(
                "lmdeploy_sleep",
                "one engine: drained, then it serves nothing, its caches lost",
                "`/is_sleeping`",
                _NO_TTL,
                engine=EngineKind.LMDEPLOY,
            ),
            Path(
                "llamacpp_router",
                "one model of the router: drained, loaded anew; others too whose section of the preset file "
                "somebody changed",
                "the arguments in the router's list, and that the model is loaded",
                _NO_TTL,
                engine=EngineKind.LLAMACPP,
                route="/models/load",
            ),
            Path(
                "triton_load",
                "one model: drained, unloaded, loaded anew",
                "its configuration, and READY in the index",
                _NO_TTL,
                engine=EngineKind.TRITON,
            ),
            Path(
                "dynamo_busy",
                "who is admitted by one frontend, which runs on",
                "`/busy_threshold`, asked again",
                _NO_TTL,
                engine=EngineKind.DYNAMO,
                route="/busy_threshold",
            ),
            Path(
                "dynamo_planner",
                "how many workers the planner keeps, of the whole deployment",
                "`/v1/min-endpoints`, asked again",
                _NO_TTL,
            ),
            Path(
                "dynamo_taint",
                "one worker, which runs on: who is routed to it of those whose requests name the taint",
                "the worker's card in the discovery folder",
                _NO_TTL,
            ),
            Path(
                "gateway",
                "every request through the gateway, so that all engines behind it change at once",
                "its hook, asked again",
                _NO_TTL,
            ),
        )
    }
)


def path_of(sheet: KnobSheet, knob: str = "") -> Path | None:
    """The path that a sheet names, for a knob or for all; None: this version knows none of that name."""
    name = sheet.writer_of(knob)
    return PATHS.get(name) if name in VIAS else None


def own_paths(kind: EngineKind, routes: Collection[str]) -> tuple[Path, ...]:
    """The paths that an engine with these routes has by itself."""
    return tuple(
        path for path in PATHS.values() if path.engine is kind and (not path.route or path.route in routes)
    )


def offer(row: KnobRow) -> str:
    """What can be done with a knob, in words: its bounds, and whether it needs a restart."""
    return f"{row.name} {row.min} to {row.max} {row.unit}".rstrip() + f", {row.apply}"
