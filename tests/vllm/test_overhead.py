"""The companion on and off in turn on one running server: a paired comparison with its 95 % interval.

What it costs directly is measured by `python -m bench.companion`; this looks for what such a sum would miss.
"""

from __future__ import annotations

import random
import time
from statistics import mean, stdev

import pytest

from tests.vllm.load import Load
from tests.vllm.server import Server, wait_for

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

PAIRS = 16
BLOCK_SECONDS = 1.5
T_95 = 2.131
"""Two-sided 95 % point of Student's t with PAIRS - 1 degrees of freedom."""
GOAL = 0.01


def seconds_per_token(server: Server) -> float:
    """Over one block of a load that always has the same number of requests under way."""
    start, began = server.page().value("vllm:generation_tokens_total"), time.monotonic()
    time.sleep(BLOCK_SECONDS)
    end, ended = server.page().value("vllm:generation_tokens_total"), time.monotonic()
    return (ended - began) / (end - start)


def switch(server: Server, on: bool) -> None:
    assert server.web.post("/switch", params={"on": int(on)}).json() == {"on": on}


def test_what_the_companion_costs(speculating: Server, record: dict[str, object]) -> None:
    order = random.Random(11)
    slower: list[float] = []
    with Load(speculating.url, max_tokens=60) as load:
        wait_for(lambda: len(load.usages) >= 20)
        for _ in range(PAIRS):
            taken = {}
            for on in order.sample((True, False), 2):
                switch(speculating, on)
                taken[on] = seconds_per_token(speculating)
            slower.append(taken[True] / taken[False] - 1)
        switch(speculating, True)
    assert load.failures == []
    reach = T_95 * stdev(slower) / PAIRS**0.5
    low, high = mean(slower) - reach, mean(slower) + reach
    record["companion on against off, seconds a token: mean, 95 % interval"] = (
        f"{100 * mean(slower):+.2f} % ({100 * low:+.2f} to {100 * high:+.2f})"
    )
    assert low <= GOAL  # no more than that is shown


def test_the_switch_really_switches(speculating: Server) -> None:
    counted = "enginetop_requests_total"

    def requests_counted() -> float:
        before = speculating.page().value(counted)
        with Load(speculating.url, max_tokens=4) as load:
            wait_for(lambda: len(load.usages) >= 5)
        return speculating.page().value(counted) - before

    switch(speculating, False)
    assert requests_counted() == 0
    switch(speculating, True)
    assert requests_counted() >= 5
