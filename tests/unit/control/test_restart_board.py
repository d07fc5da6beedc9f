"""The knobs of an engine that is restarted for a new value: every way in which that goes, or does not."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest

from enginetop.fleet.knobs import FAILED, KnobRow, parse_sheet, sheet_document
from tuners.control.restart_board import RestartBoard
from tuners.control.restart_move import DRAINING, GOING_BACK, RESTARTING, Patience
from tuners.control.restartable import Load, NothingDoneError, RestartError, StartKnob, Values

SEATS = "max_num_seqs"
OTHER = "max_num_batched_tokens"


@dataclass
class Engine:
    """An engine with 8 seats. `bad` values end at their start, `mute` ones are never ready."""

    requests: int | None = 0
    bad: set[int] = field(default_factory=set)
    mute: set[int] = field(default_factory=set)
    refuses: bool = False
    """A start cannot even be begun."""
    starts: list[int | None] = field(default_factory=list)
    dead: str = ""

    def load(self) -> Load:
        running = not self.dead and (not self.starts or self.starts[-1] not in self.mute)
        return Load(running, self.requests)

    def begin(self, values: Values) -> None:
        if self.refuses:
            raise NothingDoneError("permission denied")
        self.starts.append(values[SEATS])
        self.dead = "it ended with exit code 1" if values[SEATS] in self.bad else ""

    def poll(self) -> bool:
        if self.dead:
            raise RestartError(self.dead)
        return True

    def by_hand(self, values: Values) -> str:
        return f"serve --seats {values[SEATS]}"


def board(engine: Engine, **patience: float) -> RestartBoard:
    return RestartBoard(
        engine,
        (StartKnob(SEATS, 8, 1, 512, "requests"), StartKnob(OTHER, None, 1, 9999, "tokens")),
        writer="process",
        instance="i",
        engine_name="vllm",
        patience=Patience(drain_seconds=60.0, ready_seconds=100.0, **patience),  # type: ignore[arg-type]
    )


def row(made: RestartBoard, now: float, name: str = SEATS) -> KnobRow:
    found = made.sheet(now).knob(name)
    assert found is not None
    return found


def put(made: RestartBoard, value: int, now: float, ttl: float | None = 180.0) -> int:
    return made.patch(SEATS, value, if_version=None, ttl_seconds=ttl, change="c", now=now).status


def look(made: RestartBoard, now: float) -> tuple[int | None, str, float | None]:
    found = row(made, now)
    return found.value, found.phase, found.expires_in_seconds


def test_a_new_value_is_drained_restarted_ready_and_on_loan_from_then_on() -> None:
    engine = Engine(requests=3)
    made = board(engine)
    assert look(made, 0.0) == (8, "", None)
    assert put(made, 4, 0.0) == 200
    assert look(made, 1.0) == (4, DRAINING, 180.0)
    assert engine.starts == []
    engine.requests = 0
    engine.mute.add(4)
    assert look(made, 20.0) == (4, RESTARTING, 180.0)
    assert engine.starts == [4]
    engine.mute.clear()
    assert look(made, 50.0) == (4, "", 180.0)  # the time of the loan begins now
    assert put(made, 4, 100.0) == 200  # a renewal restarts nothing
    assert look(made, 100.0) == (4, "", 180.0)
    assert put(made, 4, 110.0, ttl=None) == 200
    assert look(made, 1e6) == (4, "", None)
    assert engine.starts == [4]


def test_a_loan_that_is_not_renewed_goes_back_by_itself_even_while_requests_run() -> None:
    engine = Engine()
    made = board(engine)
    put(made, 4, 0.0)
    made.tick(1.0)
    made.tick(2.0)
    engine.requests = 5
    assert look(made, 182.0) == (8, DRAINING, None)
    assert look(made, 241.0)[1] == DRAINING
    assert look(made, 242.0)[1] == GOING_BACK
    assert look(made, 243.0) == (8, "", None)
    assert engine.starts == [4, 8]


@pytest.mark.parametrize("requests", [5, None])
def test_requests_that_do_not_end_keep_the_engine_as_it_is(requests: int | None) -> None:
    engine = Engine(requests=requests)
    made = board(engine)
    put(made, 4, 0.0)
    assert look(made, 60.0) == (8, "", None)
    assert "nothing was restarted" in row(made, 60.0).note
    assert engine.starts == []
    assert look(made, 1e6) == (8, "", None)


def test_requests_are_cut_where_that_was_asked_for() -> None:
    engine = Engine(requests=5)
    made = board(engine, cuts_requests=True)
    put(made, 4, 0.0)
    made.tick(60.0)
    assert look(made, 61.0)[0] == 4
    assert engine.starts == [4]


@pytest.mark.parametrize("how", ["bad", "mute"])
def test_what_does_not_come_back_is_started_as_it_was(how: str) -> None:
    engine = Engine(**{how: {4}})  # type: ignore[arg-type]
    made = board(engine)
    put(made, 4, 0.0)
    made.tick(1.0)
    made.tick(2.0)
    if how == "mute":
        assert look(made, 100.0) == (4, RESTARTING, 180.0)
        made.tick(101.0)
    assert look(made, 110.0) == (8, "", None)
    assert engine.starts == [4, 8]
    words = "ended with exit code 1" if how == "bad" else "not ready after 100 s"
    assert "max_num_seqs 4 did not work" in row(made, 110.0).note
    assert words in row(made, 110.0).note


def test_what_cannot_be_brought_back_is_failed_with_the_command_for_a_person() -> None:
    engine = Engine(bad={4, 8})
    made = board(engine)
    put(made, 4, 0.0)
    for second in range(5):
        made.tick(float(second))
    assert look(made, 6.0) == (8, FAILED, None)
    assert row(made, 6.0).note.endswith("by hand: serve --seats 8")
    assert made.failed
    engine.bad.clear()
    assert put(made, 8, 10.0, ttl=None) == 200  # a further try, since somebody mended it
    assert look(made, 11.0) == (8, "", None)
    assert engine.starts == [4, 8, 8]


def test_what_cannot_be_begun_changes_nothing() -> None:
    engine = Engine(refuses=True)
    made = board(engine)
    put(made, 4, 0.0)
    assert look(made, 1.0) == (8, "", None)
    assert row(made, 1.0).note == "permission denied"


def test_a_way_back_that_cannot_be_begun_is_failed_although_the_engine_runs() -> None:
    engine = Engine()
    made = board(engine)
    put(made, 4, 0.0)
    made.tick(1.0)
    made.tick(2.0)
    engine.refuses = True
    made.tick(190.0)
    made.tick(191.0)
    assert look(made, 192.0)[1] == FAILED
    assert "permission denied; by hand: serve --seats 8" in row(made, 192.0).note


def test_an_engine_that_dies_on_trial_is_started_as_it_was_and_otherwise_its_owner_decides() -> None:
    engine = Engine()
    made = board(engine)
    put(made, 4, 0.0)
    made.tick(1.0)
    made.tick(2.0)
    engine.dead = "it was ended by signal 9"
    assert look(made, 30.0)[1] == GOING_BACK
    assert look(made, 31.0) == (8, "", None)
    assert "ended by signal 9" in row(made, 31.0).note
    engine.dead = "it ended with exit code 0"
    made.tick(40.0)
    assert made.ended == "it ended with exit code 0"
    assert engine.starts == [4, 8]


def test_a_wish_that_comes_too_soon_waits_and_one_that_is_withdrawn_restarts_nothing() -> None:
    engine = Engine(requests=3)
    made = board(engine)
    put(made, 4, 0.0)
    assert put(made, 2, 1.0) == 429
    assert made.patch(OTHER, 5, if_version=None, ttl_seconds=None, change="c", now=1.0).status == 429
    assert put(made, 8, 2.0, ttl=None) == 200
    assert look(made, 3.0) == (8, "", None)
    assert engine.starts == []


def test_a_loan_that_is_wished_for_again_on_its_way_back_ends_as_well() -> None:
    engine = Engine()
    made = board(engine)
    put(made, 4, 0.0, ttl=20.0)
    made.tick(1.0)
    made.tick(2.0)  # in force: on loan until 22
    engine.requests = 3
    made.tick(23.0)
    assert look(made, 24.0)[1] == DRAINING
    assert put(made, 4, 25.0, ttl=30.0) == 200
    assert look(made, 26.0) == (4, "", 29.0)
    engine.requests = 0
    for now in (56.0, 57.0, 58.0):
        made.tick(now)
    assert look(made, 59.0) == (8, "", None)
    assert engine.starts == [4, 8]


def test_requests_that_cannot_be_met_are_refused() -> None:
    made = board(Engine())
    assert put(made, 0, 0.0) == 422
    assert put(made, 513, 0.0) == 422
    assert made.patch("x", 1, if_version=None, ttl_seconds=None, change="", now=0.0).status == 404
    assert made.delete("x", 0.0).status == 404
    assert made.patch(SEATS, 4, if_version=7, ttl_seconds=None, change="", now=0.0).status == 409


def test_a_value_that_stays_is_what_later_trials_go_back_to() -> None:
    engine = Engine()
    made = board(engine)
    put(made, 16, 0.0, ttl=None)
    made.tick(1.0)
    made.tick(2.0)
    put(made, 32, 10.0, ttl=20.0)
    made.tick(11.0)
    made.tick(12.0)
    made.tick(40.0)
    made.tick(41.0)
    assert look(made, 42.0) == (16, "", None)
    assert made.delete(SEATS, 50.0).status == 200
    made.tick(51.0)
    assert look(made, 52.0) == (8, "", None)
    assert engine.starts == [16, 32, 16, 8]


def test_versions_count_the_changes_and_the_sheet_survives_its_wire() -> None:
    made = board(Engine())
    put(made, 4, 0.0)
    made.tick(1.0)
    made.tick(2.0)
    assert (row(made, 3.0).version, row(made, 3.0, OTHER).version) == (1, 0)
    sheet = made.sheet(3.0)
    assert sheet.writer == "process"
    assert parse_sheet(json.loads(json.dumps(sheet_document(sheet)))) == sheet
    assert row(made, 3.0).takes_seconds == 260.0


def test_requests_do_not_go_on_with_what_another_thread_does() -> None:
    engine = Engine()
    made = RestartBoard(
        engine,
        (StartKnob(SEATS, 8, 1, 512, "requests"),),
        writer="process",
        instance="i",
        engine_name="vllm",
        ticks_elsewhere=True,
    )
    put(made, 4, 0.0)
    assert look(made, 1.0)[1] == DRAINING
    made.tick(1.0)
    assert engine.starts == [4]
