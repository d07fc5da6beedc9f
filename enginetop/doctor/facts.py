"""What was found out about one target, before anything is said of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType

from enginetop.fleet.admin_surface import AdminFacts, AdminSurface, admin_surface
from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import EngineKind, ReplicaState, Role
from enginetop.fleet.observation import FailureKind
from enginetop.fleet.reading import ConfigValue


@frozen
class StageFacts:
    """One step of the way to a target (`name`, `connection`, `TLS`): `problem` where it ends there.

    `kind` is the failure's word; `detail` says what was found (addresses, protocol version).
    """

    name: str
    seconds: float
    detail: str = ""
    problem: str = ""
    kind: FailureKind | None = None


@frozen
class PageFacts:
    """One page that was asked: `status`, or `error` where no answer came."""

    path: str
    seconds: float
    status: int | None = None
    size_bytes: int = 0
    content_type: str = ""
    error: str = ""


@frozen
class Missing:
    """A signal that the target does not export: why, and what would switch it on."""

    signal: str
    reason: str
    enable: str = ""


@frozen
class EngineFacts:
    """What was read. `suspect` holds signals that contradict themselves, with the reason."""

    kind: EngineKind
    title: str
    state: ReplicaState
    version: str | None = None
    model: str | None = None
    role: Role = Role.UNKNOWN
    stack: str | None = None
    simulated: bool = False
    read: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    missing: tuple[Missing, ...] = ()
    suspect: tuple[Missing, ...] = ()
    bad_lines: int = 0
    ranks: int = 0
    exact: Missing | None = None
    """Why requests within the objective are not counted one by one; None: they are."""
    config: Mapping[str, ConfigValue] = field(default_factory=lambda: MappingProxyType({}))


@frozen
class FailureFacts:
    """Why there is no good page; `enable` is the engine's own hint where the engine is known."""

    kind: FailureKind
    detail: str
    enable: str = ""


@frozen
class TargetFacts:
    """All that was found of one target. `key` names where its API key comes from, empty: none is named."""

    name: str
    url: str
    interval_seconds: float
    stages: tuple[StageFacts, ...] = ()
    pages: tuple[PageFacts, ...] = ()
    scrape_seconds: float | None = None
    proxy: bool = False
    certificate_until: float | None = None
    unverified: bool = False
    skew_seconds: float | None = None
    failure: FailureFacts | None = None
    engine: EngineFacts | None = None
    admin: AdminFacts | None = None
    key: str = ""

    @property
    def surface(self) -> AdminSurface | None:
        """Who may change it; None: that was not looked at."""
        if self.engine is None or self.admin is None:
            return None
        return admin_surface(self.engine.kind, self.engine.role, self.engine.stack, self.admin)
