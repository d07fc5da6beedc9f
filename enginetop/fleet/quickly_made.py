"""Frozen dataclasses that are made a hundred thousand times a second, at a third of the time.

`__init__` of a frozen dataclass sets each field by `object.__setattr__`, which takes five times what an
assignment does. Here a new object belongs, while its fields are set, to a class of the same slots that is not
frozen; then it changes over. Nobody else has seen it by then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from operator import attrgetter
from typing import Any, TypeVar

C = TypeVar("C", bound=type)

_BY_FACTORY: Any = object()


def quickly_made(kind: C) -> C:
    """The class itself, a frozen dataclass with slots and at least two fields, made in another way.

    Raises TypeError for a class of another kind.
    """
    own: Any = kind
    members = fields(own)
    if not own.__dataclass_params__.frozen or own.__bases__ != (object,) or "__slots__" not in vars(own):
        raise TypeError(f"{kind.__name__} is no frozen dataclass with slots and without a base")
    if (
        len(members) < 2
        or hasattr(own, "__post_init__")
        or any(one.kw_only or not one.init for one in members)
    ):
        raise TypeError(f"{kind.__name__} has fields that are not simply given")
    values = attrgetter(*(one.name for one in members))
    own.__new__ = staticmethod(_maker(own))
    own.__reduce__ = lambda one: (type(one), values(one))  # `copyreg` makes objects without their fields
    del own.__init__
    return kind


def _maker(kind: Any) -> Callable[..., Any]:
    """`__new__` of the class. Its source is written out, as `dataclasses` does it: a loop costs too much."""
    names: dict[str, Any] = {
        "_open": type(f"_Open{kind.__name__}", (), {"__slots__": kind.__slots__}),
        "_new": object.__new__,
        "_by_factory": _BY_FACTORY,
    }
    parameters, body = ["cls"], ["self = _new(_open)"]
    for one in fields(kind):
        name = value = one.name
        if one.default_factory is not MISSING:
            names[f"_factory_{name}"] = one.default_factory
            parameters.append(f"{name}=_by_factory")
            value = f"_factory_{name}() if {name} is _by_factory else {name}"
        elif one.default is not MISSING:
            names[f"_default_{name}"] = one.default
            parameters.append(f"{name}=_default_{name}")
        else:
            parameters.append(name)
        body.append(f"self.{name} = {value}")
    source = "\n    ".join(
        [f"def __new__({', '.join(parameters)}):", *body, "self.__class__ = cls", "return self"]
    )
    exec(source, names)  # noqa: S102 - names of fields, which are ours
    made: Callable[..., Any] = names["__new__"]
    made.__qualname__ = f"{kind.__qualname__}.__new__"
    made.__annotations__ = kind.__init__.__annotations__
    return made
