"""Who answered, with the place where each part of it was read."""

from __future__ import annotations

from types import MappingProxyType

from collectors.engines.base import Sides
from collectors.json_fields import text
from collectors.page import Layout
from enginetop.fleet.foreign_json import model_name
from enginetop.fleet.model import EngineKind, Role
from enginetop.fleet.reading import Identity

DYNAMO = "dynamo"
NAMES_OF_PAGE = "names of the metrics page"

Told = tuple[str | None, str]
"""What a place says, None where it says nothing, and the place."""

NOT_TOLD: tuple[None, str] = (None, "")


def identity(
    engine: EngineKind,
    *models: Told,
    version: Told = NOT_TOLD,
    role: tuple[Role | None, str] = NOT_TOLD,
    stack: str | None = None,
    product: str | None = None,
    worker: int | None = None,
) -> Identity:
    """An engine with the first model that a place names; aggregated where no place tells a role.

    A place without a name is not shown: what it says follows from the engine itself.
    """
    model, model_source = next((told for told in models if told[0] is not None), NOT_TOLD)
    sources = {
        "engine_version": version[1] if version[0] is not None else "",
        "model": model_source,
        "role": role[1] if role[0] is not None else "",
        "stack": NAMES_OF_PAGE if stack is not None else "",
    }
    return Identity(
        engine,
        engine_version=version[0],
        model=model,
        role=role[0] or Role.AGGREGATED,
        stack=stack,
        worker=worker,
        product=product,
        sources=MappingProxyType({part: source for part, source in sources.items() if source}),
    )


def served_model(sides: Sides) -> Told:
    """The first model of the API's own list."""
    return model_name(text(sides.get("/v1/models"), "data", 0, "id")), "/v1/models"


def stack_of(layout: Layout) -> str | None:
    """The stack whose own series stand beside the engine's: it runs as a worker there."""
    return DYNAMO if any(name.startswith("dynamo_") for name in layout.names) else None
