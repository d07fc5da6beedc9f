"""Pages out of samples: what an engine writes comes back line for line, without the scraper's labels."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.exposition import PageParser
from collectors.layout import LayoutCache
from collectors.prometheus.members import Members
from collectors.prometheus.pages import PageAssembler, body_of

VALUES = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=12)
NAMES = st.sampled_from(["engine", "model_name", "le", "pod", "instance", "job", "a"])
SERIES = st.dictionaries(
    st.tuples(
        st.sampled_from(["vllm:x_total", "vllm:y", "vllm_z_bucket"]),
        st.dictionaries(NAMES, VALUES.filter(bool), max_size=4).map(
            lambda labels: tuple(sorted(labels.items()))
        ),
    ),
    st.sampled_from(["1", "2.5", "1e+06", "NaN", "+Inf", "0"]),
    max_size=8,
)
ADDED = {"job": 'team "a"', "instance": "10.0.0.1:8000", "pod": "p\\1"}


@settings(max_examples=80, deadline=None)
@given(SERIES)
def test_a_page_survives_its_scraper(series: dict[tuple[str, tuple[tuple[str, str], ...]], str]) -> None:
    members = Members()
    scraped = members.of_up(ADDED)
    matrix: list[dict[str, Any]] = []
    for (name, labels), value in series.items():
        own = {f"exported_{label}" if label in ADDED else label: text for label, text in labels}
        metric = {"__name__": name, **ADDED, **own}
        matrix.append({"metric": metric, "values": [[10.0, "7"], [20.5, value], [30.0, "9"]]})
    pages = PageAssembler(members).pages(matrix, {scraped: {20.5}})
    assert pages.keys() == ({(scraped, 20.5)} if series else set())
    page = PageParser(LayoutCache()).parse(body_of(pages.get((scraped, 20.5), [])), "text/plain")
    assert page.bad_lines == 0
    found = sorted(
        (name, len(labels), str(value))
        for name, labels, value in zip(page.layout.names, page.layout.labels, page.values, strict=True)
    )
    assert found == sorted((name, len(labels), str(float(value))) for (name, labels), value in series.items())


def test_series_of_strangers_are_nobody_s() -> None:
    members = Members()
    scraped = members.of_up({"job": "a", "instance": "x:1"})
    stranger = {"__name__": "vllm:y", "job": "a", "instance": "x:2"}
    jobless = {"__name__": "vllm:y", "instance": "x:1"}
    matrix = [{"metric": metric, "values": [[1.0, "1"]]} for metric in (stranger, jobless)]
    assert PageAssembler(members).pages(matrix, {scraped: {1.0}}) == {}


def test_a_series_that_came_before_its_up_is_known_when_another_one_has_gone_meanwhile() -> None:
    members = Members()
    gone = members.of_up({"job": "a", "instance": "x:1"})
    gone.seen_at = 100.0
    matrix = [{"metric": {"__name__": "vllm:y", "job": "a", "instance": "x:2"}, "values": [[1.0, "1"]]}]
    assembler = PageAssembler(members)
    assert assembler.pages(matrix, {gone: {1.0}}) == {}
    members.forget(101.0)
    come = members.of_up({"job": "a", "instance": "x:2"})
    assert len(members) == 1
    assert assembler.pages(matrix, {come: {1.0}}) == {(come, 1.0): ["vllm:y{} 1"]}


def test_jobs_with_other_labels_of_their_own_are_kept_apart() -> None:
    members = Members()
    one = members.of_up({"job": "a", "instance": "x:1", "zone": "1"})
    other = members.of_up({"job": "b", "instance": "x:1"})
    matrix = [
        {
            "metric": {"__name__": "vllm:y", "job": "a", "instance": "x:1", "zone": "1"},
            "values": [[1.0, "5"]],
        },
        {
            "metric": {"__name__": "vllm:y", "job": "b", "instance": "x:1", "zone": "q"},
            "values": [[1.0, "6"]],
        },
    ]
    pages = PageAssembler(members).pages(matrix, {one: {1.0}, other: {1.0}})
    assert pages == {(one, 1.0): ["vllm:y{} 5"], (other, 1.0): ['vllm:y{zone="q"} 6']}
