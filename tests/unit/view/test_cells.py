"""Lines are measured in cells, cut without splitting a glyph, and survive ASCII terminals cell for cell."""

from __future__ import annotations

import pytest

from tui.view.cells import (
    Span,
    clip,
    cut_end,
    cut_middle,
    line_text,
    line_width,
    merge,
    pad,
    spread,
    to_ascii,
    wrap_items,
)


def test_text_that_fits_is_not_cut() -> None:
    assert cut_end("abc", 3) == "abc"
    assert cut_middle("abcdef", 6) == "abcdef"


def test_the_end_is_cut_with_an_ellipsis() -> None:
    assert cut_end("abcdef", 4) == "abc…"
    assert cut_end("abcdef", 1) == "…"
    assert cut_end("abcdef", 0) == ""


def test_the_middle_is_cut_and_the_end_keeps_more() -> None:
    assert cut_middle("127.0.0.1:18001", 10) == "127…:18001"
    assert cut_middle("127.0.0.1:18001", 3) == "12…"


@pytest.mark.parametrize(("width", "shown"), [(6, "日本語"), (5, "日本…"), (4, "日 …"), (2, " …"), (1, "…")])
def test_a_wide_glyph_is_never_split(width: int, shown: str) -> None:
    assert cut_end("日本語", width) == shown


def test_cutting_the_middle_of_wide_text_keeps_the_width() -> None:
    assert cut_middle("日本語日本語", 7) == "日…本語"  # 2 + 1 + 4 cells


def test_padding_counts_cells() -> None:
    assert pad("日", 4) == "日  "
    assert pad("7", 3, right=True) == "  7"


def test_clip_shortens_the_span_that_crosses_the_edge() -> None:
    line = (Span("abc", "ok"), Span("defg", "warn"), Span("h"))
    assert clip(line, 8) == line
    assert clip(line, 6) == (Span("abc", "ok"), Span("de…", "warn"))
    assert line_text(clip(line, 3)) == "ab…"
    assert clip(line, 0) == ()


def test_neighbours_of_one_ink_become_one_span() -> None:
    assert merge([Span("a"), Span(""), Span("b"), Span("c", "ok")]) == (Span("ab"), Span("c", "ok"))


def test_spread_puts_both_ends_at_the_edges() -> None:
    assert line_text(spread((Span("left"),), (Span("right"),), 12)) == "left   right"
    assert line_text(spread((Span("a long left part"),), (Span("right"),), 12)) == "a lon… right"
    assert line_text(spread((Span("left"),), (), 12)) == "left"


def test_items_that_do_not_fit_are_counted() -> None:
    items = [(Span("one"),), (Span("two"),), (Span("three"),)]
    separator = Span(" · ")
    assert line_text(wrap_items(items, 17, separator)) == "one · two · three"
    assert line_text(wrap_items(items, 16, separator)) == "one · +2 more"
    assert line_text(wrap_items(items, 5, separator)) == "one"
    assert line_text(wrap_items(items, 26, separator, 7)) == "one · two · +8 more"
    assert line_text(wrap_items(items, 27, separator, 7)) == "one · two · three · +7 more"


def test_ascii_keeps_every_cell_in_place() -> None:
    line = (Span("▸ ✖ down ██▌ ▁█ ≥10 – 日本 72 °C", "crit"),)
    replaced = to_ascii(line)
    assert line_text(replaced) == "> X down ##+ _# >10 - ???? 72 'C"
    assert line_width(replaced) == line_width(line)
