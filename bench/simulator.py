"""What the demo fleet costs: `python -m bench.simulator [--scenario NAME] [--replicas N] [--json]`.

CPU seconds of this process, one thread, no sockets.
"""

from __future__ import annotations

import argparse
import json
import time

from enginetop.simulator.builtin import DEFAULT_SCENARIO, scenario_named
from enginetop.simulator.fleet_model import WARM_UP_SECONDS, FleetModel

_SECONDS = 300
_RENDERS = 50


def measure(scenario: str, replicas: int) -> dict[str, float | str]:
    """Figures of one fleet; those of its pages are means over the replicas that are up."""
    begun = time.process_time()
    fleet = FleetModel(scenario_named(scenario), replicas, seed=1, epoch=0.0, warm_up_seconds=WARM_UP_SECONDS)
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
        "scenario": scenario,
        "replicas": replicas,
        "warm_up_cpu_seconds": round(warm - begun, 4),
        "model_core_ratio": round(step_ratio, 5),
        "render_milliseconds": round(render_seconds * 1e3, 4),
        "core_ratio_at_half_hertz": round(step_ratio + 0.5 * replicas * render_seconds, 5),
        "page_kibibytes": round(sum(map(len, pages)) / len(pages) / 1024, 1),
    }


def main() -> None:
    """Print the figures, one a line; `--json`: one JSON object as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenario", default=DEFAULT_SCENARIO)
    parser.add_argument("--replicas", type=int, default=12)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    figures = measure(args.scenario, args.replicas)
    for name, value in figures.items():
        print(f"{name:>26}  {value}")
    if args.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
