"""The cheap way: what is shared, what is followed, and when it is left."""

from __future__ import annotations

import gc
import weakref
from array import array
from unittest.mock import patch

import pytest

from collectors.blocks import Moving
from collectors.exposition import PageParser, ParseLimits
from collectors.layout import LayoutCache, Unread
from collectors.page import Page
from collectors.page_lines import parse_lines

PAGE = b'# TYPE a counter\na{x="1"} 1\na{x="2"} 2\n# TYPE b gauge\nb 3\n'


def changed_page(**values: str) -> bytes:
    page = PAGE
    for name, value in values.items():
        old = {"a1": b'a{x="1"} 1', "a2": b'a{x="2"} 2', "b": b"b 3"}[name]
        page = page.replace(old, old.rpartition(b" ")[0] + b" " + value.encode())
    return page


def parse_counting(parser: PageParser, body: bytes) -> tuple[Page, int]:
    """The page, and how often a page had to be parsed from nothing for it."""
    with patch("collectors.exposition.parse_lines", wraps=parse_lines) as counted:
        page = parser.parse(body)
    return page, counted.call_count


def test_the_next_page_shares_the_layout_and_is_not_parsed_anew() -> None:
    parser = PageParser(LayoutCache())
    first, parsed = parse_counting(parser, PAGE)
    assert parsed == 1
    second, parsed = parse_counting(parser, changed_page(a2="20", b="NaN"))
    assert parsed == 0
    assert second.layout is first.layout
    assert list(second.values) == pytest.approx([1, 20, float("nan")], nan_ok=True)


def test_a_page_never_changes_afterwards() -> None:
    parser = PageParser(LayoutCache())
    pages = [parser.parse(changed_page(a1=str(value))) for value in range(5)]
    assert [page.values[0] for page in pages] == [0, 1, 2, 3, 4]


def test_a_single_change_is_followed_there_and_back() -> None:
    parser = PageParser(LayoutCache())
    bodies = (PAGE, PAGE, changed_page(b="4"), PAGE, PAGE)
    assert [list(parser.parse(body).values) for body in bodies] == [
        [1, 2, 3],
        [1, 2, 3],
        [1, 2, 4],
        [1, 2, 3],
        [1, 2, 3],
    ]


def test_another_target_finds_the_known_page() -> None:
    layouts = LayoutCache()
    first = PageParser(layouts).parse(PAGE)
    other = PageParser(layouts)
    second, parsed = parse_counting(other, changed_page(a1="7", a2="8", b="9"))
    assert parsed == 0
    assert second.layout is first.layout
    assert list(second.values) == [7, 8, 9]
    assert list(first.values) == [1, 2, 3]


def test_targets_do_not_see_each_other() -> None:
    layouts = LayoutCache()
    one, two = PageParser(layouts), PageParser(layouts)
    for step in range(3):
        assert list(one.parse(changed_page(b=str(step))).values) == [1, 2, step]
        assert list(two.parse(changed_page(a1=str(step))).values) == [step, 2, 3]


def test_the_same_samples_in_other_words_share_one_layout() -> None:
    layouts = LayoutCache()
    plain = PageParser(layouts).parse(PAGE)
    other = PageParser(layouts).parse(PAGE.replace(b'a{x="1"} 1', b'a{ x="1", } 1 1700000000') + b"\n# end\n")
    assert other.layout is plain.layout
    typed = PageParser(layouts).parse(PAGE.replace(b"gauge", b"counter"))
    assert typed.layout is not plain.layout


@pytest.mark.parametrize(
    ("line", "bad_lines", "values"),
    [
        (b'a{x="2"} 0x2', 1, [1, 3]),
        (b'a{x="2"} 1_0', 1, [1, 3]),
        (b'a{x="2"} infinity', 1, [1, 3]),
        (b'a{x="2"} \xd9\xa1', 1, [1, 3]),
        (b'a{x="2"} 1-2', 1, [1, 3]),
        (b'a{x="2"}', 1, [1, 3]),
        (b'a{x="2"} ', 1, [1, 3]),
        (b"5", 1, [1, 3]),
        (b"1234567890123", 1, [1, 3]),
        (b"", 0, [1, 3]),
        (b"# gone", 0, [1, 3]),
        (b'a{x="3"} 2', 0, [1, 2, 3]),
        (b'a{x="1"} 2', 1, [2, 3]),
        (b'a{x="2"} 2 1700', 0, [1, 2, 3]),
        (b'a{x="2"}  2', 0, [1, 2, 3]),
        (b'a{x="2"} 2\r', 0, [1, 2, 3]),
    ],
)
def test_a_line_that_does_not_fit_is_read_as_if_the_page_were_new(
    line: bytes, bad_lines: int, values: list[float]
) -> None:
    parser = PageParser(LayoutCache())
    parser.parse(PAGE)
    body = PAGE.replace(b'a{x="2"} 2', line)
    for _ in range(2):
        page = parser.parse(body)
        assert list(page.values) == values
        assert page.bad_lines == bad_lines
        assert page.layout.keys == PageParser(LayoutCache()).parse(body).layout.keys
    assert list(parser.parse(PAGE).values) == [1, 2, 3]


@pytest.mark.parametrize("page", [PAGE, PAGE.rstrip(b"\n"), b"a 1\nb 2\nc 3\nd 4"])
def test_a_page_cut_anywhere_reads_as_that_page_alone(page: bytes) -> None:
    for end in range(len(page) + 1):
        layouts = LayoutCache()
        parser = PageParser(layouts)
        parser.parse(page)
        alone = PageParser(LayoutCache()).parse(page[:end])
        for cut in (parser.parse(page[:end]), PageParser(layouts).parse(page[:end])):
            assert cut.layout.keys == alone.layout.keys
            assert list(cut.values) == list(alone.values)
            assert cut.bad_lines == alone.bad_lines


def test_repeated_lines_and_bad_ones_are_followed_too() -> None:
    parser = PageParser(LayoutCache())
    parser.parse(b"a 1\nb 1\na 2\n!\n")
    page, parsed = parse_counting(parser, b"a 7\nb 5\na 3\n!\n")
    assert parsed == 0
    assert list(page.values) == [3, 5]
    assert page.bad_lines == 2
    page, _ = parse_counting(parser, b"a x\nb 5\na 3\n!\n")
    assert (page.layout.names, list(page.values), page.bad_lines) == (("b", "a"), [5, 3], 2)
    page, _ = parse_counting(parser, b"a 7\nb 5\na x\n!\n")
    assert (list(page.values), page.bad_lines) == ([7, 5], 2)


def test_the_cache_drops_the_least_recently_used() -> None:
    layouts = LayoutCache(max_templates=2)
    first, second, third = b"a 1\n", b"a 1\nb 1\n", b"a 1\nb 1\nc 1\n"
    for body in (first, second, first, third):  # second is the oldest use
        PageParser(layouts).parse(body)
    assert len(layouts) == 2
    assert [parse_counting(PageParser(layouts), body)[1] for body in (first, third, second)] == [0, 0, 1]


def test_the_cache_is_bounded_by_weight_and_gives_layouts_up() -> None:
    layouts = LayoutCache(max_bytes=20_000)
    for count in range(1, 60):
        PageParser(layouts).parse(b"".join(b"m%d 1\n" % index for index in range(count)))
    assert len(layouts) <= 2
    long = PageParser(layouts).parse(b"m 1\n" * 200)
    assert list(long.values) == [1]
    assert len(layouts) <= 2
    layout = weakref.ref(long.layout)
    del long
    gc.collect()
    assert layout() is None


def test_a_parser_keeps_its_page_when_the_cache_has_dropped_it() -> None:
    layouts = LayoutCache(max_templates=1)
    parser = PageParser(layouts)
    parser.parse(PAGE)
    PageParser(layouts).parse(b"other 1\n")
    page, parsed = parse_counting(parser, changed_page(b="4"))
    assert parsed == 0
    assert list(page.values) == [1, 2, 4]


FAMILIES = b"# HELP a One.\na 1\n# HELP b Two.\nb 2\n# HELP http_c Three.\nhttp_c 3\nhttp_d 4\n"


def test_unchanged_families_are_shared_with_the_template_and_no_text_of_moving_ones_is_kept() -> None:
    layouts = LayoutCache()
    template = layouts.add(parse_lines(FAMILIES.split(b"\n"), ParseLimits()))
    follower = layouts.follow_known(FAMILIES)
    assert follower is not None
    kept = 0
    for value in range(24):
        assert follower.follow(FAMILIES.replace(b"b 2", b"b %d" % (value + 10)))
        same = [text is known for text, known in zip(follower.texts, template.texts, strict=True)]
        assert same == [True, False, True]
        kept += follower.texts[1] is not None
    assert kept == 3, "at one look in eight"


def test_a_family_that_stands_still_again_is_soon_told_by_its_text_alone() -> None:
    parser = PageParser(LayoutCache())
    parser.parse(FAMILIES)
    moved = FAMILIES.replace(b"b 2", b"b 7")
    with patch.object(Moving, "numbers", autospec=True, side_effect=Moving.numbers) as read:
        for _ in range(20):
            assert list(parser.parse(moved).values) == [1, 7, 3, 4]
    assert read.call_count <= 8
    assert all(len(call.args[1]) == 1 for call in read.call_args_list), "and the others are not read at all"


def test_families_that_move_together_are_made_ready_once_for_all_targets() -> None:
    layouts = LayoutCache()
    parsers = [PageParser(layouts) for _ in range(5)]
    with patch("collectors.layout.Moving", wraps=Moving) as made:
        for look in range(20):
            for number, parser in enumerate(parsers):
                value = 10 * look + number
                page = parser.parse(FAMILIES.replace(b"b 2", b"b %d" % (2 + value)))
                assert list(page.values) == [1, 2 + value, 3, 4]
    assert made.call_count <= 2, "of b alone, and of nothing"


def test_any_families_may_move_together() -> None:
    """More sets of them than are remembered: each page is read by the one that is its own."""
    many = b"".join(b"# HELP f%d x\n# TYPE f%d counter\nf%d 1\n" % (i, i, i) for i in range(8))
    parser = PageParser(LayoutCache())
    parser.parse(many)
    for look in range(300):
        body = many
        for i in range(8):
            if look >> i & 1:
                body = body.replace(b"\nf%d 1" % i, b"\nf%d %d" % (i, look + 2))
        page, parsed = parse_counting(parser, body)
        assert list(page.values) == [look + 2 if look >> i & 1 else 1 for i in range(8)]
        assert parsed == 0


def test_of_families_that_nobody_reads_no_number_is_looked_at() -> None:
    parser = PageParser(LayoutCache(), unread=Unread(("http_",)))
    for body in (FAMILIES, FAMILIES, FAMILIES.replace(b"_c 3", b"_c 30").replace(b"_d 4", b"_d 0x4")):
        page, _ = parse_counting(parser, body)
        assert list(page.values) == pytest.approx([1, 2, float("nan"), float("nan")], nan_ok=True)
        assert page.layout.names == ("a", "b", "http_c", "http_d")


@pytest.mark.parametrize("others", [FAMILIES, FAMILIES.replace(b"_c 3", b"_c 30")])
@pytest.mark.parametrize("looks", range(1, 10))
def test_a_line_that_comes_into_a_family_that_nobody_reads_makes_a_new_page(
    others: bytes, looks: int
) -> None:
    parser = PageParser(LayoutCache(), unread=Unread(("http_",)))
    for number in range(looks):
        parser.parse(FAMILIES.replace(b"_d 4", b"_d %d" % number))
    pages = [parse_counting(parser, others.replace(b"a 1", b"a %d" % look) + b"e 5\n") for look in range(8)]
    assert sum(parsed for _, parsed in pages) == 1, "which is seen within eight looks"
    page, _ = pages[-1]
    assert page.layout.names[-1] == "e"
    assert page.values[3:] == array("d", [4, 5]), "a family with another name in it is read"


@pytest.mark.parametrize(
    "other",
    [
        FAMILIES.replace(b"Two.", b"Too."),
        FAMILIES.replace(b"b 2", b"b 2\n# a remark"),
        FAMILIES.replace(b"b 2\n", b"").replace(b"a 1", b"a 1\nb 2"),
    ],
)
def test_another_comment_is_another_page(other: bytes) -> None:
    parser = PageParser(LayoutCache())
    parser.parse(FAMILIES)
    page, parsed = parse_counting(parser, other)
    assert parsed == 1
    assert list(page.values) == [1, 2, 3, 4]


def test_only_what_all_names_of_a_family_say_leaves_it_unread() -> None:
    body = b"# HELP http_a One.\nhttp_a 1\nb 2\n# HELP http_c Two.\nhttp_c 1\nhttp_c 3\n"
    page = PageParser(LayoutCache(), unread=Unread(("http_",))).parse(body)
    assert list(page.values) == [1, 2, 3], "and where a line is repeated all is read, and counted"
    assert page.bad_lines == 1
