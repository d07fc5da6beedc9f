"""The tables of the config file that say how an engine gets a new value of a knob: by a restart, or by an API
of its own.
"""

from __future__ import annotations

from typing import Annotated, Literal

from enginetop.fleet.frozen import frozen
from enginetop.fleet.strict_tables import Float, Within

_Patience = Annotated[Float, Within(ge=1, le=86400)]


@frozen(kw_only=True)
class HookTable:
    """One `[hooks.NAME]` entry: a command of this machine, run without a shell."""

    command: Annotated[tuple[str, ...], Within(min_length=1)]
    timeout_seconds: Annotated[Float, Within(ge=1, le=3600)] = 300.0


@frozen(kw_only=True)
class RestartTable:
    """A `[targets.restart]` table.

    Either `unit`, a systemd unit whose command a drop-in overrides, or `file`, where the numbers stand, and
    `hook`, the name of the command that restarts it.
    """

    unit: str | None = None
    user: bool = False
    file: str | None = None
    hook: str | None = None
    engine: Literal["vllm", "sglang", "llamacpp", "trtllm", "tgi", "lmdeploy"] | None = None
    drain_seconds: _Patience = 120.0
    ready_seconds: _Patience = 900.0
    cut_requests: bool = False

    def __post_init__(self) -> None:
        if (self.unit is None) == (self.file is None):
            raise ValueError("write either unit (of systemd), or file and hook")
        if self.file is not None and (self.hook is None or self.engine is None):
            raise ValueError("a file needs hook (the name of a command under [hooks]) and engine")
        if self.unit is not None and self.hook is not None:
            raise ValueError("a unit is restarted by systemctl; leave hook out")


@frozen(kw_only=True)
class GatewayTable:
    """One `[[gateways]]` entry: `hook` reads and sets the default thinking budget of all requests through it.

    `targets` are the engines behind it: names or addresses, shell patterns. Of two gateways that lead to an
    engine the first one counts.
    """

    name: Annotated[str, Within(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    hook: str
    targets: Annotated[tuple[str, ...], Within(min_length=1)]


NEEDS: dict[str, tuple[str, ...]] = {
    "llamacpp_router": ("model", "preset"),
    "triton_load": ("model",),
    "dynamo_busy": ("model",),
    "dynamo_taint": ("cards", "taint"),
}
"""What a path has to be told beside its name, as keys of an `engine_api` table; others need nothing more."""


@frozen(kw_only=True)
class EngineApiTable:
    """A `[targets.engine_api]` table: `path` is a path of `enginetop.fleet.plan.ENGINE_APIS`.

    `model` is the model that is loaded anew (of `dynamo_busy`: whose admission is limited), `preset` the
    router's preset file, `url` where the API is when it is not at the target's own address (Triton: port
    8000, the metrics are on 8002; Dynamo's planner: port 9086). `cards` is Dynamo's discovery folder, where
    a worker's `taint` is read back.
    """

    path: Literal[
        "vllm_runtime",
        "sglang_cap",
        "vllm_switches",
        "lmdeploy_sleep",
        "llamacpp_router",
        "triton_load",
        "dynamo_busy",
        "dynamo_planner",
        "dynamo_taint",
    ]
    url: str | None = None
    model: str | None = None
    preset: str | None = None
    cards: str | None = None
    taint: Annotated[str, Within(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,63}$")] | None = None
    drain_seconds: _Patience = 120.0
    ready_seconds: _Patience = 900.0
    cut_requests: bool = False

    def __post_init__(self) -> None:
        needs = NEEDS.get(self.path, ())
        for key in ("model", "preset", "cards", "taint"):
            if (getattr(self, key) is not None) != (key in needs):
                raise ValueError(f"{self.path} {'needs' if key in needs else 'takes no'} {key}")
