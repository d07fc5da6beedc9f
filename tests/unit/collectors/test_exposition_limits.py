"""Hostile and oversized pages: bounded, told, and read in linear time."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import pytest

from collectors.exposition import PageParser, ParseLimits
from collectors.layout import LayoutCache
from collectors.page import Page


def parse(body: bytes, limits: ParseLimits) -> Page:
    return PageParser(LayoutCache(), limits).parse(body)


def test_a_body_that_is_too_long_is_cut_at_its_last_whole_line() -> None:
    page = parse(b"a 1\nb 22\nc 3\n", ParseLimits(body_bytes=8))
    assert page.layout.names == ("a",)
    assert page.bad_lines == 0
    assert "longer than 8 bytes" in page.problem
    assert parse(b"a" * 20, ParseLimits(body_bytes=8)).problem != ""
    assert parse(b"a 1\nb 22", ParseLimits(body_bytes=8)).problem == ""


def test_lines_beyond_the_limit_are_not_read() -> None:
    page = parse(b"a 1\nb 2\nc 3\n", ParseLimits(lines=2))
    assert page.layout.names == ("a", "b")
    assert "more than 2 lines" in page.problem
    assert not page.whole
    assert parse(b"a 1\nb 2\n", ParseLimits(lines=2)).problem == ""


def test_a_page_of_bad_lines_is_given_up() -> None:
    limits = ParseLimits(bad_lines=100)
    page = parse(b"a 1\n" + b"x\n" * 20_000 + b"b 2\n", limits)
    assert page.layout.names == ("a",)
    assert 100 < page.bad_lines < 10_000
    assert "more than 100 bad lines" in page.problem
    assert not page.whole
    page = parse(b"x\n" * 100 + b"b 2\n", limits)
    assert (page.layout.names, page.bad_lines, page.problem) == (("b",), 100, "")


def test_samples_beyond_the_limit_are_not_read() -> None:
    page = parse(b"# x\na 1\n\nb 2\nc 3\n", ParseLimits(samples=2))
    assert page.layout.names == ("a", "b")
    assert list(page.values) == [1, 2]
    assert "more than 2 samples" in page.problem
    assert not page.whole
    assert parse(b"a 1\nb 2\n", ParseLimits(samples=2)).problem == ""


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'm{a="' + b"x" * 95 + b'"} 1', "a line is longer than 100 bytes"),
        (b" " * 101 + b"m 1", "a line is longer than 100 bytes"),
        (b'm{a="1",b="2",c="3"} 1', "more than 2 labels"),
        (b'm{ a="1",b="2",c="3" } 1', "more than 2 labels"),
        (b'm{a="12345678901"} 1', "longer than 10 characters"),
        (b'm{ a="12345678901" } 1', "longer than 10 characters"),
        (b'm{a12345678901="1"} 1', "longer than 10 characters"),
        (b"m1234567890 1", "longer than 10 characters"),
        (b'{"m.234567890"} 1', "longer than 10 characters"),
    ],
)
def test_a_line_that_breaks_a_limit_is_skipped_counted_and_told(line: bytes, problem: str) -> None:
    limits = ParseLimits(line_bytes=100, labels=2, label_characters=10)
    page = parse(b"before 1\n" + line + b"\nafter 2\n", limits)
    assert page.layout.names == ("before", "after")
    assert page.bad_lines == 1
    assert problem in page.problem
    assert page.whole


def test_what_is_just_within_the_limits_is_read() -> None:
    limits = ParseLimits(line_bytes=35, labels=2, label_characters=10, samples=1, lines=2)
    page = parse(b'm123456789{a="1234567890",b="2"} 1\n', limits)
    assert page.problem == ""
    assert page.bad_lines == 0
    assert len(page.values) == 1


def test_a_long_comment_is_no_problem() -> None:
    assert parse(b"# HELP m " + b"x" * 500 + b"\nm 1\n", ParseLimits(line_bytes=100)).problem == ""


def test_a_problem_is_told_on_every_page_that_has_it_and_only_there() -> None:
    parser = PageParser(LayoutCache(), ParseLimits(label_characters=5))
    good, over = b"a 1\nb 2\n", b'a 1\nb{x="123456"} 2\n'
    assert [bool(parser.parse(body).problem) for body in (good, over, over, good, over)] == [
        False,
        True,
        True,
        False,
        True,
    ]


def test_a_page_that_was_cut_short_is_nothing_to_compare_with() -> None:
    parser = PageParser(LayoutCache(), ParseLimits(lines=3))
    seen = []
    for body in (b"a 1\nb 2\n", b"a 1\nb 3\n", b"a 1\nb 2\nc 3\nd 4\n", b"a 1\nb 4\n"):
        page = parser.parse(body)
        seen.append((page.layout.names, list(page.values), bool(page.problem)))
    assert seen == [
        (("a", "b"), [1, 2], False),
        (("a", "b"), [1, 3], False),
        (("a", "b", "c"), [1, 2, 3], True),
        (("a", "b"), [1, 4], False),
    ]


HOSTILE = {
    "open braces": b"m" + b"{" * 60_000 + b"\n",
    "open quotes": b'm{a="' + b'"' * 60_000 + b"\n",
    "backslashes": b'm{a="' + b"\\" * 60_001 + b'"} 1\n',
    "digits": b"m " + b"9" * 60_000 + b"x\n",
    "blanks": b"m{" + b" " * 60_000 + b"x\n",
    "labels": b"m{" + b'a="b",' * 10_000 + b"\n",
    "different labels": b"m{" + b",".join(b'a%d="b"' % i for i in range(5_000)) + b"} 1\n",
    "commas": b"m{" + b"," * 60_000 + b"} 1\n",
    "nul": b"\x00" * 60_000 + b"\n",
    "surrogates": b'm{a="' + b"\xed\xa0\x80" * 20_000 + b'"} 1\n',
    "type": b"# TYPE " + b'"' * 60_000 + b"\n",
    "type blanks": b"# TYPE " + b" " * 60_000 + b"\n",
    "names": b"".join(b"m%d 1\n" % i for i in range(6_000)),
    "repeated": b"m 1\n" * 15_000,
    "empty lines": b"\n" * 60_000,
    "one character lines": b"x\n" * 30_000,
}


def _cpu_seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


@pytest.mark.verify
@pytest.mark.parametrize("name", HOSTILE)
def test_time_grows_with_the_length_of_a_hostile_page_and_not_faster(name: str) -> None:
    body = HOSTILE[name]

    def seconds(times: int) -> float:
        longer = body * times
        return min(_cpu_seconds(lambda: PageParser(LayoutCache()).parse(longer)) for _ in range(3))

    once = max(seconds(1), 0.004)
    assert seconds(8) < 8 * once * 4, "about eight times as long, with room for a busy machine"


@pytest.mark.verify
def test_one_long_line_costs_no_more_than_as_many_bytes_in_short_ones() -> None:
    """Within a line nothing may be quadratic: a line of a megabyte, with the limits out of the way."""
    limits = ParseLimits(line_bytes=1 << 30, label_characters=1 << 30, labels=1 << 30)
    for filling in (b'a="', b"\\", b'"', b'a="b",', b" ", b"9", b"{", b",", b"\xff", b"}"):
        body = b"m{" + filling * (1_000_000 // len(filling)) + b"\nn " + filling * (1_000_000 // len(filling))
        assert min(_cpu_seconds(partial(parse, body, limits)) for _ in range(2)) < 2.0, filling
