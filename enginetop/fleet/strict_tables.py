"""Strict tables of files: frozen classes whose annotations say what a key takes.

pydantic's core checks them. Its models are left out: to load and to build them took a seventh of the CPU of a
start with a config file, and 7 MiB.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import MISSING, Field, asdict, fields, is_dataclass
from datetime import datetime
from enum import EnumType
from types import MappingProxyType, NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic_core import ErrorDetails, SchemaValidator, ValidationError, core_schema
from pydantic_core.core_schema import CoreSchema

from enginetop.fleet.errors import ConfigError
from enginetop.fleet.frozen import frozen

T = TypeVar("T")


@frozen(kw_only=True)
class Within:
    """In an `Annotated`: the bounds of a value, in the words of pydantic's core; None: there is none."""

    gt: float | None = None
    ge: float | None = None
    lt: float | None = None
    le: float | None = None
    allow_inf_nan: bool | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None


@frozen
class Key:
    """In an `Annotated`: what the field is called in the file."""

    name: str


@frozen
class Check:
    """In an `Annotated`: what else is asked. `by` returns the value to go on with, or raises ValueError."""

    by: Callable[[Any], Any]
    first: bool = False
    """It is handed what the file says, before the type is asked for."""


def _no_truth(told: object) -> object:
    if isinstance(told, bool):
        raise ValueError("write a number, not true or false")
    return told


def _no_zero(told: str) -> str:
    """No path, name or address has one: the system would refuse it wherever it is used."""
    if "\0" in told:
        raise ValueError("no text with the character U+0000 in it")
    return told


Float = Annotated[float, Check(_no_truth, first=True)]
Int = Annotated[int, Check(_no_truth, first=True)]
"""Numbers of a table. A truth value would be taken for 0 or 1, which nobody who writes one means."""


def read_table(kind: type[T], data: Mapping[str, Any], origin: str) -> T:
    """The table of a file. A ValueError of its `__post_init__` is a problem of the whole table.

    Raises ConfigError with one line: `FILE: KEY: what is wrong and how to mend it`.
    """
    try:
        table: T = SchemaValidator(_table_schema(kind, data)).validate_python(data)
    except ValidationError as error:
        raise ConfigError(f"{origin}: {_problems(error, kind)[0]}") from error
    return table


def table_problems(kind: type, data: Mapping[str, Any], origin: str) -> list[str]:
    """Everything that `read_table` would refuse, a line each; the first is what it would say."""
    try:
        SchemaValidator(_table_schema(kind, data)).validate_python(data)
    except ValidationError as error:
        return [f"{origin}: {problem}" for problem in _problems(error, kind)]
    return []


def filled_in(kind: type, data: Mapping[str, Any]) -> dict[str, Any]:
    """What a file says that `read_table` takes, in its own words, with the defaults of what it does not say.

    Its own keys come first, in its order. Left out is what is not set at all, and defaults with nothing in
    them.
    """
    found = {}
    keys = _keys(kind)
    for key in dict.fromkeys((*data, *keys)):
        one, annotation = keys[key]
        told = one.default_factory() if one.default_factory is not MISSING else one.default
        if key in data or told not in (None, (), {}):
            found[key] = _filled(annotation, data.get(key, told))
    return found


def _filled(annotation: Any, told: Any) -> Any:
    kind = _parts(annotation)[0]
    if len(choices := _choices(kind)) == 1:
        kind = _parts(choices[0])[0]
    origin, inner = get_origin(kind), get_args(kind)
    if is_dataclass(kind):
        return filled_in(cast("type", kind), told if isinstance(told, Mapping) else {})
    if origin is Mapping:
        return {name: _filled(inner[1], one) for name, one in told.items()}
    if isinstance(told, list | tuple):
        return [_filled(inner[0], one) if origin is tuple else one for one in told]
    return told


def _keys(kind: Any) -> Mapping[str, tuple[Field[Any], Any]]:
    """The fields of a table by their keys in a file, each with what it is annotated with."""
    annotations = get_type_hints(kind, include_extras=True)
    keys = {}
    for one in fields(kind):
        annotation = annotations[one.name]
        named = (note.name for note in _parts(annotation)[1] if isinstance(note, Key))
        keys[next(named, one.name)] = one, annotation
    return keys


def _parts(annotation: Any) -> tuple[Any, Sequence[Any]]:
    """The type of a value, and what an `Annotated` adds to it."""
    if get_origin(annotation) is not Annotated:
        return annotation, ()
    kind, *notes = get_args(annotation)
    return kind, notes


_PLAIN: Final[Mapping[object, Callable[..., CoreSchema]]] = {
    bool: core_schema.bool_schema,
    int: core_schema.int_schema,
    float: core_schema.float_schema,
    str: lambda **bounds: core_schema.no_info_after_validator_function(
        _no_zero, core_schema.str_schema(**bounds)
    ),
    datetime: lambda: core_schema.datetime_schema(tz_constraint="aware"),
}


def _table_schema(kind: Any, given: Container[str] | None = None) -> CoreSchema:
    """Of keys that are not there the class has the values; `given`: those that are, None: all may be."""
    keys = _keys(kind)
    members = {}
    for key, (one, annotation) in keys.items():
        required = one.default is MISSING and one.default_factory is MISSING
        if required or given is None or key in given:
            members[key] = core_schema.typed_dict_field(_schema(annotation), required=required)
    return core_schema.no_info_after_validator_function(
        lambda found: kind(**{keys[key][0].name: value for key, value in found.items()}),
        core_schema.typed_dict_schema(members, extra_behavior="forbid"),
    )


def _schema(annotation: Any) -> CoreSchema:
    kind, notes = _parts(annotation)
    bounds = next((note for note in notes if isinstance(note, Within)), Within())
    schema = _schema_of(kind, {name: bound for name, bound in asdict(bounds).items() if bound is not None})
    for check in (note for note in notes if isinstance(note, Check)):
        if check.first:
            schema = core_schema.no_info_before_validator_function(check.by, schema)
        else:
            schema = core_schema.no_info_after_validator_function(check.by, schema)
    return schema


def _schema_of(kind: Any, bounds: dict[str, Any]) -> CoreSchema:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        choices = [_schema(one) for one in _choices(kind)]
        schema = core_schema.union_schema([*choices]) if len(choices) > 1 else choices[0]
        return core_schema.nullable_schema(schema) if NoneType in inner else schema
    if origin is Literal:
        return core_schema.literal_schema([*inner])
    if origin is tuple:
        return core_schema.tuple_schema([_schema(inner[0])], variadic_item_index=0, **bounds)
    if origin is Mapping:
        return core_schema.dict_schema(*map(_schema, inner))
    if isinstance(kind, EnumType):
        return core_schema.enum_schema(kind, [*kind])
    return _table_schema(kind) if is_dataclass(kind) else _PLAIN[kind](**bounds)


_TABLE = "write a table, [{key}]"
_NUMBER = "write a number"
_TIME = "write a time with its offset, as in 2026-12-01T08:00:00Z"
_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "string_type": 'write text, in quotes ("...")',
        "bool_type": "write true or false",
        "bool_parsing": "write true or false",
        "float_type": _NUMBER,
        "float_parsing": _NUMBER,
        "int_type": _NUMBER,
        "int_parsing": _NUMBER,
        "int_from_float": "write a whole number",
        "dict_type": _TABLE,
        "mapping_type": _TABLE,
        "datetime_type": _TIME,
        "datetime_parsing": _TIME,
        "datetime_from_date_parsing": _TIME,
        "timezone_aware": _TIME,
    }
)
"""What is wrong in the words of who writes TOML, where the validator's are those of its own types."""


def _problems(error: ValidationError, root: type) -> list[str]:
    """The problems of a document, each after its key; of an unknown one with the nearest that is known.

    An unknown key comes before all else: it explains why a known one is missing. Of a value that may be of
    several types there is one problem, in the words of the first.
    """
    found = error.errors(include_url=False, include_input=False)
    found.sort(key=lambda problem: problem["type"] != "extra_forbidden")
    told: dict[Sequence[int | str], str] = {}
    for problem in found:
        location = _without_choice(root, problem["loc"])
        told.setdefault(location, _in_words(problem, location, root))
    return [*told.values()]


def _in_words(problem: ErrorDetails, location: Sequence[int | str], root: type) -> str:
    key = ".".join(_shown(part) for part in location)
    if problem["type"] == "extra_forbidden":
        known = [*_keys(_type_at(root, location[:-1]))]
        near = difflib.get_close_matches(str(location[-1]), known, n=1, cutoff=0.6)
        hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"
        return f"{key} is an unknown key; {hint}"
    message = _WORDS.get(problem["type"], problem["msg"].removeprefix("Value error, "))
    if problem["type"] == "tuple_type":
        message = _list_words(root, location)
    message = message.format(key=key) if message is _TABLE else message
    return f"{key}: {message[:1].lower()}{message[1:]}".removeprefix(": ")


def _shown(part: int | str) -> str:
    text = str(part)
    return text if text.isprintable() else repr(text)


def _list_words(root: type, location: Sequence[int | str]) -> str:
    inner = get_args(_type_at(root, location))
    if inner and is_dataclass(inner[0]):
        return f"write it with two brackets, [[{location[-1]}]], once for each of them"
    return 'write a list, ["...", "..."]'


def _type_at(root: type, location: Sequence[int | str]) -> Any:
    """The type of the value there; on the way are tables, and places or names where there are many.

    Where several types may be, the first one.
    """
    found: Any = root
    for part in location:
        found = _type_within(found, part)
        found = next(iter(_choices(found)), found)
    return found


def _type_within(found: Any, part: int | str) -> Any:
    if is_dataclass(found):
        return _parts(_keys(found)[str(part)][1])[0]
    return get_args(found)[0 if isinstance(part, int) else 1]


def _without_choice(root: type, location: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """The location of a value without the name of the type that was tried, where there are several."""
    found: Any = root
    for depth, part in enumerate(location):
        choices = _choices(found)
        if len(choices) > 1:
            return location[:depth]
        found = choices[0] if choices else found
        if is_dataclass(found) and part not in _keys(found):
            break
        found = _type_within(found, part)
    return location


def _choices(kind: Any) -> list[Any]:
    """The types that a value may be of, where its type is made of others."""
    if get_origin(kind) not in (Union, UnionType):
        return []
    return [one for one in get_args(kind) if one is not NoneType]
