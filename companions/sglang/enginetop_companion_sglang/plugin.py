"""The entry point, called by SGLang in every process of a server before it starts: registers hooks, no more.

The server process draws a secret and leaves it to its children by the environment; a scheduler knows by it
whose child it is.
"""

from __future__ import annotations

import logging
import os
import secrets
import sys

from enginetop_companion import settings
from enginetop_companion_sglang import truth
from enginetop_companion_sglang.checked_parts import (
    CONTROLLER,
    RUN_HTTP_SERVER,
    TOKENIZER_MANAGER,
    version_problem,
)
from enginetop_companion_sglang.scheduler_side import add_description, add_handlers
from enginetop_companion_sglang.serving_side import before_serving

log = logging.getLogger("sglang.enginetop")

SECRET = "ENGINETOP_COMPANION_CHILD"  # noqa: S105 - the name of a variable
_SCHEDULER_MODULE = "sglang.srt.managers.scheduler"


def register() -> None:
    """Entry point `sglang.srt.plugins`. Never raises."""
    if not settings.is_on(os.environ):
        return
    try:
        import sglang
        from sglang.srt.plugins.hook_registry import HookRegistry, HookType

        problem = version_problem(sglang.__version__)
        if problem:
            log.warning("enginetop companion steps aside: %s", problem)
            return
        secret = os.environ.get(SECRET)
        if secret is None:
            secret = os.environ[SECRET] = secrets.token_hex(16)
            HookRegistry.register(RUN_HTTP_SERVER, before_serving(secret), HookType.BEFORE)
            HookRegistry.register(f"{TOKENIZER_MANAGER}.collect_metrics", truth.collected, HookType.AFTER)
            HookRegistry.register(
                f"{TOKENIZER_MANAGER}._handle_abort_req", truth.taken_from_the_queue, HookType.BEFORE
            )
        elif _SCHEDULER_MODULE in sys.modules:  # not the detokenizer, which would import it for nothing
            HookRegistry.register(f"{CONTROLLER}._update_handlers", add_handlers(secret), HookType.AFTER)
            HookRegistry.register(f"{CONTROLLER}.get_internal_state", add_description, HookType.AFTER)
    except Exception as error:  # noqa: BLE001 - serving goes on without us, whatever is missing
        log.warning("enginetop companion steps aside: %r", error)
