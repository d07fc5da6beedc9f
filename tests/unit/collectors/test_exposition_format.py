"""The formats, line by line; what is expected is written from the specifications by hand."""

from __future__ import annotations

import math

import pytest

from collectors.exposition import PageParser
from collectors.layout import LayoutCache
from collectors.page import Page

Row = tuple[str, dict[str, str], float]


def parse(body: str | bytes, content_type: str = "text/plain; version=0.0.4") -> Page:
    raw = body.encode() if isinstance(body, str) else body
    return PageParser(LayoutCache()).parse(raw, content_type)


def rows(page: Page) -> list[Row]:
    layout = page.layout
    return [
        (name, dict(labels), value)
        for name, labels, value in zip(layout.names, layout.labels, page.values, strict=True)
    ]


def test_a_windows_path_a_broken_label_and_minus_nan_on_one_page() -> None:
    """Worked case H18."""
    page = parse(r"""m{model_name="C:\\m\\q\"4\" {x},y"} 1
bad{a="x"y"} 2
n -nan""")
    assert [row[:2] for row in rows(page)] == [("m", {"model_name": 'C:\\m\\q"4" {x},y'}), ("n", {})]
    assert page.values[0] == 1
    assert math.isnan(page.values[1])
    assert page.bad_lines == 1
    assert page.problem == ""


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1.0),
        ("-1.5", -1.5),
        ("+2", 2.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("1e3", 1000.0),
        ("1.5E-07", 1.5e-7),
        ("1.7959834326932994e+09", 1795983432.6932994),
        ("+Inf", math.inf),
        ("Inf", math.inf),
        ("inf", math.inf),
        ("-Inf", -math.inf),
        ("1e999", math.inf),
        ("NaN", math.nan),
        ("nan", math.nan),
        ("-nan", math.nan),
        ("+NaN", math.nan),
        ("1 1700000000000", 1.0),
        ("1 1700000000.123", 1.0),
        ("1\t1700000000000", 1.0),
        ('1 # {trace_id="a b"} 0.5', 1.0),
        ('1 # {trace_id="a b"} 0.5 1700000000.1', 1.0),
        ("1 1700000000 # {} 2", 1.0),
        ("1 ", 1.0),
        (" 1", 1.0),
        ("\t1\t", 1.0),
    ],
)
@pytest.mark.parametrize("series", ["m", 'm{a="b"}', 'm{a="b } c"}'])
def test_values_that_exporters_print(series: str, text: str, value: float) -> None:
    page = parse(f"{series} {text}\n")
    assert page.bad_lines == 0
    assert list(page.values) == pytest.approx([value], nan_ok=True)


@pytest.mark.parametrize(
    "text",
    [
        "1_000",
        "0x10",
        "0x1p3",
        "infinity",
        "-infinity",
        "nan(12)",
        "1,5",
        "1e",
        "e5",
        ".",
        "+",
        "--1",
        "1-2",
        "١",
        "１",
        "None",
        "1 2 3",
        "1 x",
        "1#x",
        "",
        "true",
    ],
)
@pytest.mark.parametrize("series", ["m", 'm{a="b"}'])
def test_values_that_no_format_allows_make_the_line_bad_and_keep_the_rest(series: str, text: str) -> None:
    page = parse(f"before 1\n{series} {text}\nafter 2\n")
    assert rows(page) == [("before", {}, 1.0), ("after", {}, 2.0)]
    assert page.bad_lines == 1


@pytest.mark.parametrize(
    ("line", "name", "labels"),
    [
        ("m 1", "m", {}),
        ("vllm:x_total 1", "vllm:x_total", {}),
        ("m{} 1", "m", {}),
        ("m{ } 1", "m", {}),
        ("m {} 1", "m", {}),
        ('m{a=""} 1', "m", {"a": ""}),
        ('m{a="x",} 1', "m", {"a": "x"}),
        ('m { a = "x" , b = "y" } 1', "m", {"a": "x", "b": "y"}),
        ('m{a="x"}1', "m", {"a": "x"}),
        ('\tm{a="x"}\t1', "m", {"a": "x"}),
        (r'm{a="\\n"} 1', "m", {"a": r"\n"}),
        (r'm{a="\n|"} 1', "m", {"a": " |"}),
        (r'm{a="\"\\\""} 1', "m", {"a": '"\\"'}),
        (r'm{a="\d\t"} 1', "m", {"a": r"\d\t"}),
        ('m{a="{},= #"} 1', "m", {"a": "{},= #"}),
        ('m{a="x} 5",b="} 6"} 1', "m", {"a": "x} 5", "b": "} 6"}),
        ('m{a="# EOF"} 1', "m", {"a": "# EOF"}),
        ('m{model="模型 7B"} 1', "m", {"model": "模型 7B"}),
        ('m{le="0.15000000000000002"} 1', "m", {"le": "0.15000000000000002"}),
        ('{"a.b"} 1', "a.b", {}),
        ('{"a.b",x="1"} 1', "a.b", {"x": "1"}),
        ('{"a.b","x y"="1",} 1', "a.b", {"x y": "1"}),
        (r'{"q\"1\\"} 1', 'q"1\\', {}),
        ('m{"x.y"="1"} 1', "m", {"x.y": "1"}),
    ],
)
def test_names_and_labels(line: str, name: str, labels: dict[str, str]) -> None:
    page = parse(line)
    assert rows(page) == [(name, labels, 1.0)]
    assert page.bad_lines == 0


@pytest.mark.parametrize(
    "line",
    [
        "m",
        "m1",
        "m{",
        "m{ 1",
        'm{a="x" 1',
        'm{a="x 1',
        "m{a=x} 1",
        "m{a} 1",
        'm{="x"} 1',
        'm{a="x"b="y"} 1',
        'm{a="x",,b="y"} 1',
        'm{,a="x"} 1',
        'm{a="x"y"} 1',
        'm{a="x\\"} 1',
        'm{a="x",a="y"} 1',
        'm{1a="x"} 1',
        'm{a:b="x"} 1',
        'm{{a="x"} 1',
        'm{a="x"}} 1',
        "1m 1",
        "a.b 1",
        "a-b 1",
        "é 1",
        "5",
        "5 5",
        '"m" 1',
        "{} 1",
        '{a="x"} 1',
        '{"m" 1',
        '"m"{a="x"} 1',
        "<html><body>5</body></html>",
        '{"error": "not found"}',
    ],
)
def test_lines_that_are_no_sample(line: str) -> None:
    page = parse(f"{line}\ngood 1\n")
    assert rows(page) == [("good", {}, 1.0)]
    assert page.bad_lines == 1


def test_comments_and_blank_lines_are_not_bad() -> None:
    page = parse("# any\n#\n\n   \n\t\n  # indented\n# TYPE\n# TYPE m\n# HELP\nm 1\n\n")
    assert page.bad_lines == 0
    assert len(page.values) == 1


def test_windows_line_ends_and_a_byte_order_mark() -> None:
    page = parse(b'\xef\xbb\xbf# TYPE m counter\r\nm{a="x"} 1\r\n\r\nn 2\r\n')
    assert rows(page) == [("m", {"a": "x"}, 1.0), ("n", {}, 2.0)]
    assert page.layout.types == {"m": "counter"}
    assert page.bad_lines == 0


def test_a_last_line_without_its_end_counts_if_it_can_be_read() -> None:
    assert rows(parse("a 1\nb 2")) == [("a", {}, 1.0), ("b", {}, 2.0)]
    cut = parse('a 1\nb{x="y')
    assert rows(cut) == [("a", {}, 1.0)]
    assert cut.bad_lines == 1


def test_of_repeated_samples_the_last_wins_in_the_place_of_the_first() -> None:
    page = parse('a{x="1",y="2"} 1\nb 5\na{y="2",x="1"} 2\na{x="1",y="3"} 7\na{x="1",y="2"} 3\n')
    assert [(row[1].get("y"), row[2]) for row in rows(page)] == [("2", 3.0), (None, 5.0), ("3", 7.0)]
    assert page.bad_lines == 2


def test_types_are_taken_in_either_form_and_the_last_good_one_wins() -> None:
    page = parse(
        "# TYPE a counter\n# TYPE b_total counter\n# TYPE c GAUGE\n#TYPE d summary\n#\tTYPE\te\thistogram\n"
        "# TYPE f bogus\n# TYPE g counter extra\n# TYPE h gauge\n# TYPE h histogram\n# TYPE h\n"
        '# TYPE "i.j" info\n# HELP k TYPE x gauge\na_total 1\n'
    )
    assert page.layout.types == {
        "a": "counter",
        "b_total": "counter",
        "c": "gauge",
        "d": "summary",
        "e": "histogram",
        "h": "histogram",
        "i.j": "info",
    }
    assert page.bad_lines == 0


@pytest.mark.parametrize(
    ("body", "content_type", "truncated"),
    [
        ("a 1\n# EOF\n", "application/openmetrics-text; version=1.0.0; charset=utf-8", False),
        ("a 1\n# EOF", "Application/OpenMetrics-Text", False),
        ("a 1\r\n# EOF\r\n", "application/openmetrics-text", False),
        ("a 1\n", "application/openmetrics-text; version=1.0.0", True),
        ("a 1\n# EO", "application/openmetrics-text", True),
        ("a 1\n# EOF\nb 1\n", "application/openmetrics-text", True),
        ("", "application/openmetrics-text", True),
        ("a 1\n", "text/plain; version=0.0.4", False),
        ("a 1\n", "", False),
    ],
)
def test_a_page_that_promises_an_end_and_lacks_it_is_truncated(
    body: str, content_type: str, truncated: bool
) -> None:
    assert parse(body, content_type).truncated is truncated


def test_hostile_labels_are_clean_and_keep_their_identity() -> None:
    page = parse(
        b'm{a="\x1b[2J"} 1\nm{a="\x1b[2J\xe2\x80\xae"} 2\nm{a="\xff"} 3\nm{a="\xfe"} 4\nm{a="\xc0\x80"} 5'
    )
    assert [labels["a"] for labels in page.layout.labels] == [
        "\ufffd[2J",
        "\ufffd[2J\ufffd",
        "\ufffd",
        "\ufffd",
        "\ufffd\ufffd",
    ]
    assert list(page.values) == [1, 2, 3, 4, 5]
    assert len(set(page.layout.keys)) == 5
    assert all(key.isprintable() for key in page.layout.keys)
    assert page.bad_lines == 0


def test_a_key_names_the_sample_however_it_is_written() -> None:
    written = ['m{b="2",a="1"} 1', 'm{a="1",b="2"} 1', 'm{ a="1" , b="2", } 1 1700', '{"m",b="2","a"="1"}1']
    assert {parse(line).layout.keys for line in written} == {('m{a="1",b="2"}',)}
    assert parse('m{a="é"} 1').layout.keys == parse('m{a="é",} 1').layout.keys
    tricky = ['m{a="1",b="2"} 1', r'm{a="1\",b=\"2"} 1', r'm{a="\\u{1b}"} 1', 'm{a="\x1b"} 1']
    assert len({parse(line).layout.keys for line in tricky}) == 4
