"""Fetching pages over HTTP: a client for each target, and answers of whatever comes.

A server behind `ssh` is reached through a socket that leads there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Coroutine, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from collectors.answer import Answer
from collectors.connection import Arrivals
from collectors.deadlines import Deadlines
from collectors.fetch import (
    KEPT_HEADERS,
    MAX_BODY_BYTES,
    NO_CREDENTIALS,
    Asked,
    Credentials,
    FetchError,
    RawResponse,
)
from collectors.lean_tls import TlsContexts
from collectors.ssh.address import SCHEME as SSH_SCHEME
from collectors.ssh.address import ssh_address
from collectors.target_client import Lean, TargetClient
from enginetop.fleet.observation import FailureKind

if TYPE_CHECKING:
    from collectors.ssh.client import SshClient
    from collectors.ssh.machines import SshMachines


class HttpFetcher:
    """A `PromptFetcher` for any number of targets, each with a client of its own. Belongs to one event loop.

    `credentials` are by base URL. `clock` gives the Unix time that answers carry. `fast_path` False sends
    everything through httpx. `kept_headers` are the headers that leave the fetcher. `machines`: what `ssh`
    reaches, closed with the fetcher; None: as the system's `ssh` does.
    """

    def __init__(
        self,
        credentials: Mapping[str, Credentials] = MappingProxyType({}),
        *,
        max_body_bytes: int = MAX_BODY_BYTES,
        clock: Callable[[], float] = time.time,
        fast_path: bool = True,
        kept_headers: Collection[str] = KEPT_HEADERS,
        machines: SshMachines | None = None,
    ) -> None:
        self._credentials = credentials
        self._max_body_bytes = max_body_bytes
        self._clock = clock
        self._lean = Lean(Arrivals(), TlsContexts()) if fast_path else None
        self._kept_headers = kept_headers
        self._clients: dict[str, TargetClient | SshClient] = {}
        self._deadlines: Deadlines | None = None
        self._machines = machines

    async def fetch(self, url: str, path: str, *, timeout_seconds: float) -> Answer:
        """See `Fetcher.fetch`; `timeout_seconds` (of `patient_time`) bounds name lookup, redirects and body
        together.
        """
        client = self._clients.get(url)
        if client is None:
            client = self._clients[url] = self._new_client(url)
        began = time.monotonic()
        outcome: RawResponse | FetchError
        try:
            outcome = await client.get(path, timeout_seconds)
        except TimeoutError:
            outcome = _late(timeout_seconds)
        except FetchError as raised:
            outcome = raised
        return self._answer(path, began, outcome)

    def ask(
        self, url: str, path: str, *, timeout_seconds: float, tell: Callable[[Answer | None], None]
    ) -> Asked | None:
        """See `PromptFetcher.ask`; the time is that of `fetch`."""
        client = self._clients.get(url)
        if not isinstance(client, TargetClient):
            return None
        if self._deadlines is None:
            self._deadlines = Deadlines()
        deadlines, began = self._deadlines, time.monotonic()

        def take(outcome: RawResponse | FetchError | None) -> None:
            waiting.end()
            tell(None if outcome is None else self._answer(path, began, outcome))

        under_way = client.ask(path, take)
        if under_way is None:
            return None
        waiting = _Waiting(under_way, deadlines, lambda: take(_late(timeout_seconds)))
        deadlines.set(waiting, timeout_seconds)
        return waiting

    def _answer(self, path: str, began: float, outcome: RawResponse | FetchError) -> Answer:
        asked, seconds = path.partition("?")[0], time.monotonic() - began
        if isinstance(outcome, FetchError):
            return Answer(asked, self._clock(), seconds, error=outcome.kind, detail=outcome.detail)
        kept = self._kept_headers
        headers = {name: text for name, text in outcome.headers.items() if name in kept}
        return Answer(asked, self._clock(), seconds, outcome.status, headers, outcome.body)

    def forget(self, url: str) -> Coroutine[Any, Any, None]:
        """See `Fetcher.forget`."""
        # Now, not when it is waited for: a look that begins in between would leave the client that goes a new
        # connection, which nobody closes.
        return _left(self._clients.pop(url, None))

    async def aclose(self) -> None:
        """Close every connection."""
        if self._deadlines is not None:
            self._deadlines.stop()
        clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            await client.aclose()
        machines, self._machines = self._machines, None
        if machines is not None:
            await machines.aclose()

    def _new_client(self, url: str) -> TargetClient | SshClient:
        credentials = self._credentials.get(url, NO_CREDENTIALS)
        if not url.startswith(SSH_SCHEME):
            return TargetClient(url, credentials, self._max_body_bytes, self._lean)
        from collectors.ssh.client import SshClient
        from collectors.ssh.machines import SshMachines

        self._machines = self._machines or SshMachines()
        address = ssh_address(url)

        def through(socket: str) -> TargetClient:
            return TargetClient(address.inner_url, credentials, self._max_body_bytes, self._lean, socket)

        return SshClient(address, self._machines, through)


class _Waiting:
    """One who waits for what was asked. `late`: what to do when its time is over.

    Whoever is told holds this, and `late` leads to who is told: at its end it lets go, or the page would stay
    until the next garbage collection.
    """

    __slots__ = ("_deadlines", "_late", "_under_way")

    def __init__(self, under_way: Asked, deadlines: Deadlines, late: Callable[[], None]) -> None:
        self._under_way = under_way
        self._deadlines = deadlines
        self._late: Callable[[], None] | None = late

    def end(self) -> None:
        """It waits no more."""
        self._deadlines.lift(self)
        self._late = None

    def run_out(self) -> None:
        """See `deadlines.Waiting`."""
        self._under_way.call_off()
        if self._late is not None:
            self._late()

    def call_off(self) -> None:
        """See `Asked`."""
        self.end()
        self._under_way.call_off()


async def _left(client: TargetClient | SshClient | None) -> None:
    if client is not None:
        await client.leave()


def _late(seconds: float) -> FetchError:
    return FetchError(FailureKind.TIMEOUT, f"no answer within {seconds:.3g} s")
