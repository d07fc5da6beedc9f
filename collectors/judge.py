"""Whether an answer is an engine's page: parsed, and recognised by its names."""

from __future__ import annotations

from collectors.answer import Answer
from collectors.engines.base import EngineTable
from collectors.engines.detect import UNREAD, by_server_header, recognise
from collectors.engines.trtllm_queue import IterationQueue, is_queue
from collectors.exposition import PageParser
from collectors.json_fields import items
from collectors.layout import LayoutCache
from collectors.meaning import Miss, miss_of, miss_of_page
from collectors.page import Page
from enginetop.fleet.foreign_json import decoded
from enginetop.fleet.model import Target
from enginetop.fleet.observation import FailureKind
from enginetop.fleet.quickly_made import quickly_made


@quickly_made(eq=False)
class GoodPage:
    """A page on which an engine was found."""

    answer: Answer
    page: Page
    table: EngineTable


class PageJudge:
    """Judges the answers of one target. A scrape asks for each verdict several times: they are remembered."""

    def __init__(self, target: Target, layouts: LayoutCache) -> None:
        self._target = target
        self._parser = PageParser(layouts, unread=UNREAD)
        self._iterations = IterationQueue()
        self._judged: dict[Answer, GoodPage | Miss] = {}

    def judge(self, answer: Answer, known: EngineTable | None) -> GoodPage | Miss:
        """The page, or why it is none; `known` is the engine seen last on the target."""
        if answer not in self._judged:
            self._judged[answer] = self._judge_anew(answer, known or by_server_header(answer.headers))
        return self._judged[answer]

    def forget(self) -> None:
        """The scrape is over."""
        self._judged.clear()

    def _judge_anew(self, answer: Answer, table: EngineTable | None) -> GoodPage | Miss:
        body = answer.body
        if (miss := miss_of(answer, table)) is not None:
            records = items(decoded(body)) if miss.queue else []
            if not miss.queue or answer.path != self._target.metrics_path or not is_queue(records):
                return miss
            body = self._iterations.page(records)
        page = self._parser.parse(body, answer.headers.get("content-type", ""))
        if page.truncated:
            return Miss(FailureKind.TRUNCATED, f"the page at {answer.path} ends without its # EOF")
        found = recognise(page.layout)
        if found is None:
            return miss_of_page(answer, page, table)
        if not page.whole:  # sums over a part of an engine's series would pass for the whole
            return Miss(FailureKind.TOO_LARGE, f"the page at {answer.path} is too long: {page.problem}")
        return GoodPage(answer, page, found)
