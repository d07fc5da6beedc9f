"""Following a file whose writer rotates, truncates, breaks off, or never ends a line."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.records import open_file as room
from collectors.records.open_file import LineCutter
from collectors.records.tail import FileTail, StreamTail


def texts(tail: FileTail | StreamTail) -> list[str]:
    return [line.data.decode() for line in tail.poll()]


def append(path: Path, text: str | bytes) -> None:
    with path.open("ab") as file:
        file.write(text.encode() if isinstance(text, str) else text)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "requests.jsonl"
    path.write_text("old 1\nold 2\n", encoding="utf-8")
    return path


@pytest.fixture
def tail(log: Path) -> Iterator[FileTail]:
    with closing(FileTail(log, from_start=False)) as found:
        assert found.poll() == []
        yield found


def test_what_is_there_counts_only_when_it_is_asked_for(log: Path) -> None:
    with closing(FileTail(log, from_start=True)) as tail:
        assert texts(tail) == ["old 1", "old 2"]
        append(log, "new\n")
        assert texts(tail) == ["new"]
        assert texts(tail) == []


def test_new_lines_come_once_and_whole(log: Path, tail: FileTail) -> None:
    append(log, "new 1\nne")
    assert texts(tail) == ["new 1"]
    assert texts(tail) == []
    append(log, "w 2")
    assert texts(tail) == []
    append(log, "\n\nnew 4\n")
    assert texts(tail) == ["new 2", "", "new 4"]


def test_a_file_that_ended_in_the_middle_of_a_line_begins_with_the_next(log: Path) -> None:
    append(log, "half of a li")
    with closing(FileTail(log, from_start=False)) as tail:
        assert texts(tail) == []
        append(log, "ne\nwhole\n")
        assert texts(tail) == ["whole"]


def test_a_renamed_file_is_read_to_its_end_and_then_the_new_one(log: Path, tail: FileTail) -> None:
    append(log, "last of the old\nwithout an end")
    log.rename(log.with_suffix(".1"))
    assert texts(tail) == ["last of the old"]
    assert "no such file yet" in tail.problem
    log.write_text("", encoding="utf-8")
    append(log.with_suffix(".1"), " as yet\nlate\n")  # its writer goes on until it is told of the new file
    assert texts(tail) == ["without an end as yet", "late"]
    append(log.with_suffix(".1"), "cut off")
    append(log, "first of the new\n")
    assert texts(tail) == ["cut off", "first of the new"]
    assert tail.problem == ""


def test_rotation_seen_all_at_once(log: Path, tail: FileTail) -> None:
    append(log, "a\n")
    log.rename(log.with_suffix(".1"))
    log.write_text("b\n", encoding="utf-8")
    assert texts(tail) == ["a", "b"]


def test_a_truncated_file_is_read_from_its_start(log: Path, tail: FileTail) -> None:
    append(log, "half")
    assert texts(tail) == []
    log.write_text("anew\n", encoding="utf-8")
    assert texts(tail) == ["anew"]


@pytest.mark.parametrize("lines", [["new 1", "new 2"], ["new 1", "new 2", "new 3"], ["n" * 400, "n" * 400]])
def test_a_truncated_file_that_grew_again_between_two_looks(
    log: Path, tail: FileTail, lines: list[str]
) -> None:
    log.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")  # at least as long as before
    assert texts(tail) == lines
    append(log, "more\n")
    assert texts(tail) == ["more"]


def test_a_file_that_vanishes_and_comes_back(log: Path, tail: FileTail) -> None:
    log.unlink()
    assert texts(tail) == []
    assert "no such file yet" in tail.problem
    log.write_text("back\n", encoding="utf-8")
    assert texts(tail) == ["back"]
    assert tail.problem == ""


def test_a_file_that_appears_later_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "later" / "requests.jsonl"
    with closing(FileTail(path, from_start=False)) as tail:
        assert texts(tail) == []
        assert tail.problem == f"{path}: no such file yet; it is read when it appears"
        path.parent.mkdir()
        path.write_text("here\n", encoding="utf-8")
        assert texts(tail) == ["here"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_says_so(log: Path) -> None:
    log.chmod(0)
    with closing(FileTail(log, from_start=True)) as tail:
        assert texts(tail) == []
        assert tail.problem == f"{log}: permission denied"
        log.chmod(0o600)
        assert texts(tail) == ["old 1", "old 2"]


def refuse(*_: object) -> int:
    raise PermissionError(13, "Permission denied")


def test_any_error_of_the_disk_is_told_and_the_next_look_may_work(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(FileTail(log, from_start=False)) as tail:
        with monkeypatch.context() as broken:
            broken.setattr("os.open", refuse)
            assert texts(tail) == []
            assert tail.problem == f"{log}: permission denied"
        assert texts(tail) == []  # only now it is known where the file ends
        append(log, "new\n")
        assert texts(tail) == ["new"]


def test_a_file_replaced_by_a_directory_is_followed_into_it(log: Path, tail: FileTail) -> None:
    log.unlink()
    log.mkdir()
    assert texts(tail) == []
    assert "no file in it yet" in tail.problem
    (log / "one.log").write_text("inside\n", encoding="utf-8")
    assert texts(tail) == ["inside"]


def test_what_is_neither_file_nor_directory_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with closing(FileTail(tmp_path / "pipe", from_start=True)) as tail:
        assert texts(tail) == []
        assert "not a file" in tail.problem
    with closing(FileTail(Path("/dev/null"), from_start=True)) as tail:
        assert texts(tail) == []
        assert "not a file" in tail.problem


class TestDirectory:
    def hour(self, folder: Path, hour: int, text: str, at: int | None = None) -> Path:
        """A file as SGLang names it, last written at `at`."""
        path = folder / f"sglang-request-metrics-20261130_{hour:02}.log"
        append(path, text)
        os.utime(path, (at or 1000 * hour, at or 1000 * hour))
        return path

    def test_the_newest_file_is_followed_and_the_next_from_its_start(self, tmp_path: Path) -> None:
        self.hour(tmp_path, 1, "1:00\n")
        self.hour(tmp_path, 2, "2:00\n")
        with closing(FileTail(tmp_path, from_start=True)) as tail:
            assert texts(tail) == ["2:00"]
            self.hour(tmp_path, 2, "2:59\n", 2999)
            self.hour(tmp_path, 3, "3:00\n")
            assert texts(tail) == ["2:59", "3:00"]

    def test_two_writers_in_one_directory(self, tmp_path: Path) -> None:
        one, other = tmp_path / "one.log", tmp_path / "other.log"
        with closing(FileTail(tmp_path, from_start=False)) as tail:
            seen = texts(tail)
            for number in range(4):
                path = (one, other)[number % 2]
                append(path, f"line {number}\nhalf ")
                os.utime(path, (number, number))
                seen += texts(tail)
            assert seen == ["line 0", "line 1", "half line 2", "half line 3"]

    def test_hidden_files_and_directories_are_none(self, tmp_path: Path) -> None:
        (tmp_path / ".swp").write_text("x\n", encoding="utf-8")
        (tmp_path / "folder").mkdir()
        (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
        with closing(FileTail(tmp_path, from_start=True)) as tail:
            assert texts(tail) == []
            assert "no file in it yet" in tail.problem

    def test_many_files_are_not_all_remembered(self, tmp_path: Path) -> None:
        with closing(FileTail(tmp_path, from_start=True)) as tail:
            seen = []
            for hour in range(60):
                path = tmp_path / f"{hour:03}.log"
                path.write_text(f"{hour}\n", encoding="utf-8")
                os.utime(path, (hour, hour))
                seen += texts(tail)
            assert seen == [str(hour) for hour in range(60)]
            assert len(tail._offsets) <= 32


class TestBounds:
    def test_a_line_without_end_is_dropped_once_and_the_next_one_read(
        self, log: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(room, "MAX_POLL_BYTES", 1 << 20)
        with closing(FileTail(log, from_start=False)) as tail:
            tail.poll()
            for _ in range(room.MAX_LINE_BYTES // (1 << 20) + 2):
                append(log, b"x" * (1 << 20))
                for line in tail.poll():
                    assert not line.whole
                    assert line.data == b""
            append(log, "\nshort\n")
            assert texts(tail) == ["short"]

    def test_one_look_reads_so_much_and_the_next_goes_on(
        self, log: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(room, "MAX_POLL_BYTES", 1000)
        monkeypatch.setattr(room, "CHUNK_BYTES", 100)
        append(log, "".join(f"{number:09}\n" for number in range(300)))
        with closing(FileTail(log, from_start=True)) as tail:
            first = texts(tail)
            assert len(first) == 100
            assert (tail.behind, tail.ended) == (True, False)
            found = first
            while not tail.ended:
                found += texts(tail)
            assert found == ["old 1", "old 2", *(f"{number:09}" for number in range(300))]

    def test_a_rotated_file_that_is_far_behind_is_finished_first(
        self, log: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(room, "MAX_POLL_BYTES", 1000)
        monkeypatch.setattr(room, "CHUNK_BYTES", 100)
        with closing(FileTail(log, from_start=False)) as tail:
            tail.poll()
            append(log, "".join(f"{number:09}\n" for number in range(300)))
            log.rename(log.with_suffix(".1"))
            log.write_text("new\n", encoding="utf-8")
            found = texts(tail)
            while tail.behind or "new" not in found:
                found += texts(tail)
            assert found == [*(f"{number:09}" for number in range(300)), "new"]

    def test_of_a_huge_old_file_the_last_part_counts(
        self, log: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(room, "MAX_BACKLOG_BYTES", 10)
        log.write_text("0123456789\nabcdef\nghi\n", encoding="utf-8")
        with closing(FileTail(log, from_start=True)) as tail:
            assert texts(tail) == ["ghi"]


def test_when_a_line_was_written_is_known_of_what_was_there(log: Path) -> None:
    os.utime(log, (500, 500))
    with closing(FileTail(log, from_start=True)) as tail:
        assert [line.written_by for line in tail.poll()] == [500, 500]
        append(log, "new\n")
        assert [line.written_by for line in tail.poll()] == [None]


class TestStream:
    def test_it_is_read_as_it_comes_and_to_its_end(self) -> None:
        reading, writing = os.pipe()
        try:
            tail = StreamTail(reading)
            assert texts(tail) == []
            ended = [tail.ended]
            os.write(writing, b"one\ntw")
            assert texts(tail) == ["one"]
            os.write(writing, b"o\nthree")
            assert texts(tail) == ["two"]
            os.close(writing)
            assert texts(tail) == ["three"]
            assert [*ended, tail.ended] == [False, True]
            for _ in range(2):
                assert texts(tail) == []
                assert not tail.behind  # or it would be asked without a rest for ever
        finally:
            os.close(reading)

    def test_a_descriptor_that_is_closed_or_broken_ends_it(self) -> None:
        reading, writing = os.pipe()
        os.close(writing)
        os.close(reading)
        tail = StreamTail(reading)
        assert texts(tail) == []
        assert tail.ended
        assert "standard input" in tail.problem
        with socket.create_server(("127.0.0.1", 0)) as listening:
            tail = StreamTail(listening.fileno())
            assert texts(tail) == []


@settings(max_examples=50, deadline=None)
@given(st.lists(st.binary(max_size=12), max_size=12), st.data())
def test_lines_do_not_depend_on_how_the_bytes_arrive(lines: list[bytes], data: st.DataObject) -> None:
    lines = [line.replace(b"\n", b"") for line in lines]
    whole = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    cutter, found = LineCutter(max_line_bytes=8), []
    for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        found += list(cutter.take(whole[begin:end]))
    assert [line.data if line.whole else None for line in found] == [
        line if len(line) <= 8 else None for line in lines
    ]
    assert cutter.pending_bytes == 0
