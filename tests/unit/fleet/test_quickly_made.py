"""Objects that are made in another way are what they were."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, dataclass, field, replace
from typing import Any

import pytest

from enginetop.fleet.quickly_made import quickly_made


@dataclass(frozen=True, slots=True)
class Plain:
    a: int
    b: str = "b"
    c: list[int] = field(default_factory=list)
    d: Mapping[str, int] | None = None


@quickly_made
class Quick:
    a: int
    b: str = "b"
    c: list[int] = field(default_factory=list)
    d: Mapping[str, int] | None = None

    @property
    def twice(self) -> int:
        return 2 * self.a


@quickly_made(eq=False)
class Same:
    a: int
    b: int = 2


@pytest.mark.parametrize(
    ("given", "named"),
    [((1,), {}), ((1, "x"), {"d": {"k": 1}}), ((), {"a": 3, "c": [1]}), ((1, "x", [2], None), {})],
)
def test_fields_are_as_a_dataclass_has_them(given: tuple[Any, ...], named: dict[str, Any]) -> None:
    plain, quick = Plain(*given, **named), Quick(*given, **named)
    assert type(quick) is Quick
    assert repr(quick) == repr(plain).replace("Plain", "Quick")
    assert quick == Quick(*given, **named)
    other: object = plain
    assert quick != other
    assert quick.twice == 2 * plain.a


def test_each_has_a_default_of_its_own() -> None:
    assert Quick(1).c is not Quick(1).c


@pytest.mark.parametrize(("given", "named"), [((), {}), ((1, "b", [], None, 5), {}), ((1,), {"e": 1})])
def test_what_does_not_fit_is_an_error(given: tuple[Any, ...], named: dict[str, Any]) -> None:
    for kind in (Plain, Quick):
        with pytest.raises(TypeError):
            kind(*given, **named)


def test_it_is_frozen_and_has_no_other_attributes() -> None:
    one: Any = Quick(1)
    for name in ("a", "other"):
        with pytest.raises((FrozenInstanceError, TypeError)):
            setattr(one, name, 2)
    with pytest.raises(FrozenInstanceError):
        del one.a
    assert not hasattr(one, "__dict__")


def test_it_is_compared_and_hashed_by_what_its_class_says() -> None:
    assert Same(1) != Same(1)
    assert len({Same(1), Same(1)}) == 2
    assert Quick(1, c=[1]) == Quick(1, c=[1])
    with pytest.raises(TypeError):
        hash(Quick(1))  # of its list, as a dataclass does


def test_it_is_replaced_copied_and_pickled() -> None:
    one = Quick(1, c=[1, 2])
    assert replace(one, a=2) == Quick(2, c=[1, 2])
    for again in (copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert type(again) is Quick
        assert again == one


def test_other_classes_are_refused() -> None:
    class Derived(Same):
        c: int

    class Named:
        a: int
        b: int = field(kw_only=True)

    class Single:
        a: int

    class Looking:
        a: int
        b: int

        def __post_init__(self) -> None:
            pass

    for kind in (Derived, Named, Single, Looking):
        with pytest.raises(TypeError, match=kind.__name__):
            quickly_made(kind)
