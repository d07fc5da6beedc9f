"""Every engine says which of its series moves during a request: a long one must never be called a stall."""

from __future__ import annotations

from pathlib import Path

import pytest

from collectors.engines.base import EngineTable, Look
from collectors.engines.detect import TABLES, recognise
from enginetop.fleet.model import EngineKind
from enginetop.fleet.reading import Reading
from tests.support.engine_pages import page_of

DOCS = (Path(__file__).parents[3] / "docs" / "alerts.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.title)
def test_every_engine_declares_it_and_the_manual_says_the_same(table: EngineTable) -> None:
    assert table.live_progress
    assert table.live_progress.isprintable()
    who = "Routers and gateways" if table.kind is EngineKind.ROUTER else table.title
    assert f"| {who} | {table.live_progress} |" in DOCS


@pytest.mark.parametrize(
    ("arrival", "progress"),
    [
        ('vllm:admission_rejections_total{reason="max_num_queued_reqs"}', "vllm:generation_tokens_total"),
        ("vllm:websocket_connections_total", "vllm:request_success_total"),
        ("tgi_request_count", "tgi_batch_forward_duration_count"),
        ('tgi_request_failure{err="overloaded"}', "tgi_request_success"),
        ("tgi_request_input_length_count", "tgi_batch_inference_count"),
        ("tgi_request_validation_duration_count", "tgi_request_duration_count"),
    ],
)
def test_requests_that_come_in_or_are_refused_are_no_progress(arrival: str, progress: str) -> None:
    """An engine that hangs behind a server that still counts who knocks."""

    def token(arrived: int, done: int) -> int:
        types = "".join(f"# TYPE {name.partition('{')[0]} counter\n" for name in (arrival, progress))
        page = page_of(f"{types}{arrival} {arrived}\n{progress} {done}\n")
        table = recognise(page.layout)
        assert table is not None
        reading = table.new_reader().read(Look(at=0.0, page=page))
        assert isinstance(reading, Reading)
        return reading.progress_token

    assert token(1, 1) == token(2, 1)
    assert token(1, 1) != token(1, 2)
