"""Advice on a pool: agreement, dissent, mixed configurations."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginetop.fleet.document import pool_document
from enginetop.fleet.model import EngineKind, ReplicaState, Role
from enginetop.fleet.signals import KNOBS
from enginetop.fleet.snapshot import Advice, ReplicaSnapshot
from tests.tui.snapshots import replica
from tuners.pool_advice import pool_advice

KNOB = "max_num_seqs"


def member(name: str, row: Advice, state: ReplicaState = ReplicaState.OK) -> ReplicaSnapshot:
    """A replica whose other knobs have nothing to say."""
    rows = tuple(row if knob == row.knob else Advice(knob, "hold", ("fine",), 1.0) for knob in KNOBS)
    return replace(replica(name, state), advice=rows)


def lower(to: float, confidence: str = "medium", current: float = 64, apply: str = "live") -> Advice:
    via = "knob_api" if apply == "live" else ""
    return Advice(KNOB, "lower", (f"{to:g} fit",), current, to, "kv", {}, confidence, apply, via)


def hold(current: float = 64) -> Advice:
    return Advice(KNOB, "hold", ("nothing is preempted",), current)


def row(*members: ReplicaSnapshot) -> Advice:
    (pool,) = pool_advice(members)
    assert pool.replicas == tuple(one.target.url for one in members)
    return next(found for found in pool.advice if found.knob == KNOB)


def test_what_most_call_for_as_far_as_the_most_careful_goes() -> None:
    found = row(member("a", lower(50)), member("b", lower(57, "low")), member("c", hold()))
    assert (found.action, found.current, found.proposed, found.confidence) == ("lower", 64, 57, "low")
    assert found.because == ("2 of 3 fresh replicas call for it, 50 to 57", "57 fit")
    assert (found.apply, found.via) == ("live", "knob_api")


def test_a_raise_goes_up_least() -> None:
    rows = [replace(lower(to), action="raise") for to in (80, 96)]
    assert row(member("a", rows[0]), member("b", rows[1])).proposed == 80


def test_one_of_many_is_a_matter_of_routing() -> None:
    found = row(member("a", lower(50)), member("b", hold()), member("c", hold()), member("d", hold()))
    assert (found.action, found.proposed) == ("hold", None)
    assert found.because == ("a calls for lower, 3 of 4 do not: look at the routing, not at the knob",)
    half = row(member("a", lower(50)), member("b", hold()))
    assert half.action == "hold"


@pytest.mark.parametrize(
    ("holding", "silent", "action"),
    [(1, 1, "withheld"), (0, 2, "withheld"), (2, 1, "hold"), (2, 2, "withheld"), (3, 2, "hold")],
)
def test_who_says_nothing_yet_does_not_speak_for_the_routing(holding: int, silent: int, action: str) -> None:
    young = Advice(KNOB, "withheld", ("TPOT is slow", "seen for 22 s"), 64)
    others = [member(f"h{number}", hold()) for number in range(holding)]
    others += [member(f"s{number}", young) for number in range(silent)]
    found = row(member("a", lower(50)), *others)
    assert (found.action, found.proposed, found.current) == (action, None, 64)
    if action == "withheld":
        open_question = f"a calls for lower, {silent} of {holding + silent + 1} cannot be judged yet"
        assert found.because == (open_question, "seen for 22 s")
    else:
        assert "routing" in found.because[0]


def test_different_values_are_levelled_first() -> None:
    found = row(member("a", lower(50)), member("b", lower(50, current=32)), member("c", hold()))
    assert (found.action, found.because) == (
        "withheld",
        ("mixed configuration: 64 on 2, 32 on 1; level it first",),
    )


def test_only_fresh_replicas_have_a_say() -> None:
    away = member("c", Advice(KNOB, "withheld", ("down",)), ReplicaState.DOWN)
    assert row(member("a", lower(50)), member("b", lower(50)), away).because[0].startswith("2 of 2 fresh")
    found = row(away, member("d", Advice(KNOB, "withheld", ("down",)), ReplicaState.STALE))
    assert found.because == ("none of 2 replicas has fresh numbers",)


def test_a_way_that_not_all_have_is_none() -> None:
    found = row(member("a", lower(50)), member("b", lower(50, apply="restart")))
    assert (found.apply, found.via) == ("restart", "")


def test_pools_are_by_model_and_role_and_have_no_routers() -> None:
    members = [
        member("a", hold()),
        replace(member("b", hold()), role=Role.PREFILL),
        replace(member("c", hold()), engine=EngineKind.ROUTER, advice=()),
        replace(member("d", hold()), model="another"),
    ]
    assert pool_advice(members) == ()
    found = pool_advice([*members, member("e", hold())])
    assert [pool.replicas for pool in found] == [(members[0].target.url, "http://e.example:8000")]
    assert set(pool_document(found[0])) == {"model", "role", "replicas", "advice"}


@given(st.permutations([50, 57, 57, 64, 32]))
def test_the_order_of_replicas_does_not_matter(proposals: list[int]) -> None:
    members = [member(str(i), lower(to)) for i, to in enumerate(proposals)]
    found = row(*members)
    assert (found.proposed, found.because[0]) == (64, "5 of 5 fresh replicas call for it, 32 to 64")
