"""A scrape that goes as the one before is not thought about, and goes as if it had been."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.answer import Answer
from collectors.feed import TargetFeed
from collectors.layout import LayoutCache
from enginetop.fleet.model import Target
from enginetop.fleet.observation import FailureKind, Observation

FIXTURES = Path(__file__).parents[2] / "fixtures"
VLLM = (FIXTURES / "vllm/0.32.0/vllm-0.32.0-loaded.prom").read_bytes()
SGLANG = next((FIXTURES / "sglang").glob("*/*.prom")).read_bytes()
TEXT = {"content-type": "text/plain; version=0.0.4"}
SERVERS = (
    "vllm",
    "vllm moved",
    "vllm restarted",
    "sglang",
    "llamacpp",
    "slow",
    "gone",
    "broken",
    "page",
    "absent",
)


def page_of(server: str, path: str) -> Answer:
    """What such a server answers."""
    if server == "gone":
        return Answer(path, 1.0, error=FailureKind.REFUSED, detail="refused")
    if server == "slow" and path == "/metrics":
        return Answer(path, 1.0, error=FailureKind.TIMEOUT, detail="no answer")
    if server == "broken":
        return Answer(path, 1.0, status=500, headers=TEXT, body=b"no")
    if path != "/metrics" or server == "absent":
        return Answer(path, 1.0, status=404, headers=TEXT, body=b"not here")
    if server == "page":
        return Answer(path, 1.0, headers={"content-type": "text/html"}, body=b"<html>Sign in</html>")
    if server == "llamacpp":
        return Answer(path, 1.0, headers={**TEXT, "server": "llama.cpp"}, body=b"llamacpp:x_total 1\n")
    if server == "sglang":
        return Answer(path, 1.0, headers={**TEXT, "server": "uvicorn"}, body=SGLANG)
    body = VLLM
    if server == "vllm moved":
        body = body.replace(b"generation_tokens_total{", b'generation_tokens_total{a="b",')
    if server == "vllm restarted":
        body = body.replace(b"process_start_time_seconds 1", b"process_start_time_seconds 2")
    return Answer(path, 1.0, headers=TEXT, body=body)


def scrape(feed: TargetFeed, server: str) -> tuple[list[str], Observation]:
    answers: list[Answer] = []
    while (path := feed.next_path(answers)) is not None and len(answers) < 40:
        answers.append(page_of(server, path.partition("?")[0]))
    return [answer.path for answer in answers], feed.take(answers, 1.0, 0.1)


def told(observation: Observation) -> tuple[object, ...]:
    reading = observation.reading
    figures = None if reading is None else (reading.start_token, reading.progress_token, reading.identity)
    return observation.failure, observation.metrics_page, figures


class _Thinking(TargetFeed):
    """Thinks about every scrape."""

    def next_path(self, answers: list[Answer]) -> str | None:  # type: ignore[override]
        self._routine = None
        return super().next_path(answers)


@given(st.lists(st.sampled_from(SERVERS), max_size=12))
@settings(max_examples=40, deadline=None)
def test_it_goes_as_if_it_had_been_thought_about(servers: list[str]) -> None:
    target, layouts = Target("http://r1:8000", "r1"), LayoutCache()
    usual, thinking = TargetFeed(target, layouts), _Thinking(target, layouts)
    for server in ("vllm", "vllm", *servers, "vllm", "vllm"):
        paths, observation = scrape(usual, server)
        others, expected = scrape(thinking, server)
        assert paths == others
        assert told(observation) == told(expected)


def test_a_steady_replica_is_not_thought_about(monkeypatch: pytest.MonkeyPatch) -> None:
    thoughts: Counter[str] = Counter()

    def count(name: str) -> None:
        think = getattr(TargetFeed, name)

        def counted(*arguments: object) -> object:
            thoughts[name] += 1
            return think(*arguments)

        monkeypatch.setattr(TargetFeed, name, counted)

    for name in ("_next_path", "_take", "_table_after", "_routine_after"):
        count(name)
    feed = TargetFeed(Target("http://r1:8000", "r1"), LayoutCache())
    for _ in range(3):
        scrape(feed, "vllm")
    thoughts.clear()
    assert [scrape(feed, "vllm")[0] for _ in range(5)] == [["/metrics"]] * 5
    assert not thoughts
    again, _ = scrape(feed, "vllm restarted")
    assert again == ["/metrics"]
    asked, _ = scrape(feed, "vllm restarted")
    assert "/v1/models" in asked, "another process may be another model"
