"""Frozen classes whose objects are made a hundred thousand times a second, at a third of the time.

`__init__` of a frozen dataclass sets each field by `object.__setattr__`, which takes five times what an
assignment does. Here a new object belongs, while its fields are set, to a class of the same slots that is not
frozen; then it changes over. Nobody else has seen it by then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, fields
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform, overload

from enginetop.fleet.frozen import compiled, frozen, written

C = TypeVar("C", bound=type)


@overload
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def quickly_made(kind: C, /) -> C: ...


@overload
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def quickly_made(*, eq: bool = True, repr: bool = True) -> Callable[[C], C]: ...


def quickly_made(kind: Any = None, /, **options: bool) -> Any:
    """The class as `frozen` makes it, whose objects are made in another way. It has two fields at least.

    Raises TypeError for a class with a base, with `__post_init__` or with fields that are not simply given.
    """
    return (lambda one: _made(one, **options)) if kind is None else _made(kind, **options)


def _made(kind: Any, **options: bool) -> Any:
    made: Any = frozen(**options)(kind)
    members = fields(made)
    if made.__bases__ != (object,):
        raise TypeError(f"{made.__name__} has a base")
    if (
        len(members) < 2
        or hasattr(made, "__post_init__")
        or any(one.kw_only or not one.init for one in members)
    ):
        raise TypeError(f"{made.__name__} has fields that are not simply given")
    values = attrgetter(*(one.name for one in members))
    made.__new__ = staticmethod(_first_new(made))
    made.__reduce__ = lambda one: (type(one), values(one))  # `copyreg` makes objects without their fields
    del made.__init__
    return made


def _first_new(kind: Any) -> Callable[..., Any]:
    """`__new__` up to the first object: it puts the compiled one in its place."""

    def __new__(cls: Any, *given: Any, **named: Any) -> Any:  # noqa: N807 - what it is
        parameters, values, names = written(fields(kind))
        names["_open"] = type(f"_Open{kind.__name__}", (), {"__slots__": kind.__slots__})
        names["_new"] = object.__new__
        assign = (f"self.{name} = {value}" for name, value in values.items())
        body = ["self = _new(_open)", *assign, "self.__class__ = cls", "return self"]
        kind.__new__ = staticmethod(compiled(kind, "__new__", ["cls", *parameters], body, names))
        return cls(*given, **named)

    return __new__
