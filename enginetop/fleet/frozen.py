"""Frozen data classes with slots, of which only what is used is compiled.

`dataclass(frozen=True, slots=True)` writes out and compiles six functions of a class where it is defined: a
fifth of the CPU of a start, which defines two hundred classes. Objects of most of them are made much later or
never, and hardly one is ever printed. Here `__init__` is compiled when the first object is made; the rest is
made without a compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, Final, TypeVar, dataclass_transform, overload

C = TypeVar("C", bound=type)

_BY_FACTORY: Final[Any] = object()


@overload
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(kind: C, /) -> C: ...


@overload
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(
    *, eq: bool = True, repr: bool = True, kw_only: bool = False, weakref_slot: bool = False
) -> Callable[[C], C]: ...


def frozen(kind: Any = None, /, **options: bool) -> Any:
    """The class as `dataclass(frozen=True, slots=True, ...)` makes it, which knows its fields and copies.

    Fields of the kind InitVar are not for it.
    """
    return (lambda one: _made(one, **options)) if kind is None else _made(kind, **options)


def _made(kind: Any, *, eq: bool = True, repr: bool = True, **options: bool) -> Any:  # noqa: A002 - as dataclasses
    own = {name for name, value in vars(kind).items() if value is not None}  # `__hash__` may be None
    made: Any = dataclass(init=False, repr=False, eq=False, slots=True, **options)(kind)
    methods = {**_COMMON, "__init__": _first_init(made)}
    if repr:
        methods["__repr__"] = _repr
    if eq:
        methods |= _comparison(fields(made))
    for name in methods.keys() - own:
        setattr(made, name, methods[name])
    return made


def written(members: Sequence[Field[Any]]) -> tuple[list[str], dict[str, str], dict[str, Any]]:
    """Of a function that is given the fields: its parameters, each field's value, and the names in both."""
    positional, named = list[str](), list[str]()
    values, names = dict[str, str](), dict[str, Any]({"_by_factory": _BY_FACTORY})
    for one in members:
        name = one.name
        default = value = ""
        if one.default_factory is not MISSING:
            names[f"_factory_{name}"] = one.default_factory
            default, value = "_by_factory", f"_factory_{name}()"
        elif one.default is not MISSING:
            names[f"_default_{name}"] = one.default
            default = value = f"_default_{name}"
        if one.init:
            (named if one.kw_only else positional).append(f"{name}={default}" if default else name)
            value = f"{value} if {name} is _by_factory else {name}" if default == "_by_factory" else name
        if value:
            values[name] = value
    return positional + (["*", *named] if named else []), values, names


def compiled(
    kind: type, name: str, parameters: Sequence[str], body: Sequence[str], names: dict[str, Any]
) -> Any:
    """The method of that name."""
    lines = "\n    ".join([f"def {name}({', '.join(parameters)}):", *body])
    exec(lines, names)  # noqa: S102 - names of fields, which are ours
    method = names[name]
    method.__qualname__ = f"{kind.__qualname__}.{name}"
    return method


def _first_init(kind: Any) -> Callable[..., None]:
    """`__init__` up to the first object: it puts the compiled one in its place."""

    def __init__(self: Any, *given: Any, **named: Any) -> None:  # noqa: N807 - what it is
        parameters, values, names = written(fields(kind))
        body = [f"_set(self, {name!r}, {value})" for name, value in values.items()]
        if hasattr(kind, "__post_init__"):
            body.append("self.__post_init__()")
        names["_set"] = object.__setattr__
        kind.__init__ = compiled(kind, "__init__", ["self", *parameters], body or ["pass"], names)
        kind.__init__(self, *given, **named)

    return __init__


def _comparison(members: Sequence[Field[Any]]) -> dict[str, Callable[..., Any]]:
    compared = _values_of([one.name for one in members if one.compare])
    hashed = _values_of([one.name for one in members if (one.compare if one.hash is None else one.hash)])

    def __eq__(self: Any, other: Any) -> Any:  # noqa: N807 - what it is
        return compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: Any) -> int:  # noqa: N807 - what it is
        return hash(hashed(self))

    return {"__eq__": __eq__, "__hash__": __hash__}


def _values_of(names: Sequence[str]) -> Callable[[Any], Any]:
    return attrgetter(*names) if names else lambda _: ()


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _setattr(self: Any, name: str, value: object) -> None:  # noqa: ARG001 - as Python calls it
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delattr(self: Any, name: str) -> None:  # noqa: ARG001 - as Python calls it
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _getstate(self: Any) -> list[Any]:
    return [getattr(self, one.name) for one in fields(self)]


def _setstate(self: Any, state: Sequence[Any]) -> None:
    for one, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)


_COMMON: Final[dict[str, Callable[..., Any]]] = {
    "__setattr__": _setattr,
    "__delattr__": _delattr,
    "__getstate__": _getstate,
    "__setstate__": _setstate,
}
