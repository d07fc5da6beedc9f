"""Who a replica is: what its page says of itself, else what discovery and gateways tell of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from enginetop.fleet.foreign_json import model_name
from enginetop.fleet.frozen import frozen
from enginetop.fleet.model import EngineKind, Role, Target, is_router
from enginetop.fleet.reading import Identity

NOBODY = Identity(EngineKind.UNKNOWN, role=Role.UNKNOWN)
"""Of a target without a good page."""


@frozen
class Who:
    """What is known of a replica. `gateways_role` is what a gateway tells of it; None: none does."""

    target: Target
    identity: Identity = NOBODY
    gateways_role: Role | None = None
    model: str | None = field(init=False)
    """The model that the page names, else discovery; None where none does."""
    role: Role = field(init=False)
    """The role that the page tells, else the one that discovery or a gateway tells of it."""
    stack: str = field(init=False)
    """What it works in: the stack that its page names, else its engine."""
    is_router: bool = field(init=False)
    """Whether its page is a router's or gateway's view of engines rather than an engine's own."""
    sources: Mapping[str, str] = field(init=False)
    """Where version, model and role were read or told, by field."""

    def __post_init__(self) -> None:
        told = {
            "model": model_name(self.identity.model) or model_name(self.target.model),
            "role": self._role(),
            "stack": self.identity.stack or self.identity.engine.value,
            "is_router": is_router(self.identity.engine, self._role()),
            "sources": self._sources(),
        }
        for name, value in told.items():  # once for each replica, and asked for at every tick
            object.__setattr__(self, name, value)

    def _role(self) -> Role:
        own, told = self.identity.role, self.target.role or self.gateways_role
        return told if told is not None and own in (Role.AGGREGATED, Role.UNKNOWN) else own

    def _sources(self) -> Mapping[str, str]:
        found = self.identity.sources
        if model_name(self.identity.model) is None and model_name(self.target.model) is not None:
            found = {**found, "model": "told by discovery"}
        if self._role() is self.identity.role:
            return found
        return {**found, "role": f"told by {'discovery' if self.target.role else 'its gateway'}"}
