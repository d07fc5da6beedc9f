"""A hundred thousand fuzzed pages: no fault, nothing that a terminal obeys, no page that takes too long."""

from __future__ import annotations

import multiprocessing
import os
import time

import pytest

from collectors.layout import MAX_TEMPLATES, LayoutCache
from tests.support.page_fuzz import Story

PAGES = 100_000
CHUNK = 500

pytestmark = [pytest.mark.verify, pytest.mark.timeout(3600)]


def stories(first: int) -> float:
    """Fifty targets with ten pages each; the longest that one page took, in seconds of this processor."""
    layouts = LayoutCache()
    story = Story(layouts)
    longest = 0.0
    for seed in range(first, first + CHUNK):
        if seed % 10 == 0:
            story.begin()
        began = time.process_time()
        story.look(seed)
        longest = max(longest, time.process_time() - began)
        if seed % 5 == 4:
            story.tell(seed)
    assert len(layouts) <= MAX_TEMPLATES
    return longest


def test_no_fuzzed_page_does_harm() -> None:
    context = multiprocessing.get_context("spawn")
    with context.Pool(os.cpu_count()) as pool:
        longest = max(pool.imap_unordered(stories, range(0, PAGES, CHUNK)))
    assert longest < 10.0
