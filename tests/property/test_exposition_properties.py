"""Whatever a page holds: nothing raises, what was written comes back, cheap and slow way agree."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.exposition import PageParser, ParseLimits
from collectors.layout import LayoutCache
from collectors.page import Page
from collectors.sanitise import clean_text

FIXTURES = Path(__file__).parents[1] / "fixtures"
REAL_PAGES = [
    (FIXTURES / name).read_bytes()
    for name in (
        "llamacpp/b10434/llama_cpp-b10434-spec-after.prom",
        "dcgm/4.5/dcgm-exporter-4.5-reconstructed.prom",
        "triton/reconstructed/triton-trtllm-reconstructed-pause.prom",
        "router/sglang-router-0.3.2/sglang-router-0.3.2-idle.prom",
        "sglang/0.5.23/sglang-0.5.23-v1_loads-format.prom",
    )
]

metric_names = st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,12}", fullmatch=True)
label_names = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,8}", fullmatch=True)
any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
text = st.one_of(any_text, st.text('"\\\n{},= #a\x1b\u202e', max_size=10))
numbers = st.floats(allow_nan=True, allow_infinity=True)
series = st.tuples(metric_names, st.dictionaries(label_names, text, max_size=4))


def escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def line_of(name: str, labels: dict[str, str], value: float) -> str:
    pairs = ",".join(f'{label}="{escaped(value)}"' for label, value in labels.items())
    return f"{name}{{{pairs}}} {value!r}" if labels else f"{name} {value!r}"


def bits(values: Iterable[float]) -> list[bytes]:
    return [b"nan" if math.isnan(value) else struct.pack("d", value) for value in values]


def everything(page: Page) -> tuple[object, ...]:
    layout = page.layout
    labels = [dict(one) for one in layout.labels]
    return (
        *(layout.names, labels, layout.keys, dict(layout.types)),
        *(bits(page.values), page.bad_lines, page.truncated, page.problem),
    )


@given(st.lists(st.tuples(series, numbers), max_size=12, unique_by=lambda item: repr(sorted_series(item[0]))))
@settings(max_examples=60, deadline=None)
def test_what_is_written_comes_back(samples: list[tuple[tuple[str, dict[str, str]], float]]) -> None:
    body = "\n".join(line_of(name, labels, value) for (name, labels), value in samples) + "\n"
    page = PageParser(LayoutCache()).parse(body.encode())
    assert page.bad_lines == 0
    assert list(page.layout.names) == [name for (name, _), _ in samples]
    assert [dict(labels) for labels in page.layout.labels] == [
        {label: clean_text(value, 100) for label, value in labels.items()} for (_, labels), _ in samples
    ]
    assert bits(page.values) == bits([value for _, value in samples])
    assert len(set(page.layout.keys)) == len(samples)


def sorted_series(one: tuple[str, dict[str, str]]) -> tuple[str, list[tuple[str, str]]]:
    return one[0], sorted(one[1].items())


@given(
    st.lists(st.one_of(st.binary(max_size=200), st.text(max_size=60).map(lambda t: t.encode())), max_size=4),
    st.sampled_from(["", "text/plain", "application/openmetrics-text; version=1.0.0"]),
)
@settings(max_examples=80, deadline=None)
def test_garbage_never_raises(bodies: list[bytes], content_type: str) -> None:
    parser = PageParser(LayoutCache())
    for body in bodies:
        page = parser.parse(body, content_type)
        assert len(page.values) == len(page.layout.names) == len(page.layout.labels) == len(page.layout.keys)
        assert all(key.isprintable() for key in page.layout.keys)
        assert page.bad_lines <= body.count(b"\n") + 1


@given(st.lists(st.text('m{}="\\, 1.e+-nNaAiIfF_xX#\n\r\tTYPE', max_size=80), max_size=4))
@settings(max_examples=120, deadline=None)
def test_nearly_right_pages_never_raise_and_read_the_same_from_any_past(bodies: list[str]) -> None:
    layouts = LayoutCache()
    parser = PageParser(layouts)
    for body in bodies:
        raw = body.encode()
        assert everything(parser.parse(raw)) == everything(PageParser(LayoutCache()).parse(raw))


VALUES = st.sampled_from(
    [b"0", b"1", b"1.0", b"2.5", b"NaN", b"-nan", b"+Inf", b"1e3", b"7 1700", b"1_0", b"x"]
)
WHOLE_LINES = st.sampled_from(
    [b"", b"#", b"5", b"m", b"m 1", b"m{", b"m 1\r", b"# TYPE m gauge", b"# EOF", b" ", b"\xff 1"]
)


@st.composite
def edits(draw: st.DrawFn) -> tuple[str, int, bytes]:
    kind = draw(st.sampled_from(["value", "value", "value", "line", "drop", "repeat", "swap", "byte", "cut"]))
    return (
        kind,
        draw(st.one_of(st.integers(0, 12), st.integers(0, 10_000))),
        draw(WHOLE_LINES if kind == "line" else VALUES),
    )


def edited(body: bytes, edit: tuple[str, int, bytes]) -> bytes:
    kind, at, new = edit
    if kind == "byte":
        place = at % (len(body) + 1)
        return body[:place] + new[:1] + body[place + 1 :]
    if kind == "cut":
        return body[: at % (len(body) + 1)]
    lines = body.split(b"\n")
    place = at % len(lines)
    if kind == "value":
        lines[place] = lines[place].rpartition(b" ")[0] + b" " + new
    elif kind == "line":
        lines[place] = new
    elif kind == "drop":
        del lines[place]
    elif kind == "repeat":
        lines.insert(place, lines[place])
    else:
        lines[place], lines[-1] = lines[-1], lines[place]
    return b"\n".join(lines)


SMALL_PAGE = b"""# TYPE a counter
a{x="1",y="2"} 1
a{x="2"} 2

# HELP b ok
b 3
a{y="2",x="1"} 4
!bad
c{d="\\\\"} 5
"""


@given(
    st.one_of(st.just(SMALL_PAGE), st.sampled_from(REAL_PAGES)),
    st.lists(st.lists(edits(), max_size=4), min_size=1, max_size=8),
    st.booleans(),
)
@settings(max_examples=120, deadline=None)
def test_any_sequence_of_pages_reads_as_each_page_alone(
    base: bytes, steps: list[list[tuple[str, int, bytes]]], from_base: bool
) -> None:
    """The cached way, for two targets in turn, against a fresh parser each time; also tightly limited."""
    for limits in (ParseLimits(), ParseLimits(samples=20, line_bytes=120, label_characters=30, lines=60)):
        layouts = LayoutCache(max_templates=3)
        parsers = [PageParser(layouts, limits), PageParser(layouts, limits)]
        body = base
        for step, changes in enumerate([[], *steps]):
            body = base if from_base else body
            for edit in changes:
                body = edited(body, edit)
            page = parsers[step % 2].parse(body, "application/openmetrics-text")
            alone = PageParser(LayoutCache(), limits).parse(body, "application/openmetrics-text")
            assert everything(page) == everything(alone)
