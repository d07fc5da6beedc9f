"""For the bench only: takes the companion's wrappers off a running server and puts them back.

The wrappers are attributes of single objects that hide methods of their classes, so that taking them away
leaves the server as it is without a companion.
"""

from __future__ import annotations

from typing import Any

METHOD = "enginetop_switch"


def register() -> None:
    """Entry point `vllm.general_plugins`."""
    from vllm.v1.engine.core import EngineCore

    EngineCore.enginetop_switch = switch_core


def switch_core(core: Any, on: bool) -> bool:
    """Utility method on EngineCore."""
    _switch(core, ("_handle_client_request",), on)
    return on


class Switch:
    """Entry point `vllm.endpoint_plugins`."""

    name = METHOD
    required_tasks = ("generate",)

    def attach_router(self, app: Any) -> None:
        from fastapi import Request  # type: ignore[import-not-found]

        from enginetop_companion_vllm import serving_side

        async def switch(raw: Request) -> dict[str, bool]:
            on = raw.query_params["on"] == "1"
            client = raw.app.state.engine_client
            _switch(client.output_processor, ("_update_stats_from_finished", "abort_requests"), on)
            _switch(raw.app.state.openai_serving_chat, ("create_chat_completion",), on)
            _switch(raw.app.state.openai_serving_completion, ("create_completion",), on)
            serving_side.LOOK_SECONDS = 1.0 if on else 3600.0
            await client.engine_core.call_utility_async(METHOD, on)
            return {"on": on}

        # As a value, since annotations of this module are texts that FastAPI could not resolve.
        switch.__annotations__["raw"] = Request
        app.post("/switch")(switch)

    async def init_state(self, engine_client: Any, state: Any, args: Any) -> None:
        """Nothing to prepare."""


def _switch(where: Any, names: tuple[str, ...], on: bool) -> None:
    kept = where.__dict__.setdefault("_enginetop_switched_off", {})
    for name in names:
        if on and name in kept:
            setattr(where, name, kept.pop(name))
        elif not on and name in vars(where):
            kept[name] = where.__dict__.pop(name)
