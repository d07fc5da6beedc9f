"""Who a replica is: what its page says of itself, else what discovery and gateways tell of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from enginetop.fleet.model import EngineKind, Role, Target, is_router
from enginetop.fleet.reading import Identity

NOBODY = Identity(EngineKind.UNKNOWN, role=Role.UNKNOWN)
"""Of a target without a good page."""

_PLACEHOLDER_MODELS = frozenset({"", "undefined", "none", "null"})


@dataclass(frozen=True, slots=True)
class Who:
    """What is known of a replica. `gateways_role` is what a gateway tells of it; None: none does."""

    target: Target
    identity: Identity = NOBODY
    gateways_role: Role | None = None

    @property
    def model(self) -> str | None:
        """The model that the page names, else discovery; None where none does."""
        return _model_name(self.identity.model) or _model_name(self.target.model)

    @property
    def role(self) -> Role:
        """The role that the page tells, else the one that discovery or a gateway tells of it."""
        own, told = self.identity.role, self.target.role or self.gateways_role
        return told if told is not None and own in (Role.AGGREGATED, Role.UNKNOWN) else own

    @property
    def stack(self) -> str:
        """What it works in: the stack that its page names, else its engine."""
        return self.identity.stack or self.identity.engine.value

    @property
    def is_router(self) -> bool:
        """Whether its page is a router's or gateway's view of engines rather than an engine's own."""
        return is_router(self.identity.engine, self.role)

    @property
    def sources(self) -> Mapping[str, str]:
        """Where version, model and role were read or told, by field."""
        found = self.identity.sources
        if self.model is not None and _model_name(self.identity.model) is None:
            found = {**found, "model": "told by discovery"}
        if self.role is self.identity.role:
            return found
        return {**found, "role": f"told by {'discovery' if self.target.role else 'its gateway'}"}


def _model_name(name: str | None) -> str | None:
    return None if name is None or name.strip().lower() in _PLACEHOLDER_MODELS else name
