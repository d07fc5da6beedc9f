"""One contract for every writer to an engine's own API: what it offers, how a value comes and goes, and that
no engine which says yes without doing it is believed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from enginetop.cli.engine_apis import board
from enginetop.fleet.knobs import FAILED, KnobBoard, KnobRow, parse_sheet, sheet_document
from enginetop.fleet.plan import ENGINE_APIS
from enginetop.fleet.restart_tables import EngineApiTable
from tests.support.stock_engines import (
    DynamoFrontend,
    DynamoPlanner,
    DynamoWorker,
    LlamaRouter,
    RuntimeConfigVllm,
    Sglang,
    Sleeper,
    StockEngine,
    Triton,
)
from tuners.control.paths import PATHS
from tuners.control.restartable import Load, RestartError
from tuners.control.stock.exchange import StockError

PRESET = "version = 1\n\n[*]\nthreads = 1\n\n[a]\nmodel = /m/a.gguf\nparallel = 8\n\n[b]\nmodel = /m/b.gguf\n"
TTL = 180.0
FORBIDDEN = ("/props", "abort", "level=2", "level=0", "terminate", "n_max", "extra_args", "slot")
"""What lies, kills or throws away: no writer may ever ask for it."""


@dataclass(frozen=True)
class Writer:
    """How a path is tried: its engine, the knob and a value other than the first one."""

    path: str
    engine: Callable[[], StockEngine]
    knob: str
    new: int
    waits: bool
    """It drains, and takes its time."""
    tells_start: bool = True
    """The engine tells its start value, so that a knob can be reset."""

    def __str__(self) -> str:
        return self.path


WRITERS = (
    Writer("vllm_runtime", RuntimeConfigVllm, "max_num_seqs", 2, waits=False),
    Writer("sglang_cap", Sglang, "max_num_seqs", 2, waits=False),
    Writer("vllm_switches", lambda: Sleeper(vllm=True), "asleep", 1, waits=True),
    Writer("lmdeploy_sleep", Sleeper, "asleep", 1, waits=True),
    Writer("llamacpp_router", LlamaRouter, "max_num_seqs", 2, waits=True),
    Writer("triton_load", Triton, "max_num_seqs", 2, waits=True),
    Writer(
        "dynamo_busy", DynamoFrontend, "active_decode_blocks_threshold", 2, waits=False, tells_start=False
    ),
    Writer("dynamo_planner", DynamoPlanner, "decode_min_endpoint", 2, waits=False, tells_start=False),
    Writer("dynamo_taint", DynamoWorker, "tainted", 1, waits=False),
)
WAITING = tuple(writer for writer in WRITERS if writer.waits)


class Rig:
    """A writer before its engine, and a clock."""

    def __init__(self, writer: Writer, folder: Path) -> None:
        self.writer, self.engine, self.now = writer, writer.engine(), 1000.0
        self.folder = folder
        if isinstance(self.engine, LlamaRouter):
            self.engine.preset = folder / "models.ini"
            self.engine.preset.write_text(PRESET)
        if isinstance(self.engine, DynamoWorker):
            (folder / "cards").mkdir()
            self.engine.card = folder / "cards" / "one"
            self.engine.publish()
        self.first = self.engine.value
        self.board = self.new_board()

    def new_board(self) -> KnobBoard:
        """A board as another process would make it."""
        models = {"llamacpp_router": "a", "triton_load": "m", "dynamo_busy": "tiny"}
        router, taint = self.writer.path == "llamacpp_router", self.writer.path == "dynamo_taint"
        table = EngineApiTable(
            path=self.writer.path,  # type: ignore[arg-type]  # one of those
            model=models.get(self.writer.path),
            preset=str(self.folder / "models.ini") if router else None,
            cards=str(self.folder / "cards") if taint else None,
            taint="t" if taint else None,
            drain_seconds=30.0,
            ready_seconds=60.0,
        )
        return board(
            table,
            self.engine,
            lambda: Load(ready=True, requests=self.engine.requests),
            wanted=self.folder / "wanted",
            address="http://r1:8000",
        )

    @property
    def row(self) -> KnobRow:
        """The knob now."""
        found = self.board.sheet(self.now).knob(self.writer.knob)
        assert found is not None
        return found

    def put(self, value: int, ttl: float | None = TTL, version: int | None = None) -> tuple[int, str]:
        """Write, and wait until nothing is under way; the status and what was said."""
        try:
            outcome = self.board.patch(
                self.writer.knob, value, if_version=version, ttl_seconds=ttl, change="c", now=self.now
            )
        except StockError as error:
            return error.status, str(error)
        self.settle()
        return outcome.status, outcome.detail

    def settle(self) -> None:
        """Let time go by until nothing is under way."""
        for _ in range(400):
            if not self.row.moves:
                return
            self.now += 1.0
        pytest.fail("never settled")

    def undone(self) -> bool:
        """Whether engine and row are as they were."""
        return (self.engine.value, self.row.value) == (self.first, self.first)


@pytest.fixture(params=WRITERS, ids=str)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Rig:
    return Rig(request.param, tmp_path)


@pytest.fixture(params=WAITING, ids=str)
def waiting(request: pytest.FixtureRequest, tmp_path: Path) -> Rig:
    return Rig(request.param, tmp_path)


def test_every_path_of_this_kind_is_tried_here() -> None:
    assert tuple(writer.path for writer in WRITERS) == ENGINE_APIS


def test_it_tells_its_path_its_bounds_and_how_it_is_changed(rig: Rig) -> None:
    sheet = rig.board.sheet(rig.now)
    assert sheet.writer == rig.writer.path
    assert PATHS[sheet.writer].way_back == "the next start of enginetop"
    assert parse_sheet(json.loads(json.dumps(sheet_document(sheet)))) == sheet
    row = rig.row
    start = rig.first if rig.writer.tells_start else None
    assert (row.value, row.start, row.phase, row.expires_in_seconds) == (rig.first, start, "", None)
    assert row.min <= rig.writer.new <= row.max
    assert row.min <= rig.first <= row.max
    assert row.apply == ("restart" if rig.writer.waits else "live")
    assert rig.engine.writes == []


def test_a_value_comes_is_renewed_kept_and_reset(rig: Rig) -> None:
    assert rig.put(rig.writer.new)[0] == 200
    assert (rig.engine.value, rig.row.value) == (rig.writer.new, rig.writer.new)
    assert 0 < (rig.row.expires_in_seconds or 0) <= TTL
    asked = len(rig.engine.writes)
    rig.now += 100
    assert rig.put(rig.writer.new)[0] == 200
    assert (rig.row.expires_in_seconds, len(rig.engine.writes)) == (TTL, asked)
    assert rig.put(rig.writer.new, ttl=None)[0] == 200
    rig.now += 1e6
    assert (rig.row.value, rig.row.expires_in_seconds, len(rig.engine.writes)) == (
        rig.writer.new,
        None,
        asked,
    )
    reset = rig.board.delete(rig.writer.knob, rig.now).status
    assert reset == (200 if rig.writer.tells_start else 422)
    rig.settle()
    assert rig.put(rig.first, ttl=None)[0] == 200
    assert rig.undone()


def test_a_loan_goes_back_at_the_next_request_after_its_time(rig: Rig) -> None:
    rig.put(rig.writer.new)
    rig.now += TTL + 1
    rig.settle()
    assert rig.undone()
    assert rig.row.expires_in_seconds is None


def test_a_controller_that_vanished_is_undone_by_the_next_one(rig: Rig) -> None:
    before = rig.board.sheet(rig.now).instance
    rig.put(rig.writer.new)
    rig.board = rig.new_board()
    assert (rig.row.value, rig.board.sheet(rig.now).instance) == (rig.writer.new, before)
    assert rig.put(rig.first, ttl=None)[0] == 200
    assert rig.undone()


def test_what_is_out_of_bounds_unknown_or_of_another_version_asks_for_nothing(rig: Rig) -> None:
    row = rig.row
    for value in (row.min - 1, row.max + 1):
        assert rig.put(value)[0] == 422
    assert rig.put(rig.writer.new, version=row.version + 1)[0] == 409
    assert (
        rig.board.patch("nonsense", 1, if_version=None, ttl_seconds=None, change="c", now=rig.now).status
        == 404
    )
    assert rig.board.delete("nonsense", rig.now).status == 404
    assert rig.engine.writes == []


def test_versions_count_changes(rig: Rig) -> None:
    first = rig.row.version
    assert rig.put(rig.writer.new, version=first)[0] == 200
    second = rig.row.version
    assert second > first
    assert rig.put(rig.first, version=first)[0] == 409
    assert rig.put(rig.first, version=second)[0] == 200


FAULTS = ("error_body", "ignored", "denied", "absent", "broken", "garbled", "silent")


@pytest.mark.parametrize("fault", FAULTS)
def test_no_answer_is_believed(rig: Rig, fault: str) -> None:
    rig.engine.fault = fault
    status, said = rig.put(rig.writer.new)
    assert rig.engine.writes
    said = f"{said} {rig.row.note}"
    rig.engine.fault = ""
    rig.settle()
    assert rig.undone()
    assert status != 200 or (rig.row.note and rig.row.phase != FAILED)
    assert said.strip()
    assert said.isprintable()
    if fault == "denied":
        assert status == 401 or "401" in said
    rig.now += 1000.0
    assert rig.put(rig.writer.new)[0] == 200  # and it can be tried again
    assert rig.engine.value == rig.writer.new


def test_what_was_done_without_an_answer_is_found_out(rig: Rig) -> None:
    rig.engine.fault = "slow"
    assert rig.put(rig.writer.new)[0] == 200
    assert (rig.engine.value, rig.row.value) == (rig.writer.new, rig.writer.new)


def test_an_engine_that_hangs_altogether_is_told_of(rig: Rig) -> None:
    rig.engine.fault = "deaf"
    status, said = rig.put(rig.writer.new) if not rig.writer.waits else (504, "no answer")
    assert status == 504
    assert "no answer" in said
    if rig.writer.waits:
        with pytest.raises((RestartError, StockError), match="no answer"):
            rig.new_board().sheet(rig.now)
    rig.engine.fault = ""
    assert rig.undone()


def test_requests_that_run_are_drained_first_and_never_cut(waiting: Rig) -> None:
    waiting.engine.requests = 3
    waiting.board.patch(
        waiting.writer.knob, waiting.writer.new, if_version=None, ttl_seconds=TTL, change="c", now=waiting.now
    )
    waiting.now += 10
    assert (waiting.row.phase, waiting.engine.writes) == ("draining", [])
    waiting.settle()
    assert waiting.engine.writes == []
    assert waiting.undone()
    assert "3 requests still ran" in waiting.row.note


@pytest.mark.parametrize(
    "writer", [one for one in WAITING if "switches" not in one.path and "sleep" not in one.path], ids=str
)
def test_a_reload_that_fails_half_way_goes_back(writer: Writer, tmp_path: Path) -> None:
    rig = Rig(writer, tmp_path)
    rig.engine.fault = "spoilt"
    rig.put(writer.new)
    assert rig.undone()
    assert (rig.row.phase, rig.row.expires_in_seconds) == ("", None)
    assert f"{writer.knob} {writer.new} did not work" in rig.row.note
    rig.engine.fault = ""
    assert rig.put(writer.new)[0] == 200
    assert rig.engine.value == writer.new


@pytest.mark.parametrize(
    "writer", [one for one in WAITING if "switches" not in one.path and "sleep" not in one.path], ids=str
)
def test_an_engine_that_does_not_come_back_is_left_with_the_command_to_run_by_hand(
    writer: Writer, tmp_path: Path
) -> None:
    rig = Rig(writer, tmp_path)
    rig.engine.fault = "ruined"
    rig.put(writer.new)
    assert rig.row.phase == FAILED
    assert "by hand: " in rig.row.note
    assert "http://r1:8000" in rig.row.note
    rig.engine.fault = ""
    assert rig.put(rig.first, ttl=None)[0] == 200  # `enginetop rollback` tries once more
    assert rig.undone()
    assert rig.row.phase == ""


def test_a_switch_that_cannot_be_turned_back_is_left_with_the_command(tmp_path: Path) -> None:
    for writer in WAITING[:2]:
        rig = Rig(writer, tmp_path)
        rig.put(1)
        rig.engine.fault = "ignored"
        rig.put(0, ttl=None)
        assert rig.row.phase == FAILED
        assert "by hand: curl -fsS -X POST http://r1:8000/wake" in rig.row.note


def test_nothing_that_lies_kills_or_throws_away_is_ever_asked_for(rig: Rig) -> None:
    for fault in ("", *FAULTS):
        rig.engine.fault = fault
        rig.put(rig.writer.new)
        rig.now += 1000
        rig.put(rig.first, ttl=None)
        rig.now += 1000
    assert rig.engine.writes
    assert not [asked for asked in rig.engine.writes for word in FORBIDDEN if word in asked]
    assert all(
        "mode=wait" in asked for asked in rig.engine.writes if "vllm" in rig.writer.path and "/sleep" in asked
    )
