"""The knobs of one engine: contract section 6 case by case, then any sequence against a small reference."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginetop.fleet.knobs import KnobRow, Outcome, parse_sheet, sheet_document
from enginetop.simulator.knob_board import KnobBoard
from tests.unit.simulator.knob_engine import BUDGET, DRAFTS, SEQS, SETTINGS, START, THINKING, Engine


class Case:
    """A board, its engine, and a clock."""

    def __init__(self, ranks: int = 1) -> None:
        self.engine = Engine()
        self.board = KnobBoard(self.engine, "life-1", engine_version="0.32.0", ranks=ranks)
        self.now = 100.0

    def row(self, name: str = BUDGET) -> KnobRow:
        row = self.board.sheet(self.now).knob(name)
        assert row is not None
        return row

    def patch(
        self,
        value: int,
        version: int | None = None,
        ttl: float | None = 180.0,
        change: str = "c1",
        name: str = BUDGET,
    ) -> Outcome:
        return self.board.patch(name, value, if_version=version, ttl_seconds=ttl, change=change, now=self.now)


def of(outcome: Outcome) -> tuple[int, int | None, int]:
    """Status, value and version."""
    assert outcome.row is not None
    return outcome.status, outcome.row.value, outcome.row.version


def test_a_fresh_sheet() -> None:
    sheet = Case().board.sheet(100.0)
    assert (sheet.engine, sheet.engine_version, sheet.instance) == ("vllm", "0.32.0", "life-1")
    assert (sheet.applied, sheet.total) == (1, 1)
    assert sheet.knobs == (
        # 16 x (1 + 4) = 80
        KnobRow(BUDGET, 512, 512, 80, 512, "tokens", 0),
        # 512 // 5 = 102 would do, but no more than at the start
        KnobRow(SEQS, 16, 16, 1, 16, "requests", 0),
        KnobRow(DRAFTS, 4, 4, 0, 4, "tokens", 0),
        KnobRow(THINKING, -1, -1, -1, 1000, "tokens", 0, note="-1: no budget"),
    )
    assert parse_sheet(sheet_document(sheet)) == sheet


def test_a_change_on_loan_goes_back_by_itself() -> None:
    case = Case()
    assert of(case.patch(128, version=0)) == (200, 128, 1)
    assert case.engine.values[BUDGET] == 128
    assert case.board.next_expiry == 280.0
    case.now = 279.0
    assert case.row().expires_in_seconds == 1.0
    assert case.row().note == "goes back to 512 by itself"
    case.now = 280.0
    assert (case.row().value, case.row().version, case.row().expires_in_seconds) == (512, 2, None)
    assert case.engine.values[BUDGET] == 512
    assert case.board.next_expiry is None


def test_a_value_without_a_ttl_stays() -> None:
    case = Case()
    case.patch(128, version=0, ttl=None)
    case.now += 1e9
    assert (case.row().value, case.row().version, case.row().expires_in_seconds) == (128, 1, None)
    case.patch(256, version=1)
    case.now += 180.0
    assert case.row().value == 128, "the former value is the one that was last set to stay"


def test_a_renewal_moves_the_end_and_nothing_else() -> None:
    case = Case()
    case.patch(128, version=0)
    case.now += 170.0
    assert of(case.patch(128, version=1)) == (200, 128, 1)
    assert case.row().expires_in_seconds == 180.0
    case.now += 179.0
    assert case.row().value == 128
    assert of(case.patch(128, version=1, ttl=None)) == (200, 128, 1)
    case.now += 1e6
    assert case.row().value == 128


def test_a_change_that_stays_and_is_sent_again_is_not_counted_again() -> None:
    case = Case()
    case.patch(128, version=0, ttl=None)
    assert of(case.patch(128, version=1, ttl=None)) == (200, 128, 1)
    assert of(case.patch(128, version=1, ttl=30.0)) == (200, 128, 1)
    case.now += 30.0
    assert (case.row().value, case.row().version) == (128, 2)


@pytest.mark.parametrize("change", ["c2", ""])
def test_the_same_value_from_another_change_is_a_change(change: str) -> None:
    case = Case()
    case.patch(128, version=0)
    case.now += 10.0
    assert of(case.patch(128, version=1, change=change)) == (200, 128, 2)


def test_a_renewal_that_comes_too_late_is_a_conflict() -> None:
    case = Case()
    case.patch(128, version=0)
    case.now += 180.0
    assert of(case.patch(128, version=1)) == (409, 512, 2)


def test_the_former_value_is_that_before_the_first_change_of_a_chain() -> None:
    case = Case()
    for version, value in enumerate((400, 300, 200)):
        assert case.patch(value, version=version, change=f"c{version}").status == 200
        case.now += 100.0
    assert case.row().expires_in_seconds == 80.0
    case.now += 80.0
    assert (case.row().value, case.row().version) == (512, 4)


def test_a_conflict_shows_the_row_as_it_stands() -> None:
    case = Case()
    case.patch(128, version=0)
    case.now += 5.0
    outcome = case.patch(256, version=0)
    assert of(outcome) == (409, 128, 1)
    assert outcome.applied == 0
    assert outcome.detail == "at version 1, not 0"
    assert of(case.patch(256)) == (200, 256, 2), "no version asked for: whatever it is at"


@pytest.mark.parametrize(
    ("name", "value", "bounds"),
    [
        (BUDGET, 79, (80, 512)),
        (BUDGET, 513, (80, 512)),
        (BUDGET, -1, (80, 512)),
        (SEQS, 0, (1, 16)),
        (SEQS, 17, (1, 16)),
        (DRAFTS, -1, (0, 4)),
        (DRAFTS, 5, (0, 4)),
        (THINKING, -2, (-1, 1000)),
        (THINKING, 1001, (-1, 1000)),
    ],
)
def test_out_of_bounds(name: str, value: int, bounds: tuple[int, int]) -> None:
    case = Case()
    outcome = case.patch(value, name=name)
    assert (outcome.status, outcome.applied) == (422, 0)
    assert outcome.row is not None
    assert (outcome.row.min, outcome.row.max) == bounds
    assert outcome.row.version == 0
    assert outcome.detail == f"{value} is not within {bounds[0]} to {bounds[1]}"
    assert case.engine.values == START
    for edge in bounds:
        case.now += 10.0
        assert case.patch(edge, name=name).status == 200


def test_bounds_follow_the_other_knobs() -> None:
    case = Case()
    case.patch(1, name=DRAFTS)
    assert case.row().min == 16 * 2
    case.patch(10, name=SEQS)
    assert case.row().min == 10 * 2
    case.patch(25)
    # 25 // 2 = 12 requests; 25 // 10 - 1 = 1 draft
    assert (case.row(SEQS).max, case.row(DRAFTS).max) == (12, 1)
    case.now += 10.0
    assert case.patch(13, name=SEQS).status == 422
    assert case.patch(12, name=SEQS).status == 200
    assert case.row(DRAFTS).max == 1


def test_a_value_that_goes_back_takes_the_budget_with_it() -> None:
    case = Case()
    case.patch(0, name=DRAFTS, ttl=100.0)
    case.patch(16, ttl=None)
    case.now += 100.0
    assert case.row(DRAFTS).value == 4
    assert (case.row().value, case.row().version, case.row().min) == (80, 2, 80)
    case.now += 1e6
    assert case.row().value == 80


def test_requests_that_are_draining_count_too() -> None:
    case = Case()
    case.patch(1, name=DRAFTS, ttl=100.0)
    case.patch(4, name=SEQS, ttl=None)
    case.patch(8, ttl=None)
    case.engine.running = 4
    assert case.row().min == 8
    case.engine.running = 3
    case.now += 100.0
    assert (case.row(DRAFTS).value, case.row().value) == (4, 20)
    case.engine.running = 16
    assert case.row().min == 80, "more run than are admitted now"


def test_drafts_go_back_while_requests_are_draining() -> None:
    case = Case()
    case.patch(0, name=DRAFTS, ttl=100.0)
    case.patch(4, name=SEQS, ttl=None)
    case.patch(16, ttl=None)
    case.engine.running = 16
    case.now += 100.0
    assert (case.row(DRAFTS).value, case.row().value) == (4, 80)


def test_a_lifted_budget_still_goes_back_when_its_own_time_is_over() -> None:
    case = Case()
    case.patch(0, name=DRAFTS, ttl=100.0)
    case.patch(16, ttl=150.0)
    case.now += 100.0
    assert (case.row().value, case.row().expires_in_seconds) == (80, 50.0)
    case.now += 50.0
    assert (case.row().value, case.row().version) == (512, 3)


def test_a_budget_does_not_go_back_below_one_decode_step() -> None:
    case = Case()
    case.patch(0, name=DRAFTS, ttl=None)
    case.patch(20, ttl=None)
    case.now += 10.0
    case.patch(512, ttl=60.0)
    case.patch(3, name=DRAFTS, ttl=None)
    case.now += 60.0
    assert (case.row().value, case.row().version) == (64, 3), "20 was the former value, 16 x 4 are needed"


def test_delete_returns_to_the_start_value_and_ends_the_loan() -> None:
    case = Case()
    assert of(case.board.delete(BUDGET, case.now)) == (200, 512, 0)
    case.patch(200, ttl=None)
    case.now += 10.0
    case.patch(128)
    assert of(case.board.delete(BUDGET, case.now)) == (200, 512, 3)
    assert case.row().expires_in_seconds is None
    case.now += 1000.0
    assert (case.row().value, case.row().version) == (512, 3)


def test_delete_of_the_drafts_lifts_the_budget() -> None:
    case = Case()
    case.patch(0, name=DRAFTS, ttl=None)
    case.patch(16, ttl=None)
    assert of(case.board.delete(DRAFTS, case.now)) == (200, 4, 2)
    assert (case.row().value, case.row().version) == (80, 2)


def test_too_soon_after_another_change_but_never_on_the_way_back() -> None:
    case = Case()
    case.patch(256)
    case.now += 0.25
    outcome = case.patch(128)
    assert (outcome.status, outcome.retry_after_seconds) == (429, 0.75)
    assert of(outcome)[1:] == (256, 1)
    assert case.patch(256, version=1).status == 200, "a renewal is no change"
    assert case.patch(8, name=SEQS).status == 200, "each knob for itself"
    assert case.patch(512, ttl=None).status == 200
    assert case.patch(128).status == 429
    assert case.board.delete(BUDGET, case.now).status == 200
    case.now += 1.0
    assert case.patch(128).status == 200


def test_the_way_back_is_open_to_the_start_and_to_the_value_that_stays() -> None:
    case = Case()
    case.patch(300, ttl=None)
    case.now += 1.0
    for back in (300, 512):
        assert case.patch(128).status == 200
        assert case.patch(127).status == 429
        assert case.patch(back, ttl=5.0).status == 200
        case.now += 1.0


def test_a_rank_that_cannot_apply_leaves_all_as_they_were() -> None:
    case = Case(ranks=4)
    assert case.patch(256).applied == 4
    case.board.refusing_ranks = 1
    case.now += 10.0
    for outcome in (case.patch(128), case.patch(256, version=1), case.board.delete(BUDGET, case.now)):
        assert (*of(outcome), outcome.applied) == (503, 256, 1, 0)
        assert outcome.detail == "1 of 4 ranks could not apply it, so none has"
    assert case.row().expires_in_seconds == 170.0
    case.now += 170.0
    assert case.row().value == 512, "going back needs nobody"


def test_drafts_are_fixed_with_several_ranks() -> None:
    case = Case(ranks=2)
    case.engine.fixed = {DRAFTS}
    row = case.row(DRAFTS)
    assert (row.min, row.max, row.note) == (4, 4, "fixed: several data-parallel ranks draft in step")
    assert case.patch(1, name=DRAFTS).status == 422


@pytest.mark.parametrize("name", ["nothing", "", "max_num_batched_tokens ", "instance"])
def test_an_unknown_knob(name: str) -> None:
    case = Case()
    for outcome in (case.patch(1, name=name), case.board.delete(name, case.now)):
        assert (outcome.status, outcome.row) == (404, None)


def test_an_engine_that_does_not_draft_has_no_knob_for_it() -> None:
    settings = replace(SETTINGS, num_speculative_tokens=0)
    board = KnobBoard(Engine(settings), "x")
    assert [row.name for row in board.sheet(0.0).knobs] == [BUDGET, SEQS, THINKING]
    assert board.patch(DRAFTS, 0, if_version=None, ttl_seconds=None, change="", now=0.0).status == 404
    assert board.patch(BUDGET, 16, if_version=0, ttl_seconds=5.0, change="", now=0.0).status == 200
    board.tick(5.0)
    assert board.sheet(5.0).knobs[0].value == 512


def test_one_shrinks_and_another_grows_at_the_same_time() -> None:
    case = Case()
    case.patch(0, name=DRAFTS, ttl=None)
    case.patch(16, ttl=None)
    case.patch(4, name=SEQS, ttl=60.0)
    case.now += 10.0
    assert case.patch(3, name=DRAFTS, ttl=50.0).status == 200
    case.now += 50.0
    # At no time 16 requests with 3 drafts each: that takes 64 tokens, and the engine would refuse.
    case.board.tick(case.now)
    assert case.engine.values == {**START, BUDGET: 16, DRAFTS: 0}


def test_the_budget_shrinks_last() -> None:
    case = Case()
    case.patch(0, name=DRAFTS, ttl=None)
    case.patch(20, ttl=None)
    case.now += 10.0
    case.patch(512, ttl=60.0)
    case.patch(3, name=DRAFTS, ttl=60.0)
    case.now += 60.0
    # 20 would not do for 16 requests with 3 drafts each, which must have gone back by then.
    case.board.tick(case.now)
    assert case.engine.values == {**START, BUDGET: 20, DRAFTS: 0}


# Any sequence of requests, against a reference that keeps a list of all that ever happened


@dataclass
class Reference:
    """What must hold, worked out anew from the whole past at every look."""

    now: float = 0.0
    value: dict[str, int] = field(default_factory=lambda: dict(START))
    stay: dict[str, int] = field(default_factory=lambda: dict(START))
    version: dict[str, int] = field(default_factory=lambda: dict.fromkeys(START, 0))
    loans: dict[str, float] = field(default_factory=dict)
    owner: dict[str, str] = field(default_factory=lambda: dict.fromkeys(START, ""))
    touched: dict[str, float] = field(default_factory=dict)

    def need(self) -> int:
        return self.value[SEQS] * (1 + self.value[DRAFTS])

    def write(self, name: str, value: int) -> None:
        self.value[name] = value
        self.version[name] += 1

    def lift(self) -> None:
        if self.value[BUDGET] < self.need():
            self.write(BUDGET, self.need())
            if BUDGET not in self.loans:
                self.stay[BUDGET] = self.value[BUDGET]

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for end in sorted({end for end in self.loans.values() if end <= self.now}):
            ending = [name for name in START if self.loans.get(name) == end]
            for name in ending:
                del self.loans[name]
                self.owner[name] = ""
            for name in ending:
                if name != BUDGET:
                    self.write(name, self.stay[name])
            if BUDGET in ending:
                self.stay[BUDGET] = max(self.stay[BUDGET], self.need())
                self.write(BUDGET, self.stay[BUDGET])
            self.lift()

    def bounds(self, name: str) -> tuple[int, int]:
        if name == THINKING:
            return -1, 1000
        allowed = [
            candidate
            for candidate in range(START[name] + 1)
            if (trial := {**self.value, name: candidate})[BUDGET] >= trial[SEQS] * (1 + trial[DRAFTS])
            and trial[SEQS] > 0
        ]
        return min(allowed), max(allowed)

    def patch(self, name: str, value: int, version: int | None, ttl: float | None, change: str) -> int:
        if version is not None and version != self.version[name]:
            return 409
        mine = self.owner[name] == change and self.value[name] == value
        low, high = self.bounds(name)
        if not mine:
            if value < low or value > high:
                return 422
            back = value in (START[name], self.stay[name])
            if not back and self.now < self.touched.get(name, -9.0) + 1.0:
                return 429
            self.touched[name] = self.now
            self.write(name, value)
            self.owner[name] = change
        self.loans.pop(name, None)
        if ttl is None:
            self.stay[name] = value
        else:
            self.loans[name] = self.now + ttl
        return 200

    def delete(self, name: str) -> int:
        if name in self.loans or self.value[name] != START[name]:
            self.loans.pop(name, None)
            self.owner[name] = ""
            self.stay[name] = START[name]
            self.touched[name] = self.now
            self.write(name, START[name])
            self.lift()
        return 200


# Times are halves, so that sums of them are exact.
_SECONDS = st.sampled_from([0.0, 0.5, 1.0, 3.0, 10.0, 40.0])
_VALUES = st.one_of(
    st.integers(-2, 20), st.sampled_from([16, 32, 64, 79, 80, 81, 128, 300, 511, 512, 513, 1000, 1001])
)
_ACTIONS = st.one_of(
    st.tuples(
        st.just("patch"),
        st.sampled_from(list(START)),
        _VALUES,
        st.sampled_from(["right", "right", "none", "wrong"]),
        st.sampled_from([None, 0.5, 5.0, 30.0]),
        st.sampled_from(["c1", "c2"]),
    ),
    st.tuples(st.just("renew"), st.sampled_from(list(START)), st.sampled_from([None, 0.5, 5.0, 30.0])),
    st.tuples(st.just("delete"), st.sampled_from(list(START))),
)


@given(st.lists(st.tuples(_SECONDS, _ACTIONS), max_size=40))
@settings(max_examples=120, deadline=None)
def test_any_sequence_of_requests(steps: list[tuple[float, tuple[object, ...]]]) -> None:
    reference = Reference()
    engine = Engine()
    board = KnobBoard(engine, "x")
    for seconds, (kind, name, *rest) in steps:
        reference.pass_time(seconds)
        assert isinstance(name, str)
        now = reference.now
        if kind == "delete":
            outcome, status = board.delete(name, now), reference.delete(name)
        else:
            if kind == "renew":
                (ttl,) = rest
                value, version = reference.value[name], reference.version[name]
                change = reference.owner[name]
            else:
                value, right, ttl, change = rest  # type: ignore[assignment]
                version = reference.version[name]
                version = {"right": version, "none": None, "wrong": version + 1}[right]  # type: ignore[assignment, index]
            outcome = board.patch(
                name,
                value,
                if_version=version,
                ttl_seconds=ttl,  # type: ignore[arg-type]
                change=change,
                now=now,
            )
            status = reference.patch(name, value, version, ttl, change)  # type: ignore[arg-type]
        assert outcome.status == status
        assert engine.values == reference.value
        for row in board.sheet(now).knobs:
            assert row.version == reference.version[row.name]
            assert (row.min, row.max) == reference.bounds(row.name)
            loan = reference.loans.get(row.name)
            assert row.expires_in_seconds == (None if loan is None else loan - now)


@given(st.lists(st.tuples(_SECONDS, _ACTIONS), max_size=30))
@settings(max_examples=50, deadline=None)
def test_a_controller_that_vanishes_leaves_nothing_behind(
    steps: list[tuple[float, tuple[object, ...]]],
) -> None:
    """With a ttl on every change, silence ends at the start values."""
    engine = Engine()
    board = KnobBoard(engine, "x")
    now = 0.0
    for seconds, (kind, name, *rest) in steps:
        now += seconds
        if kind == "patch" and isinstance(name, str):
            value = rest[0]
            assert isinstance(value, int)
            board.patch(name, value, if_version=None, ttl_seconds=30.0, change="c", now=now)
    board.tick(now + 30.0)
    assert engine.values == START
    assert board.next_expiry is None
