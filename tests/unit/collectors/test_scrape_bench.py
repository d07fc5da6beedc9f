"""The bench of a scrape runs, over both ways; what it costs is for `python -m bench.scrape` to say."""

from __future__ import annotations

import pytest

from bench.scrape import measure


@pytest.mark.parametrize("tls", [False, True])
def test_it_scrapes_and_tells(tls: bool) -> None:
    figures = measure(2, 0.3, 0.1, tls=tls, warm_up=1.0)
    assert figures["achieved_ratio"] > 0
    assert figures["user_ms_per_scrape"] > 0
    assert {"system_ms_per_scrape", "page_faults_per_scrape", "rss_mib"} <= figures.keys()
