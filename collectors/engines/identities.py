"""Who answered, with the place where each part of it was read."""

from __future__ import annotations

from types import MappingProxyType

from enginetop.fleet.model import EngineKind
from enginetop.fleet.reading import Identity

Told = tuple[str | None, str]
"""What a place says, None where it says nothing, and the place."""


def identity(
    engine: EngineKind,
    *models: Told,
    version: Told = (None, ""),
    stack: str | None = None,
    simulated: bool = False,
) -> Identity:
    """An engine with the first model that a place names."""
    model, model_source = next((told for told in models if told[0] is not None), (None, ""))
    sources = {
        "engine_version": version[1] if version[0] is not None else "",
        "model": model_source,
        "stack": "names of the metrics page" if stack is not None else "",
    }
    return Identity(
        engine,
        engine_version=version[0],
        model=model,
        stack=stack,
        simulated=simulated,
        sources=MappingProxyType({part: source for part, source in sources.items() if source}),
    )
