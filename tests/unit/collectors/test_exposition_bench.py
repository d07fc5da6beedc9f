"""The bench runs and keeps its key names; how fast is for `python -m bench.parse` to say."""

from __future__ import annotations

import json
import random

import pytest

from bench import parse
from collectors.exposition import PageParser
from collectors.layout import LayoutCache


def test_the_last_line_is_one_json_object_with_the_agreed_keys(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parse, "PAGES_PER_ROUND", 3)
    monkeypatch.setattr(parse, "MEMORY_TARGETS", 4)
    parse.main(["--json", "--rounds", "1"])
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    ways = ("first_sight", "steady", "steady_spread", "steady_all_changed", "second_target")
    for way in ways:
        assert figures[f"{way}_ratio"] > 1
        assert figures[f"cold_{way}_ratio"] > 1
        assert figures[f"{way}_milliseconds"] > 0
    assert figures["reference_milliseconds"] > 0
    assert figures["samples"] == 557
    assert {"layout_kib", "target_kib", "rounds", "prometheus_client"} <= figures.keys()


def test_the_next_page_has_the_share_of_its_values_changed_that_it_says() -> None:
    body = parse.CAPTURE.read_bytes()
    parser = PageParser(LayoutCache())
    before = parser.parse(body).values
    after = parser.parse(parse.next_page(body, 0.35, random.Random(1))).values
    assert sum(old != new for old, new in zip(before, after, strict=True)) == 195  # 0.35 x 557
