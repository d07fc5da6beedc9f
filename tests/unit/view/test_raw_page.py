"""The raw page as lines: folded, searched, never wider than the terminal."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from enginetop.fleet.ports import RawPage, RawScrape
from tests.tui.snapshots import AT, fleet, replica
from tui.view.cells import line_text, line_width, width_of
from tui.view.picture import Picture
from tui.view.raw_page import found_text, raw_lines, raw_title

LINES = ("# HELP kv KV cache", 'kv{engine="0"} 0.5', 'kv{engine="1"} 0.9', "running 3")
SCRAPE = RawScrape(
    "http://a1.example:8000",
    AT - 2,
    (RawPage("/metrics", "200, 54 bytes, 12 ms", LINES), RawPage("/version", "refused, 1 ms", ())),
)


def texts(words: str = "", width: int = 60) -> list[str]:
    return [line_text(line) for line in raw_lines(SCRAPE, words, width)]


def test_every_page_of_the_scrape_with_how_it_came() -> None:
    assert texts() == [
        " GET /metrics  200, 54 bytes, 12 ms",
        *(f" {line}" for line in LINES),
        " GET /version  refused, 1 ms",
    ]


def test_a_search_leaves_the_lines_that_hold_all_words_in_any_case() -> None:
    assert texts("KV engine")[1:3] == [' kv{engine="0"} 0.5', ' kv{engine="1"} 0.9']
    assert len(texts("KV engine")) == 4
    assert texts("KV engine")[0].endswith("12 ms · 2 of 4 lines")
    assert found_text(SCRAPE, "KV engine") == "2 of 4 lines"
    assert found_text(None, "x") == "0 of 0 lines"


def test_what_was_looked_for_stands_out() -> None:
    marked = [
        span.text for line in raw_lines(SCRAPE, "engine", 60)[1:3] for span in line if span.ink == "info"
    ]
    assert marked == ["engine", "engine"]


def test_a_long_line_is_folded_not_cut() -> None:
    long = RawScrape("u", AT, (RawPage("/m", "200", ("a" * 25,)),))
    assert [line_text(line) for line in raw_lines(long, "", 13)[1:]] == [
        " " + "a" * 10,
        "   " + "a" * 10,
        "   aaaaa",
    ]


def test_before_the_next_page_and_the_title() -> None:
    assert line_text(raw_lines(None, "", 80)[0]) == " waiting for the next page of this replica"
    title = line_text(raw_title(Picture(fleet([replica("a1")])), SCRAPE.url, SCRAPE, 80))
    assert title.startswith(" raw page · a1 · 2.0 s ago")


@settings(max_examples=60, deadline=None)
@example(["\U0001f3fb"], "", 1)
@given(st.lists(st.text(max_size=60), max_size=4), st.text(max_size=5), st.integers(1, 120))
def test_no_line_is_too_wide_and_no_text_is_lost(lines: list[str], words: str, width: int) -> None:
    scrape = RawScrape("u", AT, (RawPage("/m", "200", tuple(lines)),))
    for line in raw_lines(scrape, words, width):
        assert line_width(line) <= width
    shown = "".join(line_text(line).strip(" ") for line in raw_lines(scrape, "", 60)[1:])
    # What has no width (a modifier without its base) has no place of its own.
    wide = [sign for line in lines for sign in line if sign.isprintable() and width_of(sign) > 0]
    assert all(sign in shown for sign in wide if not sign.isspace())
