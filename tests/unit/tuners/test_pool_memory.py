"""Pool advice over stories of pages: what is said does not flap."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from enginetop.fleet.model import Role
from enginetop.fleet.snapshot import Advice, PoolAdvice
from tuners.pool_memory import PoolMemory

KNOB = "max_num_seqs"
HOLD = Advice(KNOB, "hold", ("nothing is preempted",), 64)
MIXED = Advice(KNOB, "withheld", ("mixed configuration",))
PAGE_SECONDS = 10.0


def lower(to: float = 50) -> Advice:
    return Advice(KNOB, "lower", ("2 of 3 fresh replicas call for it",), 64, to, "kv", {}, "medium")


def pool(row: Advice, model: str = "m") -> PoolAdvice:
    return PoolAdvice(model, Role.AGGREGATED, ("http://a", "http://b"), (row,))


def told(rows: Iterable[Advice], memory: PoolMemory | None = None) -> list[Advice]:
    """What is said of one page after the other, ten seconds apart."""
    memory = memory or PoolMemory()
    return [memory.settled([pool(row)], place * PAGE_SECONDS)[0].advice[0] for place, row in enumerate(rows)]


def test_a_call_has_to_last_for_a_minute() -> None:
    found = told([HOLD, *[lower()] * 7])
    assert [row.action for row in found] == ["hold", *["withheld"] * 6, "lower"]
    assert found[3].because == (
        "2 of 3 fresh replicas call for it",
        "seen for 20 s, a suggestion needs 60 s",
    )
    assert found[-1] == lower()


def test_a_clock_that_is_set_back_neither_holds_up_nor_keeps() -> None:
    memory = PoolMemory()
    memory.settled([pool(lower())], 3600.0)
    assert [row.action for row in told([lower()] * 7, memory)] == [*["withheld"] * 6, "lower"]
    memory.settled([pool(lower())], 3600.0)
    assert [row.action for row in told([HOLD] * 7, memory)] == [*["lower"] * 6, "hold"]


def test_alternating_pages_never_begin_a_suggestion() -> None:
    assert {row.action for row in told([lower(), HOLD] * 50)} == {"withheld", "hold"}


def test_alternating_pages_do_not_take_one_back() -> None:
    found = told([*[lower()] * 7, *[HOLD, lower(48)] * 50])
    assert {row.action for row in found[6:]} == {"lower"}
    # the newest figures are told, also on a page that calls for nothing
    assert [row.proposed for row in found[6:10]] == [50, 50, 48, 48]


def test_what_is_not_called_for_any_more_is_taken_back_after_a_minute() -> None:
    found = told([*[lower()] * 7, *[HOLD] * 8, lower()])
    assert [row.action for row in found[7:]] == [*["lower"] * 5, *["hold"] * 3, "withheld"]


def test_another_value_ends_it_at_once() -> None:
    for end in (MIXED, Advice(KNOB, "hold", ("fine",), 50)):
        assert told([*[lower()] * 7, end])[-1] is end
    changed = Advice(KNOB, "lower", ("still",), 50, 40, "kv")
    assert told([*[lower()] * 7, changed])[-1].action == "withheld"
    raised = Advice(KNOB, "raise", ("queues",), 64, 80, "sequences")
    assert told([*[lower()] * 7, raised])[-1].action == "withheld"


def test_pools_do_not_mix_and_are_forgotten() -> None:
    memory = PoolMemory()
    told([lower()] * 7, memory)
    other = memory.settled([pool(lower(), "other"), pool(lower())], 70.0)
    assert [one.advice[0].action for one in other] == ["withheld", "lower"]
    memory.settled([pool(lower(), "other")], 80.0)
    assert memory.settled([pool(lower())], 90.0)[0].advice[0].action == "withheld"


@settings(max_examples=50, deadline=None)
@given(st.lists(st.booleans(), min_size=2, max_size=60))
def test_a_suggestion_stays_for_a_minute_at_least(calls: list[bool]) -> None:
    said = [row.action == "lower" for row in told(lower() if call else HOLD for call in calls)]
    turns = [place for place, (before, after) in enumerate(pairwise(said), 1) if before != after]
    assert all(later - earlier >= 60 / PAGE_SECONDS for earlier, later in pairwise(turns))
