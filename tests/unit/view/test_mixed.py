"""Replicas of one pool that are not set up alike."""

from __future__ import annotations

from typing import Any

from enginetop.fleet.model import EngineKind, Role
from enginetop.fleet.reading import ConfigValue
from enginetop.fleet.snapshot import ReplicaSnapshot
from tests.tui.snapshots import fleet, replica
from tui.view.arrange import Sort
from tui.view.cells import line_text
from tui.view.condition import conditions_of
from tui.view.mixed import MixedMemory
from tui.view.query import Query
from tui.view.table import FleetTable


def member(name: str, seqs: int | None, **fields: Any) -> ReplicaSnapshot:
    config = {} if seqs is None else {"max_num_seqs": ConfigValue(seqs, "/server_info")}
    return replica(name, config=config, **fields)


def url(name: str) -> str:
    return f"http://{name}.example:8000"


def test_who_differs_from_most_of_its_pool_is_marked() -> None:
    members = [member("a", 64), member("b", 64), member("c", 32), member("d", None)]
    mixed = MixedMemory().mixed(members)
    assert mixed.settings == {url("c"): ("max_num_seqs",)}
    assert mixed.words_of(members[0]) == "max_num_seqs 64 ×2, 32 ×1"


def test_where_two_values_are_even_both_are_marked() -> None:
    mixed = MixedMemory().mixed([member("a", 64), member("b", 32)])
    assert set(mixed.settings) == {url("a"), url("b")}


def test_other_pools_may_differ() -> None:
    members = [
        member("a", 64),
        member("b", 32, role=Role.PREFILL),
        member("c", 16, model="Qwen3-32B"),
        member("d", 8, engine=EngineKind.SGLANG),
    ]
    mixed = MixedMemory().mixed(members)
    assert mixed.settings == {}
    assert mixed.words_of(members[0]) == ""


def test_another_engine_version_is_a_difference() -> None:
    members = [member("a", 64), member("b", 64), member("c", 64, engine_version="0.34.0")]
    mixed = MixedMemory().mixed(members)
    assert mixed.settings == {url("c"): ("version",)}
    assert mixed.words_of(members[2]) == "version 0.33.0 ×2, 0.34.0 ×1"


def test_what_changes_is_compared_anew() -> None:
    memory = MixedMemory()
    members = [member("a", 64), member("b", 64), member("c", 64)]
    assert memory.mixed(members).settings == {}
    changed = [*members[:2], member("c", 128)]
    assert memory.mixed(changed).settings == {url("c"): ("max_num_seqs",)}
    assert memory.mixed(changed) is memory.mixed(list(changed))
    moved = [*changed[:2], member("c", 128, role=Role.PREFILL)]
    assert memory.mixed(moved).settings == {}
    assert memory.mixed([*members[:1], member("b", 32)]).settings.keys() == {url("a"), url("b")}
    assert memory.mixed(members[:1]).settings == {}


def test_the_grid_marks_the_row_and_tells_it_in_the_group() -> None:
    snapshot = fleet([member("a1", 64), member("a2", 64), member("a-long-name", 32)])
    shown = FleetTable(snapshot, conditions_of(snapshot), width=80, sort=Sort(), query=Query())
    header, first, _, third = (line_text(shown.line(index)) for index in range(4))
    assert header.startswith(" Llama-3.3-70B · decode ×3 · ≠ max_num_seqs 64 ×2, 32 ×1 ───")
    assert first.startswith(" a1           ● ok")
    assert third.startswith(" a-long-name≠ ● ok")


def test_where_there_is_room_a_mark_costs_no_letter_of_a_name() -> None:
    name = "127.0.0.1:37667"
    snapshot = fleet([member("a1", 64), member("a2", 64), member(name, 32)])
    shown = FleetTable(snapshot, conditions_of(snapshot), width=200, sort=Sort(), query=Query())
    assert line_text(shown.line(3)).startswith(f" {name}≠ ● ok")
