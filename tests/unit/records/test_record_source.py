"""From the bytes of a log to claimed records: times, what is refused, one diagnostic a file."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import pytest

from collectors.records.open_file import RawLine
from collectors.records.reader import RecordReader
from collectors.records.source import MOST_AHEAD_SECONDS, RecordLog, RecordSource
from enginetop.fleet.attribution import ClaimedRecord
from enginetop.fleet.snapshot import CollectorHealth

NOW = 1_000_000.0
USAGE = {"usage": {"prompt_tokens": 9, "completion_tokens": 7}}


class Lines:
    """A tail of the lines that it is given."""

    def __init__(self, *polls: Sequence[bytes | RawLine]) -> None:
        self._polls = list(polls)
        self.problem = ""
        self.behind = False
        self.ended = True
        self.closed = False

    def poll(self) -> list[RawLine]:
        lines = self._polls.pop(0) if self._polls else []
        return [line if isinstance(line, RawLine) else RawLine(line) for line in lines]

    def close(self) -> None:
        self.closed = True


def sglang(ended: float, **more: object) -> bytes:
    return json.dumps(
        {"request_parameters": "{}", "completion_tokens": 7, "request_finished_ts": ended, **more}
    ).encode()


def source(*polls: Sequence[bytes | RawLine], log: RecordLog | None = None) -> RecordSource:
    return RecordSource(log or RecordLog("/var/log/requests.jsonl"), Lines(*polls))


def test_the_records_own_time_counts_else_that_of_the_reading() -> None:
    usage = json.dumps(USAGE).encode()
    found = source([sglang(NOW - 30), usage, RawLine(usage, written_by=NOW - 500)]).poll(NOW)
    assert [one.figures.at for one in found] == [NOW - 30, NOW, NOW - 500]


def test_a_clock_of_ours_that_steps_back_breaks_nothing() -> None:
    read = source(
        [json.dumps(USAGE).encode()], [sglang(NOW - 4000)], [RawLine(json.dumps(USAGE).encode(), NOW)]
    )
    assert [read.poll(now)[0].figures.at for now in (NOW, NOW - 4000, NOW - 3999)] == [
        NOW,
        NOW - 4000,
        NOW - 3999,  # no later than it was read
    ]
    assert read.bad_records == 0


def test_the_far_future_is_refused() -> None:
    read = source([sglang(NOW + MOST_AHEAD_SECONDS), sglang(NOW + MOST_AHEAD_SECONDS + 1)])
    assert [one.figures.at for one in read.poll(NOW)] == [NOW + MOST_AHEAD_SECONDS]
    assert read.bad_records == 1
    assert read.problem.startswith("/var/log/requests.jsonl: line 2 read: its time lies in the future")


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (b"{", "not JSON"),
        (b"\xff\xfe\x00garbage", "not JSON"),
        (b"\x00" * 50 + b"x", "not JSON"),
        (b"null", "not a JSON object"),
        (b'{"level": "info"}', "no request record"),
        (RawLine(b"", whole=False), "too long"),
    ],
)
def test_garbage_is_counted_and_said_once_and_the_rest_goes_on(bad: bytes | RawLine, why: str) -> None:
    read = source([sglang(1.0), bad, sglang(2.0), b"", b"[]", bad], [b"nonsense"])
    assert [one.figures.at for one in read.poll(NOW)] == [1.0, 2.0]
    said = read.problem
    assert said.startswith("/var/log/requests.jsonl: line 2 read: ")
    assert why in said
    assert "\n" not in said
    assert read.bad_records == 3
    read.poll(NOW)
    assert (read.bad_records, read.problem) == (4, said)


def test_formats_may_be_mixed_unless_one_is_named() -> None:
    both = [sglang(1.0), json.dumps(USAGE).encode()]
    assert len(source(both).poll(NOW)) == 2
    named = source(both, log=RecordLog("r.jsonl", "sglang"))
    assert len(named.poll(NOW)) == 1
    assert named.bad_records == 1


def test_a_record_says_where_it_is_from_and_whose_it_may_be() -> None:
    line = json.dumps(
        {
            "startTime": 1.0,
            "endTime": 2.0,
            "completion_tokens": 7,
            "model": "m",
            "api_base": "http://r1:8000/v1",
        }
    ).encode()
    log = RecordLog("/logs/usage.jsonl", target_url="http://r2:8000", thinking_token_budget=512)
    assert source([line]).poll(NOW)[0].assigned == ""
    (found,) = source([line], log=log).poll(NOW)
    assert (found.assigned, found.model, found.api_base) == ("http://r2:8000", "m", "http://r1:8000/v1")
    assert (found.figures.source, found.figures.thinking_token_budget) == ("usage.jsonl", 512)


def test_a_name_of_a_file_cannot_reach_the_terminal() -> None:
    read = source([b"{"], log=RecordLog("/tmp/\x1b[2Jlog"))
    read.poll(NOW)
    assert "\x1b" not in read.problem


class TestReader:
    def test_it_reads_in_a_thread_of_its_own_and_a_last_time_at_the_end(self, tmp_path: Path) -> None:
        path = tmp_path / "r.jsonl"
        path.write_bytes(sglang(1.0) + b"\n{\n")
        found: list[ClaimedRecord] = []
        threads: set[str] = set()
        first = threading.Event()

        def take(records: Sequence[ClaimedRecord]) -> None:
            found.extend(records)
            threads.add(threading.current_thread().name)
            first.set()

        reader = RecordReader([RecordSource(RecordLog(str(path), from_start=True))])
        reader.start(lambda: NOW, take)
        assert first.wait(10)
        with path.open("ab") as file:
            file.write(sglang(2.0) + b"\n")
        reader.stop()
        assert [one.figures.at for one in found] == [1.0, 2.0]
        assert threads == {"enginetop-records"}
        health = reader.reported(CollectorHealth(late_ticks=3))
        assert (health.late_ticks, health.bad_records) == (3, 1)
        assert "not JSON" in health.record_problem
        assert reader.reported(CollectorHealth(problem="worse")).told.startswith("worse; ")

    def test_a_fault_of_ours_is_told(self) -> None:
        told = threading.Event()

        def break_down(_: Sequence[ClaimedRecord]) -> None:
            told.set()
            raise ZeroDivisionError("oh")

        reader = RecordReader([source([sglang(1.0)])])
        reader.start(lambda: NOW, break_down)
        assert told.wait(10)
        reader.stop()
        assert reader.problem == "request records cannot be read: ZeroDivisionError: oh"

    @pytest.mark.parametrize("breaks", ["poll", "behind", "close"])
    def test_a_log_that_breaks_keeps_nobody_from_the_others(self, breaks: str) -> None:
        def break_down(*_: object) -> NoReturn:
            raise ZeroDivisionError("oh")

        broken = type("Broken", (RecordSource,), {breaks: property(break_down)})
        taken = threading.Event()
        found: list[ClaimedRecord] = []

        def take(records: Sequence[ClaimedRecord]) -> None:
            found.extend(records)
            taken.set()

        reader = RecordReader([broken(RecordLog("x"), Lines([])), source([sglang(1.0)])])
        reader.start(lambda: NOW, take)
        assert taken.wait(10)
        reader.stop()
        assert [one.figures.at for one in found] == [1.0]
        assert reader.problem == "request records cannot be read: ZeroDivisionError: oh"

    def test_draining_reads_a_long_file_to_its_end_and_stopping_does_not(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("collectors.records.open_file.MAX_POLL_BYTES", 1000)
        monkeypatch.setattr("collectors.records.open_file.CHUNK_BYTES", 1000)
        path = tmp_path / "long.jsonl"
        path.write_bytes(b"".join(sglang(float(n)) + b"\n" for n in range(200)))
        counts = []
        for seconds in (0.001, 0.0):
            found: list[ClaimedRecord] = []
            reader = RecordReader([RecordSource(RecordLog(str(path), from_start=True))])
            reader.start(lambda: NOW, found.extend)
            reader.stop(seconds)
            counts.append(len(found))
            assert reader.problem == ""
            monkeypatch.setattr("collectors.records.reader._BEHIND_SECONDS", 1000.0)  # no look but the last
        assert counts[0] == 200
        assert counts[1] < 200

    def test_what_cannot_be_read_in_time_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("collectors.records.reader._LONGEST_DRAIN_SECONDS", 0.05)
        endless = Lines(*([sglang(1.0)] for _ in range(10_000)))
        endless.behind, endless.ended = True, False
        reader = RecordReader([RecordSource(RecordLog("x"), endless)])
        reader.start(lambda: NOW, lambda _: None)
        reader.stop(0.01)
        assert reader.problem == "request records: not all of them could be read in 0.05 s"

    def test_draining_reads_a_stream_to_its_end_but_not_for_ever(self) -> None:
        lines = Lines([sglang(1.0)], [sglang(2.0)], [sglang(3.0)])
        lines.ended = False
        found: list[ClaimedRecord] = []

        def take(records: Sequence[ClaimedRecord]) -> None:
            found.extend(records)
            lines.ended = len(found) == 3

        reader = RecordReader([RecordSource(RecordLog("-"), lines)])
        reader.start(lambda: NOW, take)
        reader.stop(drain_seconds=30)
        assert [one.figures.at for one in found] == [1.0, 2.0, 3.0]
        endless = Lines()
        endless.ended = False
        reader = RecordReader([RecordSource(RecordLog("-"), endless)])
        reader.start(lambda: NOW, take)
        begun = time.monotonic()
        reader.stop(drain_seconds=0.05)
        assert time.monotonic() - begun < 5
        assert endless.closed
