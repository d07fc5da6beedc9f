"""The set of screens in docs/screens is complete, fits its sizes and fetches nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.gallery import KEYS, SIZES, WITHOUT_A_RECORDING, expected_files, name_of
from tui.actions import Place
from tui.view.cells import width_of

FOLDER = Path(__file__).parents[2] / "docs" / "screens"


def test_every_place_has_its_files_or_a_reason_why_not() -> None:
    assert set(KEYS) | set(WITHOUT_A_RECORDING) == set(Place), "bench/gallery.py: add the new place"
    assert not set(KEYS) & set(WITHOUT_A_RECORDING)


def test_the_set_is_complete() -> None:
    assert {path.name for path in FOLDER.iterdir()} == expected_files(), "run `make screens`"


@pytest.mark.parametrize("size", SIZES)
def test_every_text_fits_its_terminal_and_says_something(size: tuple[int, int]) -> None:
    for place in KEYS:
        lines = (FOLDER / name_of(place, size, "txt")).read_text(encoding="utf-8").splitlines()
        assert len(lines) == size[1], place
        assert max(map(width_of, lines)) <= size[0], place
        assert not any("failed:" in line for line in lines), place
        assert sum(bool(line.strip()) for line in lines) >= 4, place


def test_the_pictures_are_small_and_fetch_nothing() -> None:
    for path in FOLDER.glob("*.svg"):
        text = path.read_text(encoding="utf-8")
        assert len(text) < 150_000, path.name
        urls = set(re.findall(r"https?://[^\"' )<]+", text))
        fetched = {url for url in urls if not url.startswith(("http://www.w3.org/", "http://127.0.0.1:"))}
        assert not fetched, path.name
