"""Stand-ins with the attributes and the order of work that SGLang 0.5.23 has (checked by the real suite)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from enginetop_companion_sglang.scheduler_side import add_description, add_handlers

SECRET = "a-secret-of-this-start"


class UpdateRejected(Exception):  # noqa: N818 - SGLang's name
    """SGLang's word for a value that it does not take."""


class Handler:
    """SGLang's _UpdateHandler."""

    def __init__(self, validate: Callable[[str, Any], None], apply: Callable[[str, Any], Any]) -> None:
        self.validate = validate
        self.apply = apply


class Contexts:
    """SGLang's runtime_context."""

    def __init__(self) -> None:
        self.parallel = SimpleNamespace(pp_size=1, pp_max_micro_batch_size=8)
        self.execution = SimpleNamespace(deterministic=SimpleNamespace(enable_deterministic_inference=False))
        self.disagg = SimpleNamespace(enable_pd_role_switch=False)

    def get_parallel(self) -> Any:
        return self.parallel

    def get_exec(self) -> Any:
        return self.execution

    def get_disagg(self) -> Any:
        return self.disagg


class FakeScheduler:
    """The attributes of SGLang's scheduler that the companion reads and writes."""

    def __init__(self) -> None:
        self.chunked_prefill_size: int | None = 256
        self.max_prefill_tokens = 16384
        self.max_running_requests = 8
        self.page_size = 1
        self.truncation_align_size: int | None = None
        self.is_mixed_chunk = False
        # init, min, decay and current as NewTokenRatioTracker.from_config with conservativeness 0.5:
        # 0.7 x 0.5, a seventh of it, and (init - min) / 600
        self.new_token_ratio_tracker = SimpleNamespace(init=0.35, min=0.05, decay=0.0005, current=0.35)
        self.disaggregation_mode = SimpleNamespace(value="null")
        self.dynamic_chunk_sizer: object | None = None
        self.is_hybrid_ssm = False
        self.dllm_config: object | None = None
        self.server_args = SimpleNamespace(nnodes=1)


class FakeController:
    """SchedulerInternalStateController with the companion's hooks on it; `hooked` False: without."""

    def __init__(self, scheduler: FakeScheduler, contexts: Contexts, *, hooked: bool = True) -> None:
        self.scheduler = scheduler
        self.contexts = contexts
        self.hooked = hooked

    def _update_handlers(self) -> dict[str, Handler]:
        theirs = {"pp_max_micro_batch_size": Handler(self._validate_cap, self._cap)}
        return add_handlers(SECRET)(theirs, self) if self.hooked else theirs

    def _validate_cap(self, key: str, value: float) -> None:
        if not 1 <= value <= self.scheduler.max_running_requests:
            raise UpdateRejected(key)

    def _cap(self, _key: str, value: int) -> None:
        self.contexts.parallel.pp_max_micro_batch_size = value

    def get_internal_state(self) -> Any:
        output = SimpleNamespace(internal_state={"pp_max_micro_batch_size": 8})
        return add_description(output, self) if self.hooked else output

    def set_internal_state(self, requested: Mapping[str, float]) -> bool:
        """As SGLang 0.5.23: all keys are valid, or none is applied."""
        handlers = self._update_handlers()
        try:
            for key, value in requested.items():
                if key not in handlers:
                    raise UpdateRejected(key)
                handlers[key].validate(key, value)
        except UpdateRejected:
            return False
        for key, value in requested.items():
            handlers[key].apply(key, value)
        return True


class FakeManager:
    """A TokenizerManager before data-parallel ranks. `hold` keeps all answers back, as a long step does."""

    def __init__(self, *controllers: FakeController, enable_metrics: bool = True) -> None:
        self.controllers = controllers
        self.enable_metrics = enable_metrics
        self.rid_to_state: dict[str, Any] = {}
        self.hold: asyncio.Event | None = None
        self.asked: list[Mapping[str, float]] = []

    async def get_internal_state(self) -> list[dict[str, Any]]:
        if self.hold is not None:
            await self.hold.wait()
        return [one.get_internal_state().internal_state for one in self.controllers]

    async def set_internal_state(self, request: Any) -> list[bool]:
        if self.hold is not None:
            await self.hold.wait()
        self.asked.append(request.server_args)
        return [one.set_internal_state(request.server_args) for one in self.controllers]


class Request:
    """SGLang's SetInternalStateReq."""

    def __init__(self, *, server_args: Mapping[str, float]) -> None:
        self.server_args = server_args


class HookRegistry:
    """Records what is registered."""

    def __init__(self) -> None:
        self.hooks: dict[str, tuple[str, Callable[..., Any]]] = {}

    def register(self, target: str, hook: Callable[..., Any], kind: str) -> None:
        self.hooks[target] = (kind, hook)


@pytest.fixture
def fake_sglang(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Modules named as SGLang's, with what the companion imports of them."""
    registry = HookRegistry()
    app = SimpleNamespace(router=SimpleNamespace(lifespan_context=None))
    contexts = Contexts()
    modules: dict[str, dict[str, Any]] = {
        "sglang": {"__version__": "0.5.23"},
        "sglang.srt": {},
        "sglang.srt.plugins": {},
        "sglang.srt.plugins.hook_registry": {
            "HookRegistry": registry,
            "HookType": SimpleNamespace(BEFORE="before", AFTER="after"),
        },
        "sglang.srt.runtime_context": {
            name: getattr(contexts, name) for name in ("get_parallel", "get_exec", "get_disagg")
        },
        "sglang.srt.managers": {},
        "sglang.srt.managers.io_struct": {"SetInternalStateReq": Request},
        "sglang.srt.managers.scheduler_components": {},
        "sglang.srt.managers.scheduler_components.internal_state": {
            "UpdateRejected": UpdateRejected,
            "_UpdateHandler": Handler,
        },
        "sglang.srt.entrypoints": {},
        "sglang.srt.entrypoints.http_server": {"app": app},
    }
    for name, contents in modules.items():
        module = ModuleType(name)
        module.__dict__.update(contents)
        monkeypatch.setitem(sys.modules, name, module)
    return SimpleNamespace(registry=registry, app=app, contexts=contexts, sglang=sys.modules["sglang"])
