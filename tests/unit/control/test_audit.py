"""The audit: a chain that shows every tampering, and survives every crash."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable
from pathlib import Path

import pytest

from enginetop.fleet.change import AuditRow, ChangeState, Verdict
from tuners.control.audit import Audit, row_document


def row(number: int, **over: object) -> AuditRow:
    made = {
        "change": f"c{number}",
        "at": 100.0 + number,
        "state": ChangeState.OBSERVE,
        "target": "http://r1:8000",
        "knob": "max_num_batched_tokens",
        "before": 2048,
        "after": None,
        "verdict": None,
        "detail": 'a "quoted" détail',
    }
    return AuditRow(**(made | over))  # type: ignore[arg-type]


@pytest.fixture
def audit(tmp_path: Path) -> Audit:
    found = Audit(tmp_path)
    for number in range(5):
        found.append([row(number)])
    return found


def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    rows = (row(1), row(2, verdict=Verdict.WORSE, after=512), row(3, before=None, asked=True))
    audit = Audit(tmp_path / "new")
    audit.append(rows[:1])
    audit.append(rows[1:])
    assert Audit(tmp_path / "new").rows() == rows
    assert audit.verify().intact


def test_a_row_of_an_older_version_was_not_asked_for(tmp_path: Path) -> None:
    old = row_document(row(1))
    del old["asked"]
    (tmp_path / "audit.jsonl").write_text(json.dumps(old) + "\n")
    assert [found.asked for found in Audit(tmp_path).rows()] == [False]


def test_the_keys_of_the_contract(audit: Audit, tmp_path: Path) -> None:
    assert {"id", "at", "state", "target", "knob", "before", "after", "verdict"} <= set(row_document(row(1)))
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [line["id"] for line in lines] == ["c0", "c1", "c2", "c3", "c4"]
    assert (tmp_path / "audit.jsonl").stat().st_mode & 0o077 == 0


def _edit(change: Callable[[list[bytes]], object]) -> Callable[[Path], None]:
    def tamper(folder: Path) -> None:
        lines = (folder / "audit.jsonl").read_bytes().splitlines(keepends=True)
        change(lines)
        (folder / "audit.jsonl").write_bytes(b"".join(lines))

    return tamper


def _replace(lines: list[bytes], index: int) -> None:
    lines[index] = lines[index].replace(b"2048", b"1024")


TAMPERED: dict[str, Callable[[Path], object]] = {
    "a value in the middle": _edit(lambda lines: _replace(lines, 2)),
    "a value in the first line": _edit(lambda lines: _replace(lines, 0)),
    "a value in the last line": _edit(lambda lines: _replace(lines, 4)),
    "a line less in the middle": _edit(lambda lines: lines.pop(2)),
    "the first line gone": _edit(lambda lines: lines.pop(0)),
    "the tail cut": _edit(lambda lines: lines.pop()),
    "all but one cut": _edit(lambda lines: lines.__delitem__(slice(1, None))),
    "two lines swapped": _edit(lambda lines: lines.insert(1, lines.pop(2))),
    "a line doubled": _edit(lambda lines: lines.insert(1, lines[1])),
    "junk in the middle": _edit(lambda lines: lines.insert(2, b"junk\n")),
    "emptied": lambda folder: (folder / "audit.jsonl").write_bytes(b""),
    "removed": lambda folder: (folder / "audit.jsonl").unlink(),
    "head removed": lambda folder: (folder / "audit.head").unlink(),
    "head forged": lambda folder: (folder / "audit.head").write_text('{"lines": 5, "hash": "0"}'),
    "head junk": lambda folder: (folder / "audit.head").write_text("[]"),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_tampering_shows(audit: Audit, tmp_path: Path, name: str) -> None:
    assert audit.verify().intact
    TAMPERED[name](tmp_path)
    check = audit.verify()
    assert not check.intact
    assert check.problem


@pytest.mark.parametrize("name", sorted(set(TAMPERED) - {"head removed", "head forged", "head junk"}))
def test_tampering_still_shows_after_further_rows(audit: Audit, tmp_path: Path, name: str) -> None:
    TAMPERED[name](tmp_path)
    audit.append([row(9)])
    assert not audit.verify().intact
    assert audit.rows()[-1] == row(9)  # and nothing that happens later is lost


DEEP = b"[" * 100_000


@pytest.mark.parametrize(
    "head",
    [DEEP, b'{"lines": -9, "hash": "0"}', b'{"lines": Infinity, "hash": "0"}', b'{"lines": null}'],
    ids=["deep", "negative", "endless", "null"],
)
def test_a_head_of_whatever_content_only_shows(audit: Audit, tmp_path: Path, head: bytes) -> None:
    (tmp_path / "audit.head").write_bytes(head)
    assert not audit.verify().intact
    audit.append([row(9)])
    assert audit.rows()[-1] == row(9)


@pytest.mark.parametrize(
    "line",
    [DEEP, b"9" * 5000, b'{"id": "c1", "at": ' + b"9" * 400 + b', "verdict": null}', b'{"hash": {}}'],
    ids=["deep", "a long number", "a late time", "a hash of another kind"],
)
def test_a_line_of_whatever_content_only_shows(audit: Audit, tmp_path: Path, line: bytes) -> None:
    with (tmp_path / "audit.jsonl").open("ab") as file:
        file.write(line + b"\n")
    assert not audit.verify().intact
    assert len(audit.rows()) == 5
    audit.append([row(9)])
    assert audit.rows()[-1] == row(9)
    assert not audit.verify().intact


@pytest.mark.parametrize("torn", [b"{", b'{"id": "x"', b'{"id": "c5", "at": 1.0}'])
def test_a_line_torn_by_a_crash_is_left_out_and_overwritten(
    audit: Audit, tmp_path: Path, torn: bytes
) -> None:
    with (tmp_path / "audit.jsonl").open("ab") as file:
        file.write(torn)
    assert audit.verify().intact
    assert len(audit.rows()) == 5
    audit.append([row(5)])
    assert audit.verify().intact
    assert [found.change for found in audit.rows()] == ["c0", "c1", "c2", "c3", "c4", "c5"]


def test_a_crash_between_the_lines_and_the_head(audit: Audit, tmp_path: Path) -> None:
    head = (tmp_path / "audit.head").read_bytes()
    audit.append([row(5), row(6)])
    (tmp_path / "audit.head").write_bytes(head)
    assert audit.verify().intact
    audit.append([row(7)])
    assert audit.verify().intact
    assert len(audit.rows()) == 8


def test_no_audit_yet(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "none")
    assert audit.rows() == ()
    assert audit.verify().intact
    assert not (tmp_path / "none").exists()


def _append_many(folder: str, first: int) -> None:
    audit = Audit(Path(folder))
    for number in range(10):
        audit.append([row(first + number)])


def test_several_processes_append_to_one_chain(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_append_many, args=(str(tmp_path), 100 * i)) for i in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    audit = Audit(tmp_path)
    assert audit.verify().intact
    assert len(audit.rows()) == 20
