"""Request logs as they are read: lines in, claimed records out; what was wrong is counted, and said once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from collectors.fetch import one_line
from collectors.records.formats import AUTO
from collectors.records.lines import RecordLineError, RequestLine, parse_line
from collectors.records.open_file import RawLine
from collectors.records.tail import FileTail, StreamTail
from enginetop.fleet.attribution import ClaimedRecord
from enginetop.fleet.frozen import frozen

STANDARD_INPUT = "-"

MOST_AHEAD_SECONDS = 300.0
"""How far the clock of a log's writer may be ahead of ours; a record from later on is refused."""


class Tail(Protocol):
    """Whole lines of a file or a stream, as they come."""

    problem: str

    @property
    def behind(self) -> bool:
        """Whether more lines wait than the last poll could take."""

    @property
    def ended(self) -> bool:
        """Whether all that is there was read; a stream ends when its writer closes it."""

    def poll(self) -> list[RawLine]:
        """The lines that are new. Never raises and never waits."""

    def close(self) -> None:
        """Let go of the file."""


@frozen
class RecordLog:
    """One log to be read.

    `path` may be a directory, or `-` for standard input. `target_url`: whose requests they are, None: as each
    record says. `from_start`: what is in the file already counts too. `thinking_token_budget` counts for
    records that name none.
    """

    path: str
    form: str = AUTO
    target_url: str | None = None
    from_start: bool = False
    thinking_token_budget: float | None = None


class RecordSource:
    """Reads one log. Not for use from several threads at once."""

    def __init__(self, log: RecordLog, tail: Tail | None = None) -> None:
        self._log = log
        self._tail = tail or _tail_of(log)
        self._name = "standard input" if log.path == STANDARD_INPUT else one_line(Path(log.path).name)
        self._number = 0
        self._complaint = ""
        self.bad_records = 0

    @property
    def problem(self) -> str:
        """Why it cannot be read, else the first line that was no record, in one line; empty: neither."""
        return one_line(self._tail.problem) or self._complaint

    @property
    def behind(self) -> bool:
        """Whether it should be polled again at once."""
        return self._tail.behind

    @property
    def ended(self) -> bool:
        """Whether all that is there was read; a stream ends when its writer closes it."""
        return self._tail.ended

    def poll(self, now: float) -> list[ClaimedRecord]:
        """The records that are new at Unix time `now`. Never raises and never waits."""
        found: list[ClaimedRecord] = []
        for line in self._tail.poll():
            self._number += 1
            try:
                record = self._record(line, now)
            except RecordLineError as error:
                self.bad_records += 1
                self._complaint = self._complaint or one_line(
                    f"{self._log.path}: line {self._number} read: {error}; such lines are passed over"
                )
                continue
            if record is not None:
                found.append(record)
        return found

    def close(self) -> None:
        """Let go of the file."""
        self._tail.close()

    def _record(self, line: RawLine, now: float) -> ClaimedRecord | None:
        if not line.whole:
            raise RecordLineError("too long for a record")
        parsed = parse_line(line.data.decode("utf-8", "replace"), self._log.form)
        if parsed is None:
            return None
        at = parsed.ended_at
        if at is None:
            at = now if line.written_by is None else min(line.written_by, now)
        if at > now + MOST_AHEAD_SECONDS:
            raise RecordLineError("its time lies in the future")
        return self._claimed(parsed, at)

    def _claimed(self, parsed: RequestLine, at: float) -> ClaimedRecord:
        return ClaimedRecord(
            parsed.figures(at, self._name, self._log.thinking_token_budget),
            assigned=self._log.target_url or "",
            target=parsed.target,
            api_base=parsed.api_base,
            model=parsed.model,
        )


def bad_records(sources: Sequence[RecordSource]) -> int:
    """Lines of all logs that were no record."""
    return sum(source.bad_records for source in sources)


def problem_of(sources: Sequence[RecordSource]) -> str:
    """What is wrong with each log, in one line; empty when nothing is."""
    return "; ".join(source.problem for source in sources if source.problem)


def _tail_of(log: RecordLog) -> Tail:
    if log.path == STANDARD_INPUT:
        return StreamTail(0)
    return FileTail(Path(log.path), from_start=log.from_start)
