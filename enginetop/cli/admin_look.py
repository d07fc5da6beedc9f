"""Who may change an engine beside us: harmless pages, asked as somebody without a key would ask them."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from collectors.event_loop import EngineEventLoop
from collectors.fetch import Credentials
from collectors.http import HttpFetcher
from enginetop.fleet.admin_surface import KEYLESS, AdminFacts, facts_of
from enginetop.fleet.model import EngineKind, Target

_NOT_FOUND = 404
_PATIENCE_SECONDS = 5.0


async def admin_facts(
    target: Target, kind: EngineKind, credentials: Credentials, timeout_seconds: float
) -> AdminFacts:
    """What the pages of `KEYLESS` answer to a request without a key. Faults are missing answers."""
    keyless = replace(
        credentials,
        api_key_env=None,
        api_key_file=None,
        username=None,
        password_env=None,
        password_file=None,
    )
    fetcher = HttpFetcher({target.url: keyless})
    answers: dict[str, tuple[int, bytes]] = {}
    try:
        for page in KEYLESS.get(kind, ()):
            answer = await fetcher.fetch(target.url, page, timeout_seconds=timeout_seconds)
            if answer.error is not None:
                break
            answers[page] = answer.status, answer.body
            if answer.status != _NOT_FOUND:
                break
    finally:
        await fetcher.aclose()
    return facts_of(answers)


class AdminLook:
    """Looks at `target` once a call, for threads without an event loop of their own."""

    def __init__(self, target: Target, credentials: Credentials) -> None:
        self._target = target
        self._credentials = credentials

    def __call__(self, engine: str) -> AdminFacts:
        """What can be told of an engine of the kind that its knob sheet names."""
        try:
            kind = EngineKind(engine)
        except ValueError:
            return AdminFacts()
        with asyncio.Runner(loop_factory=EngineEventLoop) as runner:
            return runner.run(admin_facts(self._target, kind, self._credentials, _PATIENCE_SECONDS))
