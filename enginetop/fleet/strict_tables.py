"""Errors of strict tables read from files: one line that names the key and the fix."""

from __future__ import annotations

import difflib
from typing import Any, get_args

from pydantic import BaseModel, ValidationError


def first_problem(error: ValidationError, root: type[BaseModel]) -> str:
    """The first problem that `root` has with a document: `KEY: what is wrong`, with the nearest known key.

    An unknown key comes before all else: it explains why a known one is missing.
    """
    problems = error.errors(include_url=False, include_input=False)
    problem = next((one for one in problems if one["type"] == "extra_forbidden"), problems[0])
    location = tuple(problem["loc"])
    key = ".".join(str(part) for part in location)
    if problem["type"] == "extra_forbidden":
        fields = _table_at(root, location[:-1]).model_fields
        known = [field.alias or name for name, field in fields.items()]
        near = difflib.get_close_matches(str(location[-1]), known, n=1, cutoff=0.6)
        hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"
        return f"{key} is an unknown key; {hint}"
    message = problem["msg"].removeprefix("Value error, ")
    return f"{key}: {message[:1].lower()}{message[1:]}"


def _table_at(root: type[BaseModel], location: tuple[Any, ...]) -> type[BaseModel]:
    table = root
    for part in location:
        if isinstance(part, str):
            table = _table_in(table.model_fields[part].annotation)
    return table


def _table_in(annotation: Any) -> type[BaseModel]:
    """The table class in an annotation such as `Table`, `tuple[Table, ...]` or `Table | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = (argument for argument in get_args(annotation) if isinstance(argument, type))
    return next(argument for argument in found if issubclass(argument, BaseModel))
