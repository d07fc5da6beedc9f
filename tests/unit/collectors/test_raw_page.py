"""The tap on raw pages: of one target, only while watched, nothing secret, nothing that a terminal obeys."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from collectors.answer import Answer
from collectors.raw_page import RawPageTap
from enginetop.fleet.model import Target
from enginetop.fleet.observation import FailureKind, Observation

A, B = Target("http://a:8000", "a"), Target("http://b:8000", "b")
PAGE = b"# HELP vllm:num_requests_running Running\nvllm:num_requests_running 3.0\n"


class Feed:
    """Asks one page and notes what it is given."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.taken: list[Sequence[Answer]] = []

    def next_path(self, answers: Sequence[Answer]) -> str | None:
        return None if answers else "/metrics"

    def take(self, answers: Sequence[Answer], at: float, seconds: float) -> Observation:
        self.taken.append(answers)
        return Observation(at, seconds)


def scraped(tap: RawPageTap, target: Target, *answers: Answer, at: float = 10.0) -> Feed:
    inner = Feed(target)
    feed = tap.over(lambda _: inner)(target)
    assert feed.next_path(()) == "/metrics"
    assert feed.take(answers, at, 0.0).at == at
    assert inner.taken == [answers]
    return inner


def test_only_the_watched_target_is_kept_and_only_while_it_is() -> None:
    tap = RawPageTap({})
    answer = Answer("/metrics", 10.0, 0.012, body=PAGE)
    scraped(tap, A, answer)
    assert tap.latest() is None
    tap.watch(A.url)
    scraped(tap, B, answer)
    assert tap.latest() is None
    scraped(tap, A, answer)
    kept = tap.latest()
    assert kept is not None
    assert (kept.url, kept.at) == (A.url, 10.0)
    assert kept.pages[0].said == f"200, {len(PAGE)} bytes, 12 ms"
    assert kept.pages[0].lines == tuple(PAGE.decode().splitlines())
    assert tap.latest() is kept  # made once
    scraped(tap, A, answer, at=12.0)
    newer = tap.latest()
    assert newer is not None
    assert newer.at == 12.0
    tap.watch(B.url)
    assert tap.latest() is None
    tap.watch(None)
    scraped(tap, B, answer)
    assert tap.latest() is None


def test_who_turns_to_another_target_while_a_page_comes_is_not_shown_it() -> None:
    """The user looks from another thread than the collector's."""
    tap = RawPageTap({})

    class Url(str):
        """Compared as the user turns."""

        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            same = str(self) == other
            tap.watch(B.url)
            return same

    tap.watch(A.url)
    scraped(tap, Target(Url(A.url), "a"), Answer("/metrics", 10.0, 0.012, body=PAGE))
    assert tap.latest() is None


@pytest.mark.parametrize(
    "hostile",
    ["\x1b[31mred", "a\x07bell", "left\u202eright", "zero\u200bwidth", "tag\U000e0041", "c1\x9b31m"],
)
def test_nothing_that_a_terminal_would_obey_comes_through(hostile: str) -> None:
    tap = RawPageTap({})
    tap.watch(A.url)
    scraped(tap, A, Answer("/metrics", 1.0, body=f'x{{l="{hostile}"}} 1\n'.encode()))
    kept = tap.latest()
    assert kept is not None
    assert all(line.isprintable() for line in kept.pages[0].lines)


@pytest.mark.parametrize(
    "secret", ["hf_" + "a" * 20, "sk-" + "b" * 24, "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc"]
)
def test_no_secret_of_a_page_is_shown(secret: str) -> None:
    tap = RawPageTap({})
    tap.watch(A.url)
    metrics = Answer("/metrics", 1.0, body=f'info{{arg="--api-key {secret}"}} 1\n'.encode())
    failed = Answer("/x", 1.0, error=FailureKind.PROTOCOL, detail=f"odd answer: token={secret}")
    scraped(tap, A, metrics, failed)
    kept = tap.latest()
    assert kept is not None
    assert secret not in repr(kept.pages)
    assert "info{" in kept.pages[0].lines[0]


def test_of_json_pages_only_the_used_fields_are_shown() -> None:
    tap = RawPageTap({"/server_info": ("max_running_requests",)})
    tap.watch(A.url)
    body = b'{"max_running_requests": 64, "env": {"HF_TOKEN": "very-private"}}'
    scraped(tap, A, Answer("/server_info", 1.0, headers={"content-type": "application/json"}, body=body))
    kept = tap.latest()
    assert kept is not None
    assert kept.pages[0].lines == ('{"max_running_requests":64}',)


def test_a_page_that_did_not_come_says_why() -> None:
    tap = RawPageTap({})
    tap.watch(A.url)
    scraped(tap, A, Answer("/metrics", 1.0, 0.5, error=FailureKind.REFUSED, detail="connection refused"))
    kept = tap.latest()
    assert kept is not None
    assert (kept.pages[0].said, kept.pages[0].lines) == ("refused: connection refused, 500 ms", ())
    scraped(tap, A, Answer("/metrics", 2.0, status=403, body=b"the key sk-something is wrong"))
    refused = tap.latest()
    assert refused is not None
    assert refused.pages[0].lines == ()


def test_a_huge_page_is_cut_and_says_so() -> None:
    tap = RawPageTap({})
    tap.watch(A.url)
    scraped(tap, A, Answer("/metrics", 1.0, body=b"x 1\n" * 50_007))
    kept = tap.latest()
    assert kept is not None
    assert len(kept.pages[0].lines) == 50_001
    assert kept.pages[0].lines[-1] == "… 7 more lines"
