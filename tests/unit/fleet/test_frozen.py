"""Classes that are compiled late are what `dataclass(frozen=True, slots=True)` makes."""

from __future__ import annotations

import builtins
import copy
import pickle
import re
import weakref
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, replace
from typing import Any

import pytest

from enginetop.fleet.frozen import frozen


@dataclass(frozen=True, slots=True)
class Plain:
    a: int
    b: str = "b"
    c: list[int] = field(default_factory=list, hash=False)
    d: Mapping[str, int] | None = field(default=None, compare=False, repr=False)
    e: float = field(default=0.5, kw_only=True)
    f: int = field(init=False)
    g: tuple[int, ...] = field(init=False, default=(1,))
    h: dict[str, int] = field(init=False, default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "f", 2 * self.a)


@frozen
class Late:
    a: int
    b: str = "b"
    c: list[int] = field(default_factory=list, hash=False)
    d: Mapping[str, int] | None = field(default=None, compare=False, repr=False)
    e: float = field(default=0.5, kw_only=True)
    f: int = field(init=False)
    g: tuple[int, ...] = field(init=False, default=(1,))
    h: dict[str, int] = field(init=False, default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "f", 2 * self.a)


@frozen
class Base:
    a: int
    b: int = 2


@frozen
class Derived(Base):
    b: int = 3
    c: int = 4


@frozen(eq=False, weakref_slot=True)
class Itself:
    a: int


@frozen(kw_only=True, repr=False)
class Own:
    a: int
    b: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own) and self.a == other.a

    def __repr__(self) -> str:
        return "mine"


@frozen
class Empty:
    pass


GIVEN: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((1,), {}),
    ((1, "x"), {"d": {"k": 1}, "e": 1.5}),
    ((), {"a": 3, "c": [1]}),
    ((1, "x", [2], None), {}),
]


@pytest.mark.parametrize(("given", "named"), GIVEN)
def test_fields_are_as_a_dataclass_has_them(given: tuple[Any, ...], named: dict[str, Any]) -> None:
    plain, late = Plain(*given, **named), Late(*given, **named)
    assert repr(late) == repr(plain).replace("Plain", "Late")
    assert asdict(late) == asdict(plain)
    assert hash(late) == hash(plain)
    assert late == Late(*given, **named)
    other: object = plain
    assert late != other
    assert [one.name for one in fields(late)] == [one.name for one in fields(plain)]


@pytest.mark.parametrize("values", [{"a": 2}, {"b": "c"}, {"c": [1]}, {"e": 1.0}, {"d": {}}])
def test_two_are_the_same_where_a_dataclass_says_so(values: dict[str, Any]) -> None:
    same = replace(Plain(1), **values) == Plain(1)
    assert (replace(Late(1), **values) == Late(1)) is same


@pytest.mark.parametrize(
    ("given", "named"), [((), {}), ((1, "b", [], None, 5), {}), ((1,), {"z": 1}), ((1,), {"f": 1})]
)
def test_what_does_not_fit_is_an_error_that_names_the_class(
    given: tuple[Any, ...], named: dict[str, Any]
) -> None:
    for kind in (Plain, Late):
        for _ in range(2):  # before and after there is an `__init__`
            with pytest.raises(TypeError, match=rf"{kind.__name__}\.__init__\(\)"):
                kind(*given, **named)


def test_each_has_a_default_of_its_own() -> None:
    assert Late(1).c is not Late(1).c
    assert Late(1).h is not Late(1).h


def test_it_is_frozen_and_has_no_other_attributes() -> None:
    one: Any = Late(1)
    for name in ("a", "other"):
        with pytest.raises(FrozenInstanceError, match=name):
            setattr(one, name, 2)
    with pytest.raises(FrozenInstanceError):
        del one.a
    assert not hasattr(one, "__dict__")


def test_a_derived_one_has_the_fields_of_both() -> None:
    assert Derived(1) == Derived(1, 3, 4)
    assert repr(Derived(1)) == "Derived(a=1, b=3, c=4)"
    assert Base(1) == Base(1, 2)
    base: object = Base(1, 3)
    assert base != Derived(1)


def test_what_the_class_says_itself_counts() -> None:
    assert Own(a=1, b=2) == Own(a=1, b=3)
    assert repr(Own(a=1, b=2)) == "mine"
    assert Itself(1) != Itself(1)
    assert weakref.ref(one := Itself(1))() is one
    assert Empty() == Empty()
    assert hash(Empty()) == hash(())


def test_it_is_replaced_copied_pickled_and_matched() -> None:
    one = Late(1, c=[1, 2], e=3.0)
    assert replace(one, a=2) == Late(2, c=[1, 2], e=3.0)
    for again in (copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert type(again) is Late
        assert asdict(again) == asdict(one)
    match one:
        case Late(a, b):
            assert (a, b) == (1, "b")


def test_nothing_is_compiled_where_the_class_is_defined(monkeypatch: pytest.MonkeyPatch) -> None:
    """From Python 3.13 on `dataclass` compiles a function that makes none; it is no method of the class."""
    methods = list[str]()

    def watched(source: str, *given: Any) -> None:
        methods.extend(re.findall(r"def (__\w+__)\(", source))
        compile_it(source, *given)

    compile_it = builtins.exec
    monkeypatch.setattr("builtins.exec", watched)

    @frozen
    class New:
        a: int
        b: int = 1

    assert set(methods) <= {"__create_fn__"}
    New(1)
    assert [name for name in methods if name != "__create_fn__"] == ["__init__"]
