"""What the simulator costs: `python -m bench.simulator [--scenario NAME|FILE] [--replicas N] [--json]`.

CPU seconds of this process, one thread, no sockets. `..._times_real_time` says how many seconds of the fleet
go by in one of them: of eight replicas with a look and a page of each every two seconds, and of one canary
and two baselines with a look every ten seconds and no pages.
"""

from __future__ import annotations

import argparse
import time

from bench.figures import tell
from enginetop.simulator.builtin import DEFAULT_SCENARIO
from enginetop.simulator.fleet_model import WARM_UP_SECONDS, FleetModel
from enginetop.simulator.scenario import Scenario
from enginetop.simulator.scenario_file import find_scenario
from enginetop.simulator.stepped import SteppedWorld

_SECONDS = 300
_STEPPED_SECONDS = 600.0
_RENDERS = 50


def measure(scenario: Scenario, replicas: int) -> dict[str, float | str]:
    """Figures of one fleet; those of its pages are means over the replicas that are up."""
    begun = time.process_time()
    fleet = FleetModel(scenario, replicas, seed=1, epoch=0.0, warm_up_seconds=WARM_UP_SECONDS)
    warm = time.process_time()
    for second in range(1, _SECONDS + 1):
        fleet.advance(float(second))
    lived = time.process_time()
    pages = [page for replica in fleet.replicas if (page := replica.page()) is not None]
    rendering = time.process_time()
    for _ in range(_RENDERS):
        for replica in fleet.replicas:
            replica.page()
    rendered = time.process_time()
    step_ratio = (lived - warm) / _SECONDS
    render_seconds = (rendered - rendering) / (_RENDERS * len(pages))
    return {
        "scenario": scenario.name,
        "replicas": replicas,
        "warm_up_cpu_seconds": round(warm - begun, 4),
        "model_core_ratio": round(step_ratio, 5),
        "render_milliseconds": round(render_seconds * 1e3, 4),
        "core_ratio_at_half_hertz": round(step_ratio + 0.5 * replicas * render_seconds, 5),
        "page_kibibytes": round(sum(map(len, pages)) / len(pages) / 1024, 1),
        "stepped_8_with_pages_times_real_time": round(stepped(scenario, 8, 2.0, pages=True), 1),
        "stepped_3_times_real_time": round(stepped(scenario, 3, 10.0, pages=False), 1),
    }


def stepped(scenario: Scenario, replicas: int, tick_seconds: float, *, pages: bool) -> float:
    """Seconds of a stepped world for each second of CPU, a snapshot (and all pages) every `tick_seconds`."""
    world = SteppedWorld(scenario, replicas, tick_seconds=tick_seconds)
    begun = time.process_time()
    for _ in range(int(_STEPPED_SECONDS / tick_seconds)):
        world.advance()
        if pages:
            for target in world.targets:
                world.page(target.url)
    return _STEPPED_SECONDS / (time.process_time() - begun)


def main() -> None:
    """Print the figures, one a line; `--json`: one JSON object as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenario", default=DEFAULT_SCENARIO)
    parser.add_argument("--replicas", type=int)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    scenario = find_scenario(args.scenario)
    figures = measure(scenario, args.replicas or scenario.replicas)
    tell(figures, as_json=args.json)


if __name__ == "__main__":
    main()
