"""Versions, leases, renewals, spacing and the way back, on a clock of our own."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from enginetop_companion.board import Answer, Board
from enginetop_companion_vllm.knobs import knobs_of
from tests.companion.fakes import FakeCore, FakeScheduler, config_of

BUDGET = "max_num_batched_tokens"


def board(core: FakeCore | None = None) -> tuple[Board, FakeScheduler]:
    core = core or FakeCore()
    limits, knobs = knobs_of(core)
    return Board(knobs, limits.floors), core.scheduler


def ask(
    on: Board,
    now: float,
    value: int,
    version: int | None,
    ttl: float | None = 180.0,
    *,
    knob: str = BUDGET,
    change: str = "a",
    ticket: str = "t",
) -> Answer:
    asked = {"knob": knob, "value": value, "if_version": version, "ttl_seconds": ttl}
    return on.change(asked | {"change": change, "ticket": ticket}, now)


def row(on: Board, now: float, knob: str = BUDGET) -> dict[str, Any]:
    return next(one for one in on.rows(now) if one["name"] == knob)


def test_a_change_and_its_row() -> None:
    on, scheduler = board()
    answer = ask(on, 10.0, 128, 0)
    assert answer.status == 200
    assert answer.body == {
        "name": BUDGET,
        "value": 128,
        "start": 512,
        "min": 80,
        "max": 512,
        "unit": "tokens",
        "version": 1,
        "expires_in_seconds": 180.0,
        "note": "",
    }
    assert scheduler.max_num_scheduled_tokens == 128
    assert row(on, 70.0)["expires_in_seconds"] == 120.0


def test_nobody_renews_and_it_goes_back() -> None:
    on, scheduler = board()
    ask(on, 0.0, 128, 0, 60.0)
    assert on.next_deadline() == 60.0
    assert on.expire(59.9) == []
    assert on.expire(60.0) == [BUDGET]
    assert scheduler.max_num_scheduled_tokens == 512
    assert (row(on, 60.0)["version"], row(on, 60.0)["expires_in_seconds"]) == (2, None)
    assert on.next_deadline() is None


def test_a_renewal_moves_the_lease_and_nothing_else() -> None:
    on, _ = board()
    ask(on, 0.0, 128, 0, 60.0)
    renewed = ask(on, 1.0, 128, 1, 60.0)  # sooner than changes may follow each other
    assert (renewed.status, renewed.body["version"], renewed.body["expires_in_seconds"]) == (200, 1, 60.0)
    assert on.expire(60.5) == []
    assert on.expire(61.0) == [BUDGET]


def test_a_renewal_after_the_end_is_a_conflict() -> None:
    on, scheduler = board()
    ask(on, 0.0, 128, 0, 60.0)
    on.expire(60.0)
    late = ask(on, 60.1, 128, 1, 60.0)
    assert (late.status, late.body["version"], late.body["value"]) == (409, 2, 512)
    assert scheduler.max_num_scheduled_tokens == 512


def test_the_same_value_from_another_change_is_a_change() -> None:
    on, _ = board()
    ask(on, 0.0, 128, 0, 60.0)
    other = ask(on, 5.0, 128, 1, 60.0, change="b")
    assert other.body["version"] == 2
    assert ask(on, 6.0, 128, 1, 60.0, change="a").status == 409


def test_leases_upon_leases_lead_back_to_what_stood() -> None:
    on, scheduler = board()
    ask(on, 0.0, 256, 0, 60.0)
    ask(on, 10.0, 128, 1, 60.0, change="b")
    assert on.expire(60.0) == []  # the first lease is no longer in force
    on.expire(70.0)
    assert scheduler.max_num_scheduled_tokens == 512


def test_null_makes_it_stay() -> None:
    on, scheduler = board()
    ask(on, 0.0, 128, 0, 60.0)
    kept = ask(on, 30.0, 128, 1, None)
    assert (kept.body["expires_in_seconds"], kept.body["version"]) == (None, 1)
    assert on.expire(1e9) == []
    ask(on, 100.0, 256, 1, 10.0, change="b")
    on.expire(110.0)
    assert scheduler.max_num_scheduled_tokens == 128  # what stood last, not the start value


def test_wrong_version_and_out_of_bounds_change_nothing() -> None:
    on, scheduler = board()
    for value, version, status in ((128, 7, 409), (79, 0, 422), (513, 0, 422), (0, 0, 422), (-1, 0, 422)):
        refused = ask(on, 0.0, value, version)
        assert refused.status == status
        assert (refused.body["min"], refused.body["max"], refused.body["version"]) == (80, 512, 0)
    assert ask(on, 0.0, 1, 0, knob="max_num_running_reqs").status == 404
    assert scheduler.max_num_scheduled_tokens == 512
    assert ask(on, 0.0, 80, None).status == 200  # no version asked for: whatever it is at


def test_changes_keep_their_distance_and_the_way_back_is_open() -> None:
    on, _ = board()
    ask(on, 0.0, 256, 0)
    soon = ask(on, 0.5, 128, 1)
    assert (soon.status, soon.body["retry_after_seconds"], soon.body["value"]) == (429, 1.5, 256)
    assert ask(on, 0.5, 8, 0, knob="max_num_seqs").status == 200  # each knob by itself
    assert ask(on, 0.6, 512, 1).status == 200
    assert ask(on, 3.0, 128, 2).status == 200
    assert on.reset(BUDGET, 3.1).body["value"] == 512


def test_reset_takes_no_lease_with_it() -> None:
    on, scheduler = board()
    ask(on, 0.0, 128, 0, 60.0)
    answer = on.reset(BUDGET, 1.0)
    assert (answer.body["value"], answer.body["version"], answer.body["expires_in_seconds"]) == (512, 2, None)
    assert on.reset(BUDGET, 2.0).body["version"] == 2  # nothing to do: nothing counted
    assert on.reset("nothing", 2.0).status == 404
    assert scheduler.max_num_scheduled_tokens == 512


def test_a_return_that_needs_more_room_lifts_the_budget() -> None:
    on, scheduler = board()
    ask(on, 0.0, 8, 0, 60.0, knob="max_num_seqs")
    ask(on, 1.0, 40, 0, 600.0)  # 8 x 5
    on.expire(60.0)
    assert scheduler.max_num_active_reqs == 16
    assert scheduler.max_num_scheduled_tokens == 80  # 16 x 5
    assert row(on, 60.0)["version"] == 2
    on.expire(601.0)
    assert scheduler.max_num_scheduled_tokens == 512


def test_undo_leaves_no_trace() -> None:
    on, scheduler = board()
    ask(on, 0.0, 256, 0, 60.0, ticket="first")
    before = row(on, 5.0)
    ask(on, 5.0, 128, 1, 60.0, ticket="second", change="b")
    on.undo(BUDGET, "second", 5.0)
    assert row(on, 5.0) == before
    assert scheduler.max_num_scheduled_tokens == 256
    assert ask(on, 5.0, 128, 1, 60.0).status == 200  # what was undone keeps nobody waiting
    on.undo(BUDGET, "second", 6.0)  # twice, and too late
    assert scheduler.max_num_scheduled_tokens == 128


def test_undo_of_a_renewal_keeps_the_older_lease() -> None:
    on, _ = board()
    ask(on, 0.0, 128, 0, 60.0, ticket="first")
    ask(on, 30.0, 128, 1, 60.0, ticket="second")
    on.undo(BUDGET, "second", 31.0)
    assert (row(on, 31.0)["version"], row(on, 31.0)["expires_in_seconds"]) == (1, 29.0)


def test_hold_gives_the_real_lease_unless_something_came_between() -> None:
    on, _ = board()
    ask(on, 0.0, 128, 0, 15.0, ticket="t")
    assert on.hold(BUDGET, "t", 180.0, 1.0).body["expires_in_seconds"] == 180.0
    on.reset(BUDGET, 2.0)
    assert on.hold(BUDGET, "t", 180.0, 3.0).status == 409


NAMES = [
    BUDGET,
    "max_num_seqs",
    "num_speculative_tokens",
    "long_prefill_token_threshold",
    "thinking_token_budget",
    "kv_watermark_blocks",
    "max_num_queued_reqs",
]
SIZES = (BUDGET, "max_num_seqs", "num_speculative_tokens")
"""What is never above its start value."""
MOVES = st.one_of(
    st.tuples(
        st.just("change"),
        st.sampled_from(NAMES),
        st.integers(-2, 600),
        st.sampled_from([1.0, 7.0, 30.0]),
        st.sampled_from("ab"),
    ),
    st.tuples(st.just("reset"), st.sampled_from(NAMES)),
    st.tuples(st.just("wait"), st.floats(0.1, 40.0)),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(MOVES, max_size=30), st.booleans())
def test_whatever_happens(moves: list[Any], split: bool) -> None:
    scheduler = FakeScheduler(seqs=8, drafts=3, budget=256, model_len=400)
    scheduler.scheduler_config.enable_chunked_prefill = split
    on, _ = board(FakeCore(scheduler, config_of(reasoning=True)))
    start = {one["name"]: one["value"] for one in on.rows(0.0)}
    now, versions = 0.0, dict.fromkeys(start, 0)
    for move in moves:
        if move[0] == "change":
            _, name, value, ttl, change = move
            before = row(on, now, name)
            answer = ask(on, now, value, before["version"], ttl, knob=name, change=change)
            if answer.status == 200:
                assert answer.body["value"] == value
            else:
                assert row(on, now, name) == before
        elif move[0] == "reset":
            assert on.reset(move[1], now).body["value"] == start[move[1]]
        else:
            now += move[1]
            on.expire(now)
        rows = {one["name"]: one for one in on.rows(now)}
        for name, one in rows.items():
            assert one["version"] >= versions[name]
            versions[name] = one["version"]
            assert name not in SIZES or one["value"] <= start[name]
        need = rows["max_num_seqs"]["value"] * (1 + rows["num_speculative_tokens"]["value"]) + (
            0 if split else 400
        )
        assert rows[BUDGET]["value"] >= min(need, 256)
        assert scheduler.max_num_scheduled_tokens == rows[BUDGET]["value"]
        assert scheduler.drafts_of(8) == rows["num_speculative_tokens"]["value"]
    on.expire(now + 1000.0)
    assert {one["name"]: one["value"] for one in on.rows(now + 1000.0)} == start
