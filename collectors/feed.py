"""From raw answers to observations: which path to ask next, and what the answers mean.

Pure: the live loop and the replay drive the same feed, so a recording tells the same story as the wire did.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from collectors.answer import Answer
from collectors.engines.base import EngineTable, Look, Reader
from collectors.engines.detect import by_server_header
from collectors.judge import GoodPage, PageJudge
from collectors.layout import LayoutCache
from collectors.meaning import Miss, miss_of, most_telling
from collectors.origin import METRICS_PATHS
from collectors.page import Page
from collectors.routine import Routine
from collectors.side_pages import SidePages
from enginetop.fleet.model import EngineKind, Target
from enginetop.fleet.observation import CONNECTION_FAILURES, Failure, FailureKind, Observation
from enginetop.fleet.reading import Reading

_NO_SERVER = frozenset({FailureKind.REFUSED, FailureKind.DNS, FailureKind.TLS})
_REACHED = frozenset({FailureKind.TRUNCATED, FailureKind.TOO_LARGE})


class TargetFeed:
    """What is known of one target, fed with answers.

    A scrape is a loop: while `next_path(answers)` names a path, ask it and append the answer; then
    `take(answers, ...)`. A replay calls `take` alone, with the answers recorded at one instant. Nothing is
    ever raised: a fault of our own becomes a failure of kind `COLLECTOR`.
    """

    def __init__(self, target: Target, layouts: LayoutCache) -> None:
        self._target = target
        self._judge = PageJudge(target, layouts)
        self._table: EngineTable | None = None
        self._reader: Reader | None = None
        self._page_path: str | None = None
        self._last: GoodPage | None = None
        self._sides = SidePages()
        self._start: float | None = None
        self._hung = False
        self._gone = False
        """Nobody was at the address since the last good page: another engine may come."""
        self._queue: tuple[Answer, Miss] | None = None
        self._routine: Routine | None = None
        """How the next scrape goes if it goes as the last one did; None: it has to be thought about."""

    @property
    def table(self) -> EngineTable | None:
        """The table of the engine seen last on this target; None before the first."""
        return self._table

    @property
    def engine(self) -> EngineKind:
        """The engine seen last on this target."""
        return self._table.kind if self._table else EngineKind.UNKNOWN

    def next_path(self, answers: Sequence[Answer]) -> str | None:
        """The path to ask after these answers of the present scrape; None: the scrape is complete."""
        try:
            if self._routine is not None:
                if not answers:
                    return self._routine.path
                if self._routine.ends_with(answers):
                    return None
            return self._next_path(answers)
        except Exception:  # noqa: BLE001  # whatever a page did to us must not end the scraping; take() reports it
            return None

    def take(self, answers: Sequence[Answer], at: float, seconds: float) -> Observation:
        """What the answers of one scrape, or of one instant of a recording, bring.

        `at` is the time when the last of them was complete, `seconds` how long the scrape took.
        """
        try:
            usual = self._routine is not None and self._routine.ends_with(answers)
            outcome = self._take_usual(answers, at) if usual else self._take(answers, at)
            if isinstance(outcome, Failure):
                self._routine = None
            elif not usual or self._routine is None:
                self._routine = self._routine_after(answers)
        except Exception as error:  # noqa: BLE001  # a fault of ours is shown, never hidden, and stops nothing
            detail = f"enginetop could not read this target: {type(error).__name__}"
            outcome = Failure(FailureKind.COLLECTOR, at, detail, answered=_answered(answers))
            self._routine = None
        self._judge.forget()
        self._sides.end_scrape()
        # A page that hangs takes the whole scrape; the next one asks first whether the server is alive.
        self._hung = isinstance(outcome, Failure) and outcome.kind is FailureKind.TIMEOUT
        if isinstance(outcome, Failure):
            if outcome.kind in CONNECTION_FAILURES or outcome.kind is FailureKind.LOADING:
                self._sides.ask_again()  # the process may be another one when it is back
            if outcome.kind in _NO_SERVER:
                self._gone, self._queue = True, None
            return Observation(at, seconds, failure=outcome)
        reading, metrics_page = outcome
        return Observation(at, seconds, reading=reading, metrics_page=metrics_page)

    # Which path next

    def _routine_after(self, answers: Sequence[Answer]) -> Routine | None:
        """The way of this scrape if it asked its page alone, and nothing says that the next one asks more."""
        table, path = self._table, self._page_path
        if table is None or path is None or [answer.path for answer in answers] != [path]:
            return None
        sides = self._sides.bodies
        asked = [side for side in table.side_pages if side.asked_with(sides)]
        if any(side.before_metrics or self._sides.is_due(side) for side in asked):
            return None
        if not table.may_read_metrics(sides) or next(iter(self._candidates()), None) != path:
            return None
        routine = Routine(path, answers[0].headers.get("server"))
        return routine if routine.ends_with(answers) else None

    def _next_path(self, answers: Sequence[Answer]) -> str | None:
        asked = {answer.path for answer in answers}
        table = self._table_after(answers)
        if any(self._ending(answer, table) for answer in answers):
            return None
        if table:
            if self._hung and table.liveness_path and table.liveness_path not in asked:
                return table.liveness_path
            sides = self._sides.bodies_after(answers)
            pages = [side for side in table.side_pages if side.path not in asked]
            before = (side for side in pages if side.before_metrics and side.asked_with(sides))
            if first := next(before, None):
                return first.request
            if not table.may_read_metrics(sides):
                return None
        if not any(self._is_good(answer) for answer in answers):
            return next((path for path in self._candidates() if path not in asked), None)
        if table is None or answers[-1].error is not None:
            return None
        due = (side for side in pages if self._sides.is_due(side) and side.asked_with(sides))
        return next((side.request for side in due if self._wanted(side.path, answers, table)), None)

    def _wanted(self, path: str, answers: Sequence[Answer], table: EngineTable) -> bool:
        """Whether the reader has use for a side page after the metrics page among these."""
        judged = (self._judged(answer) for answer in answers if self._is_metrics_path(answer.path))
        page = next((one.page for one in judged if isinstance(one, GoodPage)), None)
        reader = self._reader if self._reader is not None and table is self._table else table.new_reader()
        return page is None or reader.wants_side(path, page)

    def _candidates(self) -> Iterable[str]:
        """Metrics paths in the order in which they are tried."""
        if self._target.metrics_path is not None:
            return (self._target.metrics_path,)
        known = (self._page_path,) if self._page_path else ()
        return [path for path in dict.fromkeys((*known, *METRICS_PATHS)) if not self._barred(path)]

    def _barred(self, path: str) -> bool:
        """Whether asking would empty a queue: one that was seen there, or that of the known engine."""
        if self._queue is not None and self._queue[0].path == path:
            return True
        if self._gone or self._table is None or (self._last is not None and self._last.answer.path == path):
            return False
        return any(path == never for never, _ in self._table.never)

    def _ending(self, answer: Answer, table: EngineTable | None) -> Miss | None:
        """The miss after which no other path is tried: the server itself is in trouble.

        To go on from a page in trouble to the next could drain the queue that the order of paths protects.
        """
        if table and answer.path == table.liveness_path:
            return miss_of(answer, table) if answer.error is not None else None
        if not (self._is_metrics_path(answer.path) or _decides(answer.path, table)):
            return None
        miss = miss_of(answer, table)
        if miss is None or miss.kind in (FailureKind.NO_ENGINE_METRICS, FailureKind.UNAUTHORIZED):
            # TensorRT-LLM before its first request: the page is there, and has no series yet.
            return miss if miss and miss.exposition and answer.path == METRICS_PATHS[0] else None
        return None if miss.absent else miss

    def _is_good(self, answer: Answer) -> bool:
        if not self._is_metrics_path(answer.path):
            return False
        if answer.path == self._page_path:  # known to be the engine's: parsed once only, by take()
            return miss_of(answer) is None
        return isinstance(self._judged(answer), GoodPage)

    # What the answers mean

    def _take_usual(self, answers: Sequence[Answer], at: float) -> Failure | tuple[Reading | None, bool]:
        """What a scrape brings that ends as the one before: its page, of the engine that is known."""
        judged = self._judged(answers[0])
        return self._accept(judged, answers, at) if isinstance(judged, GoodPage) else self._take(answers, at)

    def _take(self, answers: Sequence[Answer], at: float) -> Failure | tuple[Reading | None, bool]:
        if table := self._table_after(answers):
            self._reader_for(table)
        metrics = [answer for answer in answers if self._is_metrics_path(answer.path)]
        metrics.sort(key=lambda answer: answer.path != self._page_path)
        misses: list[tuple[Answer, Miss]] = []
        for answer in metrics:
            judged = self._judged(answer)
            if isinstance(judged, GoodPage):
                return self._accept(judged, answers, at)
            misses.append((answer, judged))
            if judged.queue:
                self._queue = (replace(answer, body=b""), judged)
        self._sides.take(answers)
        if barring := self._barring(answers):
            outcome = self._read(barring, None, at)
            return outcome if isinstance(outcome, Failure) else (outcome, True)
        if misses:
            # A queue is not emptied again to say what it was.
            return self._failure([*misses, self._queue] if self._queue else misses, answers, at)
        return self._without_metrics(answers, at)

    def _accept(
        self, good: GoodPage, answers: Sequence[Answer], at: float
    ) -> Failure | tuple[Reading | None, bool]:
        self._page_path, self._gone = good.answer.path, False
        # without the 74 KiB of body that have been read
        kept = Answer(good.answer.path, good.answer.at, headers=good.answer.headers)
        self._last = GoodPage(kept, good.page, good.table)
        self._reader_for(good.table)
        self._sides.take(answers)
        outcome = self._read(good.table, good.page, at)
        if isinstance(outcome, Failure):
            return outcome
        if outcome.start_token != self._start and self._start is not None:
            self._sides.ask_again()
            self._routine = None
        self._start = outcome.start_token
        return outcome, True

    def _barring(self, answers: Sequence[Answer]) -> EngineTable | None:
        """The engine of which a side page among these says that the metrics page may not be asked."""
        table = self._table
        told = any(_decides(answer.path, table) and answer.path in self._sides for answer in answers)
        barred = told and table is not None and not table.may_read_metrics(self._sides.bodies)
        return table if barred else None

    def _without_metrics(self, answers: Sequence[Answer], at: float) -> Failure | tuple[Reading | None, bool]:
        """Only side pages: one that decides and fails, or fresher live figures."""
        table = self._table
        if answers and all(answer.error is not None for answer in answers):
            return self._failed(answers[0], answers, at)
        if table is None:
            return None, True
        for answer in answers:
            if _decides(answer.path, table) and self._ending(answer, table):
                return self._failed(answer, answers, at)
        fresh = {answer.path for answer in answers if answer.path in self._sides}
        live = any(side.every_scrape and side.path in fresh for side in table.side_pages)
        if live and self._last is not None and self._last.table is table:
            outcome = self._read(table, self._last.page, at)
            return outcome if isinstance(outcome, Failure) else (outcome, False)
        return None, True

    def _read(self, table: EngineTable, page: Page | None, at: float) -> Reading | Failure:
        last = self._last
        page_at = last.answer.at if last and page is not None else 0.0
        return self._reader_for(table).read(
            Look(
                at=at,
                page=page,
                headers=last.answer.headers if last and page is not None else {},
                sides=self._sides.bodies,
                fresh_sides=self._sides.fresh_since(page_at),
            )
        )

    def _failure(
        self, misses: Sequence[tuple[Answer, Miss]], answers: Sequence[Answer], at: float
    ) -> Failure | tuple[Reading | None, bool]:
        if any(miss.kind not in _NO_SERVER for _, miss in misses):
            # One path that answers means that the server is there: the other one was met at a bad moment.
            misses = [(answer, miss) for answer, miss in misses if miss.kind not in _NO_SERVER]
        known = self._page_path
        if known is not None and self._target.metrics_path is None:
            if all(answer.path != known for answer, _ in misses):
                # Another path than the engine's says nothing, unless the server is not there at all.
                misses = [(answer, miss) for answer, miss in misses if miss.kind in _NO_SERVER]
                if not misses:
                    return None, True
            elif any(a.path == known and m.kind is FailureKind.NO_ENGINE_METRICS for a, m in misses):
                self._page_path = None
        miss = most_telling(misses)
        return Failure(miss.kind, at, miss.detail, answered=_answered(answers))

    def _failed(self, answer: Answer, answers: Sequence[Answer], at: float) -> Failure:
        miss = miss_of(answer, self._table) or Miss(FailureKind.PROTOCOL, f"no page at {answer.path}")
        return Failure(miss.kind, at, miss.detail, answered=_answered(answers))

    # State

    def _judged(self, answer: Answer) -> GoodPage | Miss:
        return self._judge.judge(answer, self._table)

    def _table_after(self, answers: Sequence[Answer]) -> EngineTable | None:
        """The engine's table as far as these answers tell: a header, a page, else what was known."""
        for answer in reversed(answers):
            if table := by_server_header(answer.headers):
                return table
            known = answer.path == self._page_path or not self._is_metrics_path(answer.path)
            if not known and isinstance(judged := self._judged(answer), GoodPage):
                return judged.table
        return self._table

    def _reader_for(self, table: EngineTable) -> Reader:
        """The reader of the engine that is there now; nothing that another one told holds any longer."""
        if self._reader is None or self._table is not table:
            self._table, self._reader, self._routine = table, table.new_reader(), None
            self._sides.forget()
            self._queue = None
        return self._reader

    def _is_metrics_path(self, path: str) -> bool:
        return path == self._target.metrics_path or path.rstrip("/").endswith("/metrics")


def _decides(path: str, table: EngineTable | None) -> bool:
    """Whether a side page decides if the metrics page may be asked."""
    return table is not None and any(s.path == path and s.before_metrics for s in table.side_pages)


def _answered(answers: Iterable[Answer]) -> bool:
    """Whether any path of the target answered."""
    return any(answer.error is None or answer.error in _REACHED for answer in answers)
