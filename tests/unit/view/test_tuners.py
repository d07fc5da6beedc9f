"""The tuners' list: what is suggested, what is under way, what is left alone and why."""

from __future__ import annotations

import pytest

from enginetop.fleet.change import ChangeState, Verdict
from enginetop.fleet.snapshot import Advice
from tests.tui.changes import KNOB, LOWER, OBSERVED, REST, changed, hold, pool, url, withheld
from tests.tui.snapshots import down_replica, fleet, replica
from tui.view.advice import Suggestion, expectation_items, suggestions_of
from tui.view.cells import line_text, line_width
from tui.view.left_alone import LeftAlone, left_alone_lines, left_alone_of
from tui.view.picture import Picture
from tui.view.rows import Rows
from tui.view.tuners import (
    Listed,
    change_key,
    left_alone_key,
    suggestion_key,
    tuners_rows,
    tuners_title,
    tuners_verdict,
)
from tui.view.undo import change_to_undo

FLEET = fleet(pool())
PICTURE = Picture(FLEET, title="prod-eu", changes=(OBSERVED,), read_only=False)


def texts(table: Rows[Listed]) -> list[str]:
    return [line_text(table.line(index)).rstrip() for index in range(len(table))]


def test_the_list_at_80_columns_by_hand() -> None:
    table = tuners_rows(PICTURE, 80)
    assert texts(table) == [
        " changes " + 71 * "─",
        " b1          OBSERVE 11 of 30 8192 → 6144     max_num_batche… about 19 min left",
        "   observing; effect seen: 1200 steps of 4100 tokens in the mean",
        " suggestions " + 67 * "─",
        " b1          lower   max_num_batched_tokens 8192 → 6144     live        high",
        "   TPOT p95 61 ms breaks the 50 ms SLO; TTFT p95 250 ms has 58 % slack; steps c…",
        " left as it is " + 65 * "─",
        " 3 replicas  hold     max_num_batched_tokens b2: TPOT p95 38 ms is within the 5…",
        " 4 replicas  withheld num_speculative_tokens not built yet",
        " 4 replicas  withheld thinking_token_budget  not built yet",
        " 4 replicas  withheld max_num_seqs           not built yet",
    ]


def test_the_list_at_200_columns_has_room_for_the_reasons() -> None:
    lines = texts(tuners_rows(PICTURE, 200))
    change = " b1          OBSERVE 11 of 30 8192 → 6144     max_num_batched_tokens"
    assert lines[1] == change + (199 - len(change) - 17) * " " + "about 19 min left"
    assert lines[5] == (
        "   TPOT p95 61 ms breaks the 50 ms SLO; TTFT p95 250 ms has 58 % slack; "
        "steps carry 7900 of 8192 tokens at p99; "
        "step time 11.8 ms + 6.1 µs/token (R² .94, 34 windows): 49.3 at 6144"
    )
    assert lines[7] == (
        " 3 replicas  hold     max_num_batched_tokens "
        "b2: TPOT p95 38 ms is within the 50 ms SLO; others differ"
    )


@pytest.mark.parametrize("width", [20, 80, 119, 120, 200])
def test_no_line_is_wider_than_the_screen(width: int) -> None:
    table = tuners_rows(PICTURE, width)
    assert max(line_width(table.line(index, selected=True)) for index in range(len(table))) <= width
    assert line_width(tuners_title(PICTURE, width)) <= width
    assert line_width(tuners_verdict(PICTURE, width)) <= width


def test_rows_have_keys_and_headings_have_none() -> None:
    table = tuners_rows(PICTURE, 80)
    keys = [table.key(index) for index in range(len(table)) if table.is_row(index)]
    assert keys == [
        change_key("7f3a"),
        suggestion_key(url("b1"), KNOB),
        left_alone_key("hold", KNOB),
        left_alone_key("withheld", "num_speculative_tokens"),
        left_alone_key("withheld", "thinking_token_budget"),
        left_alone_key("withheld", "max_num_seqs"),
    ]
    assert [table.position(key) for key in keys if key is not None] == [1, 4, 7, 8, 9, 10]
    assert table.key(0) is None
    assert table.position("nowhere") is None
    assert line_text(table.line(4, selected=True)).startswith("▸b1 ")


def test_what_a_row_stands_for() -> None:
    table = tuners_rows(PICTURE, 80)
    change, suggestion, group = table.key(1), table.key(4), table.key(7)
    assert change is not None
    assert suggestion is not None
    assert group is not None
    assert table.about(change) is OBSERVED
    found = table.about(suggestion)
    assert isinstance(found, Suggestion)
    assert found.advice is LOWER
    left_alone = table.about(group)
    assert isinstance(left_alone, LeftAlone)
    assert [member.replica.target.name for member in left_alone.members] == ["b2", "b3", "b4"]


def test_the_list_of_one_replica_shows_only_what_touches_it() -> None:
    of_b2 = texts(tuners_rows(PICTURE, 80, only=url("b2")))
    assert of_b2[1].startswith(" b1          OBSERVE")  # b2 would get the change after b1
    assert of_b2[3:] == [
        " left as it is " + 65 * "─",
        " b2          hold     max_num_batched_tokens TPOT p95 38 ms is within the 50 ms…",
        " b2          withheld num_speculative_tokens not built yet",
        " b2          withheld thinking_token_budget  not built yet",
        " b2          withheld max_num_seqs           not built yet",
    ]
    elsewhere = Picture(FLEET, changes=(changed(promote_targets=()),))
    assert tuners_rows(elsewhere, 80, only=url("b2")).position(change_key("7f3a")) is None


@pytest.mark.parametrize(
    ("changes", "read_only", "said"),
    [
        ((), False, " 1 suggestion for 1 replica"),
        ((), True, " 1 suggestion for 1 replica · read-only: the config has no [control]"),
        ((OBSERVED,), False, " 1 change under way · 1 suggestion for 1 replica"),
        ((changed(state=ChangeState.DONE),), False, " 1 suggestion for 1 replica"),
    ],
)
def test_verdict(changes: tuple, read_only: bool, said: str) -> None:  # type: ignore[type-arg]
    picture = Picture(FLEET, changes=changes, read_only=read_only)
    assert line_text(tuners_verdict(picture, 80)) == said


@pytest.mark.parametrize(("elsewhere", "who"), [(1, "1 change"), (2, "2 changes")])
def test_verdict_names_what_another_process_has_under_way(elsewhere: int, who: str) -> None:
    verdict = tuners_verdict(Picture(FLEET, read_only=False), 80, elsewhere=elsewhere)
    assert line_text(verdict) == f" {who} elsewhere not over (h) · 1 suggestion for 1 replica"


def test_verdict_when_nothing_is_suggested_or_known() -> None:
    quiet = Picture(fleet([replica("b2", advice=(hold("enough"),))]), read_only=False)
    assert line_text(tuners_verdict(quiet, 80)) == " nothing suggested"
    assert not any("nothing to judge" in text for text in texts(tuners_rows(quiet, 80)))
    unread = Picture(fleet([down_replica("c0")]))
    assert texts(tuners_rows(unread, 80)) == [
        " nothing to judge: no engine's page was read yet; key 1 says why"
    ]
    nothing = Picture(None)
    assert line_text(tuners_verdict(nothing, 80)) == " waiting for the first scrape"
    assert line_text(tuners_verdict(quiet, 80, trouble="no lock")) == " ✖ no lock"


def test_title_names_fleet_time_and_badges() -> None:
    assert line_text(tuners_title(PICTURE, 80)) == (
        " tuners · prod-eu · 20:00:00" + 39 * " " + " OBSERVE b1  "
    )
    assert line_text(tuners_title(PICTURE, 80, only=url("b2"))).startswith(" tuners · b2 · prod-eu")


def test_the_surest_suggestion_comes_first_else_the_configured_order() -> None:
    def one(name: str, confidence: str, action: str = "lower") -> object:
        return replica(name, advice=(Advice(KNOB, action, (), 4, 2, confidence=confidence),))

    mixed = fleet([one("a", "low"), one("b", "high"), one("c", "high"), one("d", "high", "hold")])  # type: ignore[list-item]
    assert [found.replica.target.name for found in suggestions_of(mixed)] == ["b", "c", "a"]
    assert suggestions_of(None) == ()


@pytest.mark.parametrize("action", ["raise", "lower", "disable"])
def test_every_action_that_changes_something_is_a_suggestion(action: str) -> None:
    snapshot = fleet([replica("a", advice=(Advice(KNOB, action, ("because",), 4, None),))])
    table = tuners_rows(Picture(snapshot), 80)
    assert [found.advice.action for found in suggestions_of(snapshot)] == [action]
    after = "off" if action == "disable" else "–"
    assert f"4 → {after} " in texts(table)[1]


def test_quiet_advice_is_grouped_hold_first_and_by_knob() -> None:
    replicas = [
        replica("a", advice=(withheld("max_num_seqs"), withheld(KNOB, "too few windows"))),
        replica("b", advice=(hold("within"), withheld("max_num_seqs"))),
    ]
    groups = [(group.action, group.knob, len(group.members)) for group in left_alone_of(replicas)]
    assert groups == [("hold", KNOB, 1), ("withheld", KNOB, 1), ("withheld", "max_num_seqs", 2)]


def test_a_quiet_row_shows_what_decides_and_its_page_all_reasons() -> None:
    advice = Advice(KNOB, "withheld", ("TPOT p95 29 ms breaks the 25 ms SLO", "seen for 42 s, needs 60 s"))
    picture = Picture(fleet([replica("a", advice=(advice,))]))
    assert texts(tuners_rows(picture, 80))[1] == (
        " a           withheld max_num_batched_tokens seen for 42 s, needs 60 s"
    )
    assert [line_text(line).rstrip() for line in left_alone_lines(picture, "withheld", KNOB, 80)] == [
        " a            TPOT p95 29 ms breaks the 25 ms SLO; seen for 42 s, needs 60 s"
    ]


def test_quiet_rows_are_told_replica_by_replica() -> None:
    long = "a reason of many words " * 5
    picture = Picture(fleet([replica("a", advice=(hold("short"),)), replica("b", advice=(hold(long),))]))
    lines = [line_text(line).rstrip() for line in left_alone_lines(picture, "hold", KNOB, 80)]
    assert lines == [
        " a            short",
        " b            a reason of many words a reason of many words a reason of many",
        "              words a reason of many words a reason of many words",
    ]
    assert [line_text(line) for line in left_alone_lines(picture, "withheld", KNOB, 80)] == [
        " no replica is left as it is for that reason any more"
    ]


@pytest.mark.parametrize(
    ("expected", "items"),
    [
        (
            {
                "tpot_p95_seconds_from": 0.061,
                "tpot_p95_seconds_low": 0.046,
                "tpot_p95_seconds_high": 0.05,
            },
            ["TPOT p95 61 → 46–50 ms"],
        ),
        (
            {"ttft_p95_change_low_ratio": 0.04, "ttft_p95_change_high_ratio": -0.09},
            ["TTFT p95 +4 to -9 %"],
        ),
        (
            {"goodput_per_second_low": 1.9, "goodput_per_second_high": 2.8},
            ["goodput 1.90–2.80/s"],
        ),
        ({"kv_usage_ratio": 0.62}, ["KV usage 62 %"]),
        ({"tpot_p95_seconds_low": 0.9, "tpot_p95_seconds_high": 1.2}, ["TPOT p95 900 ms–1.2 s"]),
        ({"tpot_p95_seconds_low": 0.05, "tpot_p95_seconds_high": 0.05}, ["TPOT p95 50 ms"]),
        ({"tokens": 17.0}, ["tokens 17"]),
        ({"tpot_p95_seconds_from": 0.05}, ["TPOT p95 50 ms"]),
        ({}, []),
    ],
)
def test_expectations_in_words(expected: dict[str, float], items: list[str]) -> None:
    assert expectation_items(expected) == items


def test_what_the_key_of_rolling_back_would_undo() -> None:
    done = changed(id="0001", state=ChangeState.DONE, verdict=Verdict.IMPROVED)
    held = changed(id="0002", state=ChangeState.HELD)
    assert change_to_undo((OBSERVED, done, held), done) is done
    assert change_to_undo((OBSERVED, done, held), held) is OBSERVED
    assert change_to_undo((OBSERVED, done), None) is OBSERVED
    assert change_to_undo((done, held), held) is None
    assert change_to_undo((OBSERVED, changed(id="0003")), None) is None  # which of the two?


def test_a_thousand_replicas_make_few_lines() -> None:
    many = fleet([replica(f"n{number:04}", advice=(hold("within"), *REST)) for number in range(1000)])
    assert len(tuners_rows(Picture(many), 80)) == 5
