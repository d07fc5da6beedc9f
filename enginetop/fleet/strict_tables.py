"""Errors of strict tables read from files: one line that names the key and the fix."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, get_args

from pydantic import BaseModel, BeforeValidator, ValidationError


def _no_truth(told: object) -> object:
    if isinstance(told, bool):
        raise ValueError("write a number, not true or false")
    return told


Float = Annotated[float, BeforeValidator(_no_truth)]
Int = Annotated[int, BeforeValidator(_no_truth)]
"""Numbers of a table. A truth value would be taken for 0 or 1, which nobody who writes one means."""

_TABLE = "write a table, [{key}]"
_NUMBER = "write a number"
_TIME = "write a time with its offset, as in 2026-12-01T08:00:00Z"
_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "string_type": 'write text, in quotes ("...")',
        "bool_type": "write true or false",
        "bool_parsing": "write true or false",
        "float_type": _NUMBER,
        "float_parsing": _NUMBER,
        "int_type": _NUMBER,
        "int_parsing": _NUMBER,
        "int_from_float": "write a whole number",
        "model_type": _TABLE,
        "model_attributes_type": _TABLE,
        "dict_type": _TABLE,
        "mapping_type": _TABLE,
        "datetime_type": _TIME,
        "datetime_parsing": _TIME,
        "datetime_from_date_parsing": _TIME,
        "timezone_aware": _TIME,
    }
)
"""What is wrong in the words of who writes TOML, where the validator's are those of its own types."""


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
    message = _WORDS.get(problem["type"], problem["msg"].removeprefix("Value error, "))
    if problem["type"] in {"tuple_type", "list_type"}:
        message = _list_words(root, location)
    message = message.format(key=key) if message is _TABLE else message
    return f"{key}: {message[:1].lower()}{message[1:]}".removeprefix(": ")


def _list_words(root: type[BaseModel], location: tuple[Any, ...]) -> str:
    try:
        annotation = _table_at(root, location[:-1]).model_fields[location[-1]].annotation
    except (KeyError, StopIteration):  # inside of what is no table of ours
        annotation = None
    if any(isinstance(one, type) and issubclass(one, BaseModel) for one in get_args(annotation)):
        return f"write it with two brackets, [[{location[-1]}]], once for each of them"
    return 'write a list, ["...", "..."]'


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
