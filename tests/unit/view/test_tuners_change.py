"""A change under way, a suggestion and the past, line by line."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginetop.fleet.change import FINAL_STATES, Arm, AuditRow, ChangeState, Guard, Proposal, Verdict
from enginetop.fleet.model import Target
from enginetop.fleet.snapshot import Slo
from tests.tui.changes import HISTORY, KNOB, OBSERVED, PAST, PROPOSAL, changed, pool, row, url
from tests.tui.snapshots import AT, censored, distribution, down_replica, fleet, replica
from tui.view.cells import line_text, line_width
from tui.view.change import change_lines, change_title
from tui.view.change_words import expiry_text, soak_text, time_left
from tui.view.numbers import between, fine_percent, knob
from tui.view.past import past_changes, past_lines, past_rows, past_title
from tui.view.picture import Picture
from tui.view.suggestion import Plan, proposal_lines, suggestion_lines, suggestion_title
from tui.view.title import title_line
from tui.view.undo import can_roll_back, leave_question, undo_of, undo_question
from tui.view.verdict import verdict_line

SLO = Slo(ttft_seconds=0.6, tpot_seconds=0.05)
FLEET = fleet([replace(one, slo=SLO) for one in pool()])
PICTURE = Picture(FLEET, title="prod-eu", changes=(OBSERVED,), read_only=False)


def told(lines: list) -> list[str]:  # type: ignore[type-arg]
    return [line_text(line).rstrip() for line in lines]


def test_a_change_under_way_at_80_columns_by_hand() -> None:
    assert told(change_lines(PICTURE, OBSERVED, 80)) == [
        " max_num_batched_tokens  8192 → 6144  on b1, then b2 b3 b4",
        " block 11 of 30 · about 19 min left",
        " goes back by itself in 2m40s unless renewed",
        " observing; effect seen: 1200 steps of 4100 tokens in the mean",
        "",
        "                canary b1             baseline b2 b3",
        " SLO attainment 94.1 % of 2642        88.0 % of 5455        judged at the end",
        " TTFT p95       250 ms                278–281 ms            SLO 600 ms",
        " TPOT p95       61 ms                 38 ms                 SLO 50 ms",
        "",
        " guards",
        " ● ok      changed replicas 1 fresh",
        " ● ok      errors           0.00 % against 0.00 %",
        " ● ok      preemptions      0.00/s against 0.02/s",
        "",
        " history, newest first",
        " 19:50:04 OBSERVE         b1           observing; effect seen: 1200 steps of",
        "                                       4100 tokens in the mean",
        " 19:48:04 WARMUP          b1           6144 read back; warming up",
        " 19:48:03 CANARY          b1           write, ttl 180 s",
        ' 19:48:02 APPROVED        b1           approved by typed "b1"',
        " 19:47:49 PLANNED         b1           plan 7f3a, evidence 0a1b2c3d4e5f",
    ]


def test_followers_that_do_not_fit_are_counted() -> None:
    followers = tuple(f"http://10.0.0.{number}:8000" for number in range(1, 8))
    lines = told(change_lines(PICTURE, changed(promote_targets=followers), 80))
    assert lines[0] == " max_num_batched_tokens  8192 → 6144  on b1, then 7 others"
    one = told(change_lines(PICTURE, changed(promote_targets=("http://" + "long-name-" * 9,)), 80))
    assert ", then long-name-" in one[0]  # of one its name says more than that it is one


def test_a_change_under_way_at_200_columns() -> None:
    lines = told(change_lines(PICTURE, OBSERVED, 200))
    assert lines[6] == (
        " SLO attainment " + "94.1 % of 2642".ljust(34) + "88.0 % of 5455".ljust(34) + "judged at the end"
    )
    assert lines[-5] == (
        " 19:50:04 OBSERVE         b1                   "
        "observing; effect seen: 1200 steps of 4100 tokens in the mean"
    )


def test_title_of_a_change() -> None:
    assert line_text(change_title(PICTURE, "7f3a", PICTURE.change("7f3a"), 60)).startswith(
        " change 7f3a · b1 · OBSERVE 11 of 30 "
    )
    assert line_text(change_title(PICTURE, "gone", None, 60)).startswith(" change gone ")


def test_before_the_first_block_nothing_is_zero() -> None:
    early = changed(state=ChangeState.WARMUP, block=0, canary=None, baseline=None, guards=(), history=())
    lines = told(change_lines(PICTURE, early, 80))
    assert lines[5:9] == [
        "                canary b1             baseline",
        " SLO attainment –                     –                     judged at the end",
        " TTFT p95       250 ms                –                     SLO 600 ms",
        " TPOT p95       61 ms                 –                     SLO 50 ms",
    ]
    assert lines[1] == " about 19 min left"
    assert lines[-1] == " nothing yet"


def test_an_arm_without_requests_has_no_attainment() -> None:
    lines = told(change_lines(PICTURE, changed(canary=Arm((url("b1"),), 0, 0)), 80))
    assert lines[6].startswith(" SLO attainment –  ")


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        (Verdict.IMPROVED, "improved"),
        (Verdict.NOT_WORSE, "not worse"),
        (Verdict.WORSE, "worse"),
        (Verdict.INCONCLUSIVE, "inconclusive"),
        (None, "not judged"),
    ],
)
def test_the_verdict_is_the_controllers(verdict: Verdict | None, words: str) -> None:
    ended = changed(state=ChangeState.ROLLED_BACK, verdict=verdict, eta_seconds=None)
    lines = told(change_lines(PICTURE, ended, 80))
    assert next(line for line in lines if line.startswith(" SLO")).endswith(f"  {words}")


def test_a_tripped_guard_is_loud_and_told_whole() -> None:
    guard = Guard("errors", False, "3.10 % against 0.00 % of the requests that ended " * 3)
    lines = change_lines(PICTURE, changed(guards=(guard,)), 80)
    at = told(lines).index(" guards") + 1
    assert told(lines[at : at + 3]) == [
        " ✖ TRIPPED errors 3.10 % against 0.00 % of the requests that ended 3.10 %",
        "                  against 0.00 % of the requests that ended 3.10 % against 0.00",
        "                  % of the requests that ended",
    ]
    assert lines[at][0].ink == "crit"
    assert lines[at + 1][-1].ink == "crit"


def test_latencies_over_the_objective_warn_and_censored_ones_say_so() -> None:
    slow = replica(
        "b2",
        slo=SLO,
        changes={"ttft_seconds": distribution(0.3, censored(2.5)), "tpot_seconds": distribution(0.03, 0.04)},
    )
    picture = Picture(fleet([replace(pool()[0], slo=SLO), slow, down_replica("b3")]))
    lines = change_lines(picture, changed(), 80)
    # b1's 61 ms and b2's 2.5 s break the objective, b2's 40 ms does not; b3 is down and has none
    assert told(lines)[7] == " TTFT p95       250 ms                ≥2.5 s                SLO 600 ms"
    assert told(lines)[8] == " TPOT p95       61 ms                 40 ms                 SLO 50 ms"
    assert [span.ink for span in lines[7]][1:3] == ["text", "warn"]
    assert [span.ink for span in lines[8]][1:3] == ["warn", "text"]


def test_a_failed_rollback_tells_all_that_a_person_must_do() -> None:
    todo = "rollback NOT confirmed on http://b1.example:8000: set it back to 8192 by hand " * 2
    failed = changed(state=ChangeState.ROLLBACK_FAILED, detail=todo, eta_seconds=None)
    picture = Picture(FLEET, title="prod-eu", changes=(failed,))
    lines = change_lines(picture, failed, 80)
    assert told(lines)[1:4] == [
        " rollback NOT confirmed on http://b1.example:8000: set it back to 8192 by hand",
        " rollback NOT confirmed on http://b1.example:8000: set it back to 8192 by hand",
        "",
    ]
    assert lines[1][0].ink == "crit"
    assert line_text(title_line(picture, 80)).endswith(" ROLLBACK FAILED  READ-ONLY ")
    verdict = verdict_line(picture, 120)
    assert line_text(verdict).startswith(" ✖ rollback failed: max_num_batched_tokens on b1: rollback NOT")
    assert verdict[0].ink == "crit"


def test_a_change_under_way_stands_in_every_title() -> None:
    assert line_text(title_line(PICTURE, 80)).endswith("  OBSERVE b1  ")
    done = Picture(FLEET, changes=(changed(state=ChangeState.DONE),), read_only=False)
    assert "DONE" not in line_text(title_line(done, 80))


@pytest.mark.parametrize(
    ("eta", "age", "said"),
    [
        (1130.0, 0.0, "about 19 min left"),
        (1130.0, 60.0, "about 18 min left"),
        (61.0, 0.0, "about 2 min left"),
        (45.0, 0.0, "45s left"),
        (45.0, 50.0, "0s left"),
        (None, 0.0, ""),
    ],
)
def test_time_left(eta: float | None, age: float, said: str) -> None:
    assert time_left(changed(eta_seconds=eta), age) == said


def test_a_promotion_says_what_it_waits_for() -> None:
    three = ("http://a1:8000", "http://a2:8000", "http://a3:8000")
    followers = tuple(f"http://a{number}:8000" for number in range(2, 9))
    soaking = changed(
        state=ChangeState.PROMOTE,
        eta_seconds=None,
        canary_target=three[0],
        promote_targets=followers,
        written=three,
        next_wave=followers[2:4],
        soak_seconds=43.0,
    )
    said = "3 of 8 have it and are watched: the next 2 get it in 40s unless a guard trips"
    assert soak_text(soaking, 3.0) == said
    assert f" {said.replace('40s', '43s')}" in told(change_lines(PICTURE, soaking, 80))
    last = replace(soaking, written=(three[0], *followers), next_wave=())
    assert soak_text(last, 50.0) == (
        "8 of 8 have it and are watched: its effect is looked for in 0s unless a guard trips"
    )
    assert soak_text(replace(soaking, together=("http://t:1",)), 3.0).startswith("3 of 9 have it")
    assert soak_text(replace(last, soak_seconds=None), 0.0) == ""
    assert soak_text(replace(last, state=ChangeState.ROLLED_BACK), 0.0) == ""


@pytest.mark.parametrize(
    ("expires", "age", "said"),
    [
        (160.0, 0.0, "goes back by itself in 2m40s unless renewed"),
        (160.0, 100.0, "goes back by itself in 60s unless renewed".replace("60s", "1m00s")),
        (30.0, 31.0, "not renewed in time: the engine has gone back by itself"),
        (None, 0.0, ""),
    ],
)
def test_the_countdown_goes_on_without_news(expires: float | None, age: float, said: str) -> None:
    assert expiry_text(changed(expires_in_seconds=expires), age) == said
    for state in FINAL_STATES:
        assert expiry_text(changed(expires_in_seconds=expires, state=state), age) == ""


def test_what_may_be_in_force_can_be_undone() -> None:
    cannot = {state for state in ChangeState if not can_roll_back(state)}
    assert cannot == {ChangeState.REFUSED, ChangeState.ROLLED_BACK, ChangeState.HELD}


def test_what_is_held_is_said_to_be_undone() -> None:
    """An inconclusive change is taken back before it waits for a person: `held` alone reads as `in force`."""
    held = changed(state=ChangeState.HELD, verdict=Verdict.INCONCLUSIVE, eta_seconds=None)
    title = line_text(change_title(Picture(FLEET, changes=(held,)), held.id, held, 80))
    assert "HELD, undone" in title
    back = replace(held, history=(row(10, ChangeState.HELD, "inconclusive"),))
    assert any("HELD, undone" in line for line in told(change_lines(PICTURE, back, 80)))


def test_questions_before_undoing_and_before_leaving() -> None:
    assert told(undo_question(PICTURE, undo_of(OBSERVED), 80)) == [
        " max_num_batched_tokens  6144 → 8192",
        " on b1 and wherever else change 7f3a has reached",
        "",
    ]
    assert told(leave_question(PICTURE, 80)) == [
        " max_num_batched_tokens  8192 → 6144  on b1 is under way (OBSERVE 11 of 30)",
        " leaving undoes it first: a change is never left without its watch",
        "",
    ]


# Suggestion


def test_a_suggestion_with_its_plan_by_hand() -> None:
    lines = told(suggestion_lines(PICTURE, url("b1"), KNOB, Plan(PROPOSAL), 80))
    assert lines == [
        " max_num_batched_tokens  8192 → 6144  lower",
        "",
        " who         canary b1, then b2 b3 b4 if it does well",
        " against     b2 b3",
        " because     TPOT p95 61 ms breaks the 50 ms SLO; TTFT p95 250 ms has 58 %",
        "              slack",
        "             steps carry 7900 of 8192 tokens at p99",
        "             step time 11.8 ms + 6.1 µs/token (R² .94, 34 windows): 49.3 at",
        "              6144",
        " expect      TPOT p95 61 → 46–50 ms · TTFT p95 +4 to +9 %",
        " wrong if    prompts pass 3k tokens on average (now 1.2k)",
        " bound by    token budget",
        " confidence  high",
        " apply       live, reversible, via knob API",
        " takes       32 min to a verdict",
        " way back    by itself, 3 min after enginetop is gone",
        " note        observation takes 32 min at 1.5 req/s and shows differences from",
        "              2.1 points",
    ]


def test_a_suggestion_at_200_columns_has_one_line_a_reason() -> None:
    lines = told(suggestion_lines(PICTURE, url("b1"), KNOB, Plan(), 200))
    assert lines[2] == " who         canary b1, then b2 b3 b4 if it does well"  # the pool, before a plan
    assert lines[3:6] == [
        " because     TPOT p95 61 ms breaks the 50 ms SLO; TTFT p95 250 ms has 58 % slack",
        "             steps carry 7900 of 8192 tokens at p99",
        "             step time 11.8 ms + 6.1 µs/token (R² .94, 34 windows): 49.3 at 6144",
    ]


@pytest.mark.parametrize(
    ("plan", "last"),
    [
        (Plan(asking=True), " takes       asking the engines"),
        (Plan(trouble="no picture arrives"), " trouble     no picture arrives"),
        (
            Plan(Proposal("", KNOB, None, None, url("b1"), refusals=("b1 is stale",))),
            " refused     b1 is stale",
        ),
    ],
)
def test_what_the_controller_says_stands_last(plan: Plan, last: str) -> None:
    assert told(suggestion_lines(PICTURE, url("b1"), KNOB, plan, 80))[-1] == last


def test_read_only_says_why_nothing_can_be_applied() -> None:
    picture = Picture(FLEET)
    lines = told(suggestion_lines(picture, url("b1"), KNOB, Plan(), 80))
    assert lines[-2:] == [
        " apply       live, reversible, via knob API",
        "             enginetop is read-only: the config has no [control]",
    ]


def test_advice_that_changes_nothing_has_no_way_to_apply() -> None:
    lines = told(suggestion_lines(PICTURE, url("b2"), KNOB, Plan(), 80))
    assert lines[0] == " max_num_batched_tokens  hold: stays at 8192"
    assert not any(line.startswith(" apply") for line in lines)


def test_a_suggestion_that_is_gone_says_so() -> None:
    for target, name in ((url("b9"), KNOB), (url("b1"), "no_such_knob")):
        lines = told(suggestion_lines(PICTURE, target, name, Plan(), 80))
        assert lines == [" this suggestion is gone: the replica is no longer in the fleet"]
    assert line_text(suggestion_title(PICTURE, url("b9"), KNOB, 80)).startswith(
        " suggestion · b9.example:8000"
    )


def test_the_confirmation_says_what_will_be_done() -> None:
    assert told(proposal_lines(PICTURE, PROPOSAL, 80)) == [
        " max_num_batched_tokens  8192 → 6144",
        "",
        " first on    b1",
        "             then, if it does well, on b2 b3 b4",
        " takes       32 min to a verdict",
        " way back    by itself, 3 min after enginetop is gone",
        " note        observation takes 32 min at 1.5 req/s and shows differences from",
        "              2.1 points",
        "",
    ]
    alone = replace(PROPOSAL, promote_targets=(), before=None)
    lines = told(proposal_lines(PICTURE, alone, 80))
    assert lines[0] == " max_num_batched_tokens  unset → 6144"
    assert lines[3] == "             and on no other"


def test_what_changes_at_once_is_said_to() -> None:
    both = (url("b2"), url("b3"))
    gateway = replace(PROPOSAL, together=both, promote_targets=(), observation_seconds=None, notes=())
    assert told(proposal_lines(PICTURE, gateway, 80)) == [
        " max_num_batched_tokens  8192 → 6144",
        "",
        " first on    b1 b2 b3, all at once",
        "             and on no other",
        " way back    by itself, 3 min after enginetop is gone",
        "",
    ]
    lines = told(change_lines(PICTURE, replace(OBSERVED, together=both, promote_targets=()), 80))
    assert any("on b1 b2 b3, and no other" in line for line in lines)


# The past


def test_a_plan_that_was_refused_at_first_stands_where_it_began() -> None:
    """One that nobody confirmed at 300 s ago and that began 20 s ago stood below one of 100 s ago."""
    rows = [
        row(300, ChangeState.REFUSED, "not confirmed", change="aa"),
        row(100, ChangeState.PLANNED, "plan bb", change="bb"),
        row(20, ChangeState.PLANNED, "plan aa", change="aa"),
    ]
    assert [change.id for change in past_changes(rows)] == ["aa", "bb"]


def test_a_change_that_was_begun_again_began_when_it_was_begun_last() -> None:
    refused_at_first = (
        row(2000, ChangeState.PLANNED, "plan 7f3a", before=4096),
        row(1990, ChangeState.REFUSED, "stale", before=4096),
    )
    rows = [*refused_at_first, row(1000, ChangeState.PLANNED, "plan bb", change="bb"), *HISTORY]
    again, other = past_changes(rows)
    assert (again.id, again.began, other.id) == ("7f3a", HISTORY[0], "bb")
    assert again.undo.before == 8192


def test_past_changes_newest_first_by_hand() -> None:
    changes = past_changes(PAST)
    assert [change.id for change in changes] == ["7f3a", "11aa"]
    table = past_rows(PICTURE, changes, 80)
    assert [line_text(table.line(index)).rstrip() for index in range(len(table))] == [
        " 11-29 19:47 b1         max_num_batched_tokens 8192 → 6144   OBSERVE",
        " 11-28 19:00 b3         max_num_batched_tokens 8192 → 6144   ROLLED BACK worse",
    ]
    wide = line_text(past_rows(PICTURE, changes, 200).line(1))
    assert wide.startswith(" 2025-11-28 19:00 b3 ")
    assert line_text(table.line(1, selected=True)).startswith("▸11-28")
    assert (table.key(1), table.position("11aa"), table.position("none"), table.is_row(0)) == (
        "11aa",
        1,
        None,
        True,
    )
    assert line_text(past_title(PICTURE, 2, 80)).startswith(" past changes · 2 changes, newest first")
    assert line_text(past_title(PICTURE, 0, 80)).startswith(" past changes · no past changes")


def test_one_past_change_by_hand() -> None:
    rolled_back = past_changes(PAST)[1]
    assert told(past_lines(PICTURE, rolled_back, 80)) == [
        " max_num_batched_tokens  8192 → 6144  on b3  ROLLED BACK  worse",
        " 2025-11-28 19:00",
        "",
        " 19:33:20 ROLLED BACK     b3           worse: -5.1 points",
        " 19:00:00 PLANNED         b3           plan 11aa",
    ]
    assert rolled_back.undo == replace(undo_of(OBSERVED), change="11aa", target=url("b3"))


def refused(ago: float, before: int = 8192) -> AuditRow:
    return row(ago, ChangeState.REFUSED, "the plan does not fit", before=before)


@pytest.mark.parametrize(
    ("rows", "state"),
    [
        ((refused(900, 4096), *HISTORY, row(9, ChangeState.DONE, "in force on 4")), ChangeState.DONE),
        ((*HISTORY, row(9, ChangeState.DONE, "in force on 4"), refused(5, 4096)), ChangeState.DONE),
        ((*HISTORY, refused(5, 4096)), ChangeState.OBSERVE),
        ((*HISTORY[:3], refused(5)), ChangeState.REFUSED),
        ((refused(9, 4096), refused(5)), ChangeState.REFUSED),
    ],
)
def test_a_plan_that_was_refused_at_another_time_is_still_what_became_of_it(
    rows: tuple[AuditRow, ...], state: ChangeState
) -> None:
    (change,) = past_changes(rows)
    assert change.state is state
    if any(found.state is ChangeState.PLANNED for found in rows):
        assert change.undo.before == 8192


def test_a_row_without_words_shows_its_values() -> None:
    bare = past_changes([row(10, ChangeState.CANARY, "")])[0]
    assert told(past_lines(PICTURE, bare, 80))[-1] == " 19:59:50 CANARY          b1           8192 → 6144"


# Figures


@pytest.mark.parametrize(
    ("ratio", "said"),
    [(None, "–"), (0.0, "0.0"), (0.0001, "<0.1"), (0.9407, "94.1"), (0.99999, "99.9"), (1.0, "100.0")],
)
def test_fine_percent_is_exact_at_its_ends(ratio: float | None, said: str) -> None:
    assert fine_percent(ratio) == said


def test_settings_keep_all_digits() -> None:
    assert [knob(value) for value in (8192, 190640.0, 0.9, -1, None)] == ["8192", "190640", "0.9", "-1", "–"]
    assert knob(None, "unset") == "unset"


def test_ranges_write_a_common_unit_once() -> None:
    assert between("46 ms", "50 ms") == "46–50 ms"
    assert between("900 ms", "1.2 s") == "900 ms–1.2 s"
    assert between("50 ms", "50 ms") == "50 ms"


def test_a_target_is_named_by_the_fleet_else_by_the_config_else_by_itself() -> None:
    picture = Picture(FLEET, targets=(Target("http://c1:8000", "c-one"),))
    assert picture.name_of(url("b1")) == "b1"
    assert picture.name_of("http://c1:8000") == "c-one"
    assert picture.name_of("https://10.0.0.9:8000/base") == "10.0.0.9:8000/base"


WORDS = st.text(max_size=120)


@settings(max_examples=60, deadline=None)
@given(
    width=st.integers(1, 220),
    detail=WORDS,
    name=WORDS,
    state=st.sampled_from(list(ChangeState)),
    verdict=st.sampled_from([None, *Verdict]),
    numbers=st.tuples(*[st.one_of(st.none(), st.floats(0, 1e9))] * 2),
)
def test_every_size_and_text_fits(
    width: int,
    detail: str,
    name: str,
    state: ChangeState,
    verdict: Verdict | None,
    numbers: tuple[float | None, float | None],
) -> None:
    eta, expires = numbers
    rows = (*HISTORY, row(1, state, detail, target=name, verdict=verdict))
    change = changed(
        state=state,
        verdict=verdict,
        eta_seconds=eta,
        expires_in_seconds=expires,
        detail=detail,
        guards=(Guard(name, ok=False, detail=detail),),
        history=rows,
    )
    picture = Picture(FLEET, changes=(change,), read_only=False)
    proposal = replace(PROPOSAL, notes=(detail,), refusals=(detail, name))
    past = past_changes(rows)
    lines = [
        *change_lines(picture, change, width),
        change_title(picture, change.id, change, width),
        *suggestion_lines(picture, url("b1"), KNOB, Plan(proposal, trouble=detail), width),
        *proposal_lines(picture, proposal, width),
        *past_lines(picture, past[0], width),
        past_rows(picture, past, width).line(0, selected=True),
        *undo_question(picture, undo_of(change), width),
        *leave_question(picture, width),
    ]
    assert all(line_width(line) <= width for line in lines)


def test_the_time_of_the_fixture() -> None:
    assert AT == 1_764_446_400.0  # 2025-11-29 20:00:00 UTC, as in all expectations above
