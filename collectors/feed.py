"""From raw answers to observations: which path to ask next, and what the answers mean.

Pure: the live loop and the replay drive the same feed, so a recording tells the same story as the wire did.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from collectors.answer import Answer
from collectors.engines.base import EngineTable, Json, Look, Reader, SidePage
from collectors.engines.detect import SIDE_FIELDS, STATUS_PATHS, Found, by_server_header, recognise
from collectors.engines.json_fields import items
from collectors.engines.trtllm_queue import IterationQueue, is_queue
from collectors.exposition import PageParser
from collectors.layout import LayoutCache
from collectors.meaning import Miss, decode_json, miss_of, miss_of_page
from collectors.page import Page
from collectors.redact import reduced
from enginetop.fleet.model import EngineKind, Target
from enginetop.fleet.observation import CONNECTION_FAILURES, Failure, FailureKind, Observation
from enginetop.fleet.reading import Reading

METRICS_PATHS: tuple[str, ...] = ("/prometheus/metrics", "/metrics")
"""Asked in this order: TensorRT-LLM drains a queue when its `/metrics` is read."""

SIDE_TRIES = 3
"""A page that is asked once per start is given up after as many faults."""
_ABSENT = 1 << 30  # tries of a path that is not there, or not for us: not asked again before a restart
_NOT_FOR_US = frozenset({401, 403, 404, 405, 501})

_NO_SERVER = frozenset({FailureKind.REFUSED, FailureKind.DNS, FailureKind.TLS})
_REACHED = frozenset({FailureKind.TRUNCATED, FailureKind.TOO_LARGE})

# The most telling of several failures is reported: the first of these kinds that occurs.
_TELLING: tuple[FailureKind, ...] = (
    FailureKind.UNAUTHORIZED,
    FailureKind.LOADING,
    FailureKind.DISABLED,
    FailureKind.SERVER_ERROR,
    FailureKind.TRUNCATED,
    FailureKind.TOO_LARGE,
    FailureKind.PROTOCOL,
    FailureKind.TIMEOUT,
    FailureKind.REFUSED,
    FailureKind.DNS,
    FailureKind.TLS,
    FailureKind.NO_ENGINE_METRICS,
    FailureKind.COLLECTOR,
)


@dataclass(frozen=True, slots=True)
class _Side:
    body: Json
    at: float


@dataclass(frozen=True, slots=True, eq=False)
class _Good:
    """A page on which an engine was found."""

    answer: Answer
    page: Page
    found: Found


class TargetFeed:
    """What is known of one target, fed with answers.

    A scrape is a loop: while `next_path(answers)` names a path, ask it and append the answer; then
    `take(answers, ...)`. A replay calls `take` alone, with the answers recorded at one instant. Nothing is
    ever raised: a fault of our own becomes a failure of kind `COLLECTOR`.
    """

    def __init__(self, target: Target, layouts: LayoutCache) -> None:
        self._target = target
        self._parser = PageParser(layouts)
        self._found: Found | None = None
        self._reader: Reader | None = None
        self._page_path: str | None = None
        self._last: _Good | None = None
        self._sides: dict[str, _Side] = {}
        self._tries: dict[str, int] = {}
        self._start: float | None = None
        self._hung = False
        self._gone = False
        """Nobody was at the address since the last good page: another engine may come."""
        self._queue: tuple[Answer, Miss] | None = None
        self._iterations = IterationQueue()
        self._judged: dict[Answer, _Good | Miss] = {}

    @property
    def engine(self) -> EngineKind:
        """The engine seen last on this target."""
        return self._found.kind if self._found else EngineKind.UNKNOWN

    @property
    def found(self) -> Found | None:
        """Whose page was seen last on this target; None before the first."""
        return self._found

    def next_path(self, answers: Sequence[Answer]) -> str | None:
        """The path to ask after these answers of the present scrape; None: the scrape is complete."""
        try:
            return self._next_path(answers)
        except Exception:  # noqa: BLE001  # whatever a page did to us must not end the scraping; take() reports it
            return None

    def take(self, answers: Sequence[Answer], at: float, seconds: float) -> Observation:
        """What the answers of one scrape, or of one instant of a recording, bring.

        `at` is the time when the last of them was complete, `seconds` how long the scrape took.
        """
        try:
            outcome = self._take(answers, at)
        except Exception as error:  # noqa: BLE001  # a fault of ours is shown, never hidden, and stops nothing
            detail = f"enginetop could not read this target: {type(error).__name__}"
            outcome = Failure(FailureKind.COLLECTOR, at, detail, answered=_answered(answers))
        self._judged.clear()
        # A page that hangs takes the whole scrape; the next one asks first whether the server is alive.
        self._hung = isinstance(outcome, Failure) and outcome.kind is FailureKind.TIMEOUT
        if isinstance(outcome, Failure):
            if outcome.kind in CONNECTION_FAILURES or outcome.kind is FailureKind.LOADING:
                self._tries.clear()  # the process may be another one when it is back
            if outcome.kind in _NO_SERVER:
                self._gone, self._queue = True, None
            return Observation(at, seconds, failure=outcome)
        reading, metrics_page = outcome
        return Observation(at, seconds, reading=reading, metrics_page=metrics_page)

    # Which path next

    def _next_path(self, answers: Sequence[Answer]) -> str | None:
        asked = {answer.path for answer in answers}
        table = self._table_after(answers)
        if any(self._ending(answer, table) for answer in answers):
            return None
        if table:
            if self._hung and table.liveness_path and table.liveness_path not in asked:
                return table.liveness_path
            sides = self._bodies(self._with_sides(answers))
            pages = [side for side in table.side_pages if side.path not in asked and side.asked_with(sides)]
            if first := next((side for side in pages if side.before_metrics), None):
                return first.request
            if not table.may_read_metrics(sides):
                return None
        if not any(self._is_good(answer) for answer in answers):
            return next((path for path in self._candidates() if path not in asked), None)
        if table is None or answers[-1].error is not None:
            return None
        due = [side for side in pages if self._due(side)]
        return next((side.request for side in due if self._wanted(side.path, answers, table)), None)

    def _wanted(self, path: str, answers: Sequence[Answer], table: EngineTable) -> bool:
        """Whether the reader has use for a side page after the metrics page among these."""
        judged = (self._judge(answer) for answer in answers if self._is_metrics_path(answer.path))
        page = next((one.page for one in judged if isinstance(one, _Good)), None)
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
        return isinstance(self._judge(answer), _Good)

    def _due(self, side: SidePage) -> bool:
        return self._tries.get(side.path, 0) < (_ABSENT if side.every_scrape else SIDE_TRIES)

    # What the answers mean

    def _take(self, answers: Sequence[Answer], at: float) -> Failure | tuple[Reading | None, bool]:
        if (table := self._table_after(answers)) and table is not self._table:
            self._set_engine(Found(table.kind, table.title, table))
        metrics = [answer for answer in answers if self._is_metrics_path(answer.path)]
        metrics.sort(key=lambda answer: answer.path != self._page_path)
        misses: list[tuple[Answer, Miss]] = []
        for answer in metrics:
            judged = self._judge(answer)
            if isinstance(judged, _Good):
                return self._accept(judged, answers, at)
            misses.append((answer, judged))
            if judged.queue:
                self._queue = (replace(answer, body=b""), judged)
        self._note_sides(answers)
        if self._forbidden(answers):
            outcome = self._read(None, at)
            return outcome if isinstance(outcome, Failure) else (outcome, True)
        if misses:
            # A queue is not emptied again to say what it was.
            return self._failure([*misses, self._queue] if self._queue else misses, answers, at)
        return self._without_metrics(answers, at)

    def _accept(
        self, good: _Good, answers: Sequence[Answer], at: float
    ) -> Failure | tuple[Reading | None, bool]:
        self._page_path, self._gone = good.answer.path, False
        self._last = _Good(replace(good.answer, body=b""), good.page, good.found)  # 74 KiB of it are read
        if self._found is None or self._found != good.found:
            self._set_engine(good.found)
        self._note_sides(answers)
        outcome = self._read(good.page, at)
        if isinstance(outcome, Failure):
            return outcome
        if outcome.start_token != self._start and self._start is not None:
            self._tries.clear()
        self._start = outcome.start_token
        return outcome, True

    def _forbidden(self, answers: Sequence[Answer]) -> bool:
        """Whether a side page among these says that the metrics page may not be asked."""
        table = self._table
        told = any(_decides(answer.path, table) and answer.path in self._sides for answer in answers)
        return told and table is not None and not table.may_read_metrics(self._bodies(self._sides))

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
        fresh = {answer.path for answer in answers} & self._sides.keys()
        live = any(side.every_scrape and side.path in fresh for side in table.side_pages)
        if live and self._last is not None and self._last.found.table is table:
            outcome = self._read(self._last.page, at)
            return outcome if isinstance(outcome, Failure) else (outcome, False)
        return None, True

    def _read(self, page: Page | None, at: float) -> Reading | Failure:
        if self._reader is None:
            title = self._found.title if self._found else "unknown"
            detail = f"{title} page: not read by this version"
            return Failure(FailureKind.NO_ENGINE_METRICS, at, detail, answered=True)
        last = self._last
        page_at = last.answer.at if last and page is not None else 0.0
        return self._reader.read(
            Look(
                at=at,
                page=page,
                headers=last.answer.headers if last and page is not None else {},
                sides=self._bodies(self._sides),
                fresh_sides=frozenset(path for path, side in self._sides.items() if side.at >= page_at),
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
        _, miss = min(misses, key=lambda item: (_TELLING.index(item[1].kind), item[1].absent))
        detail = miss.detail
        paths = [answer.path for answer, other in misses if other.absent and other.kind is miss.kind]
        if miss.absent and len(paths) > 1:
            detail = detail.replace(f"at {paths[0]}", f"at {' and '.join(paths)}", 1)
        return Failure(miss.kind, at, detail, answered=_answered(answers))

    def _failed(self, answer: Answer, answers: Sequence[Answer], at: float) -> Failure:
        miss = miss_of(answer, self._table) or Miss(FailureKind.PROTOCOL, f"no page at {answer.path}")
        return Failure(miss.kind, at, miss.detail, answered=_answered(answers))

    def _judge(self, answer: Answer) -> _Good | Miss:
        """Whether the answer is an engine's page. Remembered, since next_path() and take() both ask."""
        if answer not in self._judged:
            self._judged[answer] = self._judge_anew(answer)
        return self._judged[answer]

    def _judge_anew(self, answer: Answer) -> _Good | Miss:
        table = self._table or by_server_header(answer.headers)
        body = answer.body
        if (miss := miss_of(answer, table)) is not None:
            records = items(decode_json(body)) if miss.queue else []
            if not miss.queue or answer.path != self._target.metrics_path or not is_queue(records):
                return miss
            body = self._iterations.page(records)
        page = self._parser.parse(body, answer.headers.get("content-type", ""))
        if page.truncated:
            return Miss(FailureKind.TRUNCATED, f"the page at {answer.path} ends without its # EOF")
        found = recognise(page.layout)
        return miss_of_page(answer, page, table) if found is None else _Good(answer, page, found)

    # State

    @property
    def _table(self) -> EngineTable | None:
        return self._found.table if self._found else None

    def _table_after(self, answers: Sequence[Answer]) -> EngineTable | None:
        """The engine's table as far as these answers tell: a header, a page, else what was known."""
        for answer in reversed(answers):
            if table := by_server_header(answer.headers):
                return table
            known = answer.path == self._page_path or not self._is_metrics_path(answer.path)
            if not known and isinstance(judged := self._judge(answer), _Good):
                return judged.found.table
        return self._table

    def _set_engine(self, found: Found) -> None:
        if self._table is not found.table:
            self._reader = found.table.new_reader() if found.table else None
            self._sides.clear()
            self._tries.clear()
            self._queue = None
        self._found = found

    def _note_sides(self, answers: Sequence[Answer]) -> None:
        self._sides = self._with_sides(answers)
        for answer in answers:
            if answer.path in SIDE_FIELDS:
                settled = answer.error is None and answer.status < 500
                tries = SIDE_TRIES if settled else self._tries.get(answer.path, 0) + 1
                refused = answer.error is None and answer.status in _NOT_FOR_US
                self._tries[answer.path] = _ABSENT if refused else tries

    def _with_sides(self, answers: Sequence[Answer]) -> dict[str, _Side]:
        """The side pages as they are after these answers; a path that failed is missing."""
        sides = dict(self._sides)
        for answer in answers:
            if answer.path not in SIDE_FIELDS:
                continue
            good = answer.error is None and 200 <= answer.status < 300
            body = decode_json(answer.body) if good else None
            if answer.path in STATUS_PATHS and answer.error is None and answer.status not in _NOT_FOR_US:
                sides[answer.path] = _Side(answer.status, answer.at)
            elif body is None:
                sides.pop(answer.path, None)
            else:
                # What is not read is dropped at once: these pages can show keys and command lines.
                sides[answer.path] = _Side(reduced(body, SIDE_FIELDS[answer.path]), answer.at)
        return sides

    @staticmethod
    def _bodies(sides: dict[str, _Side]) -> dict[str, Json]:
        return {path: side.body for path, side in sides.items()}

    def _is_metrics_path(self, path: str) -> bool:
        return path == self._target.metrics_path or path.rstrip("/").endswith("/metrics")


def _decides(path: str, table: EngineTable | None) -> bool:
    """Whether a side page decides if the metrics page may be asked."""
    return table is not None and any(s.path == path and s.before_metrics for s in table.side_pages)


def _answered(answers: Iterable[Answer]) -> bool:
    """Whether any path of the target answered."""
    return any(answer.error is None or answer.error in _REACHED for answer in answers)
