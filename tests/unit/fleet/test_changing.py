"""Objects with some fields changed, the quick way."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import pytest

from enginetop.fleet.changing import changed
from enginetop.fleet.snapshot import Advice, Goodput, ReplicaSnapshot
from tests.tui.snapshots import replica


@dataclass(frozen=True, slots=True)
class Pair:
    left: int
    right: str = "r"


def test_it_is_another_object_with_the_fields_asked_for() -> None:
    before = Pair(1)
    assert changed(before, left=2) == Pair(2, "r")
    assert before == Pair(1, "r")


def test_a_name_that_is_no_field_is_refused() -> None:
    with pytest.raises(KeyError, match="middle"):
        changed(Pair(1), middle=2)


def test_it_does_what_replace_does_to_all_of_a_replica() -> None:
    one, rows = replica("a"), (Advice("max_num_seqs", "hold", ("why",)),)
    ours, theirs = changed(one, advice=rows, bad_lines=7), replace(one, advice=rows, bad_lines=7)
    for field in fields(ReplicaSnapshot):
        assert getattr(ours, field.name) is getattr(theirs, field.name)


@pytest.mark.parametrize("kind", [Goodput, ReplicaSnapshot])
def test_the_classes_it_is_used_for_take_their_fields_as_arguments(kind: type) -> None:
    assert all(field.init and not field.kw_only for field in fields(kind))
