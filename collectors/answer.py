"""An answer: what one GET of one path brought, before anything is made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType

from enginetop.fleet.observation import FailureKind
from enginetop.fleet.quickly_made import quickly_made


@quickly_made(eq=False)
class Answer:
    """One GET. Either `error` is set (no usable answer) or `status`, `headers` and `body` are.

    `path` is what was asked without the query, headers have lower-case names and hold no credential, `at` is
    the time when the answer was complete and `detail` explains an error in one line.
    """

    path: str
    at: float
    seconds: float = 0.0
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    body: bytes = b""
    error: FailureKind | None = None
    detail: str = ""
