"""Every captured page against the reference parsers of prometheus_client."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open_metrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from collectors.exposition import PageParser
from collectors.layout import LayoutCache
from collectors.page import Page

FIXTURES = Path(__file__).parents[2] / "fixtures"
CAPTURES = sorted(FIXTURES.glob("*/*/*.prom"))
OPEN_METRICS = [path for path in CAPTURES if path.read_bytes().rstrip().endswith(b"# EOF")]

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def of_page(page: Page) -> Samples:
    layout = page.layout
    return {
        (name, tuple(sorted(labels.items()))): value
        for name, labels, value in zip(layout.names, layout.labels, page.values, strict=True)
    }


def of_reference(families: Iterable[Metric], text: str) -> Samples:
    """The reference adds `_total` to counters that are exposed without it; taken back here."""
    exposed = {line.split("{")[0].split(" ")[0] for line in text.splitlines()}
    return {
        (
            sample.name if sample.name in exposed else sample.name.removesuffix("_total"),
            tuple(sorted(sample.labels.items())),
        ): sample.value
        for family in families
        for sample in family.samples
    }


def assert_same(ours: Samples, theirs: Samples) -> None:
    assert ours.keys() == theirs.keys()
    differing = {
        key
        for key in ours
        if ours[key] != theirs[key] and not (math.isnan(ours[key]) and math.isnan(theirs[key]))
    }
    assert not differing


def test_all_captures_are_here() -> None:
    assert len(CAPTURES) == 62
    assert [path.name for path in OPEN_METRICS] == ["vllm-0.33.0-rustfrontend-idle.prom"]


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_a_capture_reads_as_the_reference_reads_it(path: Path) -> None:
    body = path.read_bytes()
    page = PageParser(LayoutCache()).parse(body)
    assert page.bad_lines == 0
    assert page.problem == ""
    assert_same(of_page(page), of_reference(parse_text(body.decode()), body.decode()))


@pytest.mark.parametrize("path", OPEN_METRICS, ids=lambda path: path.stem)
def test_an_open_metrics_capture_reads_as_the_strict_reference_reads_it(path: Path) -> None:
    body = path.read_bytes()
    page = PageParser(LayoutCache()).parse(body, "application/openmetrics-text; version=1.0.0")
    assert not page.truncated
    families = list(parse_open_metrics(body.decode()))  # type: ignore[no-untyped-call]
    assert_same(of_page(page), of_reference(families, body.decode()))
    assert page.layout.types == {family.name: family.type for family in families}


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_types_are_those_of_the_type_lines(path: Path) -> None:
    text = path.read_text()
    written = [line.split() for line in text.splitlines() if line.startswith("# TYPE ")]
    page = PageParser(LayoutCache()).parse(text.encode())
    assert page.layout.types == {name: kind for _, _, name, kind in written}


def test_all_captures_through_one_cache_stay_themselves() -> None:
    """In turn through one parser and one cache, forwards and back: known pages must not leak into others."""
    shared = PageParser(LayoutCache())
    for path in (*CAPTURES, *reversed(CAPTURES)):
        body = path.read_bytes()
        alone = PageParser(LayoutCache()).parse(body)
        together = shared.parse(body)
        assert together.layout.keys == alone.layout.keys
        assert together.layout.labels == alone.layout.labels
        assert together.layout.types == alone.layout.types
        assert list(together.values) == pytest.approx(list(alone.values), rel=0, abs=0, nan_ok=True)
