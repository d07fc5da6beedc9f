"""The companion on and off in turn on one running server: a paired comparison with its 95 % interval.

What it costs directly is measured by `python -m bench.companion`; this looks for what such a sum would miss.
Only the CPU time of the API server, which the companion works in, tells of it: engine and worker spin while
they wait for one another, and take ten times as long for the same work where others want their cores.
"""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass
from statistics import mean, stdev

import pytest

from tests.vllm.load import Load
from tests.vllm.server import Server, wait_for

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]

PAIRS = 24
REQUESTS, CLIENTS, TOKENS = 24, 12, 60
"""Of one block: the same requests each time."""
T_95 = 2.069
"""Two-sided 95 % point of Student's t with PAIRS - 1 degrees of freedom."""
GOAL = 0.01


@dataclass(frozen=True)
class Cost:
    """Of one block: CPU time of the API server, and time that passed."""

    cpu_seconds: float
    wall_seconds: float


def cost_of_a_block(server: Server) -> Cost:
    """From the first request to the end of the last one."""
    cpu, began = server.api_server_cpu_seconds(), time.monotonic()
    with Load(server.url, concurrency=CLIENTS, requests=REQUESTS, max_tokens=TOKENS) as load:
        load.wait()
    cost = Cost(server.api_server_cpu_seconds() - cpu, time.monotonic() - began)
    assert load.failures == []
    assert [usage["completion_tokens"] for usage in load.usages] == [TOKENS] * REQUESTS
    return cost


def interval(ratios: list[float]) -> tuple[float, float, float]:
    """Geometric mean of ratios and its 95 % interval, each less 1.

    Of logarithms, since the mean of ratios of noisy figures is above 1 when nothing differs.
    """
    logs = [math.log(ratio) for ratio in ratios]
    middle, reach = mean(logs), T_95 * stdev(logs) / len(logs) ** 0.5
    return math.expm1(middle), math.expm1(middle - reach), math.expm1(middle + reach)


def switch(server: Server, on: bool) -> None:
    assert server.web.post("/switch", params={"on": int(on)}).json() == {"on": on}


def test_what_the_companion_costs(speculating: Server, record: dict[str, object]) -> None:
    orders = [(True, False), (False, True)] * (PAIRS // 2)
    random.Random(11).shuffle(orders)
    cpu: list[float] = []
    wall: list[float] = []
    speculating.reset_all()
    # a text is drafted in more or fewer steps, as its neighbours in the batch round its numbers
    assert speculating.change("num_speculative_tokens", 0, ttl=None).status_code == 200
    cost_of_a_block(speculating)  # what is done once only
    for order in orders:
        cost = {}
        for on in order:
            switch(speculating, on)
            cost[on] = cost_of_a_block(speculating)
        cpu.append(cost[True].cpu_seconds / cost[False].cpu_seconds)
        wall.append(cost[True].wall_seconds / cost[False].wall_seconds)
    switch(speculating, True)
    speculating.reset_all()
    for what, values in (("CPU of the API server", cpu), ("wall", wall)):
        middle, low, high = interval(values)
        record[f"companion on against off, {what} for the same requests: 95 % interval"] = (
            f"{100 * middle:+.2f} % ({100 * low:+.2f} to {100 * high:+.2f}), {PAIRS} pairs"
        )
    assert interval(cpu)[1] <= GOAL  # no more than that is shown


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
