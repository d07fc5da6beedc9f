"""Advice on pools: first in the list of the tuners, and a page with each replica's own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from enginetop.fleet.change import ChangeState
from enginetop.fleet.model import Role
from enginetop.fleet.snapshot import Advice, FleetSnapshot, PoolAdvice
from tests.tui.changes import changed
from tests.tui.snapshots import fleet, replica
from tui.view.cells import line_text, line_width
from tui.view.picture import Picture
from tui.view.pool import pool_change, pool_key, pool_lines
from tui.view.rows import Rows
from tui.view.tuners import Listed, tuners_rows

LOWER = Advice(
    "max_num_batched_tokens", "lower", ("TPOT p95 61 ms breaks the 50 ms SLO", "wrong if prompts grow"),
    8192, 6144, expected={"tpot_p95_seconds_low": 0.046, "tpot_p95_seconds_high": 0.05}, confidence="high",
    apply="live",
)  # fmt: skip
HOLD = Advice("max_num_seqs", "hold", ("41 of 256 seats are taken",), 256)
MIXED = Advice("num_speculative_tokens", "withheld", ("mixed configuration: 0 on 1, 3 on 1",))
MEMBERS = (replica("a1", advice=(LOWER, HOLD)), replica("a2", advice=(replace(LOWER, proposed=4096), HOLD)))
URLS = tuple(member.target.url for member in MEMBERS)
POOL = PoolAdvice("Llama-3.3-70B", Role.DECODE, URLS, (HOLD, LOWER, MIXED))
QUIET = PoolAdvice("Qwen3-32B", Role.PREFILL, ("http://q",), (HOLD,))


def snapshot(*pools: PoolAdvice) -> FleetSnapshot:
    return replace(fleet(MEMBERS), pools=pools)


def texts(width: int = 80, only: str | None = None) -> tuple[Rows[Listed], list[str]]:
    table = tuners_rows(Picture(snapshot(QUIET, POOL)), width, only)
    return table, [line_text(table.line(index)).rstrip() for index in range(len(table))]


def test_pools_come_before_single_replicas() -> None:
    table, lines = texts()
    assert lines[0].startswith(" pools ──")
    assert lines[1].startswith(
        " Llama-3.3-70B · decode ×2        lower   max_num_batched_tokens 8192 → 6144  l"
    )
    assert lines[2] == "   TPOT p95 61 ms breaks the 50 ms SLO"
    assert lines[3] == " Qwen3-32B · prefill ×1           no change for all of it"
    assert lines[4].startswith(" suggestions for single replicas ──")
    key = table.key(1)
    assert key is not None
    assert table.about(key) is POOL
    assert table.about(table.key(3) or "") is QUIET
    assert table.about("suggestion x") is None
    assert [table.is_row(index) for index in range(4)] == [False, True, False, True]


def test_pools_without_a_change_come_after_single_replicas() -> None:
    table = tuners_rows(Picture(snapshot(QUIET)), 80)
    lines = [line_text(table.line(index)).rstrip() for index in range(len(table))]
    assert lines[0].startswith(" suggestions ──")
    assert lines[1].startswith(" a1 ")
    assert [line.split()[0] for line in lines[5:7]] == ["pools", "Qwen3-32B"]


def test_of_one_replica_only_its_own_pool_is_shown() -> None:
    _, lines = texts(only=URLS[0])
    assert any("Llama-3.3-70B · decode" in line for line in lines)
    assert not any("Qwen3-32B" in line for line in lines)


def test_a_pool_knob_by_knob_with_who_is_advised_otherwise() -> None:
    lines = [
        line_text(line).rstrip() for line in pool_lines(Picture(snapshot(POOL), read_only=False), POOL, 80)
    ]
    assert lines[0] == " max_num_batched_tokens  8192 → 6144  lower · high confidence"
    assert lines[1] == " because     TPOT p95 61 ms breaks the 50 ms SLO"
    assert lines[2] == " expect      TPOT p95 46–50 ms"
    assert lines[3] == " wrong if    prompts grow"
    assert lines[4:7] == [
        " to do it    esc, then enter and A on one of its replicas under `suggestions",
        "             for single replicas`: it is tried there first, and the pool",
        "             follows if it does well",
    ]
    assert lines[7].startswith(" each        a2           lower 8192 → 4096  TPOT p95 61 ms")
    assert lines[8].strip() == "1 of 2 are advised the same by themselves"
    assert " max_num_seqs  stays at 256  hold" in lines
    assert " num_speculative_tokens  withheld" in lines
    assert lines.index(" max_num_seqs  stays at 256  hold") > 5  # what changes something comes first


def test_who_cannot_or_should_not_do_it_now_is_not_told_how() -> None:
    trial = changed(canary_target=URLS[0], promote_targets=(URLS[1],), knob=LOWER.knob)
    watched = Picture(snapshot(POOL))
    tried = Picture(snapshot(POOL), changes=(trial,), read_only=False)
    for picture in (watched, tried):
        lines = [line_text(line).rstrip() for line in pool_lines(picture, POOL, 110)]
        assert not any(line.startswith(" to do it") for line in lines)
        on_trial = " on trial    change 7f3a of it is under way here (OBSERVE 11 of 30)"
        assert (on_trial in lines) is (picture is tried)


def test_while_a_change_is_on_trial_in_the_pool_nobody_is_told_to_level_it() -> None:
    trial = changed(canary_target=URLS[0], promote_targets=(URLS[1],), knob=MIXED.knob)
    picture = Picture(snapshot(POOL), changes=(trial,))
    lines = [line_text(line).rstrip() for line in pool_lines(picture, POOL, 80)]
    told = lines[lines.index(" num_speculative_tokens  withheld") + 1 :]
    assert told[:2] == [
        " because     change 7f3a of it is under way here (OBSERVE 11 of 30); the pool",
        "             is advised on again when it is over",
    ]
    assert not any("mixed configuration" in line for line in lines)
    # of another knob, of another pool, or over: nothing is on trial
    for other in (
        replace(trial, knob="max_num_seqs"),
        replace(trial, canary_target="http://z", promote_targets=()),
        replace(trial, state=ChangeState.DONE),
    ):
        lines = [line_text(line) for line in pool_lines(replace(picture, changes=(other,)), POOL, 110)]
        assert any("mixed configuration" in line for line in lines)


@pytest.mark.parametrize(
    ("knob", "current", "said"),
    [
        ("thinking_token_budget", -1.0, "stays at no limit"),
        ("thinking_token_budget", 0.0, "stays at 0"),
        ("thinking_token_budget", 4096.0, "stays at 4096"),
        ("num_speculative_tokens", 0.0, "stays at 0"),
        ("max_num_seqs", 256.0, "stays at 256"),
    ],
)
def test_what_minus_one_means_is_said(knob: str, current: float, said: str) -> None:
    assert pool_change(Advice(knob, "hold", ("because",), current)) == said


def test_a_first_budget_is_a_change_from_no_limit() -> None:
    lower = Advice("thinking_token_budget", "lower", ("because",), -1, proposed=1280)
    assert pool_change(lower) == "no limit → 1280"


def test_a_pool_that_is_gone_and_no_line_too_wide() -> None:
    picture = Picture(snapshot(POOL))
    assert "gone" in line_text(pool_lines(picture, None, 80)[0])
    assert pool_key(POOL) != pool_key(QUIET)
    for width in range(20, 301, 7):
        table = tuners_rows(picture, width)
        lines = [table.line(index, selected=True) for index in range(len(table))]
        for line in (*lines, *pool_lines(picture, POOL, width)):
            assert line_width(line) <= width
